// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/sink"
)

// The watch may be read and its objects may not: what rests on one of these waits, and nothing else does.
func TestAnItemThatCannotBeConfirmedHoldsUpNoOther(t *testing.T) {
	l := parallel(t)
	group := l.ns + ".example.test"
	widgetCRD(l, group)
	grant(l, group, "list", "watch")
	l.labelled(map[string]string{"owner": "nobody"}, "a")
	l.apply(cleanerYAML("c", stays("", shopMaps+fmt.Sprintf(`
  - {name: widgets, reference: {apiGroup: %s, version: v1, kind: Widget}}
  rules:
  - name: orphans
    forEach: maps.items
    when: has(item.data.owner) && widgets.items.all(w, w.metadata.name != item.data.owner)
    confirm: [{target: widgets, name: item.data.owner}]
    actions: [{delete: {}}]
  - name: done
    forEach: maps.items
    when: has(item.data.state)
    actions: [{delete: {}}]`, group))))
	l.trail.backsOff("nobody", 4, "get")
	if got := message(l.cleaner("c"), v1alpha1.ConditionReady); !strings.Contains(got, "get") || !strings.Contains(got, "widgets") {
		t.Errorf("the message does not name verb and resource: %q", got)
	}
	l.labelled(map[string]string{"state": "done"}, "b") // the next look at a is seconds away
	l.leaves("a")
	gone := l.trail.attempts("b", "delete")[0].RequestReceivedTimestamp
	if looks := l.trail.attempts("nobody", "get"); len(looks) > 4 && looks[4].RequestReceivedTimestamp.Before(&gone) {
		t.Errorf("b was deleted at %s, after a was looked at once more at %s", gone, looks[4].RequestReceivedTimestamp)
	}
	grant(l, group, "get", "list", "watch")
	l.leaves()
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
}

// What was refused is what a person has to know, whatever else the rules wait for, report, or cannot say.
func TestWhatIsRefusedIsSaidFirst(t *testing.T) {
	l := parallel(t)
	g := newGate(l)
	l.labelled(map[string]string{"state": "new"}, "young")
	l.labelled(map[string]string{"state": "odd"}, "odd")
	l.labelled(map[string]string{"state": "odd"}, "told")
	l.apply(cleanerYAML("c", stays("", shopMaps+`
  rules:
  - {name: young, forEach: maps.items, when: item.data.state == "new", for: 10h, actions: [{delete: {}}]}
  - {name: odd, forEach: maps.items, when: item.metadata.name == "odd" && item.data.missing == "", actions: [{delete: {}}]}
  - {name: told, forEach: maps.items, when: item.metadata.name == "told", actions: [{report: {}}]}
  - {name: old, forEach: maps.items, when: item.data.state == "old", actions: [{delete: {}}]}`)))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonEvaluationFailed)
	g.set(func(*admissionv1.AdmissionRequest) (bool, string) { return false, "not on my watch" })
	l.labelled(map[string]string{"state": "old"}, "held")
	c := l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonDeletionRefused)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "not on my watch") {
		t.Errorf("the message does not say why: %q", got)
	}
	l.says("c", v1alpha1.ConditionEvaluated, v1alpha1.ReasonEvaluationFailed)
	if c = l.cleaner("c"); len(c.Status.Pending) != 1 {
		t.Errorf("pending is %+v", c.Status.Pending)
	}
	g.set(allow)
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonEvaluationFailed)
}

