// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

func target(change ...func(*v1alpha1.ClusterReference)) *v1alpha1.ClusterTarget {
	t := &v1alpha1.ClusterTarget{Name: "pods", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}}
	for _, c := range change {
		c(&t.Reference)
	}
	return t
}

type change = func(*v1alpha1.ClusterReference)

func named(namespace, name string) change {
	return func(r *v1alpha1.ClusterReference) { r.Namespace, r.Name = namespace, name }
}

func kind(k string) change { return func(r *v1alpha1.ClusterReference) { r.Kind = k } }

func labelled(key, value string) change {
	return func(r *v1alpha1.ClusterReference) { r.MatchLabels = map[string]string{key: value} }
}

func fielded(s string) change { return func(r *v1alpha1.ClusterReference) { r.FieldSelector = s } }

func in(names ...string) change {
	return func(r *v1alpha1.ClusterReference) { r.Namespaces = append([]string{}, names...) }
}

func notIn(names ...string) change {
	return func(r *v1alpha1.ClusterReference) { r.ExcludeNamespaces = names }
}

func where(selector *metav1.LabelSelector) change {
	return func(r *v1alpha1.ClusterReference) { r.NamespaceSelector = selector }
}

var (
	dev    = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "dev"}}
	broken = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Sometimes"}}}
)

