// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

func podsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

// rig is an API server of one answer.
type rig struct {
	mu       sync.Mutex
	options  []metav1.DeleteOptions
	requests int
	flying   int
	most     int
	proceed  chan struct{} // nil: requests do not wait
	answer   error
	says     string                        // the answer if there is no error; a bare Status if empty
	live     *metav1.PartialObjectMetadata // what a GET shows; nil is nothing
	may      error
	pace     error
	intents  []string
	looked   int
	actuator *Actuator
}

func newRig(t *testing.T, answer error) *rig {
	t.Helper()
	r := &rig{answer: answer}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	var err error
	if r.actuator, err = New(&rest.Config{Host: server.URL, QPS: -1}, fair.NewSlots(inFlight, clock.RealClock{})); err != nil {
		t.Fatal(err)
	}
	return r
}

// errHangUp is answered with nothing.
var errHangUp = errors.New("connection reset")

// ServeHTTP answers.
func (r *rig) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if req.Method == http.MethodGet {
		r.looked++
		if r.live == nil {
			write(w, apierrors.NewNotFound(podsResource().GroupResource(), "a"))
			return
		}
		_ = json.NewEncoder(w).Encode(r.live)
		return
	}
	r.requests++
	if req.Method == http.MethodDelete {
		var o metav1.DeleteOptions
		if err := json.NewDecoder(req.Body).Decode(&o); err != nil {
			panic(err)
		}
		r.options = append(r.options, o)
	}
	var status *apierrors.StatusError
	switch {
	case r.answer == nil && r.says != "":
		_, _ = w.Write([]byte(r.says))
	case r.answer == nil:
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: statusMeta(), Status: metav1.StatusSuccess})
	case errors.As(r.answer, &status):
		w.Header().Set("Retry-After", "1")
		write(w, status)
	default:
		panic(http.ErrAbortHandler)
	}
}

func statusMeta() metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: "Status"} }

func write(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.ErrStatus
	status.TypeMeta = statusMeta()
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

func (r *rig) LimitWait(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func (r *rig) WaitForPace(context.Context) error { return r.pace }

func (r *rig) MaySend(context.Context) error {
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

func (r *rig) LogIntent(step *plan.Step, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.intents = append(r.intents, fmt.Sprint(step.Verb, " ", step.Object.Name, " ", version))
}

// deletion is a step that deletes an object of a name.
func deletion(name string) *plan.Step {
	s := step(plan.VerbDelete)
	s.Object.Name = name
	return s
}

// delete carries such a step out.
func (r *rig) delete(ctx context.Context, name string) Outcome {
	return r.actuator.ExecuteStep(ctx, deletion(name), "2", false, r)
}

func TestDeleteCarriesBothPreconditions(t *testing.T) {
	r := newRig(t, nil)
	if got := r.delete(t.Context(), "a"); got.Kind != life.AnswerDone || got.Why != "" {
		t.Errorf("it came to %+v", got)
	}
	background := metav1.DeletePropagationBackground
	want := []metav1.DeleteOptions{{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:     &metav1.Preconditions{UID: new(types.UID("uid")), ResourceVersion: new("2")},
		PropagationPolicy: &background,
	}}
	if diff := cmp.Diff(want, r.options); diff != "" {
		t.Errorf("the request differs: -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]string{"delete a 2"}, r.intents); diff != "" {
		t.Errorf("the intent was not recorded: %s", diff)
	}
}

func TestAnswers(t *testing.T) {
	gr := podsResource().GroupResource()
	bare := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}
	notServed := apierrors.NewGenericServerResponse(http.StatusNotFound, "delete", gr, "a", "404 page not found", 0, true)
	cases := map[string]struct {
		reason string
		answer error
		want   life.AnswerKind
	}{
		"Deleted":        {"2xx", nil, life.AnswerDone},
		"NotFound":       {"a 404 that names the object", apierrors.NewNotFound(gr, "a"), life.AnswerNotFound},
		"OtherNotFound":  {"one that names another proves nothing: look", apierrors.NewNotFound(gr, "b"), life.AnswerConflict},
		"BareNotFound":   {"nor does one that names nothing", bare, life.AnswerConflict},
		"NotServed":      {"nor does that of a path that is not served, which names what was asked for", notServed, life.AnswerConflict},
		"Conflict":       {"a precondition failed: look", apierrors.NewConflict(gr, "a", errors.New("uid")), life.AnswerConflict},
		"Forbidden":      {"an answer that nothing was done", apierrors.NewForbidden(gr, "a", errors.New("no")), life.AnswerRefused},
		"TooMany":        {"so is 429", apierrors.NewTooManyRequests("later", 1), life.AnswerRefused},
		"Unavailable":    {"a 503 may come from a proxy that has sent it on", apierrors.NewServiceUnavailable("later"), life.AnswerLost},
		"InternalError":  {"a 500 may come from after the deed", apierrors.NewInternalError(errors.New("x")), life.AnswerLost},
		"GatewayTimeout": {"and so may a timeout", apierrors.NewTimeoutError("x", 1), life.AnswerLost},
		"NoAnswer":       {"a connection that broke says nothing", errHangUp, life.AnswerLost},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tc.answer)
			r.live = &metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "uid", ResourceVersion: "3"},
			}
			got := r.delete(t.Context(), "a")
			if got.Kind != tc.want {
				t.Errorf("%s: got %d, want %d (%s)", tc.reason, got.Kind, tc.want, got.Why)
			}
			if looked := r.looked == 1; looked != (tc.want == life.AnswerConflict) {
				t.Errorf("looked at the object: %t", looked)
			}
		})
	}
}

