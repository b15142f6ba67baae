// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package actuate deletes, evicts and patches objects: it is the only place, beside the uninstaller of Helm releases below
// it, from which the operator sends a request that changes an object that is not its own.
//
// Each request carries the UID and the resourceVersion of the object that was decided on, so that neither a newer
// version nor another object of the same name can be hit. It is sent once: whether it is sent again is decided anew. It
// decides nothing, sees no spec, and never touches a collection.
package actuate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan"
)

const (
	// inFlight is how many requests of one Cleaner are on their way at a time, and inFlightOfAll how many of all.
	inFlight      = 32
	inFlightOfAll = 128
)

// Actuator carries out what was decided.
type Actuator struct {
	client  rest.Interface
	slots   Slots
	answers reader
}

// Slots bound how many requests are on their way at a time, of all Actuators that share them.
type Slots chan struct{}

// NewSlots makes the Slots of a process.
func NewSlots() Slots { return make(Slots, inFlightOfAll) }

// New makes an Actuator that sends its requests as a configuration says.
func New(config *rest.Config, slots Slots) (*Actuator, error) {
	config = dynamic.ConfigFor(Once(config))
	answers := newReader()
	config.NegotiatedSerializer = answers.errors()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for deeds: %w", err)
	}
	return &Actuator{client: client, slots: slots, answers: answers}, nil
}

// Deed is a deletion of a recorded row to be done.
type Deed struct {
	Row plan.Row
	// ResourceVersion is the version to delete, which may be newer than the row's.
	ResourceVersion string
}

// Orders are what a batch of deeds has to ask and to tell.
type Orders interface {
	// Pace waits until one more request may be sent.
	Pace(ctx context.Context) error
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
// returned. A panic of one of them is the caller's.
func Each(n int, do func(i int)) { contain.Each(inFlight, n, do) }

// Once is a configuration whose clients send each request that changes something once: an answer that asks to come back
// later is an answer. client-go would send it again by itself, up to ten times, long after whether it may be sent was
// asked.
func Once(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return once{next} })
	return c
}

// once hides Retry-After from client-go, and keeps it for who wants to know.
type once struct{ next http.RoundTripper }

// askedKey is where the context of a request has a *time.Duration for what the API server asks for.
type askedKey struct{}

// postponed is an error with which the API server says when to come back.
type postponed struct {
	error
	retryAfter time.Duration
}

// Unwrap is the error without that.
func (p *postponed) Unwrap() error { return p.error }

// retryAfter is for how long the API server asks not to be asked again; zero if it does not.
func retryAfter(err error) time.Duration {
	var p *postponed
	errors.As(err, &p)
	seconds, _ := apierrors.SuggestsClientDelay(err)
	after := time.Duration(seconds) * time.Second
	if p != nil {
		after = max(after, p.retryAfter)
	}
	return after
}

// RoundTrip sends a request.
func (o once) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err == nil && r.Method != http.MethodGet {
		if asked, wanted := r.Context().Value(askedKey{}).(*time.Duration); wanted {
			seconds, _ := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16) // it sends no dates
			*asked = time.Duration(seconds) * time.Second
		}
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

func (a *Actuator) delete(ctx context.Context, d Deed, o Orders) plan.Answer {
	ref := d.Row.Ref
	if err := untouchable(ref); err != nil {
		return plan.Answer{Kind: plan.AnswerRefused, Why: err.Error()}
	}
	if err := o.Pace(ctx); err != nil {
		return plan.Answer{Kind: plan.AnswerUnsent, Why: err.Error()}
	}
	answered, sent, err := a.perform(ctx, ref, deletion(ref, d.ResourceVersion, nil, "", false), o.May, func() { o.Intent(d) })
	if !sent {
		return plan.Answer{Kind: plan.AnswerUnsent, Why: err.Error()}
	}
	answer := answerOf(err, ref)
	switch answer.Kind {
	case plan.AnswerConflict:
		answer.Sight = o.Look(ctx, d.Row)
	case plan.AnswerDeleted:
		answer.Gone = saysGone(answered, ref.UID)
	}
	return answer
}

// perform sends a request when there is a slot for it and it may be sent; if it was not sent, the error says why. A dry
// run asks and tells nobody: may and intent are nil.
func (a *Actuator) perform(ctx context.Context, ref plan.Ref, r request, may func(context.Context) error, intent func()) (answered *unstructured.Unstructured, sent bool, err error) {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	if may != nil {
		if err := may(ctx); err != nil {
			return nil, false, err
		}
		intent()
	}
	switch r.method {
	case http.MethodDelete:
		faults.Point("before a DELETE")
		defer faults.Point("after a DELETE")
	case http.MethodPatch:
		faults.Point("before a PATCH")
		defer faults.Point("after a PATCH")
	default:
		faults.Point("before an eviction")
		defer faults.Point("after an eviction")
	}
	answered, err = a.send(ctx, ref, r)
	return answered, true, err
}

// saysGone says that the answer to a DELETE proves that the object with a UID has gone. An API server answers so with a
// Status that names the UID, or, for some kinds, with the object as it was when it went. An object that a finalizer or a
// grace period holds is answered as it is then.
func saysGone(answered *unstructured.Unstructured, uid types.UID) bool {
	if answered == nil {
		return false
	}
	if answered.GetUID() == uid {
		return isLast(answered)
	}
	result, _, _ := unstructured.NestedString(answered.Object, "status")
	named, _, _ := unstructured.NestedString(answered.Object, "details", "uid")
	return answered.GetKind() == "Status" && result == metav1.StatusSuccess && named == string(uid)
}

// answerOf says what an error of the API server means for the object that a request was about; nil is success. What a
// conflict came from is still to be read.
func answerOf(err error, ref plan.Ref) plan.Answer {
	switch {
	case err == nil:
		return plan.Answer{Kind: plan.AnswerDeleted}
	case isMissing(err, ref):
		return plan.Answer{Kind: plan.AnswerNotFound}
	case apierrors.IsConflict(err) && !ownedByOthers(err), apierrors.IsNotFound(err):
		return plan.Answer{Kind: plan.AnswerConflict, Why: why(err)}
	case refused(err):
		return plan.Answer{Kind: plan.AnswerRefused, Why: why(err), RetryAfter: retryAfter(err)}
	default:
		return plan.Answer{Kind: plan.AnswerLost, Why: why(err), RetryAfter: retryAfter(err)}
	}
}

// why is an error for people: with the budget that forbids an eviction, which its message does not name.
func why(err error) string {
	text := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			if c.Type == policyv1.DisruptionBudgetCause {
				text += " " + c.Message
			}
		}
	}
	return text
}

// ownedByOthers says that an apply was refused because other managers own what it sets: nothing that was decided on has
// changed.
func ownedByOthers(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}

// isMissing says that the API server answered that this object does not exist.
func isMissing(err error, ref plan.Ref) bool {
	return notfound.Names(err, ref.Resource.GroupResource(), "", ref.Name)
}

// refused says that the API server answered that it did not do what it was asked. After a timeout, or an answer that
// speaks of the server's own trouble, nobody knows whether it did.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	return status.Status().Code < http.StatusInternalServerError
}
