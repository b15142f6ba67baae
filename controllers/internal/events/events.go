// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events writes Events. It bounds what it remembers and what it asks of the API server, and shares both among the namespaces of
// the objects that Events are about: a namespace with more Events than can be written loses its own, and never delays those of another.
package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
)

// MaxNote is how long the note of an Event may be, in bytes: the API server refuses longer ones.
const MaxNote = sanitize.MaxText

// reporter is who the Events say that they are from.
const reporter = "cleaner"

// Event is one report about an object. An Event that repeats, in everything but the object's version, is counted and not written again.
type Event struct {
	// Regarding is what it is about, and Related another object that it names; without a Kind: none.
	Regarding, Related         corev1.ObjectReference
	Type, Reason, Action, Note string
}

// Why an Event was not written.
const (
	// DroppedFull says that its namespace had too many that waited, or most of all when there were too many.
	DroppedFull = "full"
	// DroppedRefused says that the API server has refused it.
	DroppedRefused = "refused"
	// DroppedUnanswered says that the API server did not answer, or failed, each time.
	DroppedUnanswered = "unanswered"
	// DroppedShutdown says that the process has ended before.
	DroppedShutdown = "shutdown"
)

// Metrics counts what a Recorder does not write.
type Metrics interface {
	// CountDroppedEvents counts Events that were not written, by why.
	CountDroppedEvents(why string, n int)
}

// Options are what a Recorder needs. All are required.
type Options struct {
	// Config is how the API server is reached.
	Config *rest.Config
	// Clock tells when to write, and how long a request has taken.
	Clock   clock.WithTickerAndDelayedExecution
	Metrics Metrics
	// EventsDropped receives, at most once a minute, how many Events were not written since the last call, by reason, and the last error.
	// It must not block.
	EventsDropped func(counts map[string]int, last error)
}

// NewRecorder makes a Recorder that writes nothing before Start.
func NewRecorder(o Options) (*Recorder, error) {
	client, err := eventsv1client.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for Events: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot find the host's name: %w", err)
	}
	return &Recorder{
		clock: o.Clock, client: client, instance: reporter + "-" + host, eventsDropped: o.EventsDropped,
		changed: make(chan struct{}, 1), shares: newShares(o.Metrics),
	}, nil
}

// newEvent makes the Event that the API server is to have.
func (r *Recorder) newEvent(e Event, now time.Time) *eventsv1.Event {
	e.Note = sanitize.CutToBytes(e.Note, MaxNote)
	r.named = max(r.named+1, now.UnixNano()) // no two have one name
	name := fmt.Sprintf("%s.%x", e.Regarding.Name, r.named)
	if len(validation.IsDNS1123Subdomain(name)) > 0 { // too long, or the name of a Role
		name = fmt.Sprintf("%s.%x", reporter, r.named)
	}
	var related *corev1.ObjectReference
	if e.Related.Kind != "" {
		related = &e.Related
	}
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: cmp.Or(e.Regarding.Namespace, metav1.NamespaceDefault), Name: name},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: reporter, ReportingInstance: r.instance,
		Regarding: e.Regarding, Related: related, Type: e.Type, Reason: e.Reason, Action: e.Action, Note: e.Note,
	}
}

// writeSeries writes a series whose turn it is.
func (r *Recorder) writeSeries(ctx context.Context, s *series) {
	event, known := r.describeSeries(s)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	deadline := r.clock.AfterFunc(requestTime, cancel)
	defer deadline.Stop()
	var err error
	if p := contain.CatchPanic(func() { err = r.sendEvent(ctx, event, known) }); p != nil {
		err = p
	}
	r.settleSeries(s, countOf(event), err)
}

// sendEvent creates an Event; if the API server knows the Event, it sends the new count.
func (r *Recorder) sendEvent(ctx context.Context, e *eventsv1.Event, known bool) error {
	if known {
		if err := r.sendCount(ctx, e); !apierrors.IsNotFound(err) {
			return err
		} // it was deleted, or has expired
	}
	_, err := r.client.Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if e.Series == nil { // an answer was lost
		return nil
	}
	return r.sendCount(ctx, e)
}

func (r *Recorder) sendCount(ctx context.Context, e *eventsv1.Event) error {
	patch, err := json.Marshal(map[string]any{"series": e.Series})
	if err != nil {
		return fmt.Errorf("cannot write the count of an Event: %w", err)
	}
	_, err = r.client.Events(e.Namespace).Patch(ctx, e.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// countOf is how often an Event says that it has happened.
func countOf(e *eventsv1.Event) int32 {
	if e.Series == nil {
		return 1
	}
	return e.Series.Count
}

// isRefusal says that the API server would answer the same again.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusTooManyRequests && code != http.StatusUnauthorized
}

// countUp adds one to a count, up to the highest number of an Event.
func countUp(n int32) int32 { return min(n, math.MaxInt32-1) + 1 }
