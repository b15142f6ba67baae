// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/e2e/mistakes"
	"github.com/vtex/cleaner/test/invariants"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/sink"
)

// takeAll deletes each ConfigMap of shopMaps.
const takeAll = `
  rules:
  - {name: all, forEach: maps.items, when: "true", actions: [{delete: {}}]}`

// stays is the spec of a Cleaner that stays, and, with a URL, tells a sink.
func stays(url, more string) string {
	if url != "" {
		url = fmt.Sprintf("\n  cloudEventSink: %q", url)
	}
	return "\n  lifecycle: Recurring" + url + more
}

// widgets is the spec of a Cleaner that deletes ConfigMaps, and widgets of a group.
func widgets(group string) string {
	return shopMaps + fmt.Sprintf(`
  - {name: widgets, reference: {apiGroup: %s, version: v1, kind: Widget, matchLabels: {app: shop}}}
  rules:
  - {name: all, forEach: maps.items + widgets.items, when: "true", actions: [{delete: {}}]}`, group)
}

// told are the counts of all events that a sink has taken, each id once.
func told(t *testing.T, s *sink.Sink) map[v1alpha1.Outcome]int64 {
	t.Helper()
	counts, seen := map[v1alpha1.Outcome]int64{}, map[string]bool{}
	for _, e := range s.Events() {
		if e.Status/100 != 2 || seen[e.ID] {
			continue
		}
		seen[e.ID] = true
		var data struct{ Counts []v1alpha1.Count }
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		if len(data.Counts) == 0 {
			t.Errorf("an event tells of nothing: %s", e.Data)
		}
		for _, c := range data.Counts {
			counts[c.Outcome] += c.Count
		}
	}
	return counts
}

// adds waits until the events that a sink has taken add up to this.
func (l *lab) adds(s *sink.Sink, want map[v1alpha1.Outcome]int64) {
	l.Helper()
	l.eventually(fmt.Sprintf("the events add up to %v", want), func() string {
		if got := told(l.T, s); !maps.Equal(got, want) {
			return fmt.Sprintf("they do to %v", got)
		}
		return ""
	})
}

func TestADeletionOfARuleIsRefused(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	group := l.ns + ".example.test"
	widgetCRD(l, group)
	grant(l, group, "get", "list", "watch")
	widget(l, group, "w", "stale")
	l.labelled(nil, "a")
	l.apply(cleanerYAML("c", stays(s.URL, widgets(group))))
	l.leaves()
	c := l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonDeletionRefused)
	for _, want := range []string{"delete", "widgets", operator.User} {
		if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, want) {
			t.Errorf("the message does not name %s: %q", want, got)
		}
	}
	l.labelled(nil, "b") // nobody waits for the widget
	l.leaves()
	l.trail.backsOff("w", 3, "delete")
	l.adds(s, map[v1alpha1.Outcome]int64{v1alpha1.OutcomeDeleted: 2})
	l.bystander()
	grant(l, group, "get", "list", "watch", "delete")
	l.adds(s, map[v1alpha1.Outcome]int64{v1alpha1.OutcomeDeleted: 3})
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	l.eventually("no run is left", func() string {
		if c := l.cleaner("c"); c.Status.Run != nil || c.Status.Unsent != nil {
			return describe(c)
		}
		return ""
	})
	l.trail.deletedOnce()
}

func TestAPatchOfARuleIsRefused(t *testing.T) {
	l := parallel(t)
	group := l.ns + ".example.test"
	widgetCRD(l, group)
	grant(l, group, "get", "list", "watch", "delete")
	widget(l, group, "w", "stale")
	l.labelled(nil, "a")
	l.apply(cleanerYAML("c", stays("", shopMaps+fmt.Sprintf(`
  - {name: widgets, reference: {apiGroup: %s, version: v1, kind: Widget, matchLabels: {app: shop}}}
  rules:
  - name: all
    forEach: maps.items + widgets.items
    when: "true"
    actions:
    - patch: {type: Merge, expression: '{"metadata": {"annotations": {"seen": "true"}}}'}
      when: '!has(item.metadata.annotations) || !("seen" in item.metadata.annotations)'
    - delete: {}`, group))))
	l.leaves()
	l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonPatchRefused)
	l.trail.backsOff("w", 3, "patch", "delete")
	if n := len(l.trail.attempts("w", "delete")); n > 0 {
		t.Errorf("the widget was deleted after its patch was refused, %d times", n)
	}
	grant(l, group, "get", "list", "watch", "patch", "delete")
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	if l.exists(widgetKind(group), "w") {
		t.Error("the widget is there")
	}
}

