// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

// target is the target of most tests: the ConfigMap "evidence", seen by expressions and deleted.
const target = `
  - name: evidence
    reference: {version: v1, kind: ConfigMap, name: evidence}
    delete: true`

func cleanerYAML(name, spec string) string {
	return "apiVersion: cleaner.vtex.dev/v1alpha1\nkind: Cleaner\nmetadata: {name: " + name + "}\nspec:" + spec
}

func TestTTLDeletesWhenItHasPassedAndNotBefore(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	made := l.apply(cleanerYAML("c", `
  ttl: 3s
  targets:`+target))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForTTL)
	due := made.GetCreationTimestamp().Add(3 * time.Second)
	if got := c.Status.NextScheduledEvaluation; got == nil || !got.Time.Equal(due) {
		t.Errorf("nextScheduledEvaluation is %v, want %v", got, due)
	}
	l.gone("c")
	if l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Error("the target is there after the Cleaner has gone")
	}
	for _, d := range l.trail.deletes() {
		if d.RequestReceivedTimestamp.Time.Before(due) {
			t.Errorf("%s was sent at %s, before the ttl has passed at %s", d, d.RequestReceivedTimestamp, due)
		}
	}
}

func TestConditionThatAnEventMakesTrue(t *testing.T) {
	l := parallel(t)
	l.apply(`
apiVersion: serving.knative.dev/v1
kind: Revision
metadata: {name: rev, labels: {app: shop}}
spec: {containers: [{image: example.test/shop}]}
status: {conditions: [{type: Active, status: "True", lastTransitionTime: "2020-01-01T00:00:00Z"}]}`)
	l.apply(cleanerYAML("c", `
  retry: {period: 10h}
  targets:
  - name: revisions
    reference: {apiGroup: serving.knative.dev, version: v1, kind: Revisions, matchLabels: {app: shop}}
    delete: true
  conditions: ['revisions.items.all(r, r.status.conditions.exists(c, c.type == "Active" && c.status == "False"))']`))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	if got, want := strings.Join(c.Status.ResolvedTargets, " "), "Revision "+c.Namespace+"/rev"; got != want {
		t.Errorf("resolvedTargets is %q, want %q", got, want)
	}
	rev := revision(l, "rev")
	conditions := []any{map[string]any{"type": "Active", "status": "False", "lastTransitionTime": "2020-01-02T00:00:00Z"}}
	if err := unstructured.SetNestedSlice(rev.Object, conditions, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if err := l.Status().Update(l.ctx, rev); err != nil {
		t.Fatal(err)
	}
	l.gone("c")
	if l.exists(revisionKind(), "rev") {
		t.Error("the Revision is there after the Cleaner has gone")
	}
}

func revisionKind() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("serving.knative.dev/v1")
	u.SetKind("Revision")
	return u
}

func revision(l *lab, name string) *unstructured.Unstructured {
	l.Helper()
	u := revisionKind()
	if !l.exists(u, name) {
		l.Fatalf("Revision %s is gone", name)
	}
	return u
}

