// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package actuate deletes, evicts and patches objects: it is the only place, beside the uninstaller of Helm releases below it, from which
// the operator sends a request that changes an object that is not its own.
//
// Each request carries the UID and the resourceVersion of the object that was decided on, so that neither a newer version nor another
// object of the same name can be hit. It is sent once: to send it again takes a new decision. The package decides nothing, sees no spec,
// and never touches a collection.
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
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

const (
	// inFlight is how many requests of one Cleaner are on their way at a time.
	inFlight = 32
	// groupSize is how many requests of one batch in a namespace come before those of a batch that has begun later: most batches are not larger.
	groupSize = 2 * inFlight
)

// Actuator carries out what was decided.
type Actuator struct {
	client  rest.Interface
	slots   *fair.Slots
	takes   slotTaker // of slots, or of a group
	answers answerReader
}

// slotTaker waits for a slot.
type slotTaker interface {
	TakeSlot(ctx context.Context, key types.NamespacedName) (*fair.Slot, error)
}

// New makes an Actuator that sends its requests with a configuration. The slots bound how many requests of all Actuators are in flight,
// and share them among the namespaces of the objects, so that a webhook that hangs in one namespace delays no other.
func New(config *rest.Config, slots *fair.Slots) (*Actuator, error) {
	config = dynamic.ConfigFor(WithoutRetries(config))
	answers := newReader()
	config.NegotiatedSerializer = answers.newErrorSerializer()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client that changes objects: %w", err)
	}
	return &Actuator{client: client, slots: slots, takes: slots, answers: answers}, nil
}

// BeginBatch returns the Actuator for the requests of one batch, which wait for slots together.
func (a *Actuator) BeginBatch() *Actuator {
	batch := *a
	batch.takes = a.slots.NewGroup(groupSize)
	return &batch
}

// RunParallel calls do for 0 to n-1, as many at a time as requests of one Cleaner may be in flight, and returns when all have
// returned. A panic of one of them is the caller's.
func RunParallel(n int, do func(i int)) { contain.RunParallel(inFlight, n, do) }

// WithoutRetries is a configuration whose clients send each request that changes something once: an answer that asks to come back
// later is an answer. client-go would send it again by itself, up to ten times, long after whether it may be sent was
// asked.
func WithoutRetries(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return noRetryTransport{next} })
	return c
}

// noRetryTransport hides Retry-After from client-go, and keeps it for the caller.
type noRetryTransport struct{ next http.RoundTripper }

// retryAfterKey is where the context of a request has a *time.Duration for what the API server asks for.
type retryAfterKey struct{}

// retryAfterError is an error with which the API server says when to come back.
type retryAfterError struct {
	error
	retryAfter time.Duration
}

// Unwrap is the error without that.
func (p *retryAfterError) Unwrap() error { return p.error }

// retryAfterOf is for how long the API server asks not to be asked again; zero if it does not.
func retryAfterOf(err error) time.Duration {
	var p *retryAfterError
	errors.As(err, &p)
	seconds, _ := apierrors.SuggestsClientDelay(err)
	after := time.Duration(seconds) * time.Second
	if p != nil {
		after = max(after, p.retryAfter)
	}
	return after
}

// RoundTrip sends a request.
func (o noRetryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err == nil && r.Method != http.MethodGet {
		if asked, wanted := r.Context().Value(retryAfterKey{}).(*time.Duration); wanted {
			seconds, _ := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16) // it sends no dates
			*asked = time.Duration(seconds) * time.Second
		}
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// provesGone says that the answer to a DELETE proves that the object with a UID has gone. An API server answers so with a
// Status that names the UID, or, for some kinds, with the object as it was when it went. An object that a finalizer or a
// grace period holds is answered as it is then.
func provesGone(answered *unstructured.Unstructured, uid types.UID) bool {
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

// classifyError says what an error of the API server means for the object that a request was about; nil is success. What a
// conflict came from is still to be read.
func classifyError(err error, ref observed.Ref) life.Answer {
	switch {
	case err == nil:
		return life.Answer{Kind: life.AnswerDone}
	case isObjectMissing(err, ref):
		return life.Answer{Kind: life.AnswerNotFound}
	case apierrors.IsConflict(err) && !isFieldManagerConflict(err), apierrors.IsNotFound(err):
		return life.Answer{Kind: life.AnswerConflict, Why: describeError(err)}
	case isRefused(err):
		return life.Answer{Kind: life.AnswerRefused, Why: describeError(err), RetryAfter: retryAfterOf(err)}
	default:
		return life.Answer{Kind: life.AnswerLost, Why: describeError(err), RetryAfter: retryAfterOf(err)}
	}
}

// describeError returns an error for people: with the budget that forbids an eviction, which its message does not name.
func describeError(err error) string {
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

// isFieldManagerConflict says that an apply was refused because other managers own what it sets: nothing that was decided on has
// changed.
func isFieldManagerConflict(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}

// isObjectMissing says that the API server answered that this object does not exist.
func isObjectMissing(err error, ref observed.Ref) bool {
	return notfound.IsObjectMissing(err, ref.Resource.GroupResource(), "", ref.Name)
}

// isRefused reports whether the API server answered that it did not carry out the request. After a timeout, or an answer that reports
// trouble of the server itself, the outcome is unknown.
func isRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	return status.Status().Code < http.StatusInternalServerError
}