func TestTheListOfATargetIsRefused(t *testing.T) {
	l := parallel(t)
	group := l.ns + ".example.test"
	widgetCRD(l, group)
	grant(l, group, "delete")
	widget(l, group, "w", "stale")
	l.labelled(nil, "a")
	l.apply(cleanerYAML("c", stays("", widgets(group))))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonAccessDenied)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "list") || !strings.Contains(got, "widgets."+group) {
		t.Errorf("the message does not name verb and resource: %q", got)
	}
	l.bystander()
	if sent := l.trail.deletes(); len(sent) > 0 {
		t.Errorf("something was deleted while nobody could read all targets: %v", sent)
	}
	grant(l, group, "get", "list", "watch", "delete")
	l.leaves()
	l.eventually("the widget goes", func() string {
		if l.exists(widgetKind(group), "w") {
			return "it is there"
		}
		return ""
	})
}

// changing has somebody write to an object whenever it is about to be deleted, so that each deletion is a conflict.
func (g *gate) changing(l *lab, name string) {
	var n int
	g.set(func(r *admissionv1.AdmissionRequest) (bool, string) {
		if r.Name != name {
			return true, ""
		}
		n++
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"annotations": {"n": "%d"}}}`, n))
		err := l.Patch(l.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}, patch)
		return err == nil, fmt.Sprint(err)
	})
}

func TestAnItemThatChangesAllTheTime(t *testing.T) {
	for _, lifecycle := range []string{"Recurring", "Once"} {
		t.Run(lifecycle, func(t *testing.T) {
			l := parallel(t)
			g := newGate(l)
			g.changing(l, "busy")
			l.labelled(nil, "a", "b", "busy")
			l.apply(cleanerYAML("c", "\n  lifecycle: "+lifecycle+shopMaps+takeAll))
			l.leaves("busy", "probe")
			c := l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonTargetUnstable)
			if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "busy") {
				t.Errorf("the message does not name the object: %q", got)
			}
			if n := len(l.trail.attempts("busy", "delete")); n > 30 {
				t.Errorf("it was tried %d times", n)
			}
			l.bystander()
			for _, d := range l.trail.attempts("busy", "delete") {
				if d.Code() != http.StatusConflict {
					t.Errorf("a deletion was answered with something else than a conflict: %s", d)
				}
			}
			g.set(allow)
			l.leaves("probe")
		})
	}
}

func TestAForeignWebhookRefusesOneItem(t *testing.T) {
	for _, lifecycle := range []string{"Recurring", "Once"} {
		t.Run(lifecycle, func(t *testing.T) {
			l := parallel(t)
			g := newGate(l)
			g.set(func(r *admissionv1.AdmissionRequest) (bool, string) { return r.Name != "held", "not on my watch" })
			l.labelled(nil, "a", "b", "held")
			l.apply(cleanerYAML("c", "\n  lifecycle: "+lifecycle+shopMaps+takeAll))
			l.leaves("held", "probe")
			c := l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonDeletionRefused)
			if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "not on my watch") {
				t.Errorf("the message does not say why: %q", got)
			}
			l.trail.backsOff("held", 3, "delete")
			g.set(allow)
			l.leaves("probe")
			l.trail.deletedOnce()
		})
	}
}

func TestAFinalizerThatHoldsAnItem(t *testing.T) {
	l := parallel(t)
	l.labelled(nil, "held")
	cm := &corev1.ConfigMap{}
	l.update(cm, "held", func() { cm.Finalizers = []string{"example.test/hold"} })
	l.apply(cleanerYAML("c", stays("", shopMaps+takeAll)))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	for _, name := range []string{"a", "b"} { // evaluations
		l.labelled(nil, name)
		l.leaves("held")
		l.update(cm, "held", func() { cm.Annotations = map[string]string{"touched": name} })
	}
	l.passes()
	sent := l.trail.attempts("held", "delete")
	for len(sent) > 0 && sent[0].Code() == http.StatusConflict { // the watch did not know of the finalizer yet
		sent = sent[1:]
	}
	if len(sent) != 1 {
		t.Errorf("want one deletion, and none of an object that is terminating: %v", sent)
	}
	if l.exists(cm, "held"); len(cm.Finalizers) != 1 {
		t.Error("somebody else's finalizer was taken off")
	}
	l.update(cm, "held", func() { cm.Finalizers = nil })
	l.leaves()
}

// slowly deletes one ConfigMap a second or so, of those that are stale.
const slowly = shopMaps + `
  limits: {actionsPerSecond: 1}
  rules:
  - {name: stale, forEach: maps.items, when: item.data.state == "stale", actions: [{delete: {}}]}`

func TestSuspendHoldsARuleThatActs(t *testing.T) {
	for _, lifecycle := range []string{"Recurring", "Once"} {
		t.Run(lifecycle, func(t *testing.T) {
			l := parallel(t)
			l.labelled(map[string]string{"state": "stale"}, "a", "b", "c", "d", "e", "f")
			l.apply(cleanerYAML("c", "\n  lifecycle: "+lifecycle+slowly))
			l.trail.begun()
			l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true })
			l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonSuspended)
			sent := len(l.trail.deletes())
			if sent > 4 {
				t.Fatalf("%d objects were deleted already, so this shows nothing", sent)
			}
			l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"} })
			newLab(t, l.env).passes()
			if now := len(l.trail.deletes()); now != sent {
				t.Errorf("%d deletions were sent while the Cleaner was suspended", now-sent)
			}
			l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.Suspend = false })
			l.leaves()
			l.trail.deletedOnce()
		})
	}
}

func TestARuleIsEditedWhileItActs(t *testing.T) {
	l := parallel(t)
	l.labelled(map[string]string{"state": "stale"}, "a", "b", "c", "d", "e", "f")
	l.apply(cleanerYAML("c", stays("", slowly)))
	l.trail.begun()
	l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].When = `item.data.state == "other"` })
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	left := l.left()
	if len(left) == 0 {
		t.Fatal("all was deleted before the edit, so this shows nothing")
	}
	l.passes()
	l.leaves(left...)
}

func TestATemplateChangesAndGoes(t *testing.T) {
	l := parallel(t)
	l.labelled(map[string]string{"state": "stale"}, "a")
	l.labelled(map[string]string{"state": "old"}, "b")
	l.labelled(map[string]string{"state": "used"}, "c")
	l.apply(cleanerYAML("c", stays("", "\n  templateRef: {name: "+l.ns+"}")))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonTemplateMissing)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, l.ns) {
		t.Errorf("the message does not name the template: %q", got)
	}
	made := l.fixtures.template("stale")
	l.leaves("b", "c")
	if err := l.Get(l.ctx, client.ObjectKeyFromObject(made), made); err != nil {
		t.Fatal(err)
	}
	made.Spec.Template.Rules[0].When = `item.data.state == "old"`
	if err := l.Update(l.ctx, made); err != nil {
		t.Fatal(err)
	}
	l.leaves("c")
	if err := l.Delete(l.ctx, made); err != nil {
		t.Fatal(err)
	}
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonTemplateMissing)
	cm := &corev1.ConfigMap{}
	l.update(cm, "c", func() { cm.Data["state"] = "old" })
	l.passes()
	l.leaves("c")
	l.fixtures.template("old")
	l.leaves()
}

func TestTheKindOfATargetGoesAndComesBack(t *testing.T) {
	l := parallel(t)
	group := l.ns + ".example.test"
	widgetCRD(l, group)
	grant(l, group, "get", "list", "watch", "delete")
	l.labelled(map[string]string{"owner": "w"}, "owned")
	widget(l, group, "w", "used")
	l.apply(cleanerYAML("c", stays("", shopMaps+fmt.Sprintf(`
  - {name: widgets, reference: {apiGroup: %s, version: v1, kind: Widget, matchLabels: {app: shop}}}
  rules:
  - name: orphans
    forEach: maps.items
    when: widgets.items.all(w, w.metadata.name != item.data.owner)
    confirm: [{target: widgets, name: item.data.owner}]
    actions: [{delete: {}}]`, group))))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	serve := func(served bool) {
		crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group}}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		patch := client.RawPatch(types.JSONPatchType, fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/versions/0/served", "value": %t}]`, served))
		if err := l.Patch(l.ctx, crd, patch); err != nil {
			t.Fatal(err)
		}
	}
	serve(false) // to delete the definition would delete the widget first
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonKindNotServed)
	l.labelled(map[string]string{"owner": "x"}, "orphan")
	l.passes()
	l.leaves("orphan", "owned") // a kind that is not served proves no absence
	serve(true)
	l.leaves("owned")
}