func TestOnlyProofSettles(t *testing.T) {
	pod := func(metadata string) string {
		return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "a", ` + metadata + `}}`
	}
	status := func(result, details string) string {
		return `{"apiVersion": "v1", "kind": "Status", "status": "` + result + `", "details": {` + details + `}}`
	}
	const leaving = `"uid": "uid", "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": `
	for name, tc := range map[string]struct {
		reason string
		says   string
		want   bool
	}{
		"Status":     {"the API server names what it has deleted", status("Success", `"name": "a", "uid": "uid"`), true},
		"OtherUID":   {"another object of the name", status("Success", `"name": "a", "uid": "other"`), false},
		"NoUID":      {"nobody knows which one", status("Success", `"name": "a"`), false},
		"NoSuccess":  {"who knows", status("Failure", `"name": "a", "uid": "uid"`), false},
		"AsItWent":   {"nothing holds it", pod(leaving + "0"), true},
		"Grace":      {"the kubelet has to say when it has ended", pod(leaving + "30"), false},
		"Finalizer":  {"it is held", pod(leaving + `0, "finalizers": ["example.com/b"]`), false},
		"Untouched":  {"it is there", pod(`"uid": "uid"`), false},
		"OtherWent":  {"another object", pod(`"uid": "other", "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0`), false},
		"Unreadable": {"no JSON", "deleted", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.says = tc.says
			if got := r.delete(t.Context(), "a"); got.Kind != life.AnswerDone || got.Gone != tc.want {
				t.Errorf("%s: it came to %+v", tc.reason, got)
			}
		})
	}
}

