// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/helmtest"
	"github.com/vtex/cleaner/test/operator"
)

// tenant is the ServiceAccount that Cleaners of these tests name.
const tenant = "tenant"

// account creates the ServiceAccount, with these verbs on ConfigMaps of its namespace.
func account(l *lab, verbs ...string) {
	l.Helper()
	if err := l.Create(l.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: tenant}}); err != nil {
		l.Fatal(err)
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: tenant},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: tenant},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: tenant},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: l.ns, Name: tenant}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := l.Create(l.ctx, o); err != nil {
			l.Fatal(err)
		}
	}
}

// let changes what the ServiceAccount may do with ConfigMaps.
func let(l *lab, verbs ...string) {
	l.Helper()
	role := &rbacv1.Role{}
	l.update(role, tenant, func() { role.Rules[0].Verbs = verbs })
}

// asTenant is a Cleaner that acts as the ServiceAccount.
func asTenant(more string) string {
	return cleanerYAML("c", `
  serviceAccountName: tenant
  targets:`+target+`
  conditions: ['evidence.data.state == "old"']`+more)
}

func TestDeedsAreThoseOfTheServiceAccount(t *testing.T) {
	l := parallel(t)
	account(l, "get", "list", "watch", "delete")
	l.configMap("evidence", nil, map[string]string{"state": "old"})
	l.apply(asTenant(""))
	l.gone("c")
	if l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Error("the target is there after the Cleaner has gone")
	}
	want := "system:serviceaccount:" + l.ns + ":" + tenant
	as := 0
	for _, d := range l.trail.deletes() {
		switch {
		case d.ObjectRef.Resource == "cleaners": // its own kind is the operator's to delete
		case d.User.Username != operator.User || d.ImpersonatedUser == nil || d.ImpersonatedUser.Username != want:
			t.Errorf("%s: want it as %s", d, want)
		default:
			as++
		}
	}
	if as == 0 {
		t.Error("the audit log shows no DELETE as the ServiceAccount")
	}
	if n := confirmations(l, want); n == 0 {
		t.Error("the audit log shows no live read as the ServiceAccount before the run was recorded")
	}
}

// confirmations counts the live reads of the evidence before the first run was recorded, which are all to be as an account.
func confirmations(l *lab, account string) int {
	l.Helper()
	events, err := l.audit.Events()
	if err != nil {
		l.Fatal(err)
	}
	in := func(e cluster.Event, resource, verb string) bool {
		return e.ObjectRef != nil && e.ObjectRef.Namespace == l.ns && e.ObjectRef.Resource == resource && e.Verb == verb && e.By(operator.User)
	}
	committed := slices.IndexFunc(events, func(e cluster.Event) bool {
		var c v1alpha1.Cleaner
		return in(e, "cleaners", "patch") && e.Code() == http.StatusOK && json.Unmarshal(e.ResponseObject.Raw, &c) == nil && c.Status.Run != nil
	})
	if committed < 0 {
		l.Fatal("the audit log shows no run")
	}
	n := 0
	for _, e := range events {
		if !in(e, "configmaps", "get") || e.ObjectRef.Name != "evidence" || !e.RequestReceivedTimestamp.Before(&events[committed].RequestReceivedTimestamp) {
			continue
		}
		if e.ImpersonatedUser == nil || e.ImpersonatedUser.Username != account || e.Code() != http.StatusOK {
			l.Errorf("%s: want it as %s, and answered", e, account)
			continue
		}
		n++
	}
	return n
}

func TestWhatTheServiceAccountMayNotDeleteStays(t *testing.T) {
	l := parallel(t)
	account(l, "get", "list", "watch")
	l.configMap("evidence", nil, map[string]string{"state": "old"})
	l.apply(asTenant(""))
	c := l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonDeletionRefused)
	got := message(c, v1alpha1.ConditionStalled)
	for _, want := range []string{"delete", "configmaps", "system:serviceaccount:" + l.ns + ":tenant"} {
		if !strings.Contains(got, want) {
			t.Errorf("the status says %q, which does not name %s", got, want)
		}
	}
	let(l, "get", "list", "watch", "delete")
	l.gone("c")
}

func TestWhatTheServiceAccountMayNotReadIsNotShownToExpressions(t *testing.T) {
	l := parallel(t)
	account(l, "get", "delete")
	l.configMap("evidence", nil, map[string]string{"state": "old"})
	l.apply(asTenant(""))
	c := l.says("c", v1alpha1.ConditionTargetsResolved, v1alpha1.ReasonAccessDenied)
	if got, want := message(c, v1alpha1.ConditionTargetsResolved), `ServiceAccount `+l.ns+`/tenant is not allowed to list and watch configmaps "evidence" in namespace "`+l.ns+`"`; !strings.Contains(got, want) {
		t.Errorf("the status says %q, want %q in it", got, want)
	}
	if n := len(l.trail.deletes()); n > 0 {
		t.Errorf("%d deletions", n)
	}
	let(l, "get", "list", "watch", "delete")
	l.gone("c")
}

