// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// quietTime is how long at least lies between two events of a stream: changes in between are one event.
	quietTime = time.Second
	// heartbeat is how long at most a stream is silent, so that a browser notices that it has ended.
	heartbeat = 20 * time.Second
	// reconnect is how long a page waits before it connects again.
	reconnect = 5 * time.Second
)

// eventsOf returns the address of the events of a Cleaner after a version of it.
func (f *fleet) eventsOf(of Name, version string) string {
	return "/events?" + url.Values{"namespace": {of.Namespace}, "name": {of.Name}, "since": {f.nameVersionOf(version)}}.Encode()
}

// streams are the streams that are open.
type streams struct {
	mu   sync.Mutex
	open []*context.CancelFunc
}

// begin makes room for a stream, until it is ended. If too many are open, the oldest one ends: its page connects again later.
func (s *streams) begin(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= maxStreams {
		(*s.open[0])()
		s.open = slices.Delete(s.open, 0, 1)
	}
	s.open = append(s.open, &cancel)
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = slices.DeleteFunc(s.open, func(other *context.CancelFunc) bool { return other == &cancel })
	}
}

// stream writes what one page receives.
type stream struct {
	w     http.ResponseWriter
	clock clock.Clock
}

// send sends a text, and reports whether the page is still there.
func (s stream) send(text string) bool {
	out := http.NewResponseController(s.w)
	_ = out.SetWriteDeadline(s.clock.Now().Add(heartbeat)) // a recorder of tests has none
	_, err := fmt.Fprint(s.w, text)
	return err == nil && out.Flush() == nil
}

// streamEvents says, until the reader leaves, when there is something new for a page, and whether it would say so: for the overview, or for one
// Cleaner.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	of, seen, said := Name{q.Get("namespace"), q.Get("name")}, q.Get("since"), ""
	w.Header().Set("Content-Type", "text/event-stream")
	ctx, end := s.streams.begin(r.Context())
	defer end()
	out := stream{w, s.Clock}
	if !out.send("retry: " + strconv.FormatInt(reconnect.Milliseconds(), 10) + "\n\n") {
		return
	}
	beat := s.Clock.NewTimer(heartbeat)
	defer beat.Stop()
	for {
		now, live, next := s.fleet.waitForNews(of)
		var text strings.Builder
		if is := strconv.FormatBool(live); is != said {
			said = is
			text.WriteString("event: live\ndata: " + is + "\n\n")
		}
		changed := now != seen
		if changed {
			seen = now
			text.WriteString("event: change\ndata: " + strconv.Quote(now) + "\n\n")
		}
		if text.Len() > 0 {
			if !out.send(text.String()) {
				return
			}
			beat.Reset(heartbeat)
		}
		if changed {
			select { // what changes now is part of the next event
			case <-ctx.Done():
				return
			case <-s.Clock.After(quietTime):
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		case <-beat.C():
			if !out.send(": still here\n\n") {
				return
			}
			beat.Reset(heartbeat)
		}
	}
}
