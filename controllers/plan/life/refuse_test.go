// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

func TestRefused(t *testing.T) {
	belongs := Belonging{Resource: pods, Matches: true}
	spec := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted), podTarget("kept"), podTarget("one", deleted, named("a"))}}
	row := func(rule, name string) runrow.Row { return runrow.Row{Rule: rule, Ref: pod(name).Ref} }
	cases := map[string]struct {
		reason  string
		row     runrow.Row
		belongs Belonging
		want    bool
	}{
		"Wanted":           {"a target stands for it", row("targets.pods", "b"), belongs, false},
		"NoSuchTarget":     {"nobody wants it", row("targets.x", "b"), belongs, true},
		"NotToDelete":      {"the target is not to be deleted", row("targets.kept", "b"), belongs, true},
		"NoRule":           {"it comes from nowhere", row("pods", "b"), belongs, true},
		"OtherName":        {"the target names another object", row("targets.one", "b"), belongs, true},
		"NoLongerMatches":  {"its labels have changed", row("targets.pods", "b"), Belonging{Resource: pods}, true},
		"OtherKind":        {"the target is about another kind", row("targets.pods", "b"), Belonging{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Matches: true}, true},
		"OtherGroup":       {"the target is about a kind of the same name in another group", row("targets.pods", "b"), Belonging{Resource: schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1", Resource: "pods"}, Matches: true}, true},
		"OtherVersion":     {"the target is about another version", row("targets.pods", "b"), Belonging{Resource: schema.GroupVersionResource{Version: "v2", Resource: "pods"}, Matches: true}, true},
		"ClusterScoped":    {"a Cleaner is about no object without a namespace", runrow.Row{Rule: "targets.pods", Ref: pod("b", func(o *observed.Object) { o.Namespace = "" }).Ref}, belongs, true},
		"UnresolvableKind": {"the kind of the target is not served", row("targets.pods", "b"), Belonging{}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := pod(tc.row.Name)
			got := RefuseRow(plan.Owner{Namespace: "shop"}, spec, tc.row, &o, tc.belongs, plan.Protection{})
			if (got != "") != tc.want {
				t.Errorf("%s: got %q", tc.reason, got)
			}
			if RefuseRow(plan.Owner{Namespace: "other"}, spec, tc.row, &o, tc.belongs, plan.Protection{}) == "" {
				t.Error("an object of another namespace is touched")
			}
			o.Protected = true
			if RefuseRow(plan.Owner{Namespace: "shop"}, spec, tc.row, &o, tc.belongs, plan.Protection{}) == "" {
				t.Error("a protected object is touched")
			}
		})
	}
}

// TestRowsOfReleaseRecords shows that a row of a record is refused when Helm has labelled the record otherwise since, or the spec never asked
// for records.
func TestRowsOfReleaseRecords(t *testing.T) {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	records := v1alpha1.ClusterTarget{Name: "records", Delete: true}
	records.Reference.Kind, records.Reference.FieldSelector = "Secret", "type=helm.sh/release.v1"
	all := records
	all.Reference.FieldSelector = "metadata.name!=x"
	row := runrow.Row{Rule: "targets.records", Ref: observed.Ref{Resource: secrets, Namespace: "shop", Name: "sh.helm.release.v1.web.v1", UID: "u", ResourceVersion: "7"}}
	for name, tc := range map[string]struct {
		target v1alpha1.ClusterTarget
		status string
		want   string
	}{
		"Superseded":  {records, "superseded", ""},
		"Deployed":    {records, "deployed", "status=superseded"},
		"NotAskedFor": {all, "superseded", "spec.helm"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{tc.target}}
			o := &observed.Object{Ref: row.Ref, Labels: map[string]string{"owner": "helm", "status": tc.status}}
			got := RefuseRow(plan.Owner{Namespace: "shop", Name: "c"}, spec, row, o, Belonging{Resource: secrets, Matches: true}, plan.Protection{})
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRowsOfAClusterCleaner(t *testing.T) {
	set := v1alpha1.ClusterTarget{Name: "set", Delete: true}
	set.Reference.Kind, set.Reference.MatchLabels = "Pod", map[string]string{}
	some, but, one, node := set, set, set, set
	some.Name, but.Name, one.Name, node.Name = "some", "but", "one", "node"
	some.Reference.Namespaces, but.Reference.ExcludeNamespaces = []string{"a", "b"}, []string{"c"}
	one.Reference.Name, one.Reference.Namespace = "x", "a"
	work := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{set, some, but, one, node}, Cluster: true}
	protection := plan.Protection{Namespaces: []string{"kube-system"}, Own: "cleaner-system"}
	cases := map[string]struct {
		rule, namespace string
		change          func(*v1alpha1.Work, *Belonging)
		want            string
	}{
		"Anywhere":        {"targets.set", "z", nil, ""},
		"Listed":          {"targets.some", "b", nil, ""},
		"NotListed":       {"targets.some", "c", nil, `does not select namespace "c"`},
		"Excluded":        {"targets.but", "c", nil, `does not select namespace "c"`},
		"NotExcluded":     {"targets.but", "a", nil, ""},
		"Named":           {"targets.one", "a", nil, ""},
		"NamedElsewhere":  {"targets.one", "b", nil, `does not select namespace "b"`},
		"NamedNowhere":    {"targets.one", "", nil, `does not select namespace ""`},
		"ClusterScoped":   {"targets.node", "", nil, ""},
		"OtherLabels":     {"targets.set", "z", func(_ *v1alpha1.Work, b *Belonging) { b.Matches = false }, "no longer selects it"},
		"Protected":       {"targets.set", "kube-system", nil, `namespace "kube-system" is protected`},
		"ProtectedLifted": {"targets.set", "kube-system", func(w *v1alpha1.Work, _ *Belonging) { w.IncludeProtected = true }, ""},
		"Own":             {"targets.set", "cleaner-system", func(w *v1alpha1.Work, _ *Belonging) { w.IncludeProtected = true }, "namespace of the operator"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec, belongs := *work, Belonging{Resource: pods, Matches: true}
			if tc.change != nil {
				tc.change(&spec, &belongs)
			}
			row := runrow.Row{Rule: tc.rule, Ref: observed.Ref{Resource: pods, Namespace: tc.namespace, Name: "x", UID: "u", ResourceVersion: "7"}}
			got := RefuseRow(plan.Owner{Name: "c"}, &spec, row, &observed.Object{Ref: row.Ref}, belongs, protection)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
