// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	says := describeCluster(l, l.fixtures.cluster(anyAnnotated(l.ns)))
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

// describeCluster returns what describes the status of a ClusterCleaner.
func describeCluster(l *lab, cc *v1alpha1.ClusterCleaner) func() string {
	return func() string {
		c := &v1alpha1.ClusterCleaner{}
		if err := l.Get(l.ctx, client.ObjectKey{Name: cc.Name}, c); err != nil {
			return err.Error()
		}
		return describe(&v1alpha1.Cleaner{Status: c.Status})
	}
}

// anyLabelled is the spec of a ClusterCleaner that deletes what has a label in a namespace, of any kind, as a ServiceAccount there.
func anyLabelled(namespace string) string {
	return fmt.Sprintf(`
  lifecycle: Recurring
  serviceAccount: {namespace: %[1]s, name: %[2]s}
  targets:
  - name: stale
    reference: {kind: "*", matchLabels: {stage: stale}, namespaces: [%[1]s]}
  rules:
  - name: all
    forEach: stale.items
    when: "true"
    actions: [{delete: {}}]`, namespace, tenant)
}

// createTwoKinds creates a ConfigMap and a Secret with the label.
func createTwoKinds(l *lab) {
	l.Helper()
	l.configMap("stale", map[string]string{"stage": "stale"}, nil)
	l.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: stale, labels: {stage: stale}}")
}

// What the ServiceAccount may not clean stays, and the status names it.
func TestAnyKindSkipsWhatTheServiceAccountMayNotClean(t *testing.T) {
	l := parallel(t)
	createTwoKinds(l)
	account(l, "get", "list", "watch", "delete")
	cc := l.fixtures.cluster(anyLabelled(l.ns))
	says := describeCluster(l, cc)
	isGone(l, &corev1.ConfigMap{}, "stale", says)
	l.eventually("the status names Secrets", func() string {
		c := &v1alpha1.ClusterCleaner{}
		if err := l.Get(l.ctx, client.ObjectKey{Name: cc.Name}, c); err != nil {
			return err.Error()
		}
		reason := fmt.Sprintf("ServiceAccount %s/%s is not allowed to delete", l.ns, tenant)
		if s := c.Status.SkippedKinds; s == nil || !slices.ContainsFunc(s.Kinds, func(k v1alpha1.SkippedKind) bool {
			return k.Kind == "secrets" && strings.Contains(k.Reason, reason)
		}) {
			return says()
		}
		return ""
	})
	if !l.exists(&corev1.Secret{}, "stale") {
		t.Error("an object is gone that was not allowed to go")
	}
	for _, d := range l.trail.deletes() {
		if d.ObjectRef.Resource == "secrets" {
			t.Errorf("%s: it was not allowed", d)
		}
	}
}

// Without a kind that is left the ClusterCleaner does nothing, and says so.
func TestAnyKindWithoutKindsThatAreLeft(t *testing.T) {
	l := parallel(t)
	createTwoKinds(l)
	account(l, "get")
	says := describeCluster(l, l.fixtures.cluster(anyLabelled(l.ns)))
	l.eventually("it is denied", func() string {
		if s := says(); !strings.Contains(s, v1alpha1.ReasonAccessDenied) || !strings.Contains(s, "no kind of all") {
			return s
		}
		return ""
	})
	if len(l.left()) == 0 {
		t.Error("an object is gone")
	}
}
