// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/sink"
)

// shopMaps is the target of most rules: the ConfigMaps of the namespace that have a label.
const shopMaps = `
  targets:
  - {name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: shop}}}`

// labelled makes ConfigMaps with that label.
func (l *lab) labelled(data map[string]string, names ...string) {
	l.Helper()
	for _, name := range names {
		l.configMap(name, map[string]string{"app": "shop"}, data)
	}
}

// left are the names of the ConfigMaps that are there, but for the one that Kubernetes makes.
func (l *lab) left() []string {
	l.Helper()
	list := &corev1.ConfigMapList{}
	if err := l.List(l.ctx, list, client.InNamespace(l.ns)); err != nil {
		l.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		if name := list.Items[i].Name; name != "kube-root-ca.crt" {
			names = append(names, name)
		}
	}
	return names
}

// leaves waits until these ConfigMaps are left, and no others.
func (l *lab) leaves(names ...string) {
	l.Helper()
	l.eventually(fmt.Sprintf("%v are left", names), func() string {
		if got := l.left(); !slices.Equal(got, names) {
			return fmt.Sprintf("%v are", got)
		}
		return ""
	})
}

func TestARuleActsWheneverThereIsSomethingToDo(t *testing.T) {
	l := parallel(t)
	l.labelled(map[string]string{"state": "done"}, "a", "b")
	l.labelled(map[string]string{"state": "busy"}, "c")
	l.configMap("bystander", nil, map[string]string{"state": "done"})
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring`+shopMaps+`
  rules:
  - name: done
    forEach: maps.items
    when: item.data.state == "done"
    reason: '"it is " + item.data.state'
    actions: [{delete: {}}]`))
	l.leaves("bystander", "c")
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	if a := c.Status.LastActions; len(a) != 2 || a[0].Rule != "done" || a[0].Action != "delete" || a[0].Result != "deleted: it is done" {
		t.Errorf("lastActions is %+v", a)
	}
	if n := c.Status.Counters; n == nil || n.Acted != 2 {
		t.Errorf("counters is %+v", n)
	}
	if len(c.Finalizers) != 0 || c.Status.Run != nil || c.Status.Runs != 0 {
		t.Errorf("a Cleaner without a sink has %v, run %v", c.Finalizers, c.Status.Run)
	}

	cm := &corev1.ConfigMap{}
	l.update(cm, "c", func() { cm.Data["state"] = "done" })
	l.leaves("bystander")
}

func TestARuleKeepsTheNewestOfEachGroup(t *testing.T) {
	l := parallel(t)
	for _, n := range []string{"1", "2", "3"} {
		l.labelled(map[string]string{"app": "x", "n": n}, "x"+n)
		l.labelled(map[string]string{"app": "y", "n": n}, "y"+n)
	}
	l.labelled(map[string]string{"n": "0"}, "odd") // has no group
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring`+shopMaps+`
  rules:
  - name: old
    forEach: maps.items
    when: "true"
    groupBy: item.data.app
    orderBy: [{expression: int(item.data.n)}]
    keep: 1
    unless: item.metadata.name == "y1"
    actions: [{delete: {}}]`))
	l.leaves("odd", "x3", "y1", "y3")
	l.eventually("the item without a group is shown", func() string {
		c := l.cleaner("c")
		if c.Status.LastEvaluation == nil || len(c.Status.LastEvaluation.Errors) != 1 {
			return describe(c)
		}
		if e := c.Status.LastEvaluation.Errors[0]; e.Rule != "old" || e.Count != 1 || !strings.Contains(e.Message, "app") {
			return fmt.Sprintf("it is %+v", e)
		}
		return ""
	})
}

