// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Event is one answered request, as the API server wrote it down.
type Event struct {
	auditv1.Event
}

// By tells whether a user sent the request, in its own name or impersonating another, or was impersonated by it.
func (e Event) By(users ...string) bool {
	return slices.Contains(users, e.User.Username) || e.ImpersonatedUser != nil && slices.Contains(users, e.ImpersonatedUser.Username)
}

// Code returns the HTTP status of the answer.
func (e Event) Code() int {
	if e.ResponseStatus == nil {
		return 0
	}
	return int(e.ResponseStatus.Code)
}

// Preconditions returns what a DELETE or an eviction demanded of the object. The API server writes bodies down as JSON, in
// whatever encoding they came. Nothing demanded and no body are both the zero value.
func (e Event) Preconditions() (metav1.Preconditions, error) {
	if e.RequestObject == nil {
		return metav1.Preconditions{}, nil
	}
	options := &metav1.DeleteOptions{}
	var err error
	if e.isEviction() {
		eviction := policyv1.Eviction{DeleteOptions: options}
		err = json.Unmarshal(e.RequestObject.Raw, &eviction)
		options = eviction.DeleteOptions
	} else {
		err = json.Unmarshal(e.RequestObject.Raw, options)
	}
	if err != nil {
		return metav1.Preconditions{}, fmt.Errorf("cannot read the options of %s: %w", e, err)
	}
	if options == nil || options.Preconditions == nil {
		return metav1.Preconditions{}, nil
	}
	return *options.Preconditions, nil
}

// String says who did what to which object, and how it was answered.
func (e Event) String() string {
	who := e.User.Username
	if e.ImpersonatedUser != nil {
		who += " as " + e.ImpersonatedUser.Username
	}
	return fmt.Sprintf("%s: %s %s (%d)", who, e.Verb, e.RequestURI, e.Code())
}

func (e Event) isEviction() bool {
	return e.Verb == "create" && e.ObjectRef != nil && e.ObjectRef.Subresource == "eviction"
}

// bodyUnread tells whether the API server answered before it read the body, so that the record cannot show what was in it.
// Nothing can have been deleted then. The cases: authentication, rate limit or RBAC refused it, a kind that is not served (a
// 404 without the reason that a missing object has), an error of the server.
func (e Event) bodyUnread() bool {
	if e.RequestObject != nil {
		return false
	}
	return e.Annotations["authorization.k8s.io/decision"] != "allow" ||
		e.Code() == http.StatusNotFound && e.ResponseStatus.Reason == "" ||
		e.Code() >= http.StatusInternalServerError
}

// Deletes returns the requests of a user, or of several, that ask for a deletion: DELETE of an object, of a collection, and
// evictions. Also those that were refused.
func Deletes(events []Event, user string, more ...string) []Event {
	users := append([]string{user}, more...)
	var deletes []Event
	for _, e := range events {
		if e.By(users...) && (e.Verb == "delete" || e.Verb == "deletecollection" || e.isEviction()) {
			deletes = append(deletes, e)
		}
	}
	return deletes
}

// Violations judges the deletions of a user, or of several, by the promise that nothing is deleted but the very object that
// was decided about: each DELETE must demand UID and resourceVersion, each eviction the resourceVersion, and collections
// are never deleted. It returns a line for each request that breaks it, whether or not it was granted.
func Violations(events []Event, user string, more ...string) []string {
	var violations []string
	for _, e := range Deletes(events, user, more...) {
		if e.Verb == "deletecollection" {
			violations = append(violations, fmt.Sprintf("%s: deletes a collection", e))
			continue
		}
		if e.bodyUnread() {
			continue
		}
		p, err := e.Preconditions()
		var missing []string
		if !e.isEviction() && (p.UID == nil || *p.UID == "") {
			missing = append(missing, "UID")
		}
		if p.ResourceVersion == nil || *p.ResourceVersion == "" {
			missing = append(missing, "resourceVersion")
		}
		switch {
		case err != nil:
			violations = append(violations, err.Error())
		case len(missing) > 0:
			violations = append(violations, fmt.Sprintf("%s: without a precondition on %s", e, strings.Join(missing, " and ")))
		}
	}
	return violations
}

