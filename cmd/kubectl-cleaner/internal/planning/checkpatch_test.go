// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/objectschema"
	"github.com/vtex/cleaner/controllers/plan"
)

// builtIn knows the kinds of Kubernetes.
type builtIn struct{}

func (builtIn) FindSchema(_ context.Context, gvk schema.GroupVersionKind) (*objectschema.Schema, error) {
	if gvk.Kind == "Broken" {
		return nil, errors.New("the API server does not answer")
	}
	return objectschema.OfBuiltIn(scheme.Scheme, gvk), nil
}

func (builtIn) Renew(context.Context) (changed bool, err error) { return false, nil }

func patchStep(name string, kind v1alpha1.PatchType, body string) plan.Step {
	s := plan.Step{Rule: "r", Verb: plan.VerbPatch, Patch: &plan.Patch{Type: kind, Body: []byte(body)}}
	s.Object.Kind, s.Object.Namespace, s.Object.Name = "Deployment", "shop", name
	s.Object.Resource = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	s.Object.Value = map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name, "namespace": "shop"},
		"spec": map[string]any{"replicas": int64(2), "old": "a field of an earlier version", "template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a"}}}}},
	}
	return s
}

func TestCheckPatches(t *testing.T) {
	const merge, strategic, json = v1alpha1.PatchMerge, v1alpha1.PatchStrategic, v1alpha1.PatchJSON
	for name, tc := range map[string]struct {
		kind v1alpha1.PatchType
		body string
		want string // empty: nothing is wrong
	}{
		"Number in an annotation":  {merge, `{"metadata": {"annotations": {"a/b": 5}}}`, `the patch makes metadata.annotations["a/b"] a number, and it must be a string: write string(...) or quotes around it`},
		"Text in a number":         {merge, `{"spec": {"replicas": "2"}}`, "the patch makes spec.replicas a string, and it must be an integer: write int(...)"},
		"Fraction":                 {merge, `{"spec": {"replicas": 1.5}}`, "the patch makes spec.replicas a number with a fraction, and it must be an integer: write int(...)"},
		"Map for a list":           {merge, `{"spec": {"template": {"spec": {"containers": {"name": "a"}}}}}`, "the patch makes spec.template.spec.containers a map, and it must be a list"},
		"Unknown field":            {merge, `{"spec": {"replica": 1}}`, "the patch makes spec.replica, and there is no such field; the fields are minReadySeconds,"},
		"Unknown field in a list":  {strategic, `{"spec": {"template": {"spec": {"containers": [{"name": "a", "img": "x"}]}}}}`, "the patch makes spec.template.spec.containers[0].img, and there is no such field"},
		"It does not apply":        {json, `[{"op": "replace", "path": "/spec/paused/x", "value": true}]`, "the patch does not apply: "},
		"As JSON":                  {json, `[{"op": "add", "path": "/spec/paused", "value": "yes"}]`, "the patch makes spec.paused a string, and it must be a bool"},
		"Good":                     {merge, `{"metadata": {"annotations": {"a": "x"}, "labels": null}, "spec": {"replicas": 0}}`, ""},
		"Percent or number":        {merge, `{"spec": {"strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}}}`, ""},
		"Whole number as fraction": {merge, `{"spec": {"replicas": 3.0}}`, ""},
		"What was there before":    {merge, `{"spec": {"replicas": 3, "old": "another text"}}`, ""},
		"Quantity as a number":     {strategic, `{"spec": {"template": {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": 1}}}]}}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan.Plan{Steps: []plan.Step{patchStep("a", tc.kind, tc.body), patchStep("b", tc.kind, tc.body)}}
			CheckPatches(t.Context(), builtIn{}, &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Rules: []v1alpha1.Rule{{Name: "other"}, {Name: "r"}}}}, &p)
			if tc.want == "" {
				if len(p.Errors) > 0 {
					t.Errorf("got %v", p.Errors)
				}
				return
			}
			if len(p.Errors) != 1 || !strings.HasPrefix(p.Errors[0].Message, tc.want) {
				t.Fatalf("got %v, want %q", p.Errors, tc.want)
			}
			p.Errors[0].Message = ""
			want := v1alpha1.ItemError{Rule: "r", Key: "Deployment shop/a", Field: "rules[1].actions[0].patch.expression", Count: 2}
			if diff := cmp.Diff(want, p.Errors[0]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if len(p.Steps) != 2 {
				t.Errorf("%d steps are left", len(p.Steps))
			}
		})
	}
}

// Patches of one object are sent one after another, each to what the one before has left. After one that fails, none is sent.
func TestCheckPatchesOneAfterAnother(t *testing.T) {
	const create, add, replace = `[{"op": "add", "path": "/metadata/annotations", "value": {}}]`, `[{"op": "add", "path": "/metadata/annotations/a", "value": "b"}]`,
		`[{"op": "replace", "path": "/metadata/annotations/a", "value": "c"}]`
	for name, tc := range map[string]struct {
		bodies []string
		other  bool // each patches an object of its own
		want   []int
	}{
		"InOrder":      {bodies: []string{create, add, replace}},
		"OtherObjects": {bodies: []string{create, add}, other: true, want: []int{1}},
		"Missing":      {bodies: []string{create, replace}, want: []int{1}},
		"AfterAFailed": {bodies: []string{add, replace, replace}, want: []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan.Plan{}
			for i, body := range tc.bodies {
				s := patchStep("a", v1alpha1.PatchJSON, body)
				s.Action, s.Object.UID = i, "a"
				if tc.other {
					s.Object.UID = types.UID(fmt.Sprint(i))
				}
				for n := range i {
					s.After = append(s.After, n)
				}
				p.Steps = append(p.Steps, s)
			}
			CheckPatches(t.Context(), builtIn{}, &v1alpha1.Work{}, &p)
			var got, want []string
			for _, e := range p.Errors {
				got = append(got, e.Field)
			}
			for _, action := range tc.want {
				want = append(want, fmt.Sprintf("actions[%d].patch.expression", action))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if _, changed := p.Steps[0].Object.Value["metadata"].(map[string]any)["annotations"]; changed {
				t.Error("the object of the plan was patched")
			}
		})
	}
}

// What is not known is not wrong, and a spec can say that it does not want to know.
func TestCheckPatchesSaysNothing(t *testing.T) {
	const wrong = `{"spec": {"replicas": "2"}}`
	for name, tc := range map[string]struct {
		work   v1alpha1.Work
		change func(s *plan.Step)
	}{
		"Ignored":          {v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Validation: v1alpha1.ValidationIgnore}}, func(*plan.Step) {}},
		"Unknown kind":     {v1alpha1.Work{}, func(s *plan.Step) { s.Object.Value["kind"] = "Gadget" }},
		"Unreadable":       {v1alpha1.Work{}, func(s *plan.Step) { s.Object.Value["kind"] = "Broken" }},
		"Not there":        {v1alpha1.Work{}, func(s *plan.Step) { s.Object.Value = nil }},
		"Without any kind": {v1alpha1.Work{}, func(s *plan.Step) { delete(s.Object.Value, "kind") }},
	} {
		p := plan.Plan{Steps: []plan.Step{patchStep("a", v1alpha1.PatchMerge, wrong)}}
		tc.change(&p.Steps[0])
		CheckPatches(t.Context(), builtIn{}, &tc.work, &p)
		if len(p.Errors) > 0 {
			t.Errorf("%s: got %v", name, p.Errors)
		}
	}
}

// However many different errors there are, a plan has a bounded number, and counts all.
func TestErrorsOfPatchesAreBounded(t *testing.T) {
	const steps = 3 * maxPatchErrors
	p := plan.Plan{}
	for i := range steps {
		p.Steps = append(p.Steps, patchStep("a", v1alpha1.PatchMerge, fmt.Sprintf(`{"spec": {"field%d%s": 1}}`, i, strings.Repeat("x", 1000))))
	}
	CheckPatches(t.Context(), builtIn{}, &v1alpha1.Work{}, &p)
	n := int64(0)
	for _, e := range p.Errors {
		n += e.Count
		if len(e.Message) > 1000 {
			t.Errorf("a message has %d bytes", len(e.Message))
		}
	}
	if len(p.Errors) != maxPatchErrors || n != steps {
		t.Errorf("%d errors count %d", len(p.Errors), n)
	}
}