func TestConditionThatTimeAloneMakesTrue(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", `
  retry: {period: 10s}
  targets:`+target+`
  conditions: ['time - timestamp(evidence.metadata.creationTimestamp) > duration("15s")']`))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	if c.Status.NextScheduledEvaluation == nil {
		t.Error("status does not say when it looks again")
	}
	l.gone("c")
}

func TestSelectorTargetThatStartsToMatchLater(t *testing.T) {
	l := parallel(t)
	l.configMap("late", map[string]string{"app": "other"}, nil)
	l.configMap("bystander", map[string]string{"app": "other"}, nil)
	l.apply(cleanerYAML("c", `
  targets:
  - name: maps
    reference: {version: v1, kind: configmap, matchLabels: {app: shop}}
    delete: true
  conditions: ['maps.items.size() > 0']`))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	cm := &corev1.ConfigMap{}
	l.update(cm, "late", func() { cm.Labels["app"] = "shop" })
	l.gone("c")
	if l.exists(cm, "late") {
		t.Error("the object that matches is there")
	}
	if !l.exists(cm, "bystander") {
		t.Error("an object that does not match was deleted")
	}
}

func TestMissingTarget(t *testing.T) {
	t.Run("Wait", func(t *testing.T) {
		l := parallel(t)
		l.configMap("doomed", nil, nil)
		l.apply(cleanerYAML("c", `
  targets:
  - {name: evidence, reference: {version: v1, kind: ConfigMap, name: evidence}}
  - {name: doomed, reference: {version: v1, kind: ConfigMap, name: doomed}, delete: true}
  conditions: ['evidence != null']`))
		c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonTargetMissing)
		if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, `"evidence"`) {
			t.Errorf("the message does not name the target: %q", got)
		}
		l.configMap("evidence", nil, nil)
		l.gone("c")
	})
	t.Run("AsNull", func(t *testing.T) {
		l := parallel(t)
		l.configMap("doomed", nil, nil)
		l.apply(cleanerYAML("c", `
  targets:
  - {name: evidence, reference: {version: v1, kind: ConfigMap, name: evidence}, onMissing: AsNull}
  - {name: doomed, reference: {version: v1, kind: ConfigMap, name: doomed}, delete: true}
  conditions: ['evidence == null']`))
		l.gone("c")
		if l.exists(&corev1.ConfigMap{}, "doomed") {
			t.Error("the target is there")
		}
	})
}

func TestErrorInAConditionNeverDeletes(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, map[string]string{"a": "1"})
	l.apply(cleanerYAML("c", `
  targets:`+target+`
  conditions: ['evidence.data.b == "1"']`))
	c := l.says("c", v1alpha1.ConditionEvaluated, v1alpha1.ReasonEvaluationFailed)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "spec.conditions[0]") || !strings.Contains(got, "no such key: b") {
		t.Errorf("the message does not name condition and key: %q", got)
	}
	if !l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Error("the target was deleted")
	}
	cm := &corev1.ConfigMap{}
	l.update(cm, "evidence", func() { cm.Data["b"] = "1" })
	l.gone("c")
}

func TestProposalsConditionOnARevisionWithoutRoutes(t *testing.T) {
	l := parallel(t)
	release(l, "sfj-commit--account", map[string]string{"note": "belongs to the release"})
	l.apply(`
apiVersion: serving.knative.dev/v1
kind: Revision
metadata: {name: sfj-commit--account-00001, labels: {vtex.io/proxy: nginx-proxy-id}}
spec: {containers: [{image: example.test/shop}]}
status: {conditions: [{type: Active, status: "False", lastTransitionTime: "2020-01-01T00:00:00Z"}]}`)
	proposal(l, sample(l, "cleaner_v1alpha_preview.yaml"), "1s", "http://127.0.0.1:1")
	c := l.says("sfj-commit--account", v1alpha1.ConditionEvaluated, v1alpha1.ReasonEvaluationFailed)
	got := message(c, v1alpha1.ConditionReady)
	for _, want := range []string{"spec.conditions[0]", "sfj-commit--account-00001", `annotations[?"serving.knative.dev/routes"].orValue("")`} {
		if !strings.Contains(got, want) {
			t.Errorf("the message does not name %s: %q", want, got)
		}
	}
	if len(l.trail.deletes()) > 0 {
		t.Errorf("something was deleted: %v", l.trail.deletes())
	}
}

func TestProposalCleans(t *testing.T) {
	for _, name := range []string{"cleaner_v1alpha_preview.yaml", "cleaner_v1alpha1_preview.yaml"} {
		t.Run(name, func(t *testing.T) {
			l := parallel(t)
			s := l.sink()
			release(l, "sfj-commit--account", map[string]string{"note": "belongs to the release"})
			l.apply(`
apiVersion: serving.knative.dev/v1
kind: Revision
metadata: {name: used, labels: {vtex.io/proxy: nginx-proxy-id}, annotations: {serving.knative.dev/routes: "sfj-a,preview-b,www"}}
spec: {containers: [{image: example.test/shop}]}
status: {conditions: [{type: Active, status: "False", lastTransitionTime: "2020-01-01T00:00:00Z"}]}`)
			cleaner := proposal(l, sample(l, name), "1s", s.URL)
			l.says(cleaner, v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
			rev := revision(l, "used")
			rev.SetAnnotations(map[string]string{"serving.knative.dev/routes": "sfj-a,preview-b"})
			if err := l.Update(l.ctx, rev); err != nil {
				t.Fatal(err)
			}
			l.gone(cleaner)
			if l.exists(&corev1.ConfigMap{}, "sfj-commit--account-config") {
				t.Error("an object of the release is there")
			}
			if secrets := releaseSecrets(l); len(secrets) > 0 {
				t.Errorf("Secrets of the release are there: %v", secrets)
			}
			if !l.exists(revisionKind(), "used") {
				t.Error("a target with delete: false was deleted")
			}
			events, err := s.WaitFor(l.ctx, 1)
			if err != nil {
				t.Fatal(err)
			}
			if e := events[0]; len(events) != 1 || e.Type != "dev.vtex.cleaner.cleaned.v1" || !strings.HasSuffix(e.ID, "-1") {
				t.Errorf("the sink received %d events, the first is %+v", len(events), e)
			}
		})
	}
}

func TestKindInstalledAfterTheCleaner(t *testing.T) {
	l := parallel(t)
	group := "late-" + l.ns + ".example.test"
	l.apply(cleanerYAML("c", fmt.Sprintf(`
  retry: {period: 10h}
  targets:
  - name: widgets
    reference: {apiGroup: %s, version: v1, kind: widget, matchLabels: {}}
    delete: true
  conditions: ['widgets.items.size() > 0']`, group)))
	c := l.says("c", v1alpha1.ConditionTargetsResolved, v1alpha1.ReasonKindNotServed)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, group) {
		t.Errorf("the message does not name the kind: %q", got)
	}
	widgetCRD(l, group)
	// The kind is served now, and nobody has granted it: that is another state, which names the verbs.
	c = l.says("c", v1alpha1.ConditionTargetsResolved, v1alpha1.ReasonAccessDenied)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "list") || !strings.Contains(got, "widgets."+group) {
		t.Errorf("the message does not name verb and resource: %q", got)
	}
	grant(l, group, "get", "list", "watch", "delete")
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	l.apply(fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: w}", group))
	l.gone("c")
}

// widgetCRD makes a kind of the test's own.
func widgetCRD(l *lab, group string) {
	l.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	if err := l.Create(l.ctx, u); err != nil {
		l.Fatal(err)
	}
	l.eventually("the kind is served", func() string {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(group + "/v1")
		list.SetKind("WidgetList")
		if err := l.List(l.ctx, list, client.InNamespace(l.ns)); err != nil {
			return err.Error()
		}
		return ""
	})
}

// grant gives the operator verbs on the test's own kind, by a Role in the namespace: what it has is replaced.
func grant(l *lab, group string, verbs ...string) {
	l.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "widgets"}}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{"widgets"}, Verbs: verbs}}
	if l.exists(role, "widgets") {
		l.update(role, "widgets", func() { role.Rules = rules })
		return
	}
	role.Rules = rules
	if err := l.Create(l.ctx, role); err != nil {
		l.Fatal(err)
	}
	if err := l.Create(l.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "widgets"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "widgets"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: operator.Namespace, Name: operator.ServiceAccount}},
	}); err != nil {
		l.Fatal(err)
	}
}

func TestDryRunDeletesNothing(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", `
  mode: DryRun
  ttl: 0s
  targets:`+target))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonDryRun)
	if len(c.Status.LastActions) != 1 || c.Status.LastActions[0].Object != "ConfigMap "+c.Namespace+"/evidence" || c.Status.LastActions[0].Result != "would be deleted" {
		t.Errorf("lastActions is %+v", c.Status.LastActions)
	}
	if len(c.Finalizers) > 0 || c.Status.Run != nil {
		t.Errorf("a dry run has a finalizer or a run: %v %+v", c.Finalizers, c.Status.Run)
	}
	l.eventually("an Event says so", func() string {
		list := &eventsv1.EventList{}
		if err := l.List(l.ctx, list, client.InNamespace(l.ns)); err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if list.Items[i].Reason == "DryRun" && list.Items[i].Note == "targets.evidence: would delete 1: ConfigMap "+c.Namespace+"/evidence" {
				return ""
			}
		}
		return fmt.Sprintf("%d Events say something else", len(list.Items))
	})
	update := &v1alpha1.Cleaner{}
	l.update(update, "c", func() { update.Spec.Mode = v1alpha1.ModeEnforce })
	l.gone("c")
	if l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Error("the target is there")
	}
}

func TestRequestedAtEvaluatesNow(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", `
  retry: {period: 10h}
  targets:`+target+`
  conditions: ['timestamp(string(time)) - timestamp(evidence.metadata.creationTimestamp) > duration("3s")'] # which nobody foresees`))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	l.eventually("time alone makes the condition true", func() string {
		if time.Since(c.CreationTimestamp.Time) < 6*time.Second {
			return "too early"
		}
		return ""
	})
	if l.cleaner("c") == nil {
		t.Fatal("the Cleaner went without being asked, so that asking shows nothing")
	}
	l.update(c, "c", func() { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "now"} })
	l.gone("c")
}

