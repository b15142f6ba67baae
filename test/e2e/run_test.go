// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/helmtest"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/sink"
)

// sample reads one of config/samples.
func sample(l *lab, name string) string {
	l.Helper()
	root, err := operator.Root()
	if err != nil {
		l.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "config", "samples", name))
	if err != nil {
		l.Fatal(err)
	}
	return string(text)
}

// proposal applies a sample with another ttl and sink, in the namespace of the test, and returns its name.
func proposal(l *lab, text, ttl, url string) string {
	l.Helper()
	text = strings.NewReplacer("ttl: 360h", "ttl: "+ttl, "ttl: 15d", "ttl: "+ttl, "http://my-sink", url, "namespace: faststore-proxy", "namespace: "+l.ns).Replace(text)
	return l.apply(text).GetName()
}

// release installs a Helm release of a ConfigMap and a Service.
func release(l *lab, name string, data map[string]string) {
	l.Helper()
	if _, err := helmtest.Install(l.ctx, l.Config(), l.ns, name, shopChart(data["note"])); err != nil {
		l.Fatal(err)
	}
}

// shopChart has a ConfigMap with a note, and a Service.
func shopChart(note string) helmtest.Chart {
	return helmtest.Chart{
		Templates: map[string]string{
			"config.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}-config\"}\ndata: {note: \"{{ .Values.note }}\"}\n",
			"service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: \"{{ .Release.Name }}-svc\"}\nspec: {ports: [{port: 80}]}\n",
		},
		Values: map[string]any{"note": note},
	}
}