func TestANamespaceComesIntoReach(t *testing.T) {
	l := parallel(t)
	other := newLab(t, l.env)
	l.labelled(nil, "a")
	other.labelled(nil, "b")
	label := func(ns, value string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"labels": {"clean": %q}}}`, value))
		if err := l.Patch(l.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, patch); err != nil {
			t.Fatal(err)
		}
	}
	label(l.ns, l.ns)
	l.fixtures.cluster(`
  lifecycle: Recurring
  targets:
  - {name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: shop}, namespaceSelector: {matchLabels: {clean: ` + l.ns + `}}}}` + takeAll)
	l.leaves()
	if got := other.left(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("in a namespace out of reach %v are left", got)
	}
	label(other.ns, l.ns)
	other.leaves()
	label(l.ns, "no")
	l.passes()
	l.labelled(nil, "c")
	l.passes()
	l.leaves("c")
}

func TestLimitsCountForATime(t *testing.T) {
	l := parallel(t)
	l.labelled(map[string]string{"state": "used"}, "a", "b", "c", "d")
	l.apply(cleanerYAML("c", stays("", shopMaps+`
  limits: {maxPercent: 40, per: 6s}
  rules:
  - {name: stale, forEach: maps.items, when: item.data.state == "stale", actions: [{delete: {}}]}`)))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	cm := &corev1.ConfigMap{}
	l.update(cm, "a", func() { cm.Data["state"] = "stale" })
	l.leaves("b", "c", "d")
	l.update(cm, "b", func() { cm.Data["state"] = "stale" }) // with a, that is half of what there was
	c := l.says("c", v1alpha1.ConditionTripped, v1alpha1.ReasonLimitExceeded)
	if got := message(c, v1alpha1.ConditionTripped); !strings.Contains(got, "maxPercent") {
		t.Errorf("Tripped says %q", got)
	}
	l.leaves("c", "d") // when a is forgotten
	sent := l.trail.deletes()
	if d := sent[1].RequestReceivedTimestamp.Sub(sent[0].RequestReceivedTimestamp.Time); d < 5900*time.Millisecond {
		t.Errorf("half was deleted within %s", d)
	}
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
}

func TestARuleTakesAFinalizerOff(t *testing.T) {
	l := parallel(t)
	l.labelled(nil, "stuck", "other")
	cm := &corev1.ConfigMap{}
	l.update(cm, "stuck", func() { cm.Finalizers = []string{"example.test/mine", "example.test/hold"} })
	l.update(cm, "other", func() { cm.Finalizers = []string{"example.test/hold"} })
	for _, name := range []string{"stuck", "other"} {
		if err := l.Delete(l.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	l.apply(cleanerYAML("c", stays("", shopMaps+`
  rules:
  - name: stuck
    forEach: maps.items
    when: has(item.metadata.deletionTimestamp)
    actions: [{removeFinalizer: {name: example.test/hold}}]`)))
	l.leaves("stuck")
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	if l.exists(cm, "stuck"); !slices.Equal(cm.Finalizers, []string{"example.test/mine"}) {
		t.Errorf("the finalizers are %v", cm.Finalizers)
	}
	if n := len(l.trail.requests("patch")); n != 2 {
		t.Errorf("%d patches were sent, want 2: %s", n, describe(c))
	}
	l.update(cm, "stuck", func() { cm.Finalizers = nil })
}

// One pool is patched once for all that it is to be rid of, but for what could not be marked before.
func TestAnItemWhoseEarlierActionFailsIsLeftOutOfThePatchOfAll(t *testing.T) {
	l := parallel(t)
	group := l.ns + ".example.test"
	widgetCRD(l, group)
	grant(l, group, "get", "list", "watch")
	l.labelled(nil, "a", "b")
	widget(l, group, "w", "stale")
	l.configMap("pool", map[string]string{"role": "pool"}, map[string]string{"a": "1", "b": "1", "w": "1", "x": "1"})
	l.apply(cleanerYAML("c", stays("", shopMaps+fmt.Sprintf(`
  - {name: widgets, reference: {apiGroup: %s, version: v1, kind: Widget, matchLabels: {app: shop}}}
  - {name: pool, reference: {version: v1, kind: ConfigMap, name: pool}}
  rules:
  - name: leaked
    forEach: maps.items + widgets.items
    when: item.metadata.name in pool.data
    actions:
    - delete: {}
    - patch: {type: Merge, expression: '{"data": items.map(i, [i.metadata.name, null]).transformMapEntry(n, e, {e[0]: e[1]})}'}
      object: pool`, group))))
	pool := &corev1.ConfigMap{}
	l.eventually("what was deleted leaves the pool", func() string {
		if l.exists(pool, "pool"); len(pool.Data) != 2 {
			return fmt.Sprintf("the pool has %v: %s", pool.Data, describe(l.cleaner("c")))
		}
		return ""
	})
	if pool.Data["w"] == "" || pool.Data["x"] == "" {
		t.Errorf("the pool has %v", pool.Data)
	}
	if n := len(l.trail.attempts("pool", "patch")); n != 1 {
		t.Errorf("the pool was patched %d times, want once", n)
	}
	grant(l, group, "get", "list", "watch", "delete")
	l.eventually("the widget leaves it, too", func() string {
		if l.exists(pool, "pool"); len(pool.Data) != 1 {
			return fmt.Sprintf("the pool has %v: %s", pool.Data, describe(l.cleaner("c")))
		}
		return ""
	})
}

func TestADeadSinkDelaysNoRule(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	s.Otherwise(sink.Answer{Status: 503})
	l.apply(cleanerYAML("c", stays(s.URL, shopMaps+takeAll)))
	for _, name := range []string{"a", "b", "c", "d"} {
		l.labelled(nil, name)
		l.leaves()
	}
	l.says("c", v1alpha1.ConditionDelivered, v1alpha1.ReasonDeliveryFailed)
	s.Otherwise(sink.Answer{})
	l.adds(s, map[v1alpha1.Outcome]int64{v1alpha1.OutcomeDeleted: 4})
	ids := map[string]bool{}
	for _, e := range s.Events() {
		ids[e.ID] = true
	}
	if len(ids) != 2 {
		t.Errorf("%d events were sent, want 2: that of the first run, and one of all that was done meanwhile", len(ids))
	}
	l.trail.deletedOnce()
}

func TestTheSinkOfACleanerThatStaysIsRemoved(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	s.Otherwise(sink.Answer{Status: 503})
	l.apply(cleanerYAML("c", stays(s.URL, shopMaps+takeAll)))
	for _, name := range []string{"a", "b"} {
		l.labelled(nil, name)
		l.leaves()
	}
	l.says("c", v1alpha1.ConditionDelivered, v1alpha1.ReasonDeliveryFailed)
	l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.CloudEventSink = "" })
	l.eventually("nothing is kept", func() string {
		if c := l.cleaner("c"); c.Status.Run != nil || c.Status.Unsent != nil || len(c.Finalizers) > 0 {
			return describe(c)
		}
		return ""
	})
	l.labelled(nil, "c")
	l.leaves()
	if c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo); len(c.Finalizers) > 0 || c.Status.Run != nil {
		t.Errorf("a Cleaner without a sink has %v, run %v", c.Finalizers, c.Status.Run)
	}
}

func TestACleanerThatStaysIsDeletedWhileItActs(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	l.labelled(map[string]string{"state": "stale"}, "a", "b", "c", "d", "e", "f")
	// What is under way ends within the grace of a deletion, so that its event is sent.
	l.apply(cleanerYAML("c", stays(s.URL, strings.Replace(slowly, "actionsPerSecond: 1", "actionsPerSecond: 2", 1))))
	l.trail.begun()
	if err := l.Delete(l.ctx, l.cleaner("c")); err != nil {
		t.Fatal(err)
	}
	l.gone("c")
	events := l.received(s, 1)
	left := len(l.left())
	if left == 0 {
		t.Fatal("all was deleted before, so this shows nothing")
	}
	if e := events[0]; e.Type != "dev.vtex.cleaner.partial.v1" || !strings.Contains(string(e.Data), "Abandoned") {
		t.Errorf("the sink received %s %s", e.Type, e.Data)
	}
	if got, want := told(t, s), (map[v1alpha1.Outcome]int64{v1alpha1.OutcomeDeleted: int64(6 - left)}); !maps.Equal(got, want) {
		t.Errorf("the event counts %v, and %v were deleted", got, want)
	}
}

// What changes nothing, and what is never done, is asked for now and then at most.
func TestARuleThatNeverComesToAnEnd(t *testing.T) {
	l := parallel(t)
	l.labelled(map[string]string{"seen": "true", "n": "0"}, "a", "b")
	l.apply(cleanerYAML("idle", stays("", shopMaps+`
  rules:
  - name: idle
    forEach: maps.items
    when: item.metadata.name == "a"
    actions: [{patch: {type: Merge, expression: '{"data": {"seen": "true"}}'}}]`)))
	l.apply(cleanerYAML("busy", stays("", shopMaps+`
  rules:
  - name: busy
    forEach: maps.items
    when: item.metadata.name == "b"
    actions: [{patch: {type: Merge, expression: '{"data": {"n": string(int(item.data.n) + 1)}}'}}]`)))
	l.eventually("both begin", func() string {
		if len(l.trail.attempts("a", "patch")) == 0 || len(l.trail.attempts("b", "patch")) == 0 {
			return "one has not"
		}
		return ""
	})
	since := time.Now()
	l.passes()
	took := time.Since(since)
	recent := func(name string) int {
		return len(slices.DeleteFunc(l.trail.attempts(name, "patch"), func(e cluster.Event) bool { return e.RequestReceivedTimestamp.Time.Before(since) }))
	}
	if n := recent("a"); n > 5 {
		t.Errorf("a patch that changes nothing was sent %d times in %s", n, took)
	}
	// The tests' own shortest interval is a tenth of a second.
	if n, most := recent("b"), int(took/(100*time.Millisecond))+5; n > most {
		t.Errorf("a patch that calls for itself was sent %d times in %s, want at most %d", n, took, most)
	}
}

func TestADisruptionBudgetHoldsAnEviction(t *testing.T) {
	l := parallel(t)
	l.fixtures.mayEvict()
	l.fixtures.pod("free")
	l.fixtures.pod("held")
	l.apply(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: held}
spec: {minAvailable: 1, selector: {matchLabels: {app: held}}}`)
	budget := &policyv1.PodDisruptionBudget{}
	l.eventually("the budget is known", func() string {
		u := clientset(l).PolicyV1().PodDisruptionBudgets(l.ns)
		var err error
		if budget, err = u.Get(l.ctx, "held", metav1.GetOptions{}); err != nil || budget.Status.ExpectedPods != 1 {
			return fmt.Sprintf("%+v %v", budget.Status, err)
		}
		return ""
	})
	l.apply(cleanerYAML("c", stays("", evictAll)))
	pod := &corev1.Pod{}
	l.eventually("the free Pod goes", func() string {
		if l.exists(pod, "free") {
			return describe(l.cleaner("c"))
		}
		return ""
	})
	c := l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonEvictionRefused)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "disruption budget") {
		t.Errorf("the message does not say why: %q", got)
	}
	l.trail.backsOff("held", 3, "create")
	if !l.exists(pod, "held") {
		t.Error("the Pod that a budget holds is gone")
	}
	if err := clientset(l).PolicyV1().PodDisruptionBudgets(l.ns).Delete(l.ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.eventually("the held Pod goes", func() string {
		if l.exists(pod, "held") {
			return describe(l.cleaner("c"))
		}
		return ""
	})
}