func TestNothingIsSentAgainstOrders(t *testing.T) {
	r := newRig(t, nil)
	r.may = errors.New("suspended")
	if got := r.delete(t.Context(), "a"); got.Kind != life.AnswerUnsent {
		t.Errorf("got %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.may = nil
	if got := r.delete(ctx, "a"); got.Kind != life.AnswerUnsent {
		t.Errorf("after a shutdown: got %+v", got)
	}
	if len(r.options) > 0 || len(r.intents) > 0 {
		t.Errorf("%d requests were sent", len(r.options))
	}
}

func TestDeedsInFlightAreBounded(t *testing.T) {
	r := newRig(t, nil)
	r.proceed = make(chan struct{})
	const many = 3 * inFlight
	answers := make([]Outcome, many)
	done := make(chan struct{})
	go func() {
		defer close(done)
		RunParallel(many, func(i int) { answers[i] = r.delete(t.Context(), fmt.Sprint(i)) })
	}()
	for range many {
		r.proceed <- struct{}{}
	}
	if <-done; len(r.options) != many {
		t.Errorf("%d requests for %d deeds", len(r.options), many)
	}
	if r.most > inFlight {
		t.Errorf("%d deeds were in flight, want at most %d", r.most, inFlight)
	}
}

func TestARequestIsSentOnceWhateverTheAnswerAsksFor(t *testing.T) {
	r := newRig(t, apierrors.NewTooManyRequests("later", 1))
	if got := r.delete(t.Context(), "a"); got.Kind != life.AnswerRefused || r.requests != 1 {
		t.Errorf("%d requests were sent for one deed, which came to %+v", r.requests, got)
	}
}

func step(verb plan.Verb) *plan.Step {
	o := observed.Object{
		Ref:   observed.Ref{Resource: podsResource(), Namespace: "shop", Name: "a", UID: "uid", ResourceVersion: "1"},
		Value: map[string]any{"kind": "Pod"}, Finalizers: []string{"example.com/a", "example.com/b"},
	}
	return &plan.Step{
		Rule: "r", Verb: verb, Object: o, Finalizer: "example.com/b",
		Patch: &plan.Patch{Type: v1alpha1.PatchMerge, Body: []byte(`{"metadata":{"labels":{"a":"b"}}}`)},
	}
}

func deeds() []plan.Verb {
	return []plan.Verb{plan.VerbDelete, plan.VerbEvict, plan.VerbPatch, plan.VerbRemoveFinalizer}
}

func TestAStepIsSentOnceAndToldBefore(t *testing.T) {
	for name, answer := range map[string]error{"TooMany": apierrors.NewTooManyRequests("later", 1), "NoAnswer": errHangUp, "Done": nil} {
		for _, verb := range deeds() {
			t.Run(name+"/"+string(verb), func(t *testing.T) {
				r := newRig(t, answer)
				got := r.actuator.ExecuteStep(t.Context(), step(verb), "2", false, r)
				if r.requests != 1 {
					t.Errorf("%d requests were sent for one step, which came to %+v", r.requests, got)
				}
				if diff := cmp.Diff([]string{string(verb) + " a 2"}, r.intents); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

func TestNoStepIsSentAgainstOrders(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx     context.Context
		change  func(*rig, *plan.Step)
		version string
	}{
		"Forbidden": {t.Context(), func(r *rig, _ *plan.Step) { r.may = errors.New("suspended") }, "2"},
		"TooFast":   {t.Context(), func(r *rig, _ *plan.Step) { r.pace = errors.New("the pass has ended") }, "2"},
		"Shutdown":  {cancelled, func(*rig, *plan.Step) {}, "2"},
	} {
		for _, verb := range deeds() {
			t.Run(name+"/"+string(verb), func(t *testing.T) {
				r, s := newRig(t, nil), step(verb)
				tc.change(r, s)
				got := r.actuator.ExecuteStep(tc.ctx, s, tc.version, false, r)
				if got.Kind != life.AnswerUnsent || got.Why == "" || got.Version != tc.version {
					t.Errorf("it came to %+v", got)
				}
				if r.requests > 0 || len(r.intents) > 0 {
					t.Errorf("%d requests were sent, %d told", r.requests, len(r.intents))
				}
			})
		}
	}
}

func TestWhatCannotBeAskedForIsNotSent(t *testing.T) {
	for name, change := range map[string]func(*plan.Step){
		"EvictedNode":      func(s *plan.Step) { s.Verb, s.Object.Resource.Resource = plan.VerbEvict, "nodes" },
		"EvictedPodOfOurs": func(s *plan.Step) { s.Verb, s.Object.Resource.Group = plan.VerbEvict, "example.com" },
		"NoUID":            func(s *plan.Step) { s.Object.UID = "" },
		"NoVerb":           func(s *plan.Step) { s.Verb = "" },
		"UnknownType":      func(s *plan.Step) { s.Patch.Type = "Other" },
		"NoMap":            func(s *plan.Step) { s.Patch.Body = []byte(`[]`) },
		"NullMap":          func(s *plan.Step) { s.Patch.Body = []byte(`null`) },
		"MetadataIsNull":   func(s *plan.Step) { s.Patch.Body = []byte(`{"metadata":null}`) },
		"MetadataIsAList":  func(s *plan.Step) { s.Patch.Body = []byte(`{"metadata":[]}`) },
		"NoOperations":     func(s *plan.Step) { s.Patch.Type = v1alpha1.PatchJSON },
		"UnknownKind":      func(s *plan.Step) { s.Patch.Type, s.Object.Value = v1alpha1.PatchApply, nil },
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newRig(t, nil), step(plan.VerbPatch)
			change(s)
			if got := r.actuator.ExecuteStep(t.Context(), s, "2", false, r); got.Kind != life.AnswerRefused || got.Why == "" || r.requests > 0 || len(r.intents) > 0 {
				t.Errorf("it came to %+v, by %d requests", got, r.requests)
			}
		})
	}
}

func TestWithoutAVersionTheObjectIsRead(t *testing.T) {
	for _, verb := range deeds() {
		r := newRig(t, nil)
		if got := r.actuator.ExecuteStep(t.Context(), step(verb), "", false, r); got.Kind != life.AnswerNotFound || !got.Gone || r.requests > 0 {
			t.Errorf("to %s what is gone came to %+v, by %d requests", verb, got, r.requests)
		}
		r.live = &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "uid", ResourceVersion: "3", Finalizers: []string{"example.com/b"}},
		}
		if got := r.actuator.ExecuteStep(t.Context(), step(verb), "", false, r); got.Kind != life.AnswerConflict || got.Version != "3" || got.Now == nil || r.requests > 0 {
			t.Errorf("to %s what is there came to %+v, by %d requests", verb, got, r.requests)
		}
	}
}

func TestWhatNeedsNoRequestIsDone(t *testing.T) {
	absent := step(plan.VerbRemoveFinalizer)
	absent.Finalizer = "example.com/none"
	for name, s := range map[string]*plan.Step{"Report": step(plan.VerbReport), "AbsentFinalizer": absent} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			got := r.actuator.ExecuteStep(t.Context(), s, "2", false, r)
			if diff := cmp.Diff(NewDone("2"), got); diff != "" || r.requests > 0 || len(r.intents) > 0 {
				t.Errorf("%d requests, %d told: %s", r.requests, len(r.intents), diff)
			}
		})
	}
}