// leave counts all items of a group that remain: those that do not match, and those that are spared; not those that another rule deletes.
func TestARuleLeavesSoManyOfEachGroup(t *testing.T) {
	l := parallel(t)
	for _, n := range []string{"1", "2", "3"} {
		l.labelled(map[string]string{"app": "x", "n": n, "state": "unused"}, "x"+n)
		l.labelled(map[string]string{"app": "y", "n": n, "state": "unused"}, "y"+n)
		l.labelled(map[string]string{"app": "z", "n": n, "state": "unused"}, "z"+n)
	}
	l.labelled(map[string]string{"app": "y", "n": "4", "state": "used"}, "y4")
	l.labelled(map[string]string{"app": "y", "n": "5", "state": "used"}, "y5")
	l.labelled(map[string]string{"app": "z", "n": "4", "state": "broken"}, "z4")
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring`+shopMaps+`
  rules:
  - name: unused
    forEach: maps.items
    when: item.data.state == "unused"
    groupBy: item.data.app
    orderBy: [{expression: int(item.data.n)}]
    leave: 2
    unless: item.metadata.name == "x1"
    actions: [{delete: {}}]
  - name: broken
    forEach: maps.items
    when: item.data.state == "broken"
    actions: [{delete: {}}]`))
	l.leaves("x1", "x3", "y4", "y5", "z2", "z3")
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)

	cm := &corev1.ConfigMap{} // one of two that are left is used no longer: it stays, and a new one lets it go
	l.update(cm, "y4", func() { cm.Data["state"] = "unused" })
	l.labelled(map[string]string{"app": "y", "n": "6", "state": "used"}, "y6")
	l.leaves("x1", "x3", "y5", "y6", "z2", "z3")
}

func TestARuleWaitsUntilItHasHeldForLongEnough(t *testing.T) {
	l := parallel(t)
	l.labelled(map[string]string{"state": "done"}, "a", "b")
	made := time.Now()
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring`+shopMaps+`
  rules:
  - name: done
    forEach: maps.items
    when: item.data.state == "done"
    for: 4s
    actions: [{delete: {}}]`))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonHolding)
	if len(c.Status.Pending) != 2 || c.Status.Pending[0].Rule != "done" {
		t.Errorf("pending is %+v", c.Status.Pending)
	}
	cm := &corev1.ConfigMap{}
	l.update(cm, "b", func() { cm.Data["state"] = "busy" })
	l.leaves("b")
	for _, d := range l.trail.deletes() {
		if d.RequestReceivedTimestamp.Time.Before(made.Add(4 * time.Second)) {
			t.Errorf("%s was sent %s after the Cleaner was made", d, d.RequestReceivedTimestamp.Sub(made))
		}
	}
}

func TestARulePatchesThenDeletes(t *testing.T) {
	l := parallel(t)
	l.labelled(map[string]string{"state": "done"}, "a")
	l.labelled(map[string]string{"state": "done", "keep": "true"}, "b")
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring`+shopMaps+`
  rules:
  - name: done
    forEach: maps.items
    when: item.data.state == "done" && !has(item.data.seen) || !has(item.data.keep)
    actions:
    - patch: {type: Merge, expression: '{"data": {"seen": "by " + item.metadata.name}}'}
      when: '!has(item.data.seen)'
    - delete: {}
      when: '!has(item.data.keep)'`))
	l.leaves("b")
	cm := &corev1.ConfigMap{}
	l.eventually("b is patched", func() string {
		if l.exists(cm, "b"); cm.Data["seen"] != "by b" {
			return fmt.Sprint(cm.Data)
		}
		return ""
	})
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	for _, e := range l.trail.requests("patch") {
		if !strings.Contains(string(e.RequestObject.Raw), "resourceVersion") {
			t.Errorf("%s carries no resourceVersion: %s", e, e.RequestObject.Raw)
		}
	}
}

func TestARuleConfirmsThatSomethingIsAbsent(t *testing.T) {
	l := parallel(t)
	l.labelled(map[string]string{"owner": "someone"}, "owned")
	l.labelled(map[string]string{"owner": "nobody"}, "orphan")
	l.configMap("someone", map[string]string{"role": "owner"}, nil)
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring`+shopMaps+`
  - {name: owners, reference: {version: v1, kind: ConfigMap, matchLabels: {role: owner}}}
  variables:
  - {name: owners, expression: 'owners.items.indexBy(o, o.metadata.name)'}
  rules:
  - name: orphans
    forEach: maps.items
    when: '!(item.data.owner in variables.owners)'
    confirm: [{target: owners, name: item.data.owner}]
    actions: [{delete: {}}]`))
	l.leaves("owned", "someone")
	confirmed := slices.ContainsFunc(l.trail.requests("get"), func(e cluster.Event) bool { return e.ObjectRef.Name == "nobody" })
	if !confirmed {
		t.Error("the owner was not looked for before its ConfigMap was deleted")
	}
}

