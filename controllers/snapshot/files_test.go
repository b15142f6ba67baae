// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

func objectsOf(t *testing.T, manifests ...string) *Objects {
	t.Helper()
	o := NewObjects()
	v1 := schema.GroupVersion{Version: "v1"}
	o.AddKind(v1, metav1.APIResource{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true})
	o.AddKind(v1, metav1.APIResource{Name: "namespaces", SingularName: "namespace", Kind: "Namespace"})
	o.AddKind(schema.GroupVersion{Group: "example.com", Version: "v1"}, metav1.APIResource{Name: "widgets", SingularName: "widget", Kind: "Widget", Namespaced: true}, ".spec.color")
	for _, m := range manifests {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(m), &u.Object); err != nil {
			t.Fatal(err)
		}
		if err := o.AddObject(u); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// readTarget reads one target, as a whole.
func readTarget(ctx context.Context, r Reader, namespace string, t *v1alpha1.ClusterTarget) observed.Target {
	return NewQueries(namespace, &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{*t}}).ReadTarget(ctx, r, 0)
}

func TestObjects(t *testing.T) {
	manifests := []string{
		"{apiVersion: v1, kind: Namespace, metadata: {name: web, labels: {tier: preview}}}",
		"{apiVersion: v1, kind: Namespace, metadata: {name: db}}",
		"{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: web, labels: {app: x}}, status: {phase: Running}}",
		"{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: web}, status: {phase: Failed}}",
		"{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: db}, status: {phase: Failed}}",
		"{apiVersion: v1, kind: Pod, metadata: {name: c}}",
		"{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: web}, spec: {color: red}}",
	}
	cases := map[string]struct {
		reason    string
		namespace string
		reference string
		fail      bool
		want      []string
		state     observed.TargetState
		detail    string
	}{
		"All":              {reason: "By namespace and name.", reference: "{version: v1, kind: pod}", want: []string{"db/a", "default/c", "web/a", "web/b"}},
		"Own":              {reason: "A Cleaner sees its namespace.", namespace: "web", reference: "{version: v1, kind: Pods}", want: []string{"web/a", "web/b"}},
		"ClusterScoped":    {reason: "And what lives in none.", namespace: "web", reference: "{version: v1, kind: Namespace}", want: []string{"/db", "/web"}},
		"Name":             {reason: "One by its name.", namespace: "db", reference: "{version: v1, kind: Pod, name: a}", want: []string{"db/a"}},
		"Missing":          {reason: "None of that name.", namespace: "db", reference: "{version: v1, kind: Pod, name: b}"},
		"Labels":           {reason: "By labels.", reference: "{version: v1, kind: Pod, matchLabels: {app: x}}", want: []string{"web/b"}},
		"Fields":           {reason: "By fields that the kind has.", reference: "{version: v1, kind: Pod, fieldSelector: status.phase=Failed}", want: []string{"db/a", "web/a"}},
		"NoSuchField":      {reason: "An API server refuses others.", reference: "{version: v1, kind: Pod, fieldSelector: spec.color=red}", state: observed.Failed, detail: `pods cannot be selected by field "spec.color"`},
		"DefinedField":     {reason: "Definitions add fields.", reference: "{apiGroup: example.com, version: v1, kind: Widget, fieldSelector: spec.color=red}", want: []string{"web/w"}},
		"Namespaces":       {reason: "In chosen namespaces.", reference: "{version: v1, kind: Pod, namespaces: [db, default], excludeNamespaces: [default]}", want: []string{"db/a"}},
		"Selector":         {reason: "Or in those with labels.", reference: "{version: v1, kind: Pod, namespaceSelector: {matchLabels: {tier: preview}}}", want: []string{"web/a", "web/b"}},
		"SelectorUnread":   {reason: "Of which nobody knows if they cannot be read.", reference: "{version: v1, kind: Pod, namespaceSelector: {matchLabels: {tier: preview}}}", fail: true, state: observed.Forbidden, detail: "you may not"},
		"Misplaced":        {reason: "Nodes are in no namespace.", reference: "{version: v1, kind: Namespace, namespaces: [db]}", state: observed.Failed, detail: "cluster-scoped"},
		"NotServed":        {reason: "Of a version that is not there.", reference: "{version: v2, kind: Pod}", state: observed.NoSuchKind, detail: `kind "Pod" of v2 is not served`},
		"UnreadIsNotEmpty": {reason: "What cannot be read is not empty.", reference: "{version: v1, kind: Namespace}", fail: true, state: observed.Forbidden, detail: "you may not"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := objectsOf(t, manifests...)
			if tc.fail {
				o.SetFailure(schema.GroupResource{Resource: "namespaces"}, observed.Forbidden, "you may not")
			}
			if err := o.SortObjects(); err != nil {
				t.Fatal(err)
			}
			target := &v1alpha1.ClusterTarget{Name: "t"}
			if err := yaml.UnmarshalStrict([]byte(tc.reference), &target.Reference); err != nil {
				t.Fatal(err)
			}
			got := readTarget(t.Context(), o, tc.namespace, target)
			if tc.state == observed.Unknown {
				tc.state = observed.Complete
			}
			if got.State != tc.state || !strings.Contains(got.Detail, tc.detail) {
				t.Errorf("%s\nis %s: %s", tc.reason, got.State, got.Detail)
			}
			var names []string
			for _, o := range got.Objects {
				if o.UID == "" || o.ResourceVersion == "" {
					t.Errorf("%s has no UID or no version", o.Name)
				}
				names = append(names, o.Namespace+"/"+o.Name)
			}
			if diff := cmp.Diff(tc.want, names); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestObjectsRefuse(t *testing.T) {
	cases := map[string]struct{ manifest, want string }{
		"Kind":      {"{apiVersion: v2, kind: Pod, metadata: {name: a}}", `kind "Pod" of v2 is not known`},
		"Name":      {"{apiVersion: v1, kind: Pod, metadata: {}}", "an object of kind Pod has no metadata.name"},
		"Namespace": {"{apiVersion: v1, kind: Namespace, metadata: {name: a, namespace: b}}", "its kind is cluster-scoped: remove metadata.namespace"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.manifest), &u.Object); err != nil {
				t.Fatal(err)
			}
			if err := objectsOf(t).AddObject(u); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	twice := objectsOf(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}}", "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default}}")
	if got := readTarget(t.Context(), twice, "", &v1alpha1.ClusterTarget{Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}}); got.State != observed.Unsynced {
		t.Errorf("read before it is done, it is %s", got.State)
	}
	if err := twice.SortObjects(); err == nil || !strings.Contains(err.Error(), "Pod default/a is there twice") {
		t.Errorf("got %v", err)
	}
}

