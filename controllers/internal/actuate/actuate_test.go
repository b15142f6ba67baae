// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/vtex/cleaner/controllers/plan"
)

func podsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

// rig is an API server of one answer.
type rig struct {
	mu       sync.Mutex
	options  []metav1.DeleteOptions
	flying   int
	most     int
	proceed  chan struct{} // nil: requests do not wait
	answer   error
	may      error
	intents  []string
	looked   int
	actuator *Actuator
}

func newRig(answer error) *rig {
	r := &rig{answer: answer}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{podsResource(): "PodList"})
	client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		r.options = append(r.options, a.(clienttesting.DeleteAction).GetDeleteOptions())
		r.mu.Unlock()
		return true, nil, r.answer
	})
	r.actuator = New(client, NewSlots())
	return r
}

func (r *rig) May(context.Context) error {
	if r.proceed != nil {
		r.mu.Lock()
		r.flying++
		r.most = max(r.most, r.flying)
		r.mu.Unlock()
		<-r.proceed
		r.mu.Lock()
		r.flying--
		r.mu.Unlock()
	}
	return r.may
}

func (r *rig) Intent(d Deed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.intents = append(r.intents, d.Row.Name)
}

func (r *rig) Look(context.Context, plan.Row) plan.Sight {
	r.looked++
	return plan.Sight{UID: "other", ResourceVersion: "9"}
}

func deed(name string) Deed {
	return Deed{Row: plan.Row{Rule: "targets.pods", Ref: plan.Ref{Resource: podsResource(), Namespace: "shop", Name: name, UID: "uid", ResourceVersion: "1"}}, ResourceVersion: "2"}
}

func TestDeleteCarriesBothPreconditions(t *testing.T) {
	r := newRig(nil)
	got := r.actuator.Delete(t.Context(), []Deed{deed("a")}, r)
	if diff := cmp.Diff([]plan.Answer{{Kind: plan.AnswerDeleted}}, got); diff != "" {
		t.Error(diff)
	}
	background := metav1.DeletePropagationBackground
	want := []metav1.DeleteOptions{{
		Preconditions:     &metav1.Preconditions{UID: new(types.UID("uid")), ResourceVersion: new("2")},
		PropagationPolicy: &background,
	}}
	if diff := cmp.Diff(want, r.options); diff != "" {
		t.Errorf("the request differs: -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a"}, r.intents); diff != "" {
		t.Errorf("the intent was not recorded: %s", diff)
	}
}

func TestTryDeletesNothing(t *testing.T) {
	r := newRig(nil)
	if err := r.actuator.Try(t.Context(), deed("a").Row.Ref); err != nil {
		t.Fatal(err)
	}
	if len(r.options) != 1 || len(r.options[0].DryRun) != 1 || r.options[0].DryRun[0] != metav1.DryRunAll || r.options[0].Preconditions == nil {
		t.Errorf("a dry run was sent as %+v", r.options)
	}
}

func TestAnswers(t *testing.T) {
	gr := podsResource().GroupResource()
	bare := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}
	cases := map[string]struct {
		reason string
		answer error
		want   plan.AnswerKind
	}{
		"Deleted":        {"2xx", nil, plan.AnswerDeleted},
		"NotFound":       {"a 404 that names the object", apierrors.NewNotFound(gr, "a"), plan.AnswerNotFound},
		"OtherNotFound":  {"one that names another proves nothing: look", apierrors.NewNotFound(gr, "b"), plan.AnswerConflict},
		"BareNotFound":   {"nor does one that names nothing", bare, plan.AnswerConflict},
		"Conflict":       {"a precondition failed: look", apierrors.NewConflict(gr, "a", errors.New("uid")), plan.AnswerConflict},
		"Forbidden":      {"an answer that nothing was done", apierrors.NewForbidden(gr, "a", errors.New("no")), plan.AnswerRefused},
		"TooMany":        {"so is 429", apierrors.NewTooManyRequests("later", 1), plan.AnswerRefused},
		"Unavailable":    {"a 503 may come from a proxy that has sent it on", apierrors.NewServiceUnavailable("later"), plan.AnswerLost},
		"InternalError":  {"a 500 may come from after the deed", apierrors.NewInternalError(errors.New("x")), plan.AnswerLost},
		"GatewayTimeout": {"and so may a timeout", apierrors.NewTimeoutError("x", 1), plan.AnswerLost},
		"NoAnswer":       {"a connection that broke says nothing", errors.New("connection reset"), plan.AnswerLost},
		"Cancelled":      {"nor does a request that was given up", context.Canceled, plan.AnswerLost},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(tc.answer)
			got := r.actuator.Delete(t.Context(), []Deed{deed("a")}, r)[0]
			if got.Kind != tc.want {
				t.Errorf("%s: got %d, want %d (%s)", tc.reason, got.Kind, tc.want, got.Why)
			}
			if looked := r.looked == 1; looked != (tc.want == plan.AnswerConflict) {
				t.Errorf("looked at the object: %t", looked)
			}
		})
	}
}

func TestNothingIsSentAgainstOrders(t *testing.T) {
	r := newRig(nil)
	r.may = errors.New("suspended")
	got := r.actuator.Delete(t.Context(), []Deed{deed("a"), deed("b")}, r)
	for _, a := range got {
		if a.Kind != plan.AnswerUnsent {
			t.Errorf("got %+v", a)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.may = nil
	if got := r.actuator.Delete(ctx, []Deed{deed("a")}, r)[0]; got.Kind != plan.AnswerUnsent {
		t.Errorf("after a shutdown: got %+v", got)
	}
	if len(r.options) > 0 || len(r.intents) > 0 {
		t.Errorf("%d requests were sent", len(r.options))
	}
}

func TestDeedsInFlightAreBounded(t *testing.T) {
	r := newRig(nil)
	r.proceed = make(chan struct{})
	deeds := make([]Deed, 3*inFlight)
	for i := range deeds {
		deeds[i] = deed(fmt.Sprint(i))
	}
	done := make(chan []plan.Answer)
	go func() { done <- r.actuator.Delete(t.Context(), deeds, r) }()
	for range deeds {
		r.proceed <- struct{}{}
	}
	if answers := <-done; len(answers) != len(deeds) || len(r.options) != len(deeds) {
		t.Errorf("%d answers to %d requests for %d deeds", len(answers), len(r.options), len(deeds))
	}
	if r.most > inFlight {
		t.Errorf("%d deeds were in flight, want at most %d", r.most, inFlight)
	}
}

func TestARequestIsSentOnceWhateverTheAnswerAsksFor(t *testing.T) {
	var deletes atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		deletes.Add(1)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	client, err := dynamic.NewForConfig(Once(&rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(nil)
	got := New(client, NewSlots()).Delete(t.Context(), []Deed{deed("a")}, r)[0]
	if got.Kind != plan.AnswerRefused || deletes.Load() != 1 {
		t.Errorf("%d requests were sent for one deed, which came to %+v", deletes.Load(), got)
	}
}