func TestADeletedServiceAccountDeletesNothing(t *testing.T) {
	l := parallel(t)
	account(l, "get", "list", "watch", "delete")
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: tenant}}
	if err := l.Delete(l.ctx, sa); err != nil { // its RoleBinding stays, and goes on granting
		t.Fatal(err)
	}
	l.configMap("evidence", nil, map[string]string{"state": "old"})
	l.apply(asTenant(""))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonAccessDenied)
	if got, want := message(c, v1alpha1.ConditionReady), `ServiceAccount `+l.ns+`/tenant does not exist`; !strings.Contains(got, want) {
		t.Errorf("the status says %q, want %q in it", got, want)
	}
	if n := len(l.trail.deletes()); n > 0 {
		t.Errorf("%d deletions", n)
	}
	if err := l.Create(l.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: tenant}}); err != nil {
		t.Fatal(err)
	}
	l.gone("c")
}

func TestTheOperatorMayActOnlyOnWhatItMayReachItself(t *testing.T) {
	l := parallel(t)
	account(l, "get", "list", "watch", "delete")
	role := &rbacv1.Role{}
	l.update(role, tenant, func() {
		role.Rules[0].Resources = []string{"configmaps", "leases"}
		role.Rules[0].APIGroups = []string{"", "coordination.k8s.io"}
	})
	l.apply(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: evidence}`)
	l.apply(cleanerYAML("c", `
  serviceAccountName: tenant
  ttl: 0s
  targets:
  - name: evidence
    reference: {apiGroup: coordination.k8s.io, version: v1, kind: Lease, name: evidence}
    includeWhenEvaluating: false
    delete: true`))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonAccessDenied)
	if n := len(l.trail.deletes()); n > 0 {
		t.Errorf("%d deletions", n)
	}
}

// hooked installs a release with the Job of a pre-delete hook, gives the ServiceAccount what its uninstall needs, and has
// a Cleaner uninstall it. It returns the Pod of the hook: no kubelet runs here, so that the test says when it has ended.
func hooked(l *lab) *corev1.Pod {
	l.Helper()
	account(l, "get", "delete")
	role := &rbacv1.Role{}
	l.update(role, tenant, func() {
		role.Rules = append(role.Rules,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "update", "delete"}},
			rbacv1.PolicyRule{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get", "watch", "create", "delete"}})
	})
	_, err := helmtest.Install(l.ctx, l.Config(), l.ns, "shop", helmtest.Chart{Templates: map[string]string{
		"config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop-config}\n",
		"backup.yaml": `
apiVersion: batch/v1
kind: Job
metadata:
  name: backup
  annotations: {"helm.sh/hook": pre-delete, "helm.sh/hook-delete-policy": hook-succeeded}
spec:
  template:
    metadata: {labels: {app: backup}}
    spec: {restartPolicy: Never, containers: [{name: backup, image: example.test/backup}]}
`,
	}})
	if err != nil {
		l.Fatal(err)
	}
	l.apply(cleanerYAML("c", `
  ttl: 0s
  serviceAccountName: tenant
  helm: {release: shop, delete: true}`))
	pods := &corev1.PodList{}
	l.eventually("the hook runs", func() string {
		if err := l.List(l.ctx, pods, client.InNamespace(l.ns), client.MatchingLabels{"app": "backup"}); err != nil {
			l.Fatal(err)
		}
		if len(pods.Items) == 0 {
			return "there is no Pod of it: " + describe(l.cleaner("c"))
		}
		return ""
	})
	if !l.exists(&corev1.ConfigMap{}, "shop-config") {
		l.Error("an object of the release is gone before the hook has ended")
	}
	return &pods.Items[0]
}

// uninstalledAsTenant lets the hook end, and sees to it that all of the release goes as the ServiceAccount.
func uninstalledAsTenant(l *lab, hook *corev1.Pod) {
	l.Helper()
	hook.Status.Phase = corev1.PodSucceeded
	if err := l.Status().Update(l.ctx, hook); err != nil {
		l.Fatal(err)
	}
	l.eventually("the release goes", func() string {
		if l.exists(&corev1.ConfigMap{}, "shop-config") || len(releaseSecrets(l)) > 0 {
			return "a part of it is there"
		}
		return ""
	})
	want := "system:serviceaccount:" + l.ns + ":" + tenant
	for _, d := range l.trail.deletes() {
		if d.ObjectRef.Resource != "cleaners" && (d.ImpersonatedUser == nil || d.ImpersonatedUser.Username != want) {
			l.Errorf("%s: want it as %s", d, want)
		}
	}
}

// TestHooksOfAReleaseRunAsTheServiceAccount has the Job of a pre-delete hook run before the release goes, with the rights
// of the ServiceAccount alone.
func TestHooksOfAReleaseRunAsTheServiceAccount(t *testing.T) {
	l := parallel(t)
	uninstalledAsTenant(l, hooked(l))
	l.gone("c")
}

// TestAnEditDoesNotFinishAReleaseAsSomebodyElse takes the ServiceAccount out of the spec while its hook runs. The run is
// stopped, and what was begun is ended as it was begun: after the hook, and as the account.
func TestAnEditDoesNotFinishAReleaseAsSomebodyElse(t *testing.T) {
	l := parallel(t)
	hook := hooked(l)
	c := &v1alpha1.Cleaner{}
	l.update(c, "c", func() { c.Spec.ServiceAccountName, c.Spec.Conditions = "", []string{"false"} })
	l.eventually("the operator has seen the edit", func() string {
		if c := l.cleaner("c"); c.Status.Run == nil || c.Status.ObservedGeneration != c.Generation {
			return describe(c)
		}
		return ""
	})
	if !l.exists(&corev1.ConfigMap{}, "shop-config") {
		t.Error("an object of the release is gone before the hook has ended")
	}
	uninstalledAsTenant(l, hook)
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
}
