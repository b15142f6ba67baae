// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

// fixtures are what few tests need in their namespace: rights, Pods, a ClusterCleaner.
type fixtures struct{ l *lab }

// template makes a CleanerTemplate that deletes what is stale, which goes with the test.
func (f *fixtures) template(state string) *v1alpha1.CleanerTemplate {
	f.l.Helper()
	u := f.l.apply(fmt.Sprintf(`
apiVersion: cleaner.vtex.dev/v1alpha1
kind: CleanerTemplate
metadata: {name: %s}
spec:
  template:
    targets:
    - {name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: shop}}}
    rules:
    - {name: stale, forEach: maps.items, when: item.data.state == %q, actions: [{delete: {}}]}`, f.l.ns, state))
	t := &v1alpha1.CleanerTemplate{ObjectMeta: metav1.ObjectMeta{Name: u.GetName()}}
	f.l.Cleanup(func() {
		if err := f.l.Delete(context.WithoutCancel(f.l.ctx), t.DeepCopy()); client.IgnoreNotFound(err) != nil {
			f.l.Error(err)
		}
	})
	return t
}

// mayEvict lets the operator evict the Pods of the namespace.
func (f *fixtures) mayEvict() {
	f.l.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.l.ns, Name: "evict"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
	}}
	if err := f.l.Create(f.l.ctx, role); err != nil {
		f.l.Fatal(err)
	}
	if err := f.l.Create(f.l.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.l.ns, Name: "evict"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "evict"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: operator.Namespace, Name: operator.ServiceAccount}},
	}); err != nil {
		f.l.Fatal(err)
	}
}

// pod makes a Pod that seems to run.
func (f *fixtures) pod(name string) {
	f.l.Helper()
	f.l.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec: {containers: [{name: c, image: example.test/c}], terminationGracePeriodSeconds: 0}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}`, name, name))
}

// cluster makes a ClusterCleaner, which goes with the test.
func (f *fixtures) cluster(spec string) *v1alpha1.ClusterCleaner {
	f.l.Helper()
	u := f.l.apply("apiVersion: cleaner.vtex.dev/v1alpha1\nkind: ClusterCleaner\nmetadata: {name: " + f.l.ns + "}\nspec:" + spec)
	cc := &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: u.GetName()}}
	f.l.Cleanup(func() {
		if err := f.l.Delete(context.WithoutCancel(f.l.ctx), cc.DeepCopy()); client.IgnoreNotFound(err) != nil {
			f.l.Error(err)
		}
	})
	return cc
}

// costlyRecord makes the record of a release, which repeats as many values as each of its documents may, in many documents.
func (f *fixtures) costlyRecord(name string) *corev1.Secret {
	f.l.Helper()
	doc := "apiVersion: [" + strings.Repeat("1,", 2900) + "]\nmetadata: {name: a, namespace: elsewhere}\na: &a [" + strings.Repeat("[],", 300) + "]\nkind: [" + strings.Repeat("*a,", 918) + "]\n---\n"
	manifest, err := json.Marshal(strings.Repeat(doc, 300))
	if err != nil {
		f.l.Fatal(err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	fmt.Fprintf(w, `{"name":%q,"namespace":%q,"version":1,"info":{"first_deployed":"2030-01-02T03:04:05Z","status":"deployed"},"manifest":%s}`, name, f.l.ns, manifest)
	if err := w.Close(); err != nil {
		f.l.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.l.ns, Name: "sh.helm.release.v1." + name + ".v1", Labels: map[string]string{"owner": "helm", "name": name}},
		Type:       "helm.sh/release.v1",
		Data:       map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(zipped.Bytes()))},
	}
	if err := f.l.Create(f.l.ctx, secret); err != nil {
		f.l.Fatal(err)
	}
	return secret
}
