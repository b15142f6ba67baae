// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// discoveryFunc answers discovery, and counts.
type discoveryFunc struct {
	calls  int
	answer func(ctx context.Context) ([]metav1.APIResource, error)
}

func (d *discoveryFunc) ServerResourcesForGroupVersionWithContext(ctx context.Context, _ string) (*metav1.APIResourceList, error) {
	d.calls++
	r, err := d.answer(ctx)
	if err != nil {
		return nil, err
	}
	return &metav1.APIResourceList{APIResources: r}, nil
}

func served() []metav1.APIResource {
	verbs := metav1.Verbs{"get", "list", "watch"}
	return []metav1.APIResource{
		{Name: "services/status", SingularName: "", Kind: "Service", Verbs: verbs},
		{Name: "services", SingularName: "service", Kind: "Service", Namespaced: true, Verbs: verbs},
		{Name: "nodemetrics", SingularName: "", Kind: "NodeMetrics", Verbs: metav1.Verbs{"get", "list"}},
	}
}

func TestResolve(t *testing.T) {
	services := Resource{GVR: schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "services"}, Kind: "Service", Namespaced: true, Watchable: true}
	cases := map[string]struct {
		reason string
		kind   string
		answer func(context.Context) ([]metav1.APIResource, error)
		want   Resource
		state  observed.TargetState
		detail string
	}{
		"Kind":       {reason: "as the API server writes it", kind: "Service", want: services, state: observed.Complete},
		"AnyCase":    {reason: "as kubectl takes it", kind: "sErVice", want: services, state: observed.Complete},
		"Plural":     {reason: "the resource's name", kind: "Services", want: services, state: observed.Complete},
		"Unwatched":  {reason: "it is there all the same", kind: "nodemetrics", want: Resource{GVR: schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "nodemetrics"}, Kind: "NodeMetrics"}, state: observed.Complete},
		"Missing":    {reason: "the group is served without it", kind: "Route", state: observed.NoSuchKind, detail: `the API server does not serve kind "Route" of g/v1`},
		"NoGroup":    {reason: "404 is an answer", kind: "Service", answer: failing(apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "", 0, false)), state: observed.NoSuchKind, detail: `the API server does not serve kind "Service" of g/v1`},
		"Down":       {reason: "no answer says nothing", kind: "Service", answer: failing(errors.New("down")), state: observed.Failed, detail: `cannot determine whether kind "Service" of g/v1 is served: down`},
		"EmptyGroup": {reason: "an empty list says nothing", kind: "Service", answer: failing(nil), state: observed.Failed, detail: `cannot determine whether kind "Service" of g/v1 is served: the API server returned an empty list of resources`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := &discoveryFunc{answer: tc.answer}
			if d.answer == nil {
				d.answer = func(context.Context) ([]metav1.APIResource, error) { return served(), nil }
			}
			got, state, detail := NewResolver(clocktesting.NewFakePassiveClock(time.Now()), d, time.Minute).Resolve(t.Context(), "g", "v1", tc.kind)
			if diff := cmp.Diff(tc.want, got); diff != "" || state != tc.state || detail != tc.detail {
				t.Errorf("%s: %s %q (-want +got):\n%s", tc.reason, state, detail, diff)
			}
		})
	}
}

// A resource has its own kind, and none that only another of its group version has.
func TestFindKind(t *testing.T) {
	r := NewResolver(clocktesting.NewFakePassiveClock(time.Now()), &discoveryFunc{answer: func(context.Context) ([]metav1.APIResource, error) { return served(), nil }}, time.Minute)
	for resource, want := range map[string]string{"services": "Service", "nodemetrics": "NodeMetrics", "service": "", "routes": ""} {
		if got := r.FindKind(t.Context(), schema.GroupVersionResource{Group: "g", Version: "v1", Resource: resource}); got != want {
			t.Errorf("the kind of %s is %q, want %q", resource, got, want)
		}
	}
}

func failing(err error) func(context.Context) ([]metav1.APIResource, error) {
	return func(context.Context) ([]metav1.APIResource, error) { return nil, err }
}

func TestResolveAsksOnce(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	d := &discoveryFunc{answer: func(context.Context) ([]metav1.APIResource, error) { return served(), nil }}
	r := NewResolver(clock, d, time.Minute)
	ask := func(kind string, state observed.TargetState, calls int) {
		t.Helper()
		_, got, _ := r.Resolve(t.Context(), "g", "v1", kind)
		if got != state || d.calls != calls {
			t.Errorf("%s is %s after %d calls, want %s after %d", kind, got, d.calls, state, calls)
		}
	}
	ask("Service", observed.Complete, 1)
	ask("Route", observed.NoSuchKind, 1)
	clock.SetTime(clock.Now().Add(time.Minute))
	ask("Service", observed.Complete, 1)
	ask("Route", observed.NoSuchKind, 2)
	r.InvalidateGroup("other")
	ask("Service", observed.Complete, 2)
	r.InvalidateGroup("g")
	ask("Service", observed.Complete, 3)
	d.answer = failing(errors.New("down"))
	r.InvalidateGroup("g")
	ask("Service", observed.Failed, 4)
	ask("Service", observed.Failed, 5)
}