// The second time shows that the first one was not the last.
func TestAScheduleIsKept(t *testing.T) {
	l := parallel(t)
	l.labelled(nil, "a")
	made := l.apply(cleanerYAML("c", stays("", "\n  schedule: '* * * * *'"+shopMaps+takeAll)))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForSchedule)
	l.leaves()
	first := l.trail.deletes()[0].RequestReceivedTimestamp
	if at := made.GetCreationTimestamp(); first.Truncate(time.Minute).Equal(at.Truncate(time.Minute)) {
		t.Errorf("something was deleted at %s, before the schedule was due after %s", first, at)
	}
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	l.labelled(nil, "b")
	l.leaves()
	if second := l.trail.deletes()[1].RequestReceivedTimestamp; second.Truncate(time.Minute).Equal(first.Truncate(time.Minute)) {
		t.Errorf("something was deleted at %s, between two times of the schedule", second)
	}
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	l.labelled(nil, "c")
	l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"} })
	l.leaves()
}

// Nobody evaluates while no process runs; the next one makes up for it, although its watches have yet to begin.
func TestAScheduleIsMadeUpForAfterARestart(t *testing.T) {
	l := newLab(t, alone(t))
	l.labelled(nil, "a")
	made := l.apply(cleanerYAML("c", stays("", "\n  schedule: '* * * * *'"+shopMaps+takeAll)))
	due := made.GetCreationTimestamp().Truncate(time.Minute).Add(time.Minute)
	l.eventually("the schedule is due", func() string {
		if now := time.Now(); now.Before(due) {
			return now.String()
		}
		return ""
	})
	l.operators.crashesAt("after a DELETE", 1)
	l.labelled(nil, "b")
	l.operators.run(l.binary, lone()...)
	l.leaves()
	if d := l.trail.attempts("b", "delete")[0].RequestReceivedTimestamp.Sub(due); d > 40*time.Second {
		t.Errorf("what was due was done %s later", d)
	}
	l.eventually("it is noted", func() string {
		if at := l.cleaner("c").Status.LastScheduleTime; at == nil || at.Time.Before(due) {
			return describe(l.cleaner("c"))
		}
		return ""
	})
}

