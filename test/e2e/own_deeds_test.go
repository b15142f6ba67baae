// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/e2e/mistakes"
)

// A run is judged by the world without its own deeds: what it has deleted or patched neither stops it nor holds it up, whether a
// rule or a target does that.
func TestARunIsJudgedWithoutItsOwnDeeds(t *testing.T) {
	const (
		door  = "\n  - {name: door, reference: {version: v1, kind: ConfigMap, name: door}}"
		opens = "\n  conditions: ['door.data.open == \"true\"']"
		all   = "\n  - {name: all, forEach: maps.items, when: \"true\", actions: [{delete: {}}]}"
		doors = "\n  - {name: doors, forEach: '[door]', when: \"true\", actions: [{delete: {}}]}"
	)
	for name, tc := range map[string]struct {
		spec  string
		times int // how often the deletion that is refused is tried
	}{
		"ConditionOnAList":  {shopMaps + "\n  conditions: ['maps.items.size() == 3']\n  rules:" + all, 2},
		"ConditionOnAName":  {shopMaps + door + opens + "\n  rules:" + doors + all, 2},
		"RuleOnAList":       {shopMaps + "\n  rules:\n  - {name: all, forEach: maps.items, when: maps.items.size() == 3, actions: [{delete: {}}]}", 2},
		"ConditionOnAPatch": {shopMaps + "\n  conditions: ['maps.items.all(m, !has(m.data))']" + patchThenDeleteAll, 2},
		"RuleOnAPatch":      {shopMaps + patchThenDeleteAll, 2},
		"TargetsAfterARule": {"\n  targets:" + door + "\n  - {name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: shop}}, delete: true}" + opens + "\n  rules:" + doors, 5},
		"TargetsAloneOnAList": {"\n  targets:\n  - {name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: shop}}, delete: true}" +
			"\n  conditions: ['maps.items.size() == 3']", 5},
	} {
		t.Run(name, func(t *testing.T) {
			l := parallel(t)
			s := l.sink()
			g := newGate(l)
			g.set(func(r *admissionv1.AdmissionRequest) (bool, string) { return r.Name != "held", "not yet" })
			l.labelled(nil, "a", "b", "held")
			l.configMap("door", nil, map[string]string{"open": "true"})
			l.apply(cleanerYAML("c", fmt.Sprintf("\n  lifecycle: Once\n  retry: {period: 10s}\n  cloudEventSink: %q", s.URL)+tc.spec))
			l.eventually("the others are deleted", func() string {
				if left := l.left(); slices.Contains(left, "a") || slices.Contains(left, "b") {
					return fmt.Sprintf("%v are left", left)
				}
				return ""
			})
			l.trail.backsOff("held", tc.times, "delete")
			g.set(allow)
			l.gone("c")
			if l.exists(&corev1.ConfigMap{}, "held") {
				t.Error("held is there")
			}
			if e := l.received(s, 1)[0]; e.Type != "dev.vtex.cleaner.cleaned.v1" {
				t.Errorf("the event is of type %q: %s", e.Type, e.Data)
			}
		})
	}
}

// patchThenDeleteAll does that to what is not patched.
const patchThenDeleteAll = `
  rules:
  - name: all
    forEach: maps.items
    when: '!has(item.data)'
    actions:
    - patch: {type: Merge, expression: '{"data": {"seen": "true"}}'}
    - delete: {}`

// What comes after an action that is refused waits for it, in this batch and in each later one.
func TestARunKeepsTheOrderOfActions(t *testing.T) {
	l := parallel(t)
	probe := l.configMap("probe", nil, nil)
	g := newGateBefore(l, admissionregistrationv1.Update, corev1.SchemeGroupVersion, "configmaps", func() error {
		return l.Update(l.ctx, probe, client.DryRunAll)
	})
	g.set(func(r *admissionv1.AdmissionRequest) (bool, string) { return r.Name != "second", "not yet" })
	l.labelled(nil, "first")
	l.configMap("second", nil, nil)
	l.apply(cleanerYAML("c", "\n  lifecycle: Once\n  retry: {period: 10s}"+shopMaps+`
  - {name: second, reference: {version: v1, kind: ConfigMap, name: second}}
  rules:
  - name: both
    forEach: maps.items
    when: "true"
    actions:
    - patch: {type: Merge, expression: '{"data": {"step": "1"}}'}
    - patch: {type: Merge, expression: '{"data": {"step": "2"}}'}
      object: second
    - delete: {}`))
	l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonPatchRefused)
	l.trail.backsOff("second", 3, "patch")
	if left := l.left(); !slices.Contains(left, "first") {
		t.Errorf("%v are left", left)
	}
	g.set(allow)
	l.gone("c")
	l.leaves("probe", "second")
	patches := slices.DeleteFunc(l.trail.requests("patch"), func(e cluster.Event) bool { return e.ObjectRef.Name != "second" || e.Code() >= 300 })
	deletes := slices.DeleteFunc(l.trail.deletes(), func(e cluster.Event) bool { return e.ObjectRef.Name != "first" })
	if len(patches) != 1 || len(deletes) != 1 || deletes[0].RequestReceivedTimestamp.Before(&patches[0].StageTimestamp) {
		t.Errorf("second was patched by %v, and first deleted by %v", patches, deletes)
	}
}

// An object that somebody has made anew under its name was not deleted by the run, which then has not done all that it was to do.
func TestAnObjectThatIsMadeAnewIsNotDeleted(t *testing.T) {
	l := newLab(t, alone(t))
	s := l.sink()
	old := l.configMap("a", map[string]string{"app": "shop"}, nil)
	l.apply(cleanerYAML("c", fmt.Sprintf("\n  lifecycle: Once\n  retry: {period: 10s}\n  cloudEventSink: %q", s.URL)+shopMaps+takeAll))
	p := l.operators.stopsAt(faulty(t, mistakes.Mistake{}), "before a DELETE", 1, lone()...)
	if err := l.Delete(l.ctx, old); err != nil {
		t.Fatal(err)
	}
	l.configMap("a", nil, nil)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	e := l.received(s, 1)[0]
	if e.Type != "dev.vtex.cleaner.partial.v1" {
		t.Errorf("the event is of type %q: %s", e.Type, e.Data)
	}
	var data struct{ Counts []v1alpha1.Count }
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatal(err)
	}
	if want := []v1alpha1.Count{{Resource: "configmaps/v1", Outcome: v1alpha1.OutcomeReplaced, Count: 1}}; !slices.Equal(data.Counts, want) {
		t.Errorf("the event tells %v", data.Counts)
	}
	l.gone("c")
	l.leaves("a")
}