func TestResolveSurvivesWhoAskedFirst(t *testing.T) {
	asking := make(chan struct{})
	first := true
	d := &discoveryFunc{}
	d.answer = func(ctx context.Context) ([]metav1.APIResource, error) {
		if !first {
			return served(), nil
		}
		first = false
		close(asking)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r := NewResolver(clocktesting.NewFakePassiveClock(time.Now()), d, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	states := make(chan observed.TargetState, 2)
	go func() {
		_, s, _ := r.Resolve(ctx, "g", "v1", "Service")
		states <- s
	}()
	<-asking
	go func() {
		_, s, _ := r.Resolve(t.Context(), "g", "v1", "Service")
		states <- s
	}()
	cancel()
	got := map[observed.TargetState]bool{<-states: true, <-states: true}
	if diff := cmp.Diff(map[observed.TargetState]bool{observed.Failed: true, observed.Complete: true}, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

// TestResolveLive shows that the absence of a kind is no answer unless it was asked for after the call, and that what is
// there costs no request.
func TestResolveLive(t *testing.T) {
	d := &discoveryFunc{answer: func(context.Context) ([]metav1.APIResource, error) { return served()[:1], nil }}
	r := NewResolver(clocktesting.NewFakePassiveClock(time.Now()), d, time.Minute)
	ask := func(resolve func(context.Context, string, string, string) (Resource, observed.TargetState, string), state observed.TargetState, calls int) {
		t.Helper()
		_, got, _ := resolve(t.Context(), "g", "v1", "Service")
		if got != state || d.calls != calls {
			t.Errorf("it is %s after %d calls, want %s after %d", got, d.calls, state, calls)
		}
	}
	ask(r.Resolve, observed.NoSuchKind, 1)
	ask(r.ResolveLive, observed.NoSuchKind, 2)
	d.answer = func(context.Context) ([]metav1.APIResource, error) { return served(), nil }
	ask(r.Resolve, observed.NoSuchKind, 2)
	ask(r.ResolveLive, observed.Complete, 3)
	ask(r.ResolveLive, observed.Complete, 3)
	ask(r.Resolve, observed.Complete, 3)
}

// TestResolveLiveDoesNotTakeAnEarlierQuestion shows that it is not content with the answer to a question that was under
// way already: the API server may have looked before the kind came.
func TestResolveLiveDoesNotTakeAnEarlierQuestion(t *testing.T) {
	asking, answered := make(chan struct{}), make(chan struct{})
	d := &discoveryFunc{}
	d.answer = func(context.Context) ([]metav1.APIResource, error) {
		if d.calls > 1 {
			return served(), nil
		}
		close(asking)
		<-answered
		return served()[:1], nil
	}
	r := NewResolver(clocktesting.NewFakePassiveClock(time.Now()), d, time.Minute)
	states := make(chan observed.TargetState, 2)
	go func() {
		_, s, _ := r.Resolve(t.Context(), "g", "v1", "Service")
		states <- s
	}()
	<-asking
	go func() {
		_, s, _ := r.ResolveLive(joined{t.Context(), sync.OnceFunc(func() { close(answered) })}, "g", "v1", "Service")
		states <- s
	}()
	got := map[observed.TargetState]bool{<-states: true, <-states: true}
	if diff := cmp.Diff(map[observed.TargetState]bool{observed.NoSuchKind: true, observed.Complete: true}, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

// joined calls back when somebody waits for the context.
type joined struct {
	context.Context
	waits func()
}

func (j joined) Done() <-chan struct{} {
	j.waits()
	return j.Context.Done()
}

// TestResolverForgets shows that groups that nobody asks for any more are not remembered for ever.
func TestResolverForgets(t *testing.T) {
	d := &discoveryFunc{answer: func(context.Context) ([]metav1.APIResource, error) { return served(), nil }}
	r := NewResolver(clocktesting.NewFakePassiveClock(time.Now()), d, time.Minute)
	for i := range 4 * maxAnswers {
		r.Resolve(t.Context(), fmt.Sprintf("g%d.example", i), "v1", "Service")
		r.Resolve(t.Context(), "used", "v1", "Service")
	}
	if len(r.answers) > maxAnswers {
		t.Errorf("it remembers %d answers, want at most %d", len(r.answers), maxAnswers)
	}
	if want := 4*maxAnswers + 1; d.calls != want {
		t.Errorf("it asked %d times, want %d: what is in use is remembered", d.calls, want)
	}
}

// What was used least recently is forgotten first, also where nothing was used twice.
func TestResolverForgetsTheOldestAnswer(t *testing.T) {
	d := &discoveryFunc{answer: func(context.Context) ([]metav1.APIResource, error) { return served(), nil }}
	r := NewResolver(clocktesting.NewFakePassiveClock(time.Now()), d, time.Minute)
	group := func(i int) string { return fmt.Sprintf("g%d.example", i) }
	for i := range maxAnswers + 10 {
		r.Resolve(t.Context(), group(i), "v1", "Service")
	}
	for i := range maxAnswers + 10 {
		if _, known := r.answers[schema.GroupVersion{Group: group(i), Version: "v1"}]; known != (i >= 10) {
			t.Errorf("answer %d of %d is known: %t", i, maxAnswers+10, known)
		}
	}
}