// patchThenDelete leaves traces of each action that was carried out.
const patchThenDelete = shopMaps + `
  rules:
  - name: all
    forEach: maps.items
    when: "true"
    actions:
    - patch: {type: Merge, expression: '{"data": {"seen": "true"}}'}
      when: '!has(item.data) || !has(item.data.seen)'
    - delete: {}`

// evictAll evicts each Pod of the namespace.
const evictAll = `
  targets:
  - {name: pods, reference: {version: v1, kind: Pod}}
  rules:
  - {name: all, forEach: pods.items, when: "true", actions: [{evict: {}}]}`

// One that stays with a sink, one without, and one that cleans once carry on what each crash has left.
func TestACrashAtEachStepOfARuleConverges(t *testing.T) {
	for name, with := range map[string]func(url string) string{
		"Stays":        func(string) string { return stays("", patchThenDelete) },
		"StaysAndTold": func(url string) string { return stays(url, patchThenDelete) },
		"Once": func(url string) string {
			return fmt.Sprintf("\n  lifecycle: Once\n  cloudEventSink: %q", url) + patchThenDelete
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, alone(t))
			s := l.sink()
			l.fixtures.mayEvict()
			points := []string{"before a PATCH", "after a PATCH", "before a DELETE", "after a DELETE"}
			switch name {
			case "Once":
				points = append(points, "before Act", "after Act")
			case "StaysAndTold":
				points = append(points, "decided", "held by the finalizer", "committed", "before ClearUnsent", "after ClearUnsent")
				fallthrough
			default:
				points = append(points, "before a report", "after a report")
			}
			made := 0
			for i, point := range points {
				for range 3 {
					made++
					l.labelled(nil, fmt.Sprintf("m-%02d", made))
				}
				if i == 0 || name == "Once" { // whose rows are those of its beginning
					l.apply(cleanerYAML(fmt.Sprintf("c%d", i), with(s.URL)))
				}
				l.operators.crashesAt(point, 1)
			}
			l.operators.run(faulty(t, mistakes.Mistake{}), lone()...)
			l.leaves()
			if name == "Once" { // one whose objects another has taken goes on waiting
				l.eventually("all runs come to their end", func() string {
					for i := range points {
						if c := l.cleaner(fmt.Sprintf("c%d", i)); c != nil && (c.Status.Run != nil || c.Status.Unsent != nil || len(c.Finalizers) > 0) {
							return describe(c)
						}
					}
					return ""
				})
			} else {
				l.says("c0", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
			}
			l.trail.deletedOnce()
			if name != "StaysAndTold" {
				return
			}
			// What a crash interrupted is seen as gone, or is unknown; whatever is done later counts anew.
			l.eventually("each object is counted", func() string {
				counts := told(t, s)
				if n := counts[v1alpha1.OutcomeDeleted] + counts[v1alpha1.OutcomeGone]; n != int64(made) || counts[v1alpha1.OutcomePatched] > 0 {
					return fmt.Sprintf("%d objects were made, and the events add up to %v", made, counts)
				}
				return ""
			})
		})
	}
}

