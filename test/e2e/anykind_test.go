// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
)

// definition is a CustomResourceDefinition of kind Gadget in a group.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// gadgets has the API server serve Gadgets in a group of the test, which the operator may clean.
func gadgets(l *lab, group string) {
	l.Helper()
	file := filepath.Join(l.TempDir(), "crd.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, definition, group), 0o600); err != nil {
		l.Fatal(err)
	}
	if err := cluster.InstallCRDs(l.ctx, l.Config(), file); err != nil {
		l.Fatal(err)
	}
}

// mayClean lets the operator clean all kinds of a group.
func mayClean(l *lab, group string) {
	l.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "cleaner-may-clean-" + group, Labels: map[string]string{"cleaner.vtex.dev/aggregate-to-controller": "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "delete"}}},
	}
	if err := l.Create(l.ctx, role); err != nil {
		l.Fatal(err)
	}
}

func gadget(l *lab, group, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(group + "/v1")
	u.SetKind("Gadget")
	u.SetNamespace(l.ns)
	u.SetName(name)
	return u
}

// annotated creates a ConfigMap with an annotation.
func annotated(l *lab, name string) {
	l.Helper()
	l.apply(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, annotations: {example.com/ttl: 1s}}", name))
}

// isGone waits until an object is gone.
func isGone(l *lab, o client.Object, name string, describe func() string) {
	l.Helper()
	l.eventually(name+" is gone", func() string {
		if l.exists(o, name) {
			return "it is there: " + describe()
		}
		return ""
	})
}

// anyAnnotated is the spec of a ClusterCleaner that deletes what is annotated in a namespace, of any kind.
func anyAnnotated(namespace string) string {
	return fmt.Sprintf(`
  lifecycle: Recurring
  targets:
  - name: annotated
    reference: {kind: "*", hasAnnotation: example.com/ttl, namespaces: [%s], excludeKinds: [secrets]}
  rules:
  - name: expired
    forEach: annotated.items
    when: age(item) >= parseDuration(item.metadata.annotations["example.com/ttl"])
    actions: [{delete: {}}]`, namespace)
}

// A target of kind "*" finds what is annotated, of kinds that are there and of those whose definitions come later; what is excluded stays.
func TestAnyKindFollowsDefinitionsThatComeLater(t *testing.T) {
	l := parallel(t)
	group := l.ns + ".example.com"
	mayClean(l, group)
	annotated(l, "early")
	l.configMap("bystander", nil, nil)
	l.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: excluded, annotations: {example.com/ttl: 1s}}")
	cc := l.fixtures.cluster(anyAnnotated(l.ns))
	says := func() string {
		c := &v1alpha1.ClusterCleaner{}
		if err := l.Get(l.ctx, client.ObjectKey{Name: cc.Name}, c); err != nil {
			return err.Error()
		}
		return describe(&v1alpha1.Cleaner{Status: c.Status})
	}
	isGone(l, &corev1.ConfigMap{}, "early", says)

	gadgets(l, group)
	late := gadget(l, group, "late")
	late.SetAnnotations(map[string]string{"example.com/ttl": "1s"})
	for _, o := range []client.Object{late, gadget(l, group, "bystander")} {
		if err := l.Create(l.ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	isGone(l, gadget(l, group, "late"), "late", says)

	cm := &corev1.ConfigMap{} // one that gets its annotation later
	l.update(cm, "bystander", func() { cm.Annotations = map[string]string{"example.com/ttl": "1s"} })
	isGone(l, &corev1.ConfigMap{}, "bystander", says)
	if !l.exists(gadget(l, group, "bystander"), "bystander") {
		t.Error("an object without the annotation is gone")
	}
	if !l.exists(&corev1.Secret{}, "excluded") {
		t.Error("an object of an excluded kind is gone")
	}
	for _, d := range l.trail.deletes() {
		if r := d.ObjectRef.Resource; r != "configmaps" && r != "gadgets" && r != "clustercleaners" {
			t.Errorf("%s: no such kind was selected", d)
		}
	}
	if s := says(); !strings.Contains(s, "the operator is not allowed to") {
		t.Errorf("the status names no kind that the operator may not clean:\n%s", s)
	}
}

// skips waits until the status of a Cleaner names a kind that is skipped, for a reason.
func skips(l *lab, kind, reason string) {
	l.Helper()
	l.eventually("the status names "+kind, func() string {
		c := l.cleaner("c")
		if c == nil {
			return "the Cleaner is gone"
		}
		if s := c.Status.SkippedKinds; s != nil {
			for _, k := range s.Kinds {
				if k.Kind == kind && strings.Contains(k.Reason, reason) {
					return ""
				}
			}
		}
		return describe(c)
	})
}

// anyLabelled is the spec of a Cleaner that deletes what has a label, of any kind.
const anyLabelled = `
  lifecycle: Recurring
  targets:
  - name: stale
    reference: {kind: "*", matchLabels: {stage: stale}}
  rules:
  - name: all
    forEach: stale.items
    when: "true"
    actions: [{delete: {}}]`

// twoKinds creates a ConfigMap and a Secret with the label.
func twoKinds(l *lab) {
	l.Helper()
	l.configMap("stale", map[string]string{"stage": "stale"}, nil)
	l.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: stale, labels: {stage: stale}}")
}

// onlyTheConfigMapGoes waits until the ConfigMap is gone and the status says why the Secret is not.
func onlyTheConfigMapGoes(l *lab, reason string) {
	l.Helper()
	isGone(l, &corev1.ConfigMap{}, "stale", func() string { return describe(l.cleaner("c")) })
	skips(l, "secrets", reason)
	if !l.exists(&corev1.Secret{}, "stale") {
		l.Error("an object is gone that was not allowed to go")
	}
	for _, d := range l.trail.deletes() {
		if d.ObjectRef.Resource == "secrets" {
			l.Errorf("%s: it was not allowed", d)
		}
	}
}

// What the ServiceAccount may not clean stays, and the status names it.
func TestAnyKindSkipsWhatTheServiceAccountMayNotClean(t *testing.T) {
	l := parallel(t)
	twoKinds(l)
	account(l, "get", "list", "watch", "delete")
	l.apply(cleanerYAML("c", "\n  serviceAccountName: tenant"+anyLabelled))
	onlyTheConfigMapGoes(l, `ServiceAccount "`+l.ns+`/tenant" is not allowed to delete`)
}

// Without a kind that is left the Cleaner does nothing, and says so.
func TestAnyKindWithoutKindsThatAreLeft(t *testing.T) {
	l := parallel(t)
	twoKinds(l)
	account(l, "get")
	l.apply(cleanerYAML("c", "\n  serviceAccountName: tenant"+anyLabelled))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonAccessDenied)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "no kind of all") {
		t.Errorf("the status says %q", got)
	}
	if len(l.left()) == 0 {
		t.Error("an object is gone")
	}
}
