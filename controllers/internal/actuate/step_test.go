// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// TestRequests shows each request as it is sent: with the UID and the version of the object that was decided on.
func TestRequests(t *testing.T) {
	patch := func(kind v1alpha1.PatchType, subresource, body string) func(*plan.Step) {
		return func(s *plan.Step) {
			s.Verb, s.Patch = plan.VerbPatch, &plan.Patch{Type: kind, Subresource: subresource, Body: []byte(body)}
		}
	}
	const guard = `"resourceVersion":"2","uid":"uid"`
	for name, tc := range map[string]struct {
		change func(*plan.Step)
		dryRun bool
		want   request
		body   string
	}{
		"Delete": {
			change: func(s *plan.Step) { s.Verb = plan.VerbDelete },
			want:   request{method: http.MethodDelete, contentType: "application/json"},
			body:   `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"uid","resourceVersion":"2"},"propagationPolicy":"Background"}`,
		},
		"DeleteAtOnce": {
			change: func(s *plan.Step) {
				s.Verb, s.Grace, s.Propagation, s.Object.ResourceVersion = plan.VerbDelete, new(int64), v1alpha1.PropagateOrphan, "2"
			},
			dryRun: true,
			want:   request{method: http.MethodDelete, contentType: "application/json", metadataOnly: true},
			body:   `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"uid","resourceVersion":"2"},"propagationPolicy":"Orphan","dryRun":["All"]}`,
		},
		"Evict": {
			change: func(s *plan.Step) { s.Verb, s.Grace = plan.VerbEvict, new(int64) },
			want:   request{method: http.MethodPost, subresource: "eviction", contentType: "application/json", params: map[string]string{}},
			body: `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"a","namespace":"shop"},` +
				`"deleteOptions":{"gracePeriodSeconds":0,"preconditions":{"uid":"uid","resourceVersion":"2"}}}`,
		},
		"EvictForATry": {
			change: func(s *plan.Step) { s.Verb = plan.VerbEvict },
			dryRun: true,
			want:   request{method: http.MethodPost, subresource: "eviction", contentType: "application/json", params: map[string]string{"dryRun": "All"}},
			body: `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"a","namespace":"shop"},` +
				`"deleteOptions":{"preconditions":{"uid":"uid","resourceVersion":"2"}}}`,
		},
		"Merge": {
			change: patch(v1alpha1.PatchMerge, "", `{"metadata":{"labels":{"a":"b"}},"spec":null}`),
			want:   request{method: http.MethodPatch, contentType: "application/merge-patch+json", params: map[string]string{"fieldManager": "cleaner"}},
			body:   `{"metadata":{"labels":{"a":"b"},` + guard + `},"spec":null}`,
		},
		"MergeElsewhere": {
			change: patch(v1alpha1.PatchMerge, "", `{"metadata":{"uid":"other","resourceVersion":"9"}}`),
			want:   request{method: http.MethodPatch, contentType: "application/merge-patch+json", params: map[string]string{"fieldManager": "cleaner"}},
			body:   `{"metadata":{` + guard + `}}`,
		},
		"Strategic": {
			change: patch(v1alpha1.PatchStrategic, "status", `{}`),
			dryRun: true,
			want: request{method: http.MethodPatch, subresource: "status", contentType: "application/strategic-merge-patch+json",
				params: map[string]string{"fieldManager": "cleaner", "dryRun": "All"}},
			body: `{"metadata":{` + guard + `}}`,
		},
		"JSON": {
			change: patch(v1alpha1.PatchJSON, "", `[{"op":"remove","path":"/spec"}]`),
			want:   request{method: http.MethodPatch, contentType: "application/json-patch+json", params: map[string]string{"fieldManager": "cleaner"}},
			body: `[{"op":"test","path":"/metadata/uid","value":"uid"},{"op":"test","path":"/metadata/resourceVersion","value":"2"},` +
				`{"op":"remove","path":"/spec"}]`,
		},
		"Apply": {
			change: func(s *plan.Step) {
				patch(v1alpha1.PatchApply, "", `{"spec":{"a":1}}`)(s)
				s.Patch.Force = true
			},
			want: request{method: http.MethodPatch, contentType: "application/apply-patch+yaml", params: map[string]string{"fieldManager": "cleaner", "force": "true"}},
			body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop",` + guard + `},"spec":{"a":1}}`,
		},
		"ApplyScale": {
			change: patch(v1alpha1.PatchApply, "scale", `{"apiVersion":"autoscaling/v1","kind":"Scale"}`),
			want: request{method: http.MethodPatch, subresource: "scale", contentType: "application/apply-patch+yaml",
				params: map[string]string{"fieldManager": "cleaner", "force": "false"}},
			body: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","namespace":"shop",` + guard + `}}`,
		},
		"ApplyToClusterScoped": {
			change: func(s *plan.Step) {
				patch(v1alpha1.PatchApply, "status", `{}`)(s)
				s.Object.Namespace = ""
			},
			want: request{method: http.MethodPatch, subresource: "status", contentType: "application/apply-patch+yaml",
				params: map[string]string{"fieldManager": "cleaner", "force": "false"}},
			body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a",` + guard + `}}`,
		},
		"RemoveFinalizer": {
			change: func(s *plan.Step) { s.Verb = plan.VerbRemoveFinalizer },
			dryRun: true,
			want: request{method: http.MethodPatch, contentType: "application/json-patch+json",
				params: map[string]string{"fieldManager": "cleaner", "dryRun": "All"}},
			body: `[{"op":"test","path":"/metadata/uid","value":"uid"},{"op":"test","path":"/metadata/resourceVersion","value":"2"},` +
				`{"op":"test","path":"/metadata/finalizers/1","value":"example.com/b"},{"op":"remove","path":"/metadata/finalizers/1"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := step("")
			tc.change(s)
			got, err := newStepRequest(s, "2", tc.dryRun)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.body = []byte(tc.body)
			if diff := cmp.Diff(tc.want, *got, cmp.AllowUnexported(request{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestPaths shows where requests go.
func TestPaths(t *testing.T) {
	ref := step("").Object.Ref
	for want, change := range map[string]func(*observed.Ref){
		"api/v1/namespaces/shop/pods/a":       func(*observed.Ref) {},
		"api/v1/pods/a":                       func(r *observed.Ref) { r.Namespace = "" },
		"apis/apps/v1/namespaces/shop/pods/a": func(r *observed.Ref) { r.Resource.Group = "apps" },
		"apis/apps/v2/namespaces/shop/nodes/b": func(r *observed.Ref) {
			r.Resource.Group, r.Resource.Version, r.Resource.Resource, r.Name = "apps", "v2", "nodes", "b"
		},
	} {
		r := ref
		change(&r)
		if got := strings.Join(objectPath(r, ""), "/"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := strings.Join(objectPath(r, "status"), "/"); got != want+"/status" {
			t.Errorf("got %s, want %s/status", got, want)
		}
	}
}

// TestOurOwnAreNeverTouched shows that no step touches an object of our own kinds, whoever asks for it.
func TestOurOwnAreNeverTouched(t *testing.T) {
	const want = "cleaners.cleaner.vtex.dev are never touched"
	for _, verb := range deeds() {
		r, s := newRig(t, nil), step(verb)
		s.Object.Resource.Group, s.Object.Resource.Resource = v1alpha1.GroupVersion.Group, "cleaners"
		if got := r.actuator.ExecuteStep(t.Context(), s, "2", false, r); got.Kind != life.AnswerRefused || got.Why != want || r.requests > 0 || len(r.intents) > 0 {
			t.Errorf("to %s one came to %+v, by %d requests", verb, got, r.requests)
		}
	}
}

// TestNoPatchSetsOwners shows that a patch which would set owners is not sent, whoever has decided on it.
func TestNoPatchSetsOwners(t *testing.T) {
	for kind, bodies := range map[v1alpha1.PatchType][]string{
		v1alpha1.PatchStrategic: {`{"metadata":{"$patch":"replace"}}`, `{"metadata":null}`},
		v1alpha1.PatchMerge:     {`{"metadata":{"ownerReferences":[]},"spec":{"size":1e999}}`, `{"metadata":null}`, `null`},
		v1alpha1.PatchJSON:      {`[{"op":"add","path":"/spec/a","value":1},{"op":"remove","path":"/metadata/ownerReferences/0"}]`, `[{"op":"remove","path":"/metadata"}]`},
		v1alpha1.PatchApply:     {`{"metadata":{"ownerReferences":[]}}`, `{"metadata":null}`},
	} {
		for _, body := range bodies {
			r, s := newRig(t, nil), step(plan.VerbPatch)
			s.Patch = &plan.Patch{Type: kind, Body: []byte(body)}
			got := r.actuator.ExecuteStep(t.Context(), s, "2", false, r)
			if got.Kind != life.AnswerRefused || !strings.Contains(got.Why, "metadata.ownerReferences") || r.requests > 0 || len(r.intents) > 0 {
				t.Errorf("%s %s came to %+v, by %d requests", kind, body, got, r.requests)
			}
		}
	}
}

// TestDryRunAsksAndTellsNobody shows that a dry run is sent where a request may not be, and leaves no trace of an intent.
func TestDryRunAsksAndTellsNobody(t *testing.T) {
	for _, verb := range deeds() {
		r := newRig(t, nil)
		r.may = errors.New("suspended")
		got := r.actuator.ExecuteStep(t.Context(), step(verb), "2", true, r)
		if diff := cmp.Diff(NewDone("2"), got); diff != "" || r.requests != 1 || len(r.intents) > 0 {
			t.Errorf("%s: %d requests, %d told: %s", verb, r.requests, len(r.intents), diff)
		}
	}
}

// TestConflictsOfPatches shows what the answers mean in which API servers say that a patch does not fit its object.
func TestConflictsOfPatches(t *testing.T) {
	gr := podsResource().GroupResource()
	invalid := func(details *metav1.StatusDetails) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "it does not fit", Details: details,
		}}
	}
	cause := func(field string) *metav1.StatusDetails {
		return &metav1.StatusDetails{Name: "a", Kind: "Pod", Causes: []metav1.StatusCause{{Field: field}}}
	}
	media := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType, Message: "no",
	}}
	for name, tc := range map[string]struct {
		reason  string
		answer  error
		change  func(*plan.Step)
		version string // that the object has by then
		want    life.AnswerKind
		why     string
	}{
		"AnotherUID": {"the object of the name is another", invalid(cause("metadata.uid")), nil, "3", life.AnswerConflict, "it does not fit"},
		"OtherField": {"what the patch makes is wrong", invalid(cause("spec.a")), nil, "3", life.AnswerRefused, "it does not fit"},
		"NoDetails":  {"nobody says that it was the object", invalid(nil), nil, "3", life.AnswerRefused, "it does not fit"},
		"FailedTest": {"a test of a JSON patch", invalid(nil), jsonPatch, "3", life.AnswerConflict, "an operation of the patch may not fit the object: it does not fit"},
		"FailedAgain": {"the object is as it was: it is the patch", invalid(nil), jsonPatch, "2", life.AnswerRefused,
			"an operation of the patch may not fit the object: it does not fit"},
		"WrongResult":     {"the tests were passed", invalid(cause("spec.a")), jsonPatch, "3", life.AnswerRefused, "it does not fit"},
		"FailedFinalizer": {"another finalizer stands there", invalid(nil), finalizer, "3", life.AnswerConflict, "it does not fit"},
		"NoSubresource": {"the object is there", apierrors.NewNotFound(gr, "a"), func(s *plan.Step) { s.Patch.Subresource = "scale" }, "2", life.AnswerRefused,
			`pods have no subresource "scale": pods "a" not found`},
		"Media": {"the kind has no strategic merge", media, func(s *plan.Step) { s.Patch.Type = v1alpha1.PatchStrategic }, "2", life.AnswerRefused,
			"pods do not take patches of type Strategic: write type: Merge, which replaces lists instead of merging them (no)"},
		"Forbidden": {"as it was answered", apierrors.NewForbidden(gr, "a", errors.New("no")), nil, "2", life.AnswerRefused, `pods "a" is forbidden: no`},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newRig(t, tc.answer), step(plan.VerbPatch)
			if tc.change != nil {
				tc.change(s)
			}
			r.live = &metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "uid", ResourceVersion: tc.version, Finalizers: []string{"example.com/b"}},
			}
			got := r.actuator.ExecuteStep(t.Context(), s, "2", false, r)
			if got.Kind != tc.want || got.Why != tc.why || got.Gone {
				t.Errorf("%s: it came to %+v, want %v: %s", tc.reason, got, tc.want, tc.why)
			}
		})
	}
}

func jsonPatch(s *plan.Step) { s.Patch = &plan.Patch{Type: v1alpha1.PatchJSON, Body: []byte(`[]`)} }

func finalizer(s *plan.Step) { s.Verb = plan.VerbRemoveFinalizer }