// While nobody runs, the object of a row goes, or is protected. The rules want nothing of it any more, and the run ends.
func TestARowThatNoRuleWantsAnyMore(t *testing.T) {
	for name, tc := range map[string]struct {
		label  string // what the object gets; it goes if empty
		result v1alpha1.Result
	}{
		"Gone":      {"", v1alpha1.ResultCompleted},
		"Protected": {v1alpha1.ProtectKey, v1alpha1.ResultPartial},
		"Changed":   {"keep", v1alpha1.ResultPartial},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, alone(t))
			s := l.sink()
			l.labelled(nil, "m", "other")
			l.apply(cleanerYAML("c", fmt.Sprintf("\n  lifecycle: Once\n  cloudEventSink: %q", s.URL)+shopMaps+`
  rules:
  - {name: all, forEach: maps.items, when: '!("keep" in item.metadata.labels)', actions: [{delete: {}}]}`))
			l.operators.crashesAt("committed", 1)
			m := &corev1.ConfigMap{}
			l.update(m, "m", func() {
				if tc.label != "" {
					m.Labels[tc.label] = "true"
				}
			})
			if tc.label == "" {
				if err := l.Delete(l.ctx, m); err != nil {
					t.Fatal(err)
				}
			}
			l.operators.run(faulty(t, mistakes.Mistake{}), lone()...)
			var told struct{ Result v1alpha1.Result }
			if err := json.Unmarshal(l.received(s, 1)[0].Data, &told); err != nil || told.Result != tc.result {
				t.Errorf("the event says %q, want %q (%v)", told.Result, tc.result, err)
			}
		})
	}
}