func TestQueryOf(t *testing.T) {
	devLabels := labels.SelectorFromSet(labels.Set{"tier": "dev"})
	for name, tc := range map[string]struct {
		reason    string
		owner     string
		target    *v1alpha1.ClusterTarget
		namespace string
		among     Namespaces
		fails     string
	}{
		"Cleaner":         {"its own namespace", "shop", target(), "shop", Namespaces{}, ""},
		"CleanerNamed":    {"its own namespace", "shop", target(named("", "a")), "shop", Namespaces{}, ""},
		"CleanerBeyond":   {"it has no other", "shop", target(named("other", "a")), "", Namespaces{}, "a Cleaner sees its own namespace only"},
		"CleanerOwn":      {"it has nothing to choose", "shop", target(in("shop")), "", Namespaces{}, "a Cleaner sees its own namespace only"},
		"CleanerExcludes": {"it has nothing to choose", "shop", target(notIn("other")), "", Namespaces{}, "a Cleaner sees its own namespace only"},
		"All":             {"the whole cluster", "", target(), "", Namespaces{}, ""},
		"Named":           {"the object's", "", target(named("a", "p")), "a", Namespaces{}, ""},
		"NoName":          {"a set has namespaces", "", target(named("a", "")), "", Namespaces{}, "add name"},
		"Names":           {"sorted, each once", "", target(in("b", "a", "b")), "", Namespaces{Names: []string{"a", "b"}}, ""},
		"NamesExcluded":   {"what is excluded is not named", "", target(in("b", "a"), notIn("b", "c")), "", Namespaces{Names: []string{"a"}, Except: []string{"b", "c"}}, ""},
		"NothingIsLeft":   {"nothing is not everything", "", target(in("a"), notIn("a")), "", Namespaces{Names: []string{}, Except: []string{"a"}}, ""},
		"EmptyList":       {"nothing is not everything", "", target(in()), "", Namespaces{Names: []string{}}, ""},
		"Selector":        {"by labels", "", target(where(dev)), "", Namespaces{Labels: devLabels}, ""},
		"EmptySelector":   {"it selects every namespace", "", target(where(&metav1.LabelSelector{})), "", Namespaces{}, ""},
		"BrokenSelector":  {"it is none", "", target(where(broken)), "", Namespaces{}, `cannot read the namespaces of target "pods"`},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := NewQuery(tc.owner, tc.target)
			if fmt.Sprint(err) == "<nil>" != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Fatalf("%s: got error %v, want %q", tc.reason, err, tc.fails)
			}
			if q.Namespace != tc.namespace {
				t.Errorf("%s: namespace is %q, want %q", tc.reason, q.Namespace, tc.namespace)
			}
			text := cmp.Transformer("text", func(s labels.Selector) string { return fmt.Sprint(s) })
			if diff := cmp.Diff(tc.among, q.Namespaces, text); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNamespacesChoose(t *testing.T) {
	of := func(tier string) *observed.Object { return &observed.Object{Labels: map[string]string{"tier": tier}} }
	for name, tc := range map[string]struct {
		target    *v1alpha1.ClusterTarget
		namespace string
		object    *observed.Object
		want      bool
	}{
		"All":             {target(), "a", nil, true},
		"Named":           {target(in("a", "b")), "b", nil, true},
		"NotNamed":        {target(in("a", "b")), "c", nil, false},
		"None":            {target(in()), "a", nil, false},
		"Excluded":        {target(notIn("a")), "a", nil, false},
		"NotExcluded":     {target(notIn("a")), "b", nil, true},
		"Labels":          {target(where(dev)), "a", of("dev"), true},
		"OtherLabels":     {target(where(dev)), "a", of("prod"), false},
		"LabelsUnknown":   {target(where(dev)), "a", nil, false},
		"AbsenceUnknown":  {target(where(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "DoesNotExist"}}})), "a", nil, false},
		"LabelsNotNamed":  {target(where(dev), in("b")), "a", of("dev"), false},
		"LabelsExcluded":  {target(where(dev), notIn("a")), "a", of("dev"), false},
		"LabelsEmptyDict": {target(where(&metav1.LabelSelector{})), "a", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := NewQuery("", tc.target)
			if err != nil {
				t.Fatal(err)
			}
			if got := q.Namespaces.MatchesNamespace(tc.namespace, tc.object); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// cluster is a Reader of a few objects. Each has the field "color" that its label of that name says.
type cluster struct {
	objects map[string][]observed.Object // by kind
	state   map[string]observed.TargetState
	asked   []string
}

func (c *cluster) Read(_ context.Context, q Query) observed.Target {
	c.asked = append(c.asked, strings.TrimSpace(fmt.Sprintf("%s %s/%s %s %s", q.Kind, q.Namespace, q.Name, q.Labels, q.Fields)))
	t := observed.Target{Resource: schema.GroupVersionResource{Version: "v1", Resource: strings.ToLower(q.Kind) + "s"}, Namespaced: q.Kind == "Pod"}
	if wrong := q.CheckScope(t.Resource.GroupResource(), t.Namespaced); wrong != "" {
		t.State, t.Detail = observed.Failed, wrong
		return t
	}
	if t.State = c.state[q.Kind]; t.State != observed.Unknown {
		t.Detail = "trouble with " + q.Kind
		return t
	}
	t.State = observed.Complete
	for _, o := range c.objects[q.Kind] {
		if o.Name == q.Name && (!t.Namespaced || o.Namespace == q.Namespace) && q.Labels.Matches(labels.Set(o.Labels)) &&
			q.Fields.Matches(fields.Set{"color": o.Labels["color"]}) {
			t.Objects = append(t.Objects, o)
		}
	}
	return t
}

func TestReadOne(t *testing.T) {
	objects := map[string][]observed.Object{
		"Pod": {
			{Ref: observed.Ref{Namespace: "a", Name: "p"}, Labels: map[string]string{"app": "web", "color": "red"}},
			{Ref: observed.Ref{Namespace: "b", Name: "p"}},
			{Ref: observed.Ref{Namespace: "gone", Name: "p"}},
		},
		"Namespace": {{Ref: observed.Ref{Name: "a"}, Labels: map[string]string{"tier": "dev"}}, {Ref: observed.Ref{Name: "b"}}},
		"Node":      {{Ref: observed.Ref{Name: "n"}}},
	}
	for name, tc := range map[string]struct {
		reason          string
		owner           string
		target          *v1alpha1.ClusterTarget
		namespace, name string
		trouble         map[string]observed.TargetState
		found           string // "" is none
		matches         bool
		state           observed.TargetState
		detail          string
		asked           []string
	}{
		"InASet":           {"all match", "", target(), "a", "p", nil, "a/p", true, observed.Complete, "", []string{"Pod a/p"}},
		"Missing":          {"the Reader says so", "", target(), "a", "x", nil, "", false, observed.Complete, "", []string{"Pod a/x"}},
		"NoNamespace":      {"nothing says which", "", target(), "", "p", nil, "", false, observed.Failed, `pods are namespaced: set reference.namespace for "p"`, []string{"Pod /p"}},
		"NoObjectName":     {"nothing says which", "", target(), "a", "", nil, "", false, observed.Failed, `target "pods" is asked for an object without a name`, nil},
		"Node":             {"no namespace is needed", "", target(kind("Node")), "", "n", nil, "/n", true, observed.Complete, "", []string{"Node /n"}},
		"NodeOfNamespace":  {"it is ignored", "", target(kind("Node")), "a", "n", nil, "/n", true, observed.Complete, "", []string{"Node a/n"}},
		"NodeOfNamespaces": {"the target is none", "", target(kind("Node"), in("a")), "", "n", nil, "", false, observed.Failed, "nodes are cluster-scoped: remove namespaces, namespaceSelector and excludeNamespaces from the reference", []string{"Node /n"}},
		"Labels":           {"it has them", "", target(labelled("app", "web")), "a", "p", nil, "a/p", true, observed.Complete, "", []string{"Pod a/p"}},
		"OtherLabels":      {"it has them not", "", target(labelled("app", "db")), "a", "p", nil, "a/p", false, observed.Complete, "", []string{"Pod a/p"}},
		"Fields":           {"the API server says so", "", target(fielded("color=red")), "a", "p", nil, "a/p", true, observed.Complete, "", []string{"Pod a/p  color=red"}},
		"OtherFields":      {"then it is asked whether there is one", "", target(fielded("color=blue")), "a", "p", nil, "a/p", false, observed.Complete, "", []string{"Pod a/p  color=blue", "Pod a/p"}},
		"FieldsOfNone":     {"then it is asked whether there is one", "", target(fielded("color=blue")), "a", "x", nil, "", false, observed.Complete, "", []string{"Pod a/x  color=blue", "Pod a/x"}},
		"FieldsAndLabels":  {"both must hold", "", target(fielded("color=red"), labelled("app", "db")), "a", "p", nil, "a/p", false, observed.Complete, "", []string{"Pod a/p app=db color=red", "Pod a/p"}},
		"Named":            {"that one", "", target(named("a", "p")), "a", "p", nil, "a/p", true, observed.Complete, "", []string{"Pod a/p"}},
		"NamedElsewhere":   {"another one", "", target(named("a", "p")), "b", "p", nil, "", false, observed.Complete, "", nil},
		"NamedOther":       {"another one", "", target(named("b", "q")), "b", "p", nil, "", false, observed.Complete, "", nil},
		"Namespaces":       {"one of them", "", target(in("a", "c")), "a", "p", nil, "a/p", true, observed.Complete, "", []string{"Pod a/p"}},
		"OtherNamespaces":  {"none of them", "", target(in("a", "c")), "b", "p", nil, "", false, observed.Complete, "", nil},
		"CleanerOther":     {"another one", "a", target(named("", "q")), "", "p", nil, "", false, observed.Complete, "", nil},
		"Excluded":         {"that one", "", target(notIn("a")), "a", "p", nil, "", false, observed.Complete, "", nil},
		"Selected":         {"its namespace has the labels", "", target(where(dev)), "a", "p", nil, "a/p", true, observed.Complete, "", []string{"Pod a/p", "Namespace /a"}},
		"NotSelected":      {"its namespace has them not", "", target(where(dev)), "b", "p", nil, "b/p", false, observed.Complete, "", []string{"Pod b/p", "Namespace /b"}},
		"NamespaceGone":    {"it has no labels", "", target(where(dev)), "gone", "p", nil, "gone/p", false, observed.Complete, "", []string{"Pod gone/p", "Namespace /gone"}},
		"NamespaceHidden":  {"nobody knows its labels", "", target(where(dev)), "a", "p", map[string]observed.TargetState{"Namespace": observed.Forbidden}, "", false, observed.Forbidden, "trouble with Namespace", []string{"Pod a/p", "Namespace /a"}},
		"NoSuchKind":       {"nothing follows from it", "", target(), "a", "p", map[string]observed.TargetState{"Pod": observed.NoSuchKind}, "", false, observed.NoSuchKind, "trouble with Pod", []string{"Pod a/p"}},
		"FieldsForbidden":  {"nothing follows from it", "", target(fielded("color=red")), "a", "p", map[string]observed.TargetState{"Pod": observed.Forbidden}, "", false, observed.Forbidden, "trouble with Pod", []string{"Pod a/p  color=red"}},
		"Cleaner":          {"its own namespace", "a", target(), "", "p", nil, "a/p", true, observed.Complete, "", []string{"Pod a/p"}},
		"CleanerOwn":       {"the same", "a", target(), "a", "p", nil, "a/p", true, observed.Complete, "", []string{"Pod a/p"}},
		"CleanerBeyond":    {"it sees no other", "a", target(), "b", "p", nil, "", false, observed.Failed, `a Cleaner in namespace "a" does not see pods "p" in namespace "b"`, []string{"Pod a/p"}},
		"CleanerNode":      {"that has no namespace", "a", target(kind("Node")), "b", "n", nil, "/n", true, observed.Complete, "", []string{"Node a/n"}},
		"BrokenTarget":     {"its selector is none", "", target(where(broken)), "a", "p", nil, "", false, observed.Failed, `cannot read the namespaces of target "pods": "Sometimes" is not a valid label selector operator`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{objects: objects, state: tc.trouble}
			found, matches, state, detail := ReadObject(t.Context(), c, tc.owner, tc.target, tc.namespace, tc.name)
			var place string
			if found != nil {
				place = found.Namespace + "/" + found.Name
			}
			if place != tc.found || matches != tc.matches || state != tc.state || detail != tc.detail {
				t.Errorf("%s: got %q %t %s %q, want %q %t %s %q", tc.reason, place, matches, state, detail, tc.found, tc.matches, tc.state, tc.detail)
			}
			if diff := cmp.Diff(tc.asked, c.asked); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}