func TestStepsAnswers(t *testing.T) {
	gr := podsResource().GroupResource()
	conflict := apierrors.NewConflict(gr, "a", errors.New("changed"))
	live := func(uid types.UID, version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: uid, ResourceVersion: version, Finalizers: []string{"example.com/b"}},
		}
	}
	for name, tc := range map[string]struct {
		reason string
		answer error
		live   *metav1.PartialObjectMetadata
		want   life.AnswerKind
		leaves bool
		next   string
	}{
		"NotFound":    {"it is gone", apierrors.NewNotFound(gr, "a"), nil, life.AnswerNotFound, true, ""},
		"Changed":     {"the new version is told", conflict, live("uid", "3"), life.AnswerConflict, false, "3"},
		"Unchanged":   {"the conflict is somebody's way to refuse", conflict, live("uid", "2"), life.AnswerRefused, false, "2"},
		"GoneSince":   {"what was decided on is gone", conflict, nil, life.AnswerNotFound, true, ""},
		"Replaced":    {"what was decided on is gone, and another one is there", conflict, live("other", "3"), life.AnswerReplaced, true, ""},
		"OtherGone":   {"a 404 of another object proves nothing", apierrors.NewNotFound(gr, "b"), live("uid", "2"), life.AnswerRefused, false, "2"},
		"Forbidden":   {"it is there as it was", apierrors.NewForbidden(gr, "a", errors.New("no")), nil, life.AnswerRefused, false, "2"},
		"Unavailable": {"nobody knows the version", apierrors.NewServiceUnavailable("later"), nil, life.AnswerLost, false, ""},
		"NoAnswer":    {"nobody knows the version", errHangUp, nil, life.AnswerLost, false, ""},
	} {
		for _, verb := range deeds() {
			t.Run(name+"/"+string(verb), func(t *testing.T) {
				r := newRig(t, tc.answer)
				r.live = tc.live
				got := r.actuator.ExecuteStep(t.Context(), step(verb), "2", false, r)
				if got.Kind != tc.want || got.Leaving != tc.leaves || got.Gone != tc.leaves || got.Version != tc.next {
					t.Errorf("%s: it came to %+v", tc.reason, got)
				}
				if missing := name == "GoneSince"; got.Sight.Missing != missing {
					t.Errorf("%s: it was seen missing: %t", tc.reason, got.Sight.Missing)
				}
				if shown := got.Now != nil; shown != (got.Sight.UID == "uid") {
					t.Errorf("the object is shown: %t", shown)
				}
			})
		}
	}
}