func releaseSecrets(l *lab) []string {
	l.Helper()
	list := &corev1.SecretList{}
	if err := l.List(l.ctx, list, client.InNamespace(l.ns), client.MatchingLabels{"owner": "helm"}); err != nil {
		l.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// refused is a Cleaner with a committed run whose deletion is refused: the operator may read the test's own kind, and
// not delete it. It returns the kind's group.
func refused(l *lab, spec string, widgets ...string) string {
	l.Helper()
	group := l.ns + ".example.test"
	widgetCRD(l, group)
	grant(l, group, "get", "list", "watch")
	for _, w := range widgets {
		widget(l, group, w, "stale")
	}
	l.apply(cleanerYAML("c", fmt.Sprintf(spec, group)))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonDeletionRefused)
	got := message(c, v1alpha1.ConditionReady)
	for _, want := range []string{"delete", "widgets", operator.User} {
		if !strings.Contains(got, want) {
			l.Errorf("the message does not name %s: %q", want, got)
		}
	}
	if c.Status.Run == nil || len(c.Status.Run.Rows) != len(widgets) || c.Status.Runs != 1 {
		l.Fatalf("the run is %+v", c.Status.Run)
	}
	return group
}

func widget(l *lab, group, name, state string) *unstructured.Unstructured {
	l.Helper()
	return l.apply(fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: %s, labels: {app: shop}}\nspec: {state: %s}", group, name, state))
}

func widgetKind(group string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(group + "/v1")
	u.SetKind("Widget")
	return u
}

const widgetSpec = `
  targets:
  - name: widgets
    reference: {apiGroup: "%s", version: v1, kind: Widget, matchLabels: {app: shop}}
    delete: true
  conditions: ['widgets.items.all(w, w.spec.state == "stale")']`

// unseenSpec deletes what no condition sees, so that no re-check comes between a row and its deletion.
const unseenSpec = `
  targets:
  - name: widgets
    reference: {apiGroup: "%s", version: v1, kind: Widget, matchLabels: {app: shop}}
    includeWhenEvaluating: false
    delete: true
  conditions: ["true"]`

func TestTargetMadeAnewBetweenDecisionAndDeletionSurvives(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	group := refused(l, strings.Replace(unseenSpec, "\n  targets:", fmt.Sprintf("\n  cloudEventSink: %q\n  targets:", s.URL), 1), "w")
	old := widgetKind(group)
	l.exists(old, "w")
	if err := l.Delete(l.ctx, old); err != nil {
		t.Fatal(err)
	}
	anew := widget(l, group, "w", "stale")
	// A later run could take it by a decision of its own; the first one must not. Protected from here on, it tells.
	l.update(anew, "w", func() { anew.SetAnnotations(map[string]string{v1alpha1.ProtectKey: "true"}) })
	grant(l, group, "get", "list", "watch", "delete")
	events, err := s.WaitFor(l.ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	if e := events[0]; e.Type != "dev.vtex.cleaner.partial.v1" || !bytes.Contains(e.Data, []byte("replaced")) {
		t.Errorf("the sink received %s %s", e.Type, e.Data)
	}
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonProtected)
	if !l.exists(widgetKind(group), "w") {
		t.Error("the object made anew was deleted")
	}
	for _, d := range l.trail.deletes() {
		pre, err := d.Preconditions()
		if err != nil {
			t.Fatal(err)
		}
		if d.ObjectRef.Resource == "widgets" && pre.UID != nil && *pre.UID == anew.GetUID() {
			t.Errorf("its deletion was asked for: %s", d)
		}
	}
}

func TestTargetChangedBetweenDecisionAndDeletion(t *testing.T) {
	t.Run("keeps what the conditions no longer want deleted", func(t *testing.T) {
		l := parallel(t)
		group := refused(l, widgetSpec, "w")
		w := widgetKind(group)
		l.update(w, "w", func() { w.Object["spec"] = map[string]any{"state": "used"} })
		grant(l, group, "get", "list", "watch", "delete")
		c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
		if c.Status.Run != nil || len(c.Finalizers) > 0 {
			t.Errorf("the stopped run is still there: %v %+v", c.Finalizers, c.Status.Run)
		}
		if !l.exists(w, "w") {
			t.Error("the target was deleted")
		}
	})
	t.Run("deletes the new version if they still do", func(t *testing.T) {
		l := parallel(t)
		group := refused(l, widgetSpec, "w")
		w := widgetKind(group)
		l.update(w, "w", func() { w.SetAnnotations(map[string]string{"touched": "true"}) })
		grant(l, group, "get", "list", "watch", "delete")
		l.gone("c")
		if l.exists(w, "w") {
			t.Error("the target is there")
		}
	})
}

func TestDeletingTheCleanerBeforeTheCommitDeletesNothing(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", `
  ttl: 1h
  targets:`+target))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForTTL)
	if err := l.Delete(l.ctx, c); err != nil {
		t.Fatal(err)
	}
	l.gone("c")
	if !l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Error("the target was deleted")
	}
}

func TestDeletingTheCleanerAfterTheCommitStopsIt(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	group := refused(l, strings.Replace(widgetSpec, "\n  targets:", fmt.Sprintf("\n  cloudEventSink: %q\n  targets:", s.URL), 1), "w")
	if err := l.Delete(l.ctx, l.cleaner("c")); err != nil {
		t.Fatal(err)
	}
	l.gone("c")
	grant(l, group, "get", "list", "watch", "delete")
	if !l.exists(widgetKind(group), "w") {
		t.Error("the target was deleted")
	}
	events, err := s.WaitFor(l.ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	if e := events[0]; e.Type != "dev.vtex.cleaner.partial.v1" || !bytes.Contains(e.Data, []byte("Abandoned")) {
		t.Errorf("the sink received %s %s", e.Type, e.Data)
	}
}

// passes waits until the operator has worked on something else, begun now, and has written the Event about it, which it does last: then it
// has had time for what came before, and for the Events about that.
func (l *lab) passes() {
	l.Helper()
	if !l.exists(&corev1.ConfigMap{}, "elsewhere") {
		l.configMap("elsewhere", nil, nil)
	}
	sentinel := l.apply(cleanerYAML("sentinel", `
  ttl: 3s
  targets:
  - name: elsewhere
    reference: {version: v1, kind: ConfigMap, name: elsewhere}
    delete: true`))
	l.gone("sentinel")
	l.eventually("the Event about it is written", func() string {
		list := &eventsv1.EventList{}
		if err := l.List(l.ctx, list, client.InNamespace(l.ns)); err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.UID == sentinel.GetUID() && e.Action == "Finish" }) {
			return "no Event says that its run has finished"
		}
		return ""
	})
}

func TestSuspendHoldsARun(t *testing.T) {
	l := parallel(t)
	group := refused(l, widgetSpec, "w")
	c := &v1alpha1.Cleaner{}
	l.update(c, "c", func() { c.Spec.Suspend = true })
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonSuspended)
	grant(l, group, "get", "list", "watch", "delete")
	refusals := widgetDeletes(l)
	l.update(c, "c", func() { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"} })
	l.passes()
	if n := widgetDeletes(l); n != refusals || !l.exists(widgetKind(group), "w") {
		t.Errorf("%d deletions were sent while the Cleaner was suspended", n-refusals)
	}
	l.update(c, "c", func() { c.Spec.Suspend = false })
	l.gone("c")
}

func widgetDeletes(l *lab) int {
	l.Helper()
	n := 0
	for _, d := range l.trail.deletes() {
		if d.ObjectRef.Resource == "widgets" {
			n++
		}
	}
	return n
}

func TestSuspendBeforeTheCommit(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", `
  suspend: true
  ttl: 0s
  targets:`+target))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonSuspended)
	l.passes()
	if !l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Error("the target was deleted")
	}
	l.update(c, "c", func() { c.Spec.Suspend = false })
	l.gone("c")
}

func TestEditAfterTheCommitStopsTheRun(t *testing.T) {
	l := parallel(t)
	group := refused(l, widgetSpec, "w")
	c := &v1alpha1.Cleaner{}
	l.update(c, "c", func() { c.Spec.Conditions = []string{"false"} })
	grant(l, group, "get", "list", "watch", "delete")
	c = l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	if c.Status.Run != nil {
		t.Errorf("the stopped run is still there: %+v", c.Status.Run)
	}
	if !l.exists(widgetKind(group), "w") {
		t.Error("the target was deleted")
	}
}

func TestEditBeforeTheCommit(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	l.configMap("other", nil, nil)
	l.apply(cleanerYAML("c", `
  ttl: 1h
  targets:`+target))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForTTL)
	l.update(c, "c", func() { c.Spec.TTL, c.Spec.Targets[0].Reference.Name = "1s", "other" })
	l.gone("c")
	if !l.exists(&corev1.ConfigMap{}, "evidence") || l.exists(&corev1.ConfigMap{}, "other") {
		t.Error("what was deleted is not what the edited spec says")
	}
}

func TestHelmReleaseIsUninstalledAfterTheTargets(t *testing.T) {
	l := parallel(t)
	release(l, "shop", map[string]string{"note": "x"})
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", `
  ttl: 0s
  helm: {release: shop, delete: true}
  targets:`+target))
	l.gone("c")
	if s := releaseSecrets(l); len(s) > 0 || l.exists(&corev1.ConfigMap{}, "shop-config") || l.exists(&corev1.Service{}, "shop-svc") {
		t.Errorf("something of the release is left: Secrets %v", s)
	}
	deletes := l.trail.deletes()
	if len(deletes) < 4 || deletes[0].ObjectRef.Name != "evidence" {
		t.Errorf("the target was not deleted first: %v", deletes)
	}
}

func TestSinkThatFailsFirstReceivesOneIDOnly(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	s.Answer(sink.Codes(503, 500)...)
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", fmt.Sprintf(`
  ttl: 0s
  cloudEventSink: %q
  targets:`, s.URL)+target))
	l.gone("c")
	events := s.Events()
	if len(events) != 3 {
		t.Fatalf("the sink received %d events, want 3", len(events))
	}
	for _, e := range events[1:] {
		if e.ID != events[0].ID || e.Source != events[0].Source || !bytes.Equal(e.Data, events[0].Data) {
			t.Errorf("two attempts differ:\n%+v\n%+v", events[0], e)
		}
	}
}

func TestForeignFinalizerIsWaitedForAndNamed(t *testing.T) {
	l := parallel(t)
	cm := l.configMap("evidence", nil, nil)
	l.update(cm, "evidence", func() { cm.Finalizers = []string{"example.test/hold"} })
	l.apply(cleanerYAML("c", `
  ttl: 0s
  targets:`+target))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonTerminating)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "example.test/hold") {
		t.Errorf("the message does not name the finalizer: %q", got)
	}
	l.gone("c") // after --settle
	if !l.exists(cm, "evidence") || len(cm.Finalizers) != 1 {
		t.Error("somebody else's finalizer was taken off")
	}
	l.update(cm, "evidence", func() { cm.Finalizers = nil })
}

func TestObjectInUseElsewhereIsNotTouched(t *testing.T) {
	l := parallel(t)
	other := newLab(t, l.env)
	other.configMap("evidence", nil, nil)
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", `
  ttl: 0s
  targets:
  - name: maps
    reference: {version: v1, kind: ConfigMap, matchLabels: {}}
    delete: true
  conditions: ['maps.items.exists(m, m.metadata.name == "evidence")']`))
	l.gone("c")
	if !other.exists(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{}}, "evidence") {
		t.Error("an object of another namespace was deleted")
	}
}

func TestANamespaceThatIsDeletedBeginsNoRun(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	// What keeps the condition false goes with the namespace; something else holds the namespace for as long as we look.
	l.configMap("keeper", map[string]string{"app": "keeper"}, nil)
	held := l.configMap("held", nil, nil)
	l.update(held, "held", func() { held.Finalizers = []string{"example.test/hold"} })
	l.apply(cleanerYAML("c", fmt.Sprintf(`
  cloudEventSink: %q
  targets:
  - {name: keepers, reference: {version: v1, kind: ConfigMap, matchLabels: {app: keeper}}}
  - {name: held, reference: {version: v1, kind: ConfigMap, name: held}, includeWhenEvaluating: false, delete: true}
  conditions: ['keepers.items.size() == 0']`, s.URL)))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	// The Cleaner outlives the others, as one with a finalizer of somebody else does.
	c := &v1alpha1.Cleaner{}
	l.update(c, "c", func() { c.Finalizers = []string{"example.test/hold"} })
	if err := l.Delete(l.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.ns}}); err != nil {
		t.Fatal(err)
	}
	l.eventually("the keeper goes", func() string {
		if l.exists(&corev1.ConfigMap{}, "keeper") {
			return "it is there"
		}
		return ""
	})
	l.update(c, "c", func() { c.Finalizers = nil })
	l.update(held, "held", func() { held.Finalizers = nil })
	l.gone("c")
	if n := len(l.trail.deletes()); n > 0 || len(s.Events()) > 0 {
		t.Errorf("%d deletions and %d events in a namespace that was being deleted", n, len(s.Events()))
	}
}

// The API server marks a Pod as terminating and removes it in two writes. A policy refuses in between, as an API server that crashes there
// would leave the Pod: nothing holds it. After --settle it gets one more DELETE.
func TestAPodThatADeleteHasLeftTerminatingIsDeletedAgain(t *testing.T) {
	l := parallel(t)
	l.fixtures.mayEvict()
	policy := l.apply(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [pods]}]
  validations: [{expression: "!has(oldObject.metadata.deletionTimestamp)", message: half-way}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}`, l.ns))
	l.Cleanup(func() {
		if _, err := l.Kubectl(context.WithoutCancel(l.ctx), "delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", l.ns, "--ignore-not-found"); err != nil {
			l.Error(err)
		}
	})
	pod := func() *corev1.Pod {
		p := &corev1.Pod{}
		if !l.exists(p, "p") {
			return nil
		}
		return p
	}
	l.fixtures.pod("probe")
	l.eventually("the policy leaves a Pod half-way", func() string {
		p := &corev1.Pod{}
		if !l.exists(p, "probe") {
			l.fixtures.pod("probe") // the policy was not in force yet
			return "it is gone"
		}
		if err := l.Delete(l.ctx, p); err == nil {
			return "its DELETE was granted"
		}
		return ""
	})
	l.fixtures.pod("p")
	l.apply(cleanerYAML("c", `
  ttl: 0s
  targets: [{name: pods, reference: {version: v1, kind: Pod, matchLabels: {app: p}}, delete: true}]
  conditions: ['pods.items.all(p, p.status.phase == "Running")']`))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonTerminating)
	p := pod()
	if p == nil || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 0 || len(p.Finalizers) > 0 {
		t.Fatalf("it is not half-way: %+v", p)
	}
	if err := l.Delete(l.ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": policy.GetName()},
	}}); err != nil {
		t.Fatal(err)
	}
	l.gone("c")
	if p := pod(); p != nil {
		t.Errorf("it is left: %+v", p.ObjectMeta)
	}
	granted := 0
	for _, d := range l.trail.deletes() {
		if d.ObjectRef.Name == "p" && d.Code() < 300 {
			granted++
		}
	}
	if granted != 1 {
		t.Errorf("%d DELETEs were granted, want 1", granted)
	}
}