func TestADryRunOfRules(t *testing.T) {
	l := parallel(t)
	l.labelled(map[string]string{"state": "done"}, "a")
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring
  mode: DryRun`+shopMaps+`
  rules:
  - name: done
    forEach: maps.items
    when: item.data.state == "done"
    actions:
    - patch: {type: Merge, expression: '{"data": {"seen": "true"}}'}
    - delete: {}`))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonDryRun)
	var did []string
	for _, a := range c.Status.LastActions {
		did = append(did, a.Action+": "+a.Result)
	}
	slices.Sort(did)
	if got, want := strings.Join(did, "; "), "delete (dry run): would be deleted; patch (dry run): would be patched"; got != want {
		t.Errorf("lastActions says %q, want %q", got, want)
	}
	for _, e := range append(l.trail.requests("delete"), l.trail.requests("patch")...) {
		if !strings.Contains(e.RequestURI, "dryRun=All") && !strings.Contains(string(e.RequestObject.Raw), "dryRun") {
			t.Errorf("%s is no dry run", e)
		}
	}
	cm := &corev1.ConfigMap{}
	if l.exists(cm, "a"); cm.Data["seen"] != "" {
		t.Error("a dry run has changed something")
	}
	l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.Mode = v1alpha1.ModeEnforce })
	l.leaves()
}

// updateCleaner edits a Cleaner.
func (l *lab) updateCleaner(name string, change func(*v1alpha1.Cleaner)) {
	l.Helper()
	c := &v1alpha1.Cleaner{}
	l.update(c, name, func() { change(c) })
}

func TestALimitStopsAll(t *testing.T) {
	l := parallel(t)
	l.labelled(nil, "a", "b", "c")
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring
  limits: {maxActions: 2}`+shopMaps+`
  rules:
  - {name: all, forEach: maps.items, when: "true", actions: [{delete: {}}]}`))
	c := l.says("c", v1alpha1.ConditionTripped, v1alpha1.ReasonLimitExceeded)
	if !strings.Contains(message(c, v1alpha1.ConditionTripped), "maxActions") {
		t.Errorf("Tripped says %q", message(c, v1alpha1.ConditionTripped))
	}
	if got := l.left(); len(got) != 3 {
		t.Errorf("%v are left", got)
	}
	l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.Limits.MaxActions = 3 })
	l.leaves()
}