func TestProtectedObjectIsWithheld(t *testing.T) {
	l := parallel(t)
	cm := l.configMap("evidence", map[string]string{v1alpha1.ProtectKey: "true"}, nil)
	l.apply(cleanerYAML("c", `
  ttl: 0s
  targets:`+target))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonProtected)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, v1alpha1.ProtectKey) {
		t.Errorf("the message does not say why: %q", got)
	}
	if !l.exists(cm, "evidence") {
		t.Error("a protected object was deleted")
	}
}

func TestInvalidSpecSaysWhere(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", `
  targets:`+target+`
  conditions: ['evidnce.data.a == "1"']`))
	c := l.says("c", v1alpha1.ConditionValid, v1alpha1.ReasonInvalidSpec)
	got := message(c, v1alpha1.ConditionReady)
	for _, want := range []string{"spec.conditions[0]", "evidnce", "evidence"} {
		if !strings.Contains(got, want) {
			t.Errorf("the message does not name %s: %q", want, got)
		}
	}
	l.update(c, "c", func() { c.Spec.Conditions = []string{"evidence != null"} })
	l.gone("c")
}

func TestACleanerThatWaitsWritesNothing(t *testing.T) {
	l := parallel(t)
	cm := l.configMap("evidence", nil, map[string]string{"n": "0"})
	l.apply(cleanerYAML("c", `
  retry: {period: 10h}
  targets:`+target+`
  conditions: ['evidence.data.n == "go"']`))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	l.passes() // what there was to report is reported
	before := l.cleaner("c").ResourceVersion
	for i := range 5 {
		l.update(cm, "evidence", func() { cm.Data["n"] = fmt.Sprint(i) })
	}
	l.passes()
	if after := l.cleaner("c"); after.ResourceVersion != before {
		t.Errorf("evaluations with the same outcome were written: version %s, then %s", before, after.ResourceVersion)
	}
	l.update(cm, "evidence", func() { cm.Data["n"] = "go" })
	l.gone(c.Name)
}