// A kind that is known stays as it was made known first, and only those that read all of an object see more than metadata.
func TestObjectsKeepWhatTheyAreTold(t *testing.T) {
	o := objectsOf(t, "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, uid: u, resourceVersion: '7', namespace: web}, spec: {color: red}}")
	widgets := schema.GroupVersion{Group: "example.com", Version: "v1"}
	o.AddKind(widgets, metav1.APIResource{Name: "others", SingularName: "other", Kind: "Widget"}, ".spec.size")
	gvr, namespaced := o.FindResource(widgets, "Widget")
	if gvr != widgets.WithResource("widgets") || !namespaced {
		t.Errorf("the kind stands for %s, in namespaces: %t", gvr, namespaced)
	}
	if gvr, namespaced := o.FindResource(schema.GroupVersion{Group: "example.com", Version: "v2"}, "Widget"); !gvr.Empty() || namespaced {
		t.Errorf("a version that is not served stands for %s", gvr)
	}
	if err := o.SortObjects(); err != nil {
		t.Fatal(err)
	}
	one := &v1alpha1.ClusterTarget{Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{APIGroup: "example.com", Version: "v1", Kind: "Widget", FieldSelector: "spec.color=red"}}}
	for _, whole := range []bool{false, true} { // the second look is not told less by the first
		one.IncludeWhenEvaluating = &whole
		got := readTarget(t.Context(), o, "", one)
		if got.State != observed.Complete || len(got.Objects) != 1 || (got.Objects[0].Value != nil) != whole || got.Objects[0].UID != "u" || got.Objects[0].ResourceVersion != "7" {
			t.Errorf("all of it is read: %t; got %+v", whole, got)
		}
	}
	one.Reference.FieldSelector = "spec.size=3"
	if got := readTarget(t.Context(), o, "", one); got.State != observed.Failed {
		t.Errorf("a field that was not made known first selects: %+v", got)
	}
	if err := o.AddObject(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "late"}}}); err != nil {
		t.Fatal(err)
	}
	if got := readTarget(t.Context(), o, "", one); got.State != observed.Unsynced {
		t.Errorf("read while an object is added, it is %s", got.State)
	}
}

