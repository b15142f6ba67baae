// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// found are the rules that report in a case, and what waits there.
func found(t *testing.T, name string) (reports, waits []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("spiderpool-conflicts", "testdata", name, "plan.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var plan struct {
		Steps   []struct{ Rule, Verb string }
		Pending []struct{ Rule string }
	}
	if err := yaml.Unmarshal(text, &plan); err != nil {
		t.Fatal(err)
	}
	for _, s := range plan.Steps {
		if s.Verb != "report" {
			t.Errorf("%s: rule %s wants to %s", name, s.Rule, s.Verb)
		}
		reports = append(reports, s.Rule)
	}
	for _, p := range plan.Pending {
		waits = append(waits, p.Rule)
	}
	return reports, waits
}

// The template reports, and does nothing else; each finding has cases on both sides, and a line about what to do.
func TestSpiderpoolConflictsOnlyReport(t *testing.T) {
	template, err := Load("spiderpool-conflicts")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("spiderpool-conflicts/README.md")
	if err != nil {
		t.Fatal(err)
	}
	reports, _ := found(t, "found")
	subnets, _ := found(t, "subnets")
	early, waits := found(t, "too-early")
	if consistent, waits := found(t, "consistent"); len(consistent)+len(waits) > 0 {
		t.Errorf("where nothing is wrong %q are reported, and %q wait", consistent, waits)
	}
	for i := range template.Spec.Template.Rules {
		rule := &template.Spec.Template.Rules[i]
		if len(rule.Actions) != 1 || rule.Actions[0].Report == nil {
			t.Errorf("rule %s does more than report", rule.Name)
		}
		if !slices.Contains(append(reports, subnets...), rule.Name) {
			t.Errorf("no case has the finding %s", rule.Name)
		}
		// Whether a Pod has waited for long its own time says.
		if byItself := rule.Name == "pool-without-addresses"; byItself == (rule.For != "") || rule.For != "" && slices.Contains(early, rule.Name) {
			t.Errorf("rule %s reports what may pass", rule.Name)
		}
		if rule.For != "" && slices.Contains(reports, rule.Name) && !slices.Contains(waits, rule.Name) {
			t.Errorf("rule %s does not wait", rule.Name)
		}
		if !strings.Contains(string(readme), "\n| `"+rule.Name+"` | ") {
			t.Errorf("README.md does not say what to do about %s", rule.Name)
		}
	}
}
