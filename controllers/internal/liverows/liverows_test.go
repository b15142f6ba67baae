// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package liverows

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// answers gives a target for each kind that is asked about, and notes whether whole objects were asked for.
type answers struct {
	byKind map[string]observed.Target
	whole  bool
}

// Read gives it.
func (a *answers) Read(_ context.Context, q snapshot.Query) observed.Target {
	a.whole = a.whole || !q.MetadataOnly
	return a.byKind[q.Kind]
}

// resolver knows Pods, or nothing.
type resolver struct{ state observed.TargetState }

// Resolve says so.
func (r resolver) Resolve(context.Context, string, string, string) (served.Resource, observed.TargetState, string) {
	return served.Resource{GVR: pods, Namespaced: true}, r.state, ""
}

// TestLookRows shows what is found out about the object of a row: a status is not believed, so each object is held against the spec.
func TestLookRows(t *testing.T) {
	const row = "targets.pods pods/v1 shop/a uid-a 1"
	object := func(change func(o *observed.Object)) observed.Target {
		o := observed.Object{Ref: observed.Ref{Resource: pods, Namespace: "shop", Name: "a", UID: "uid-a", ResourceVersion: "7"}, Labels: map[string]string{"app": "web"}}
		if change != nil {
			change(&o)
		}
		return observed.Target{State: observed.Complete, Resource: pods, Objects: []observed.Object{o}}
	}
	there := object(nil)
	for name, tc := range map[string]struct {
		row       string
		reference v1alpha1.ClusterReference
		seen      observed.Target
		namespace observed.Target
		unknown   bool // which resource the kind is served as
		missing   bool
		refused   string
		failed    string
		whole     bool
	}{
		"There":   {seen: there},
		"Missing": {seen: observed.Target{State: observed.Complete}, missing: true},
		"Unread":  {seen: observed.Target{State: observed.Failed, Detail: "no answer"}, failed: "no answer"},
		"NoRow":   {row: "what is this", failed: "row"},
		"OtherLabels": {
			reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{MatchLabels: map[string]string{"app": "db"}}}, seen: there, refused: "no longer selects it",
		},
		"Fields": {
			reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{FieldSelector: "spec.nodeName=n"}}, seen: there, refused: "no longer selects it", whole: true,
		},
		"OtherTarget":      {row: "targets.nodes pods/v1 shop/a uid-a 1", seen: there, refused: `no target with delete: true is named "targets.nodes"`},
		"KindNotServed":    {seen: there, unknown: true, refused: `target "pods" selects`},
		"Protected":        {seen: object(func(o *observed.Object) { o.Protected = true }), refused: v1alpha1.ProtectKey},
		"NamespaceMatches": {reference: inTeam(), seen: there, namespace: team("web")},
		"NamespaceOther":   {reference: inTeam(), seen: there, namespace: team("db"), refused: "no longer selects it"},
		"NamespaceGone":    {reference: inTeam(), seen: there, namespace: observed.Target{State: observed.Complete}, refused: "no longer selects it"},
		"NamespaceUnread":  {reference: inTeam(), seen: there, namespace: observed.Target{State: observed.Failed, Detail: "no Namespaces"}, failed: "no Namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.reference.Version, tc.reference.Kind = "v1", "Pod"
			api, state := &answers{byKind: map[string]observed.Target{"pods": tc.seen, "Namespace": tc.namespace}}, observed.Complete
			if tc.unknown {
				state = observed.NoSuchKind
			}
			if tc.row == "" {
				tc.row = row
			}
			r := &Reader{Live: api, Resolver: resolver{state}, Work: &v1alpha1.Work{Cluster: true, Targets: []v1alpha1.ClusterTarget{{Name: "pods", Delete: true, Reference: tc.reference}}}}
			sights := r.LookRows(t.Context(), []string{"", tc.row}, []int{1})
			got, known := sights[1]
			if len(sights) != 1 || !known {
				t.Fatalf("it looks at %v", sights)
			}
			if got.Missing != tc.missing || (got.Refused == "") != (tc.refused == "") || !strings.Contains(got.Refused, tc.refused) || (got.Failed == "") != (tc.failed == "") || !strings.Contains(got.Failed, tc.failed) {
				t.Errorf("got %+v", got)
			}
			if seen := got.Failed == "" && !got.Missing; seen && (got.UID != "uid-a" || got.ResourceVersion != "7") {
				t.Errorf("it sees %s at version %s", got.UID, got.ResourceVersion)
			}
			if api.whole != tc.whole {
				t.Errorf("whole objects are asked for: %t", api.whole)
			}
		})
	}
}

// inTeam selects the objects of Namespaces of a team.
func inTeam() v1alpha1.ClusterReference {
	return v1alpha1.ClusterReference{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "web"}}}
}

// team is the Namespace of a team.
func team(name string) observed.Target {
	return observed.Target{State: observed.Complete, Objects: []observed.Object{{
		Ref: observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Name: "shop"}, Labels: map[string]string{"team": name},
	}}}
}

// TestATargetIsReadOncePerLook shows that what a target asks for is made once for all rows, which may be thousands: more rows of the same
// target take no more memory than rows of none, but for what reading them takes.
func TestATargetIsReadOncePerLook(t *testing.T) {
	const many = 1000
	values := make([]string, many)
	for n := range values {
		values[n] = fmt.Sprint("v", n)
	}
	api := &answers{byKind: map[string]observed.Target{"pods": {State: observed.Complete, Resource: pods, Objects: []observed.Object{{
		Ref: observed.Ref{Resource: pods, Namespace: "shop", Name: "a", UID: "uid-a", ResourceVersion: "7"},
	}}}}}
	r := &Reader{Live: api, Resolver: resolver{observed.Complete}, Work: &v1alpha1.Work{Cluster: true, Targets: []v1alpha1.ClusterTarget{{
		Name: "pods", Delete: true, Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{
			Version: "v1", Kind: "Pod",
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: values}},
		}},
	}}}}
	look := func(n int) float64 {
		rows, which := make([]string, n), make([]int, n)
		for i := range rows {
			rows[i], which[i] = "targets.pods pods/v1 shop/a uid-a 1", i
		}
		return testing.AllocsPerRun(3, func() { r.LookRows(t.Context(), rows, which) })
	}
	if one, more := look(1), look(101); more-one > 100*many/4 {
		t.Errorf("a hundred rows more make %.0f allocations, as many as their selector has values each", more-one)
	}
}
