// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
)

// What is read of the Pods and the Nodes by a condition.
func TestReadings(t *testing.T) {
	for name, tc := range map[string]struct {
		condition   string
		pods, nodes string
	}{
		"Nothing":          {"true", "", ""},
		"Length":           {"size(pods.items) > 3", "", ""},
		"Path":             {`pods.items.exists(p, p.status.phase == "Failed")`, "status.phase", ""},
		"Presence":         {`pods.items.exists(p, has(p.metadata.deletionTimestamp))`, "metadata.deletionTimestamp?", ""},
		"Null":             {`pods.items.exists(p, p.spec == null)`, "spec", ""},
		"Key":              {`pods.items.exists(p, "a/b" in p.metadata.labels)`, `metadata.labels["a/b"]?`, ""},
		"Keys":             {`pods.items.exists(p, p.data.exists(k, k.startsWith("a")))`, "data[*]", ""},
		"Size":             {`pods.items.exists(p, size(p.data) == 0)`, "data", ""},
		"Optional":         {`pods.items.exists(p, p.?metadata.labels["app"].orValue("") == "a")`, "metadata.labels.app", ""},
		"Elements":         {`pods.items.exists(p, p.status.conditions.exists(c, c.type == "Ready" && c.status != "True"))`, "status.conditions[*].status, status.conditions[*].type", ""},
		"Condition":        {`pods.items.exists(p, condition(p, "Ready").?status.orValue("") == "True")`, "status.conditions[type=\"Ready\"].status, status.conditions[type=\"Ready\"].type", ""},
		"Controller":       {`pods.items.exists(p, controller(p).?kind.orValue("") == "Job")`, "metadata.ownerReferences[*].controller, metadata.ownerReferences[*].kind", ""},
		"Age":              {`pods.items.exists(p, age(p) > duration("1h"))`, "metadata.creationTimestamp", ""},
		"Claims":           {`pods.items.exists(p, "a" in podRefs(podSpec(p), "PersistentVolumeClaim"))`, "spec.containers?, spec.jobTemplate.spec.template.spec.containers?, spec.jobTemplate.spec.template.spec.volumes[*].persistentVolumeClaim.claimName, spec.template.spec.containers?, spec.template.spec.volumes[*].persistentVolumeClaim.claimName, spec.volumes[*].persistentVolumeClaim.claimName, template.spec.containers?, template.spec.volumes[*].persistentVolumeClaim.claimName", ""},
		"Join":             {`pods.items.exists(p, !(p.spec.nodeName in nodes.items.map(n, n.metadata.name)))`, "spec.nodeName", "metadata.name"},
		"Index":            {`cel.bind(by, nodes.items.indexBy(n, n.metadata.name), pods.items.exists(p, p.spec.nodeName in by && by[p.spec.nodeName].spec.unschedulable))`, "spec.nodeName", "metadata.name, spec.unschedulable"},
		"Own map":          {`pods.items.map(p, {"n": p.spec.nodeName, "x": p.status}).exists(e, e.x.phase == "Failed" && e.n == "n1")`, "spec.nodeName, status.phase", ""},
		"Both":             {`(pods.items + nodes.items).exists(o, o.a == "x")`, "a", "a"},
		"Sorted":           {`pods.items.sortBy(p, p.a).first().?b.orValue(true)`, "a, b", ""},
		"Targets in lists": {`[pods].all(nodes, nodes.items.all(p, p.a) && .nodes.items.all(n, n.b))`, "a", "b"},
		"ConditionOfList":  {`condition({"status": {"conditions": pods.items}}, "Warning").hasValue()`, "type", ""},
		"References":       {`refs([pods, nodes.items], "Secret").size() > 0`, "{references to Secret}", "{references to Secret}"},
		"ReferencesOfPart": {`pods.items.exists(p, "a" in refs(p.spec.template, "Secret") + refs([p, null], "ConfigMap"))`, "spec.template{references to Secret}, {references to ConfigMap}", ""},
		"ReferencesOfMap":  {`refs({"spec": pods.items[0].spec}, "Secret").size() > 0`, "spec", ""},
		"UnknownKind":      {`refs(pods, string(size(nodes.items))).size() > 0`, "* for conditions[0]", ""},
		"Unknown function": {`json.marshal(pods).size() > 0`, "* for conditions[0]", ""},
		"Compared":         {`pods.items.exists(p, p == nodes.items[0])`, "* for conditions[0]", "* for conditions[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := podWork(nil)
			w.Conditions = []string{tc.condition}
			got := describeReadings(compileWork(t, budget.Limits{}, w))
			if diff := cmp.Diff(map[string]string{"pods": tc.pods, "nodes": tc.nodes, "config": ""}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Objects are read without metadata.managedFields: what reads it is refused, as its answer would be that of an object without managers.
func TestManagedFieldsAreRefused(t *testing.T) {
	const of = `.exists(f, f.manager == "argocd-controller")`
	for name, tc := range map[string]struct {
		condition, at string
	}{
		"Plain":       {"pods.items.exists(p, p.metadata.managedFields" + of + ")", "1:33"},
		"Guarded":     {"pods.items.all(p, !p.metadata.?managedFields.orValue([])" + of + ")", "1:30"},
		"Presence":    {"pods.items.exists(p, has(p.metadata.managedFields))", "1:25"},
		"Key":         {`pods.items.exists(p, "managedFields" in p.metadata)`, "1:38"},
		"Index":       {`pods.items.exists(p, p["metadata"]["managedFields"] == null)`, "1:35"},
		"Bound":       {`pods.items.exists(p, cel.bind(m, p.metadata, m.managedFields` + of + `))`, "1:48"},
		"Whole":       {`pods.items.exists(p, p == nodes.items[0] || p.metadata.managedFields` + of + `)`, "1:56"},
		"First whole": {`pods.items.exists(p, p.metadata == nodes.items[0] || p.metadata.managedFields` + of + `)`, "1:65"},
		"Single":      {`has(config.metadata.managedFields)`, "1:4"},
		"Own map":     {`pods.items.map(p, {"of": p}).exists(e, e.of.metadata.managedFields` + of + `)`, "1:54"},
		"Other field": {`pods.items.exists(p, p.spec.managedFields == "" || p.metadata.labels.managedFields == "")`, ""},
		"Own field":   {`pods.items.map(p, {"metadata": {"managedFields": 1}}).exists(e, e.metadata.managedFields == 1)`, ""},
		"Whole other": {`pods.items.exists(p, p == nodes.items[0] || p.spec.managedFields == "")`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := podWork(nil)
			w.Targets[2].Reference.Name = "c"
			w.Conditions = []string{tc.condition}
			_, errs := newCompiler(t, budget.Limits{}).Compile(t.Context(), w)
			if tc.at == "" {
				if len(errs) > 0 {
					t.Error(errs)
				}
				return
			}
			if len(errs) != 1 || errs[0].Field != "spec.conditions[0]" || !strings.HasPrefix(errs[0].Detail, tc.at+": objects are read without metadata.managedFields") {
				t.Errorf("want it at %s: %v", tc.at, errs)
			}
		})
	}
	w := podWork(nil)
	w.Variables = []v1alpha1.Variable{{Name: "m", Expression: "pods.items.map(p, p.metadata)"}}
	w.Rules = []v1alpha1.Rule{{Name: "r", Variables: []v1alpha1.Variable{{Name: "all", Expression: "variables.m.filter(m, has(m.managedFields))"}}, ForEach: "pods.items", When: "size(variables.all) == 0", Actions: []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}}}
	if _, errs := newCompiler(t, budget.Limits{}).Compile(t.Context(), w); len(errs) != 1 || errs[0].Field != "spec.rules[0].variables[0].expression" {
		t.Error(errs)
	}
}

func describeReadings(p *Programs) map[string]string {
	all := map[string]string{}
	for name, reading := range p.FindReadings() {
		all[name] = strings.Join(reading.Projection.ListPaths(), ", ")
		if reading.WholeFor != "" {
			all[name] += " for " + reading.WholeFor
		}
	}
	return all
}

// Each expression of a rule counts, and an item has what identifies it.
func TestReadingsOfRules(t *testing.T) {
	at := func(field string) string { return "string(item." + field + ")" }
	rule := v1alpha1.Rule{
		Name: "a", ForEach: "variables.failed", Variables: variablesOf([]string{"own: item.own"}),
		When: "variables.own.x", For: "duration(" + at("for") + ")", ForKey: at("forKey"), GroupBy: "item.group", Unless: "object.unless", Key: at("key"), Reason: at("reason"),
		OrderBy: []v1alpha1.OrderBy{{Expression: "item.order"}}, Keep: &intstr.IntOrString{Type: intstr.String, StrVal: "items.filter(i, i.keep).size()"},
		Leave:   &intstr.IntOrString{Type: intstr.String, StrVal: "items.filter(i, i.leave).size()"},
		Confirm: []v1alpha1.Confirm{{Target: "nodes", Name: "item.confirm", Namespace: at("namespace")}},
		Actions: []v1alpha1.RuleAction{{When: "item.acts", Object: "nodes.items[0]", Patch: &v1alpha1.PatchAction{Expression: `{"a": object.patched, "b": items.map(i, i.several)}`}}},
	}
	w := podWork([]string{"failed: pods.items.filter(p, p.failed)"}, rule)
	w.Targets[2].Reference.Name = "config"
	w.CloudEventData = "config.data"
	const identity = "apiVersion, %skind, metadata.name, metadata.namespace, metadata.uid, "
	want := map[string]string{
		"pods":   "acts, apiVersion, confirm, failed, for, forKey, group, keep, key, kind, leave, metadata.name, metadata.namespace, metadata.uid, namespace, order, own.x, patched, reason, several, unless",
		"nodes":  fmt.Sprintf(identity, "") + "patched",
		"config": "data, patched",
	}
	if diff := cmp.Diff(want, describeReadings(compileWork(t, budget.Limits{}, w))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An analysis is bounded, and what it did not get to is read as a whole.
func TestReadingsAreBounded(t *testing.T) {
	deep := "pods.items[0]" + strings.Repeat(".a", 100) + " == 1"
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "has(p.f%d.g) || ", i)
	}
	w := podWork([]string{"x: [pods.items]"})
	w.Conditions = []string{deep, "nodes.items.exists(p, " + many.String() + "false)"}
	for i := range 40 {
		last := fmt.Sprintf("variables.v%d", i-1)
		if i == 0 {
			last = "variables.x"
		}
		w.Variables = append(w.Variables, v1alpha1.Variable{Name: fmt.Sprintf("v%d", i), Expression: fmt.Sprintf("%s + [%s, %s]", last, last, last)})
	}
	w.Conditions = append(w.Conditions, "variables.v39.size() > 0")
	got := describeReadings(compileWork(t, budget.Limits{}, w))
	if want := strings.Repeat("a.", 29) + "a"; got["pods"] != want {
		t.Errorf("got %s", got["pods"])
	}
	if paths := strings.Split(got["nodes"], ", "); len(paths) != 200 {
		t.Errorf("got %s", got["nodes"])
	}
}

// A spec that names too many parts of its targets reads all of them, and what it names is counted with what it takes.
func TestReadingsOfManyPartsAreAll(t *testing.T) {
	for parts, all := range map[int]bool{500: false, 501: true} {
		var pods, nodes strings.Builder
		for i := range parts {
			b := &pods
			if i%2 == 0 {
				b = &nodes
			}
			fmt.Fprintf(b, "has(o.f%d) || ", i)
		}
		w := podWork(nil)
		w.Conditions = []string{"pods.items.exists(o, " + pods.String() + "false)", "nodes.items.exists(o, " + nodes.String() + "false)"}
		p := compileWork(t, budget.Limits{}, w)
		for name, reading := range p.FindReadings() {
			if reading.Projection.Whole != all || (reading.WholeFor != "") != all {
				t.Errorf("of %d parts, %s: all is read: %t, for %q", parts, name, reading.Projection.Whole, reading.WholeFor)
			}
		}
		if counted := SumFootprint(p, nil) - footprintOfSpec - p.footprint; (counted >= int64(footprintOfPart*parts)) == all {
			t.Errorf("%d parts count for %d bytes", parts, counted)
		}
	}
}

// A variable that chooses between two parts of the one before has twice as many: to find out what is read of it ends, and then all is read.
func TestReadingsOfManyChoicesEnd(t *testing.T) {
	w := podWork(nil)
	for i := range 7 {
		last := fmt.Sprintf("variables.v%d", i-1)
		if i == 0 {
			last = "pods.items[0]"
		}
		w.Variables = append(w.Variables, v1alpha1.Variable{Name: fmt.Sprintf("v%d", i), Expression: fmt.Sprintf("(size(pods.items) == 0) ? %s.a : %s.b", last, last)})
	}
	for range 64 {
		w.Conditions = append(w.Conditions, "type("+strings.Repeat("dyn(", 140)+"variables.v6"+strings.Repeat(")", 140)+") == int")
	}
	if got := compileWork(t, budget.Limits{}, w).FindReadings()["pods"]; !got.Projection.Whole {
		t.Error("each part was followed through each of 8960 calls")
	}
}