// An object of which only the metadata is known fails the queries for more that may select it, and no others.
func TestObjectsThatAreUnread(t *testing.T) {
	for name, tc := range map[string]struct {
		reference string
		metadata  bool
		want      []string // nil if it fails
	}{
		"All":           {"{version: v1, kind: Pod}", false, nil},
		"Name":          {"{version: v1, kind: Pod, namespace: web, name: deep}", false, nil},
		"Fields":        {"{version: v1, kind: Pod, fieldSelector: status.phase=Failed}", false, nil},
		"FieldsOnly":    {"{version: v1, kind: Pod, fieldSelector: status.phase=Failed}", true, nil},
		"Metadata":      {"{version: v1, kind: Pod}", true, []string{"db/a", "web/deep"}},
		"FieldOfName":   {"{version: v1, kind: Pod, fieldSelector: metadata.name=a}", false, []string{"db/a"}},
		"OtherLabels":   {"{version: v1, kind: Pod, matchLabels: {app: x}}", false, []string{"db/a"}},
		"OtherPlace":    {"{version: v1, kind: Pod, excludeNamespaces: [web]}", false, []string{"db/a"}},
		"OtherName":     {"{version: v1, kind: Pod, namespace: db, name: a}", false, []string{"db/a"}},
		"OtherKind":     {"{version: v1, kind: Namespace}", false, []string{}},
		"ItsOwnLabels":  {"{version: v1, kind: Pod, matchLabels: {app: z}}", false, nil},
		"LabelMetadata": {"{version: v1, kind: Pod, matchLabels: {app: z}}", true, []string{"web/deep"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := objectsOf(t, "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: db, labels: {app: x}}, status: {phase: Running}}")
			deep := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte("{apiVersion: v1, kind: Pod, metadata: {name: deep, namespace: web, labels: {app: z}}, status: {phase: Running}}"), &deep.Object); err != nil {
				t.Fatal(err)
			}
			if err := o.AddUnread(deep, errors.New("it is odd")); err != nil {
				t.Fatal(err)
			}
			if err := o.SortObjects(); err != nil {
				t.Fatal(err)
			}
			target := &v1alpha1.ClusterTarget{Name: "t"}
			if err := yaml.UnmarshalStrict([]byte(tc.reference), &target.Reference); err != nil {
				t.Fatal(err)
			}
			q := newTargetQuery("", target)
			q.MetadataOnly = tc.metadata
			got := q.read(t.Context(), o)
			if tc.want == nil {
				if want := "cannot read Pod web/deep: it is odd"; got.State != observed.Failed || got.Detail != want || got.Objects != nil {
					t.Errorf("got %s %q, want %q", got.State, got.Detail, want)
				}
				return
			}
			places := []string{}
			for _, found := range got.Objects {
				places = append(places, found.Namespace+"/"+found.Name)
			}
			if diff := cmp.Diff(tc.want, places); got.State != observed.Complete || diff != "" {
				t.Errorf("got %s %q (-want +got):\n%s", got.State, got.Detail, diff)
			}
		})
	}
}