// A patch that changes nothing is sent once for each version of its object, and counts for nothing.
func TestAPatchThatChangesNothingIsSentOnce(t *testing.T) {
	l := parallel(t)
	same := l.configMap("same", map[string]string{"app": "shop"}, map[string]string{"n": "1"})
	l.labelled(map[string]string{"n": "2"}, "other")
	l.apply(cleanerYAML("c", stays("", "\n  limits: {maxActions: 2}"+shopMaps+`
  rules:
  - name: all
    forEach: maps.items
    when: item.data.n != "3"
    actions:
    - patch: {type: Merge, expression: '{"data": {"n": "1"}}'}`)))
	patches := func(name string, want int) {
		t.Helper()
		l.eventually(fmt.Sprintf("%s is patched %d times", name, want), func() string {
			if n := len(l.trail.attempts(name, "patch")); n != want {
				return fmt.Sprintf("it was %d times", n)
			}
			return ""
		})
	}
	patches("same", 1)
	patches("other", 2) // the second time it is known by the version that the first one made
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "would change nothing") {
		t.Errorf("the message does not say what is left out: %q", got)
	}
	if got := c.Status.Counters; got == nil || got.Acted != 1 || got.Failed != 0 {
		t.Errorf("the counters are %+v", got)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"annotations": {"by": "somebody"}}}`))
	if err := l.Patch(l.ctx, same, patch); err != nil {
		t.Fatal(err)
	}
	patches("same", 2)
	l.bystander()
	patches("other", 2)
}

// A deletion that is refused is tried again, and the patch before it is not: unless somebody else has changed the object.
func TestAPatchThatStandsIsNotMadeAgain(t *testing.T) {
	l := parallel(t)
	g := newGate(l)
	g.set(func(r *admissionv1.AdmissionRequest) (bool, string) { return r.Name != "held", "not on my watch" })
	l.labelled(map[string]string{"n": "0"}, "held")
	l.apply(cleanerYAML("c", stays("", shopMaps+`
  rules:
  - name: all
    forEach: maps.items
    when: "true"
    actions:
    - patch: {type: Merge, expression: '{"data": {"n": string(int(item.data.n) + 1)}}'}
    - delete: {}`)))
	l.trail.backsOff("held", 3, "delete")
	cm := &corev1.ConfigMap{}
	if l.exists(cm, "held"); cm.Data["n"] != "1" {
		t.Errorf("the object was patched until n is %s, and its deletion was refused each time", cm.Data["n"])
	}
	l.update(cm, "held", func() { cm.Annotations = map[string]string{"touched": "true"} })
	l.eventually("what somebody has changed is patched again", func() string {
		if l.exists(cm, "held"); cm.Data["n"] != "2" {
			return "n is " + cm.Data["n"]
		}
		return ""
	})
	g.set(allow)
	l.leaves("probe")
	if n := len(l.trail.attempts("held", "patch")); n != 2 {
		t.Errorf("%d patches were sent, want 2", n)
	}
}

// Somebody makes anew what is deleted, each time: it is said, and the two do not fight as fast as they can.
func TestWhatIsDeletedIsMadeAnewEachTime(t *testing.T) {
	l := parallel(t)
	l.apply(cleanerYAML("c", stays("", shopMaps+takeAll)))
	rival, stop := context.WithCancel(l.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for rival.Err() == nil {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "loop", Labels: map[string]string{"app": "shop"}}}
			_ = l.Create(rival, cm) // most of the time it is there
			select {
			case <-rival.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	c := l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonRecreationLoop)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "ConfigMap "+c.Namespace+"/loop") {
		t.Errorf("the message does not name the object: %q", got)
	}
	l.eventually("it is tried more and more rarely", func() string {
		if n := len(l.trail.attempts("loop", "delete")); n < 7 {
			return fmt.Sprintf("it was %d times", n)
		}
		return ""
	})
	tries := l.trail.attempts("loop", "delete")
	for i, least := 4, 900*time.Millisecond; i < 7; i, least = i+1, 2*least {
		if d := tries[i].RequestReceivedTimestamp.Sub(tries[i-1].RequestReceivedTimestamp.Time); d < least {
			t.Errorf("deletion %d came %s after the one before, and not %s", i+1, d, least)
		}
	}
	l.labelled(nil, "other") // nobody waits for it
	l.eventually("another object goes", func() string {
		if l.exists(&corev1.ConfigMap{}, "other") {
			return "it is there"
		}
		return ""
	})
	list := &eventsv1.EventList{}
	l.eventually("it is warned of", func() string {
		if err := l.List(l.ctx, list, client.InNamespace(l.ns)); err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if list.Items[i].Reason == "RecreationLoop" && list.Items[i].Type == corev1.EventTypeWarning {
				return ""
			}
		}
		return fmt.Sprintf("there are %d Events of other kinds", len(list.Items))
	})
	stop()
	<-ended
	l.leaves()
}

// What is protected is withheld for the whole run, though a later batch of it may know nothing of that.
func TestWhatWasWithheldFromARunIsTold(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	s.Otherwise(sink.Answer{Status: 503})
	protected := l.configMap("protected", map[string]string{"app": "shop", v1alpha1.ProtectKey: "true"}, nil)
	l.apply(cleanerYAML("c", stays(s.URL, shopMaps+takeAll)))
	for _, name := range []string{"a", "b"} { // the first run is owed, and the second goes on counting
		l.labelled(nil, name)
		l.leaves("protected")
		l.says("c", v1alpha1.ConditionDelivered, v1alpha1.ReasonDeliveryFailed)
	}
	l.eventually("both runs are there", func() string {
		if c := l.cleaner("c"); c.Status.Unsent == nil || c.Status.Run == nil {
			return describe(c)
		}
		return ""
	})
	if err := l.Delete(l.ctx, protected); err != nil {
		t.Fatal(err)
	}
	l.labelled(nil, "c")
	l.leaves()
	s.Otherwise(sink.Answer{})
	l.adds(s, map[v1alpha1.Outcome]int64{v1alpha1.OutcomeDeleted: 3})
	for _, e := range s.Events() {
		if e.Type != "dev.vtex.cleaner.partial.v1" || !strings.Contains(string(e.Data), "ConfigMap "+l.ns+"/protected") {
			t.Errorf("the sink was told %s %s", e.Type, e.Data)
		}
	}
}

// What was recorded and is as it was has not been acted on, whoever crashed then.
func TestWhatACrashHasLeftAloneIsNotUnknown(t *testing.T) {
	l := newLab(t, alone(t))
	s := l.sink()
	l.labelled(nil, "a", "b", "c")
	l.apply(cleanerYAML("c", stays(s.URL, shopMaps+takeAll)))
	l.operators.crashesAt("committed", 1)
	l.operators.crashesAt("before a DELETE", 1)
	l.operators.run(l.binary, lone()...)
	l.leaves()
	l.eventually("each object is counted once", func() string {
		got := told(t, s)
		if n := got[v1alpha1.OutcomeDeleted] + got[v1alpha1.OutcomeGone]; n != 3 {
			return fmt.Sprintf("the events add up to %v", got)
		}
		return ""
	})
	got := told(t, s)
	maps.DeleteFunc(got, func(o v1alpha1.Outcome, _ int64) bool {
		return o == v1alpha1.OutcomeDeleted || o == v1alpha1.OutcomeGone
	})
	if len(got) > 0 {
		t.Errorf("the events say %v besides", got)
	}
	if e := s.Events()[0]; e.Type != "dev.vtex.cleaner.cleaned.v1" {
		t.Errorf("the sink was told %s %s", e.Type, e.Data)
	}
}

// A ServiceAccount has too few rights, in one way after the other.
func TestRulesAsAServiceAccount(t *testing.T) {
	l := parallel(t)
	account(l, "get", "delete")
	l.labelled(map[string]string{"state": "done"}, "a")
	l.configMap("other", nil, nil)
	l.apply(cleanerYAML("c", stays("", "\n  serviceAccountName: tenant"+patchThenDelete)))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonAccessDenied)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "is not allowed to list and watch configmaps") || !strings.Contains(got, tenant) {
		t.Errorf("the message does not say what is missing, and to whom: %q", got)
	}
	let(l, "get", "list", "watch", "delete")
	c = l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonPatchRefused)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "patch") || !strings.Contains(got, "system:serviceaccount:"+l.ns+":tenant") {
		t.Errorf("the message does not say what is missing, and to whom: %q", got)
	}
	if n := len(l.trail.attempts("a", "delete")); n > 0 {
		t.Errorf("the object was deleted %d times without its patch", n)
	}
	let(l, "get", "list", "watch", "delete", "patch")
	l.leaves("other")
	for _, e := range append(l.trail.attempts("a", "patch"), l.trail.attempts("a", "delete")...) {
		if e.ImpersonatedUser == nil || e.ImpersonatedUser.Username != "system:serviceaccount:"+l.ns+":"+tenant {
			t.Errorf("%s was not sent as the ServiceAccount", e)
		}
	}
}

// An object that is cleaned has an Event that says by whom, by which rule, and why.
func TestTheObjectHasAnEvent(t *testing.T) {
	l := parallel(t)
	l.labelled(nil, "a")
	cm := &corev1.ConfigMap{}
	if err := l.Get(l.ctx, client.ObjectKey{Namespace: l.ns, Name: "a"}, cm); err != nil {
		t.Fatal(err)
	}
	l.apply(cleanerYAML("c", stays("", shopMaps+takeAll)))
	l.leaves()
	list := &eventsv1.EventList{}
	l.eventually("an Event says so", func() string {
		if err := l.List(l.ctx, list, client.InNamespace(l.ns)); err != nil {
			return err.Error()
		}
		said := slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.UID != cm.UID })
		if len(said) != 1 {
			return fmt.Sprintf("there are %d", len(said))
		}
		e := said[0]
		if e.Regarding.Kind != "ConfigMap" || e.Reason != "Deleted" || e.Related == nil || e.Related.Kind != "Cleaner" || e.Related.Name != "c" || !strings.HasPrefix(e.Note, "deleted by Cleaner "+l.ns+"/c (") {
			return fmt.Sprintf("it is %+v", e)
		}
		return ""
	})
}

// What happens again is one Event, which counts it, though the Cleaner's status has changed in between.
func TestEventsBecomeASeries(t *testing.T) {
	l := parallel(t)
	l.apply(cleanerYAML("c", stays("", shopMaps+takeAll)))
	list := &eventsv1.EventList{}
	for times := int32(1); times <= 2; times++ {
		l.labelled(nil, "a")
		l.leaves()
		l.eventually("an Event says so", func() string {
			if err := l.List(l.ctx, list, client.InNamespace(l.ns)); err != nil {
				return err.Error()
			}
			said := slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Reason != "Deleted" || e.Regarding.Name != "c" })
			if len(said) != 1 {
				return fmt.Sprintf("there are %d", len(said))
			}
			e := said[0]
			if e.Regarding.Name != "c" || e.Regarding.Kind != "Cleaner" || !strings.Contains(e.Note, "deleted 1: ConfigMap "+l.ns+"/a") {
				return fmt.Sprintf("it is %+v", e)
			}
			if once := e.Series == nil; once != (times == 1) || !once && e.Series.Count != times {
				return fmt.Sprintf("its series is %+v", e.Series)
			}
			return ""
		})
	}
}

// Kubernetes keeps the Events of what is in no namespace in the namespace default, where kubectl describe finds them.
func TestEventsOfAClusterCleaner(t *testing.T) {
	l := parallel(t)
	l.labelled(nil, "a")
	cc := l.fixtures.cluster(`
  lifecycle: Recurring
  targets:
  - {name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: shop}, namespaces: [` + l.ns + `]}}` + takeAll)
	l.leaves()
	l.eventually("kubectl describe shows the Event", func() string {
		text, err := l.Kubectl(l.ctx, "describe", "clustercleaner", cc.Name)
		if err != nil {
			return err.Error()
		}
		if _, events, ok := strings.Cut(string(text), "\nEvents:"); !ok || !strings.Contains(events, "Deleted") || !strings.Contains(events, "ConfigMap "+l.ns+"/a") {
			return string(text)
		}
		return ""
	})
	list := &corev1.EventList{}
	if err := l.List(l.ctx, list, client.InNamespace("default"), client.MatchingFields{"involvedObject.name": cc.Name}); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == "Deleted" && e.InvolvedObject.Kind == "ClusterCleaner" {
			return
		}
	}
	t.Errorf("there is no such Event in the namespace default: %v", list.Items)
}
