// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

// TestExplainErrors shows how explain names the items that have an error, and a rule that failed as a whole.
func TestExplainErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		of   v1alpha1.ItemError
		want string
	}{
		"OneItem":   {v1alpha1.ItemError{Rule: "old", Key: "b", Field: "rules[0].when", Message: "no such key", Count: 1}, "error in rule old, b: rules[0].when no such key (1 item)"},
		"Items":     {v1alpha1.ItemError{Rule: "old", Key: "b", Field: "rules[0].when", Message: "no such key", Count: 3}, "error in rule old, b: rules[0].when no such key (3 items)"},
		"Unknown":   {v1alpha1.ItemError{Rule: "old", Key: "b", Field: "rules[0].when", Message: "no such key"}, "error in rule old, b: rules[0].when no such key (1 item)"},
		"WholeRule": {v1alpha1.ItemError{Rule: "old", Field: "rules[0].forEach", Message: "not a list", Count: 1}, "error in rule old: rules[0].forEach not a list"},
		"Others":    {v1alpha1.ItemError{Rule: "old", Message: "other errors", Count: 9}, "error in rule old: other errors (9 items)"},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			screen := output.Screen{To: &text, ColourMode: new(output.ColourMode)}
			printEvaluation(screen, screen.NewPainter(), &v1alpha1.Evaluation{Errors: []v1alpha1.ItemError{tc.of}}, "")
			if lines := strings.Split(strings.TrimSpace(text.String()), "\n"); strings.TrimSpace(lines[len(lines)-1]) != tc.want {
				t.Errorf("got %q, want %q", text.String(), tc.want)
			}
		})
	}
}

// TestExplainConditions shows which conditions explain has beside the summary: those that are not as they should be.
func TestExplainConditions(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: "Reason" + kind, Message: "It says " + kind + "."}
	}
	c := &v1alpha1.Cleaner{}
	c.Status.Conditions = []metav1.Condition{
		condition(v1alpha1.ConditionReady, metav1.ConditionTrue), condition(v1alpha1.ConditionValid, metav1.ConditionTrue), condition(v1alpha1.ConditionEvaluated, metav1.ConditionFalse),
		condition(v1alpha1.ConditionRequestDropped, metav1.ConditionTrue), condition(v1alpha1.ConditionSchemaMismatch, metav1.ConditionTrue),
	}
	var text strings.Builder
	screen := output.Screen{To: &text, ColourMode: new(output.ColourMode)}
	printStatus(screen, screen.NewPainter(), "cleaner/c", c)
	for _, want := range []string{"cleaner/c: ReasonReady\n", "Evaluated is False: ", "RequestDropped is True: ", "SchemaMismatch is True: ReasonSchemaMismatch: It says SchemaMismatch.\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "Valid") {
		t.Errorf("it shows what is as it should be:\n%s", text.String())
	}
}

// explainedLive is a Cleaner of the cluster whose timer runs.
const explainedLive = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: why, namespace: team}
spec:
  lifecycle: Recurring
  targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchExpressions: [{key: app, operator: In, values: [web, other]}]}}]
  rules:
  - {name: old, forEach: maps.items, when: 'item.metadata.?labels.?app.orValue("") == "web"', for: 3h, actions: [{delete: {}}]}
  - {name: taken, forEach: maps.items, when: 'item.metadata.labels.app != "web"', actions: [{delete: {}}]}
  - {name: late, forEach: maps.items, when: 'item.metadata.labels.app != "web"', actions: [{delete: {}}]}
`

// explainedCostly is a Cleaner that reads whole objects.
const explainedCostly = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: costly, namespace: team}
spec:
  lifecycle: Recurring
  mode: DryRun
  targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: web}}}]
  rules:
  - {name: twins, forEach: maps.items, when: 'maps.items.exists(m, m.metadata.name != item.metadata.name && m == item)', actions: [{delete: {}}]}
`

// createFrom creates the object that a text is.
func createFrom(t *testing.T, in dynamic.ResourceInterface, text string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testExplainCosts explains what the operator cannot do cheaply for a Cleaner.
func testExplainCosts(t *testing.T, s *session, client dynamic.Interface) {
	cleaners := client.Resource(v1alpha1.GroupVersion.WithResource("cleaners")).Namespace("team")
	for name, text := range map[string]string{"costly": explainedCostly, "why": explainedLive} {
		createFrom(t, cleaners, text)
		got := s.run(0, "explain", name, "-n", "team")
		costly := strings.Contains(got, `Memory: of target "maps", whole objects are kept, for rules[0].when`) && strings.Contains(got, `Time: of rule "twins", each change evaluates all items, because when reads all objects of target "maps" for each item`)
		if costly != (name == "costly") || !costly && (strings.Contains(got, "Memory:") || strings.Contains(got, "Time:")) {
			t.Errorf("of %s it says:\n%s", name, got)
		}
		if err := cleaners.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// testExplainObject explains objects of a cluster with the rights of the caller.
func testExplainObject(t *testing.T, s *session, client dynamic.Interface) {
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("team")
	for name, app := range map[string]string{"why-web": "web", "why-other": "other", "why-none": "none"} {
		m := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "labels": map[string]any{"app": app}}}}
		if _, err := maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	cleaners := client.Resource(v1alpha1.GroupVersion.WithResource("cleaners")).Namespace("team")
	createFrom(t, cleaners, explainedLive)
	explain := func(code int, object string, more ...string) string {
		return s.run(code, append([]string{"explain", "why", "-n", "team", "--object", object}, more...)...)
	}
	s.wants(explain(0, "secret/why-web"), "Cleaner team/why, secret why-web", "The Cleaner does not act on it.", "maps     no           kind: it selects configmaps")
	s.wants(explain(0, "cm/why-web"), "Rule old acts on it at 2030-01-01T03:00:00Z", "no status lists its timer", `item.metadata.?labels.?app.orValue(""): "web"`)
	status := `{"status": {"pending": [{"rule": "old", "key": "ConfigMap team/why-web", "until": "2030-01-01T01:30:00Z"}]}}`
	if _, err := cleaners.Patch(t.Context(), "why", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if got := explain(0, "configmap/team/why-web"); !strings.Contains(got, "Rule old acts on it at 2030-01-01T01:30:00Z") || strings.Contains(got, "no status lists its timer") {
		t.Errorf("the timer of the status does not count:\n%s", got)
	}
	s.wants(explain(0, "ConfigMap/why-web", "--at", "2030-01-01T01:30:00Z"), "Rule old deletes it now.")
	s.wants(explain(0, "configmaps/why-other"), "Rule taken deletes it now.", "late    earlierRule   rule taken acts on it first")
	s.wants(explain(0, "configmaps/why-none"), "The Cleaner does not act on it.", "labels: app in (other,web), and it is \"none\"")
	s.wants(explain(0, "configmap/default/a", "-o", "json"), `"acts": false`, `"because": "namespace: a Cleaner sees only its own namespace team"`)
	s.wants(explain(1, "configmap/none"), "configmap team/none does not exist")
	s.wants(explain(1, "configmap/why-web", "--as", "nobody"), "forbidden")
	if _, err := maps.Get(t.Context(), "why-other", metav1.GetOptions{}); err != nil {
		t.Errorf("explaining has changed something: %v", err)
	}
	if err := cleaners.Delete(t.Context(), "why", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"why-web", "why-other", "why-none"} {
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}
