// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/internal/statusfindings"
)

// What rules report is in status and metrics for as long as it is so: the first of it by name, and how much it is.
func TestFindings(t *testing.T) {
	c := done(v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}})
	other := c.Spec.Rules[0]
	other.Name, other.When = "not-done", `item.status.phase != "Succeeded"`
	c.Spec.Rules = append(c.Spec.Rules, other)
	r := newRig(t, c)
	for i := range 7 {
		r.pods.put(aPod(fmt.Sprintf("p-%d", i), "Running"))
	}
	r.pass()
	want := []v1alpha1.Finding{{Rule: "not-done", Count: 7, Items: []string{"Pod shop/p-0", "Pod shop/p-1", "Pod shop/p-2", "Pod shop/p-3", "Pod shop/p-4"}, Message: "it is done"}}
	if got := r.cleaner().Status.Findings; !reflect.DeepEqual(want, got) {
		t.Errorf("found %+v, want %+v", got, want)
	}
	same(t, "findings", []string{"c shop not-done 7"}, r.measured("cleaner_findings"))
	r.pods.put(aPod("p-3", "Succeeded"))
	r.clock.Step(time.Minute)
	r.pass()
	same(t, "findings", []string{"c shop done 1", "c shop not-done 6"}, r.measured("cleaner_findings"))
	for i := range 7 {
		r.pods.put(aPod(fmt.Sprintf("p-%d", i), "Succeeded"))
	}
	r.clock.Step(time.Minute)
	r.pass()
	same(t, "findings", []string{"c shop done 7", "c shop not-done 0"}, r.measured("cleaner_findings"))
	if got := r.cleaner().Status.Findings; len(got) != 1 || got[0].Rule != "done" || got[0].Count != 7 {
		t.Errorf("found %+v", got)
	}
}

// The counts of rules are written together with other news of a status. Alone they never are: a Cleaner at rest writes nothing, however
// its objects change.
func TestRuleCountsAloneAreNotWritten(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.Rules[0].Keep = new(intstr.FromInt32(100))
	r := newRig(t, c)
	for i := range 5 {
		r.pods.put(aPod(fmt.Sprintf("p-%d", i), "Running"))
	}
	counts := func() v1alpha1.RuleCounts {
		t.Helper()
		if got := r.cleaner().Status.RuleCounts; len(got) == 1 {
			return got[0]
		}
		t.Fatalf("the counts are %v", r.cleaner().Status.RuleCounts)
		return v1alpha1.RuleCounts{}
	}
	r.pass()
	if got, want := counts(), (v1alpha1.RuleCounts{Rule: "done", Items: 5}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	written := r.cleaner().ResourceVersion
	for i := range 5 {
		r.pods.put(aPod(fmt.Sprintf("p-%d", i), "Succeeded"))
		r.clock.Step(time.Minute)
		r.pass()
	}
	if now := r.cleaner().ResourceVersion; now != written {
		t.Errorf("the status is written at version %s, although only its counts have changed since %s", now, written)
	}
	r.pods.put(aPod("p-5", "Running")) // there is one object more, which a status says anyway
	r.clock.Step(time.Minute)
	r.pass()
	if got, want := counts(), (v1alpha1.RuleCounts{Rule: "done", Items: 6, Matched: 5, Kept: 5}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// phaseless is a Pod of which no rule can ask the phase.
func phaseless(name string) *unstructured.Unstructured {
	pod := aPod(name, "")
	unstructured.RemoveNestedField(pod.Object, "status")
	return pod
}

// A finding stays while nobody knows, and goes when somebody does: that there is nothing, that it is not to be asked about, or that the
// rule has gone.
func TestFindingsStayWhileNobodyKnows(t *testing.T) {
	reports := func() *v1alpha1.Cleaner { return done(v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}}) }
	pod := func(phase string) func(r *rig) { return putting("a", phase) }
	failing := func(r *rig) { r.pods.put(phaseless("a")) }
	edit := func(change func(c *v1alpha1.Cleaner)) func(r *rig) { return func(r *rig) { r.edit(change) } }
	for name, c := range map[string]struct {
		reason string
		change func(r *rig)
		left   string // of a, which was found
	}{
		"Errors":        {"a rule that gives errors alone keeps what it found", failing, "done 1"},
		"ErrorsBeside":  {"what it gives beside errors is known", all(failing, putting("b", "Succeeded"), putting("c", "Succeeded")), "done 2"},
		"Nothing":       {"there is nothing any more", pod("Running"), ""},
		"Conditions":    {"conditions are false: nothing is to be found", edit(func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"pods.items.size() == 0"} }), ""},
		"BadConditions": {"nobody knows whether conditions hold", edit(func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"pods.items[99] == null"} }), "done 1"},
		"Suspended":     {"nobody looks", edit(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }), "done 1"},
		"Waits": {"what is found waits anew", edit(func(c *v1alpha1.Cleaner) {
			c.Spec.Rules[0].When, c.Spec.Rules[0].For = `item.status.phase != "Unknown"`, "1h"
		}), ""},
		"OtherRule": {"the rule has gone, though its successor gives errors", all(failing, edit(func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].Name = "other" })), ""},
		"Once": {"one that cleans once reports as a part of its run", edit(func(c *v1alpha1.Cleaner) {
			c.Spec.Lifecycle, c.Spec.Conditions = v1alpha1.LifecycleOnce, []string{"pods.items[99] == null"}
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, reports(), aPod("a", "Succeeded"))
			show := func() string {
				var out []string
				for _, f := range r.cleaner().Status.Findings {
					out = append(out, fmt.Sprint(f.Rule, " ", f.Count))
				}
				return strings.Join(out, ", ")
			}
			r.pass()
			same(t, "at first", "done 1", show())
			c.change(r)
			r.clock.Step(time.Minute)
			r.pass()
			same(t, c.reason, c.left, show())
			if got := r.measured("cleaner_findings"); c.left != "" && !reflect.DeepEqual(got, []string{"c shop " + c.left}) {
				t.Errorf("%s: the metric says %v", c.reason, got)
			}
		})
	}
}