// Witness reads the audit log of a cluster from the moment it was made.
//
// An event is written when its request has been answered, and what came of the request may be seen a moment earlier. The log
// tells of writes when they come, too, so Events waits for those that are being answered. Of reads, the caller may know
// earlier than the log: wait for what must have happened (WaitFor), then judge what was returned. The event of a request that
// was being served while the API server was killed is never written.
type Witness struct {
	path     string
	patience time.Duration

	mu     sync.Mutex
	offset int64
	within bool // the offset lies within an event, which was being written when the witness came
	events []Event
	open   sets.Set[types.UID] // the audit IDs of the requests that have come, and were not answered
}

// Witness returns a witness of what happens from now on.
func (c *Cluster) Witness() (*Witness, error) {
	return newWitness(c.dir.auditLog())
}

func newWitness(path string) (*Witness, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open the audit log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot read the audit log: %w", err)
	}
	w := &Witness{path: path, patience: answerPatience, offset: info.Size(), open: sets.New[types.UID]()}
	if w.offset == 0 {
		return w, nil
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, w.offset-1); err != nil {
		return nil, fmt.Errorf("cannot read the audit log: %w", err)
	}
	w.within = last[0] != '\n'
	return w, nil
}

// answerPatience is how long Events waits for the answers of requests. A webhook may hold one, and the API server may be
// killed over it; a request is waited for once.
const answerPatience = 5 * time.Second

// Events returns everything that was answered so far, in that order. Of the writes that the log tells of it waits for the
// answers, each for at most answerPatience.
func (w *Witness) Events() ([]Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.read(); err != nil {
		return nil, err
	}
	asked := w.open.Clone()
	err := wait.PollUntilContextTimeout(context.Background(), pollInterval/10, w.patience, true, func(context.Context) (bool, error) {
		if w.open.Intersection(asked).Len() == 0 {
			return true, nil
		}
		return false, w.read()
	})
	if err != nil && !wait.Interrupted(err) {
		return nil, err
	}
	w.open = w.open.Difference(asked)
	return slices.Clone(w.events), nil
}

// read reads on in the log.
func (w *Witness) read() error {
	f, err := os.Open(w.path)
	if err != nil {
		return fmt.Errorf("cannot open the audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(w.offset, io.SeekStart); err != nil {
		return fmt.Errorf("cannot read the audit log: %w", err)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("cannot read the audit log: %w", err)
	}
	for {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole { // the rest of this line is still to be written
			return nil
		}
		if !w.within {
			e, err := parseEvent(line)
			if err != nil {
				return fmt.Errorf("cannot parse the audit log: %w", err)
			}
			w.take(e)
		}
		w.within = false
		w.offset += int64(len(line)) + 1
		text = rest
	}
}

// parseEvent parses a line of the log. If an API server was killed while it wrote, the next one begins its first event on the same line.
func parseEvent(line []byte) (e Event, err error) {
	if err = json.Unmarshal(line, &e.Event); err == nil {
		return e, nil
	}
	if begins := bytes.LastIndex(line, []byte(`{"kind":"Event","apiVersion":"audit.k8s.io/`)); begins > 0 {
		var next Event
		if json.Unmarshal(line[begins:], &next.Event) == nil {
			return next, nil
		}
	}
	return e, err
}

func (w *Witness) take(e Event) {
	if e.Stage == auditv1.StageRequestReceived {
		w.open.Insert(e.AuditID)
		return
	}
	w.open.Delete(e.AuditID)
	w.events = append(w.events, e)
}

// WaitFor returns all events as soon as they satisfy the condition, or fails when ctx ends.
func (w *Witness) WaitFor(ctx context.Context, condition func([]Event) bool) ([]Event, error) {
	var events []Event
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		var err error
		events, err = w.Events()
		return err == nil && condition(events), err
	})
	if err != nil {
		return events, fmt.Errorf("cannot see in the audit log what was waited for (%d events): %w", len(events), err)
	}
	return events, nil
}
