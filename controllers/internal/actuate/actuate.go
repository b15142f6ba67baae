// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package actuate deletes objects: it is the only place, beside the uninstaller of Helm releases below it, from which
// the operator sends a DELETE for an object that is not its own.
//
// Each request carries the UID and the resourceVersion of the object that was decided on, so that neither a newer
// version nor another object of the same name can be hit. It decides nothing, sees no spec, and never deletes a
// collection.
package actuate

import (
	"context"
	"errors"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/plan"
)

const (
	// inFlight is how many requests of one Cleaner are on their way at a time, and inFlightOfAll how many of all.
	inFlight      = 32
	inFlightOfAll = 128
)

// Actuator deletes objects.
type Actuator struct {
	client dynamic.Interface
	slots  Slots
}

// Slots bound how many deletions are on their way at a time, of all Actuators that share them.
type Slots chan struct{}

// NewSlots makes the Slots of a process.
func NewSlots() Slots { return make(Slots, inFlightOfAll) }

// New makes an Actuator that sends its requests through a client.
func New(client dynamic.Interface, slots Slots) *Actuator {
	return &Actuator{client: client, slots: slots}
}

// Deed is a deletion to be done.
type Deed struct {
	Row plan.Row
	// ResourceVersion is the version to delete, which may be newer than the row's.
	ResourceVersion string
}

// Orders are what a batch of deeds has to ask and to tell.
type Orders interface {
	// May is asked right before each request; an error means that it is not sent.
	May(ctx context.Context) error
	// Intent is told each request before it is sent.
	Intent(d Deed)
	// Look reads the object of a deed live, after the API server said that it has changed.
	Look(ctx context.Context, row plan.Row) plan.Sight
}

// Delete carries out deeds, and says what came of each, in their order.
func (a *Actuator) Delete(ctx context.Context, deeds []Deed, o Orders) []plan.Answer {
	answers := make([]plan.Answer, len(deeds))
	Each(len(deeds), func(i int) { answers[i] = a.delete(ctx, deeds[i], o) })
	return answers
}

// Each calls do for 0 to n-1, as many at a time as requests of one Cleaner may be in flight, and returns when all have
// returned.
func Each(n int, do func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(inFlight, n) {
		workers.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// Once is a configuration whose clients send each request that changes something once: an answer that asks to come back
// later is an answer. client-go would send it again by itself, up to ten times, long after whether it may be sent was
// asked.
func Once(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return once{next} })
	return c
}

// once hides Retry-After from client-go.
type once struct{ next http.RoundTripper }

// RoundTrip sends a request.
func (o once) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err == nil && r.Method != http.MethodGet {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

func (a *Actuator) delete(ctx context.Context, d Deed, o Orders) plan.Answer {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return plan.Answer{Kind: plan.AnswerUnsent, Why: ctx.Err().Error()}
	}
	if err := errors.Join(ctx.Err(), o.May(ctx)); err != nil {
		return plan.Answer{Kind: plan.AnswerUnsent, Why: err.Error()}
	}
	o.Intent(d)
	faults.Point("before a DELETE")
	err := a.send(ctx, d.Row.Ref, d.ResourceVersion, nil)
	faults.Point("after a DELETE")
	switch {
	case err == nil:
		return plan.Answer{Kind: plan.AnswerDeleted}
	case namesMissing(err, d.Row.Ref):
		return plan.Answer{Kind: plan.AnswerNotFound}
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return plan.Answer{Kind: plan.AnswerConflict, Sight: o.Look(ctx, d.Row), Why: err.Error()}
	case answered(err):
		return plan.Answer{Kind: plan.AnswerRefused, Why: err.Error()}
	default:
		return plan.Answer{Kind: plan.AnswerLost, Why: err.Error()}
	}
}

// Try asks the API server whether it would delete an object, without deleting it. Nil means that it would, or that the
// object is gone.
func (a *Actuator) Try(ctx context.Context, ref plan.Ref) error {
	err := a.send(ctx, ref, ref.ResourceVersion, []string{metav1.DryRunAll})
	if namesMissing(err, ref) {
		return nil
	}
	return err
}

func (a *Actuator) send(ctx context.Context, ref plan.Ref, version string, dryRun []string) error {
	propagation := metav1.DeletePropagationBackground
	return a.client.Resource(ref.Resource).Namespace(ref.Namespace).Delete(ctx, ref.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &ref.UID, ResourceVersion: &version},
		PropagationPolicy: &propagation,
		DryRun:            dryRun,
	})
}

// namesMissing says that the API server answered that this object does not exist. A 404 that names nothing only says
// that something else is missing, such as the kind.
func namesMissing(err error, ref plan.Ref) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Name == ref.Name && d.Group == ref.Resource.Group && d.Kind == ref.Resource.Resource
}

// answered says that the API server answered that it did not do what it was asked. After a timeout, or an answer that
// speaks of the server's own trouble, nobody knows whether it did.
func answered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	return status.Status().Code < http.StatusInternalServerError
}