// What findings say is bounded, whatever rules report and how many do; how much is found is not.
func TestFindingsAreBounded(t *testing.T) {
	long := strings.Repeat("<long>", 165) // a key may have 1024 bytes, and a reason too
	for rules, most := range map[int]int{1: statusfindings.MaxItems, 8: 5, 64: 1} {
		t.Run(fmt.Sprint(rules), func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}})
			rule := c.Spec.Rules[0]
			rule.ForEach, rule.When = "[1, 2, 3, 4, 5, 6, 7]", "true"
			rule.Key, rule.Reason = `string(item) + variables.long`, "variables.long"
			c.Spec.Variables, c.Spec.Rules = []v1alpha1.Variable{{Name: "long", Expression: `"` + long + `"`}}, nil
			for i := range rules {
				rule.Name = fmt.Sprintf("r%02d%s", i, strings.Repeat("-long", 12))
				c.Spec.Rules = append(c.Spec.Rules, rule)
			}
			r := newRig(t, c)
			r.pass()
			all := r.cleaner().Status.Findings
			if len(all) != rules {
				t.Fatalf("there are %d findings of %d rules: %s", len(all), rules, r.cleaner().Status.LastEvaluation.Message)
			}
			bytes := 0
			for _, f := range all {
				if f.Count != 7 || f.Message == "" || len(f.Items) == 0 || len(f.Items) > most || !strings.HasPrefix(f.Items[0], "1<long>") {
					t.Errorf("rule %s has %d findings, and names %d", f.Rule, f.Count, len(f.Items))
				}
				for _, text := range append(f.Items, f.Rule, f.Message) {
					if bytes += len(text); len(text) > sanitize.MaxText {
						t.Errorf("a text has %d bytes", len(text))
					}
				}
			}
			if bytes > statusfindings.MaxBytes {
				t.Errorf("the texts have %d bytes", bytes)
			}
			text, err := json.Marshal(all)
			if err != nil || len(text) > 6*statusfindings.MaxBytes {
				t.Errorf("they are written in %d bytes: %v", len(text), err)
			}
			if series := r.measured("cleaner_findings"); len(series) > 51 { // as many as a namespace has names, and one for all others
				t.Errorf("there are %d series", len(series))
			}
			must(t, r.store.Delete(t.Context(), r.cleaner()))
			r.pass()
			if series := r.measured("cleaner_findings"); len(series) > 1 || len(series) == 1 && series[0] != "(others) shop (others) 0" {
				t.Errorf("the Cleaner has gone, and there is %v", series)
			}
		})
	}
}
