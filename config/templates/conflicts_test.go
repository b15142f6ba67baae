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

// cases are those of a folder: each shows one thing that is right, or wrong.
func cases(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("spiderpool-conflicts", "testdata", folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, filepath.Join(folder, e.Name()))
		}
	}
	if len(names) == 0 {
		t.Fatalf("no cases are in %s", folder)
	}
	return names
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
	early, waits := found(t, "too-early")
	for _, name := range []string{"subnets", "records", "unreadable", "waiting"} {
		more, _ := found(t, name)
		reports = append(reports, more...)
	}
	for _, name := range cases(t, "reported") {
		if more, _ := found(t, name); len(more) == 0 {
			t.Errorf("in %s nothing is reported", name)
		}
	}
	for _, name := range []string{"subnets-too-early", "records-too-early"} {
		earlier, later := found(t, name)
		early, waits = append(early, earlier...), append(waits, later...)
	}
	for _, name := range append(cases(t, "silent"), "consistent", "not-waiting") {
		if consistent, waits := found(t, name); len(consistent)+len(waits) > 0 {
			t.Errorf("in %s, where nothing is wrong, %q are reported, and %q wait", name, consistent, waits)
		}
	}
	for i := range template.Spec.Template.Rules {
		rule := &template.Spec.Template.Rules[i]
		if len(rule.Actions) != 1 || rule.Actions[0].Report == nil {
			t.Errorf("rule %s does more than report", rule.Name)
		}
		if !slices.Contains(reports, rule.Name) {
			t.Errorf("no case has the finding %s", rule.Name)
		}
		if rule.For != "params.observedFor" || slices.Contains(early, rule.Name) || !slices.Contains(waits, rule.Name) {
			t.Errorf("rule %s reports what may pass", rule.Name)
		}
		if !strings.Contains(string(readme), "\n| `"+rule.Name+"` | ") {
			t.Errorf("README.md does not say what to do about %s", rule.Name)
		}
	}
}
