// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// quietTime is how long at least lies between two events of a stream: changes in between are one event.
	quietTime = time.Second
	// heartbeat is how long at most a stream is silent, so that a browser notices that it has ended.
	heartbeat = 20 * time.Second
)

// eventsOf returns the address of the events of a Cleaner after a version of it.
func eventsOf(of Name, version string) string {
	return "/events?" + url.Values{"namespace": {of.Namespace}, "name": {of.Name}, "since": {version}}.Encode()
}

// streamEvents says, until the reader leaves, when there is something new for a page: for the overview, or for one Cleaner.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, "Too many pages are open.", http.StatusServiceUnavailable)
		return
	}
	q := r.URL.Query()
	of, seen := Name{q.Get("namespace"), q.Get("name")}, q.Get("since")
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(text string) bool {
		_ = out.SetWriteDeadline(s.Clock.Now().Add(heartbeat)) // a recorder of tests has none
		_, err := fmt.Fprint(w, text)
		return err == nil && out.Flush() == nil
	}
	if !send("retry: 2000\n\n") {
		return
	}
	for {
		version, row, next := s.fleet.waitForNews(of)
		now := strconv.FormatInt(version, 10)
		if of.Name != "" {
			now = row
		}
		wait := s.Clock.After(heartbeat)
		if now != seen {
			if !send("event: change\ndata: " + strconv.Quote(now) + "\n\n") {
				return
			}
			seen = now
			select { // what changes now is part of the next event
			case <-r.Context().Done():
				return
			case <-s.Clock.After(quietTime):
			}
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-next:
		case <-wait:
			if !send(": still here\n\n") {
				return
			}
		}
	}
}
