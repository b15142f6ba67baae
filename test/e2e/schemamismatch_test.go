// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
)

// defineWidgets has the API server serve Widgets in a group, with one more field of spec.
func defineWidgets(l *lab, group, field string) {
	l.Helper()
	file := filepath.Join(l.TempDir(), "crd.yaml")
	text := fmt.Appendf(nil, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {phase: {type: string}, %[2]s}}
`, group, field)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		l.Fatal(err)
	}
	if err := cluster.InstallCRDs(l.ctx, l.Config(), file); err != nil {
		l.Fatal(err)
	}
}

// finished creates a Widget that a Cleaner deletes, and waits until it has.
func finished(l *lab, group, name string, says func() string) {
	l.Helper()
	l.apply(fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: %s}\nspec: {phase: Done}", group, name))
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(group + "/v1")
	u.SetKind("Widget")
	isGone(l, u, name, says)
}

// A definition drops a field that a stored Cleaner reads: its status warns, with the path and the nearest field, and it acts as before. When the
// field is back, the warning goes. A Cleaner that reads another kind of the group is not warned.
func TestChangedDefinitionIsCheckedAgain(t *testing.T) {
	l := parallel(t)
	group := l.ns + ".example.com"
	mayClean(l, group)
	defineWidgets(l, group, "ttl: {type: string}")
	gadgets(l, group)
	of := func(name, kind string) {
		l.apply(fmt.Sprintf(`
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: %s}
spec:
  lifecycle: Recurring
  targets:
  - name: all
    reference: {apiGroup: %s, version: v1, kind: %s, matchLabels: {}}
  rules:
  - name: done
    forEach: all.items
    when: item.spec.phase == "Done" && item.spec.?ttl.orValue("") == ""
    actions: [{delete: {}}]`, name, group, kind))
	}
	of("widgets", "Widget")
	of("gadgets", "Gadget")
	says := func() string { return describe(l.cleaner("widgets")) }
	finished(l, group, "a", says)
	isUnwarned := func(when, name string) {
		t.Helper()
		if c := l.cleaner(name); meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionSchemaMismatch) != nil {
			t.Errorf("%s: %s is warned: %s", when, name, describe(c))
		}
	}
	isUnwarned("at first", "widgets")

	defineWidgets(l, group, "ttlSeconds: {type: string}")
	c := l.says("widgets", v1alpha1.ConditionSchemaMismatch, v1alpha1.ReasonNotInSchema)
	for _, want := range []string{"spec.rules[0].when: ", "Widget has no field spec.ttl; ", `"ttlSeconds"`} {
		if got := message(c, v1alpha1.ConditionSchemaMismatch); !strings.Contains(got, want) {
			t.Errorf("it says %q, without %q", got, want)
		}
	}
	if !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("it is not ready: %s", describe(c))
	}
	finished(l, group, "b", says)
	isUnwarned("after the change", "gadgets")

	defineWidgets(l, group, "ttl: {type: string}")
	l.eventually("the warning goes", func() string {
		if c := l.cleaner("widgets"); meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionSchemaMismatch) != nil {
			return describe(c)
		}
		return ""
	})
	finished(l, group, "c", says)

	defineWidgets(l, group, "timeToLive: {type: string}")
	l.says("widgets", v1alpha1.ConditionSchemaMismatch, v1alpha1.ReasonNotInSchema)
	l.update(c, "widgets", func() { c.Spec.Validation = v1alpha1.ValidationIgnore })
	l.eventually("nothing is said to those who ignore it", func() string {
		if c := l.cleaner("widgets"); strings.Contains(message(c, v1alpha1.ConditionSchemaMismatch), "spec.ttl") {
			return describe(c)
		}
		return ""
	})
	finished(l, group, "d", says)
}