// The sink is taken away while it is owed something; what is recorded for it is dropped, whatever crashes.
func TestACrashWhileARecordIsDropped(t *testing.T) {
	l := newLab(t, alone(t))
	s := l.sink()
	s.Otherwise(sink.Answer{Status: 503})
	l.apply(cleanerYAML("c", stays(s.URL, shopMaps+takeAll)))
	first := l.operators.run(l.binary, lone()...)
	l.labelled(nil, "a")
	l.leaves()
	l.says("c", v1alpha1.ConditionDelivered, v1alpha1.ReasonDeliveryFailed)
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.CloudEventSink = "" })
	l.operators.crashesAt("before ClearRecord", 1)
	l.operators.crashesAt("after ClearRecord", 1)
	l.operators.run(faulty(t, mistakes.Mistake{}), lone()...)
	l.eventually("nothing is kept", func() string {
		if c := l.cleaner("c"); c.Status.Run != nil || c.Status.Unsent != nil || len(c.Finalizers) > 0 {
			return describe(c)
		}
		return ""
	})
}

func TestACrashAtAnEvictionConverges(t *testing.T) {
	l := newLab(t, alone(t))
	l.fixtures.mayEvict()
	l.apply(cleanerYAML("c", stays("", evictAll)))
	for _, point := range []string{"before an eviction", "after an eviction"} {
		l.fixtures.pod(strings.Fields(point)[0])
		l.operators.crashesAt(point, 1)
	}
	l.operators.run(faulty(t, mistakes.Mistake{}), lone()...)
	l.eventually("the Pods go", func() string {
		for _, name := range []string{"before", "after"} {
			// The crash may cut off an eviction that has marked its Pod, and a kubelet, which there is none of, would do the rest.
			if pod := (&corev1.Pod{}); l.exists(pod, name) && pod.DeletionTimestamp == nil {
				return describe(l.cleaner("c"))
			}
		}
		return ""
	})
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
}