func TestALookThatFailsIsNoProof(t *testing.T) {
	bare := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}
	for _, verb := range deeds() {
		r := newRig(t, bare)
		r.live = &metav1.PartialObjectMetadata{}
		got := r.actuator.ExecuteStep(t.Context(), step(verb), "2", false, r)
		if got.Kind != life.AnswerConflict || got.Sight.Failed == "" || got.Gone || got.Version != "" {
			t.Errorf("%s came to %+v", verb, got)
		}
	}
}

func TestPace(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for perSecond, want := range map[int64]time.Duration{0: 0, 1: 9 * time.Second, 20: 450 * time.Millisecond} {
		pace := NewRateLimiter(perSecond)
		var last time.Duration
		for range 10 {
			last = pace.ReserveN(start, 1).DelayFrom(start)
		}
		if last != want {
			t.Errorf("at %d in a second the tenth request waits %s, want %s", perSecond, last, want)
		}
	}
}

// TestARemovalNamesTheFinalizer shows that a finalizer is taken off by its name and not by its place alone: somebody else's
// may stand there at the version that is patched.
func TestARemovalNamesTheFinalizer(t *testing.T) {
	o := step(plan.VerbRemoveFinalizer).Object
	r, there := newFinalizerRequest(&o, "3", "example.com/b", false)
	want := `[{"op":"test","path":"/metadata/uid","value":"uid"},{"op":"test","path":"/metadata/resourceVersion","value":"3"},` +
		`{"op":"test","path":"/metadata/finalizers/1","value":"example.com/b"},{"op":"remove","path":"/metadata/finalizers/1"}]`
	if !there || string(r.body) != want {
		t.Errorf("it sends %s, want %s", r.body, want)
	}
	if _, there := newFinalizerRequest(&o, "3", "example.com/c", false); there {
		t.Error("a finalizer that is not there is taken off")
	}
}

// TestRetryAfterIsHandedOn shows that a request is sent once, and that the answer says for how long the API server asks not
// to be asked again: by its header, or by its body.
func TestRetryAfterIsHandedOn(t *testing.T) {
	for name, tc := range map[string]struct {
		answer *apierrors.StatusError
		kind   life.AnswerKind
		want   time.Duration
	}{
		"Header":      {apierrors.NewForbidden(podsResource().GroupResource(), "a", errors.New("no")), life.AnswerRefused, time.Second},
		"Body":        {apierrors.NewTooManyRequests("later", 30), life.AnswerRefused, 30 * time.Second},
		"ServerError": {apierrors.NewTimeoutError("later", 7), life.AnswerLost, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tc.answer)
			got := r.actuator.ExecuteStep(t.Context(), step(plan.VerbDelete), "1", false, r)
			if got.Kind != tc.kind || got.RetryAfter != tc.want || r.requests != 1 {
				t.Errorf("after %d requests got %v, to come back after %s; want %v, %s", r.requests, got.Kind, got.RetryAfter, tc.kind, tc.want)
			}
		})
	}
}

// TestARecordStaysReadable has the deletion of a record of a Helm release answered with metadata, because a finalizer holds it: what is known of the
// record besides stays known.
func TestARecordStaysReadable(t *testing.T) {
	for _, unreadable := range []string{"", "it is empty"} {
		r, s := newRig(t, nil), step(plan.VerbDelete)
		s.Object.OfRelease, s.Object.Unreadable, s.Object.ResourceVersion = true, unreadable, "2"
		s.Object.Value = map[string]any{"apiVersion": "v1", "kind": "Secret", "status": "superseded"}
		r.says = `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"namespace": "shop", "name": "a", "uid": "uid", "resourceVersion": "3", ` +
			`"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 0, "finalizers": ["example.com/a"]}}`
		got := r.actuator.ExecuteStep(t.Context(), s, "2", false, r).Now
		if got == nil || !got.Terminating || !got.OfRelease || got.Value["status"] != "superseded" || got.Unreadable != unreadable {
			t.Errorf("%q: it is %+v", unreadable, got)
		}
	}
}