func TestASinkIsToldOfWhatARuleDid(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	l.labelled(nil, "a", "b")
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring
  cloudEventSink: `+s.URL+shopMaps+`
  rules:
  - {name: all, forEach: maps.items, when: "true", actions: [{delete: {}}]}`))
	l.leaves()
	events := l.received(s, 1)
	c := l.cleaner("c")
	if want := string(c.UID) + "-1"; events[0].ID != want {
		t.Errorf("the event's id is %q, want %q", events[0].ID, want)
	}
	var data struct {
		Result string `json:"result"`
		Counts []v1alpha1.Count
	}
	if err := json.Unmarshal(events[0].Data, &data); err != nil {
		t.Fatal(err)
	}
	if len(data.Counts) != 1 || data.Counts[0].Count != 2 || data.Counts[0].Outcome != v1alpha1.OutcomeDeleted {
		t.Errorf("the event says %s", events[0].Data)
	}
	l.eventually("the run is delivered", func() string {
		if c := l.cleaner("c"); c.Status.Run != nil || c.Status.Unsent != nil {
			return describe(c)
		}
		return ""
	})

	l.labelled(nil, "late")
	l.leaves()
	l.received(s, 2)
	if err := l.Delete(l.ctx, l.cleaner("c")); err != nil {
		t.Fatal(err)
	}
	l.gone("c")
}

func TestRulesOfACleanerThatCleansOnce(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	l.labelled(map[string]string{"state": "done"}, "a", "b")
	l.labelled(map[string]string{"state": "busy"}, "c")
	l.apply(cleanerYAML("c", `
  lifecycle: Once
  cloudEventSink: `+s.URL+shopMaps+`
  rules:
  - name: done
    forEach: maps.items
    when: item.data.state == "done"
    actions:
    - patch: {type: Merge, expression: '{"metadata": {"labels": {"seen": "true"}}}'}
      when: '!has(item.metadata.labels.seen)'
    - delete: {}`))
	l.gone("c")
	l.leaves("c")
	if e := l.received(s, 1)[0]; e.Type != "dev.vtex.cleaner.cleaned.v1" {
		t.Errorf("the event is of type %q: %s", e.Type, e.Data)
	}
}

func TestRulesThatFindNothingEndACleanerThatCleansOnce(t *testing.T) {
	l := parallel(t)
	l.labelled(map[string]string{"state": "busy"}, "a")
	l.apply(cleanerYAML("c", `
  lifecycle: Once`+shopMaps+`
  rules:
  - {name: done, forEach: maps.items, when: item.data.state == "done", actions: [{delete: {}}]}`))
	l.gone("c")
	l.leaves("a")
}

func TestAClusterCleaner(t *testing.T) {
	l := parallel(t)
	l.labelled(nil, "a", "b", "stays")
	other := newLab(t, l.env)
	other.labelled(nil, "kept")
	cc := l.fixtures.cluster(`
  lifecycle: Recurring
  targets:
  - {name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: shop}, namespaces: [` + l.ns + `]}}
  rules:
  - {name: all, forEach: maps.items, when: item.metadata.name != "stays", actions: [{delete: {}}]}`)
	l.leaves("stays")
	l.eventually("it says so", func() string {
		if err := l.Get(l.ctx, client.ObjectKeyFromObject(cc), cc); err != nil {
			return err.Error()
		}
		if a := cc.Status.LastActions; len(a) != 2 || !strings.HasPrefix(a[0].Object, "ConfigMap "+l.ns+"/") {
			return fmt.Sprintf("lastActions is %+v", a)
		}
		if got := cc.Status.ResolvedTargets; !slices.Equal(got, []string{"ConfigMap " + l.ns + "/stays"}) {
			return fmt.Sprintf("resolvedTargets is %v", got)
		}
		return ""
	})
	if got := other.left(); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("in another namespace %v are left", got)
	}
}

// received waits until a sink has got so many events, and gives them.
func (l *lab) received(s *sink.Sink, n int) []sink.Event {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	events, err := s.WaitFor(ctx, n)
	if err != nil {
		l.Fatalf("the sink has not got %d events: %s", n, err)
	}
	return events
}

// TestLimitsHoldForOneThatCleansOnce shows that what a run has deleted counts in the next one, and that its requests are paced.
func TestLimitsHoldForOneThatCleansOnce(t *testing.T) {
	l := parallel(t)
	l.labelled(nil, "a", "b", "c", "d", "e")
	l.apply(cleanerYAML("c", `
  ttl: 0s
  retry: {period: 10s}
  limits: {maxActions: 5, actionsPerSecond: 1}
  targets:
  - {name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: shop}}, delete: true}`))
	l.eventually("the run has begun", func() string {
		if left := l.left(); len(left) == 5 {
			return fmt.Sprintf("%v are left", left)
		}
		return ""
	})
	l.labelled(nil, "late")
	l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"true"} }) // ends the run
	c := l.says("c", v1alpha1.ConditionTripped, v1alpha1.ReasonLimitExceeded)
	if got := message(c, v1alpha1.ConditionTripped); !strings.Contains(got, "maxActions") {
		t.Errorf("Tripped says %q", got)
	}
	if left := l.left(); !slices.Contains(left, "late") || len(left) < 2 {
		t.Errorf("%v are left", left)
	}
	l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.Limits.MaxActions = 6 })
	l.gone("c")
	sent := l.trail.deletes()
	for i := 1; i < len(sent); i++ {
		if d := sent[i].RequestReceivedTimestamp.Sub(sent[i-1].RequestReceivedTimestamp.Time); d < 500*time.Millisecond && sent[i].ObjectRef.Resource == "configmaps" {
			t.Errorf("%s was deleted %s after %s", sent[i].ObjectRef.Name, d, sent[i-1].ObjectRef.Name)
		}
	}
}