func TestTheOwnerIsKilledWhileARuleActs(t *testing.T) {
	l := newLab(t, alone(t))
	s := l.sink()
	first := l.operators.run(l.binary, quick()...)
	l.operators.run(l.binary, quick()...)
	l.labelled(map[string]string{"state": "stale"}, "a", "b", "c", "d", "e", "f")
	l.apply(cleanerYAML("c", stays(s.URL, slowly)))
	l.trail.begun()
	owner := l.operators.owned()
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	l.operators.follows(owner)
	l.leaves()
	l.trail.deletedOnce()
	l.eventually("each object is counted", func() string {
		counts := told(t, s)
		if n := counts[v1alpha1.OutcomeDeleted] + counts[v1alpha1.OutcomeGone]; n != 6 {
			return fmt.Sprintf("the events add up to %v", counts)
		}
		return ""
	})
}

// The owner is paused right before a request, until another one has done all, and somebody has made the object anew, to
// stay.
func TestAPausedOwnerOfACleanerThatStays(t *testing.T) {
	l := newLab(t, alone(t))
	l.labelled(map[string]string{"state": "stale"}, "evidence")
	l.apply(cleanerYAML("c", stays("", strings.Replace(slowly, "{actionsPerSecond: 1}", "{actionsPerSecond: 100}", 1))))
	old := l.operators.stopsAt(faulty(t, mistakes.Mistake{}), "before a DELETE", 1, quick()...)
	owner := l.operators.owned()
	l.operators.run(l.binary, quick()...)
	l.operators.follows(owner)
	l.leaves()
	l.labelled(map[string]string{"state": "used"}, "evidence")
	if err := old.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.operators.givesUp(old)
	l.leaves("evidence")
	l.trail.deletedOnce()
}

func TestTheAPIServerIsKilledWhileARuleActs(t *testing.T) {
	l := newLab(t, alone(t))
	s := l.sink()
	const n = 200
	for i := range n {
		l.labelled(nil, fmt.Sprintf("m-%03d", i))
	}
	l.operators.run(l.binary, lone()...)
	l.apply(cleanerYAML("c", stays(s.URL, shopMaps+takeAll)))
	l.trail.begun()
	if err := l.Restart(l.ctx, cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	l.leaves()
	l.trail.deletedOnce()
	l.labelled(nil, "late") // its watches have come back
	l.leaves()
	l.eventually("each object is counted", func() string {
		counts := told(t, s) // what was unknown is counted again
		if got := counts[v1alpha1.OutcomeDeleted] + counts[v1alpha1.OutcomeGone]; got != n+1 {
			return fmt.Sprintf("the events add up to %v", counts)
		}
		return ""
	})
}

// Cleaners that stay, and have nothing to do, write nothing and ask for nothing, however often they are evaluated.
func TestCleanersThatStayRest(t *testing.T) {
	l := newLab(t, alone(t))
	l.operators.run(l.binary, quick()...)
	l.labelled(map[string]string{"state": "used"}, "a", "b")
	protected := l.configMap("protected", map[string]string{"app": "shop", v1alpha1.ProtectKey: "true"}, map[string]string{"state": "stale"})
	s := l.sink()
	stale := strings.Replace(slowly, "{actionsPerSecond: 1}", "{actionsPerSecond: 100}", 1)
	for name, spec := range map[string]string{
		"nothing": stays("", "\n  retry: {period: 10s}"+strings.Replace(stale, `"stale"`, `"none"`, 1)),
		"told":    stays(s.URL, strings.Replace(stale, `"stale"`, `"none"`, 1)),
		"reports": stays("", "\n  retry: {period: 10s}"+strings.Replace(stale, "delete", "report", 1)),
		"holds":   stays("", strings.Replace(stale, "when:", "for: 10h, when:", 1)),
		"guarded": stays("", "\n  retry: {period: 10s}"+stale),
		"dry":     stays("", "\n  mode: DryRun"+shopMaps+takeAll),
	} {
		l.apply(cleanerYAML(name, spec))
	}
	for name, reason := range map[string]string{
		"nothing": v1alpha1.ReasonNothingToDo, "told": v1alpha1.ReasonNothingToDo, "reports": v1alpha1.ReasonConditionsMet,
		"holds": v1alpha1.ReasonHolding, "guarded": v1alpha1.ReasonProtected, "dry": v1alpha1.ReasonDryRun,
	} {
		l.says(name, v1alpha1.ConditionReady, reason)
	}
	for i := range 3 { // evaluations
		l.update(protected, "protected", func() { protected.Annotations = map[string]string{"n": fmt.Sprint(i)} })
		l.passes()
	}
	since := time.Now()
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	events, err := l.audit.WaitFor(ctx, func(events []cluster.Event) bool { return renewals(events, since) >= 5 })
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range invariants.Restless(events, operator.User, since) {
		t.Error(v)
	}
}
