// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/test/helmtest"
)

func TestLook(t *testing.T) {
	status := func(s release.Status) func(*world) {
		return func(w *world) {
			w.install(shop())
			check(w.t, helmtest.SetStatus(w.admin, w.namespace, "shop", s))
		}
	}
	with := func(file, text string) func(*world) {
		return func(w *world) {
			c := shop()
			c.Templates[file] = text
			w.install(c)
		}
	}
	cases := map[string]struct {
		reason  string
		account bool
		given   func(*world)
		want    observed.Release
	}{
		"None":         {reason: "there is none", given: func(*world) {}, want: observed.Release{State: observed.ReleaseGone}},
		"Deployed":     {reason: "the usual", given: status(release.StatusDeployed), want: observed.Release{State: observed.ReleaseDeployed, Revision: 1}},
		"Failed":       {reason: "it can be uninstalled", given: status(release.StatusFailed), want: observed.Release{State: observed.ReleaseDeployed, Revision: 1}},
		"Superseded":   {reason: "the newest record was deleted by hand", given: status(release.StatusSuperseded), want: observed.Release{State: observed.ReleaseDeployed, Revision: 1}},
		"Uninstalling": {reason: "somebody began", given: status(release.StatusUninstalling), want: observed.Release{State: observed.ReleaseUninstalling, Revision: 1}},
		"Marked": {
			reason: "the mark is shown as it is: whose it is, the caller knows",
			given: func(w *world) {
				status(release.StatusUninstalling)(w)
				w.mark(v1alpha1.AnnotationUninstall, "somebody's")
			},
			want: observed.Release{State: observed.ReleaseUninstalling, Revision: 1, Mark: "somebody's"},
		},
		"PendingInstall":  {reason: "somebody installs", given: status(release.StatusPendingInstall), want: observed.Release{State: observed.ReleasePending, Revision: 1, Blocked: v1alpha1.ReasonReleasePending}},
		"PendingUpgrade":  {reason: "somebody upgrades", given: status(release.StatusPendingUpgrade), want: observed.Release{State: observed.ReleasePending, Revision: 1, Blocked: v1alpha1.ReasonReleasePending}},
		"PendingRollback": {reason: "somebody rolls back", given: status(release.StatusPendingRollback), want: observed.Release{State: observed.ReleasePending, Revision: 1, Blocked: v1alpha1.ReasonReleasePending}},
		"ProtectedRecord": {
			reason: "its uninstall would delete the record",
			given: func(w *world) {
				w.install(shop())
				must(w.client.CoreV1().Secrets(w.namespace).Patch(w.ctx, "sh.helm.release.v1.shop.v1", types.MergePatchType, []byte(`{"metadata":{"labels":{"cleaner.vtex.dev/protect":"true"}}}`), metav1.PatchOptions{}))(w.t)
				_, err := w.uninstaller().Uninstall(w.ctx, nil, w.committed(), allow{})
				if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.Reason != v1alpha1.ReasonProtected || len(w.writes()) > 0 {
					w.t.Errorf("got error %v, and %q", err, w.writes())
				}
			},
			want: observed.Release{State: observed.ReleaseDeployed, Revision: 1, Blocked: v1alpha1.ReasonProtected},
		},
		"KeptHistory": {
			reason: "there is nothing left to uninstall, and somebody wants the record",
			given: func(w *world) {
				w.install(shop())
				check(w.t, helmtest.Uninstall(w.admin, w.namespace, "shop", true))
			},
			want: observed.Release{State: observed.ReleaseGone},
		},
		"ClusterScoped": {
			reason: "a release that reaches out of its namespace",
			given: func(w *world) {
				with("x.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: '{{ .Release.Namespace }}'}\n")(w)
				w.t.Cleanup(func() {
					check(w.t, w.client.RbacV1().ClusterRoles().Delete(context.WithoutCancel(w.ctx), w.namespace, metav1.DeleteOptions{}))
				})
			},
			want: observed.Release{State: observed.ReleaseDeployed, Revision: 1, Blocked: v1alpha1.ReasonReleaseOutsideNamespace},
		},
		"OtherNamespace": {
			reason: "a release that reaches into another namespace",
			given: func(w *world) {
				other := must(controlPlane.Namespace(w.ctx, "other"))(w.t)
				with("x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: "+other+"}\n")(w)
			},
			want: observed.Release{State: observed.ReleaseDeployed, Revision: 1, Blocked: v1alpha1.ReasonReleaseOutsideNamespace},
		},
		"KeptOutside": {
			reason: "what is not deleted anyway blocks nothing",
			given: func(w *world) {
				other := must(controlPlane.Namespace(w.ctx, "other"))(w.t)
				with("x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: "+other+", annotations: {helm.sh/resource-policy: keep}}\n")(w)
			},
			want: observed.Release{State: observed.ReleaseDeployed, Revision: 1},
		},
		"Hooks": {
			reason: "a hook is told of, and that nobody answers for what it does",
			given:  with("x.yaml", config("x", "helm.sh/hook: post-delete")),
			want:   observed.Release{State: observed.ReleaseDeployed, Revision: 1, HasHooks: true, HooksBlocked: noAccountDetail},
		},
		"HooksAsAccount": {
			reason:  "an account does",
			account: true,
			given:   with("x.yaml", config("x", "helm.sh/hook: post-delete")),
			want:    observed.Release{State: observed.ReleaseDeployed, Revision: 1, HasHooks: true},
		},
		"HookOfNoKind": {
			reason:  "a hook that cannot be made cannot be run",
			account: true,
			given: func(w *world) {
				with("x.yaml", config("x", "helm.sh/hook: post-delete"))(w)
				w.rewrite(func(r *release.Release) {
					r.Hooks[0].Manifest = "apiVersion: example.com/v1\nkind: Nothing\nmetadata: {name: x}"
				})
			},
			want: observed.Release{
				State: observed.ReleaseDeployed, Revision: 1, HasHooks: true,
				HooksBlocked: `its hook "x" cannot run: the API server serves no kind Nothing of example.com/v1`,
			},
		},
		"HookUnreadable": {
			reason:  "nor one that nobody can read",
			account: true,
			given: func(w *world) {
				with("x.yaml", config("x", "helm.sh/hook: post-delete"))(w)
				w.rewrite(func(r *release.Release) { r.Hooks[0].Manifest = "" })
			},
			want: observed.Release{
				State: observed.ReleaseDeployed, Revision: 1, HasHooks: true,
				HooksBlocked: `its hook "x" cannot run: its manifest is not one that Helm writes for a hook`,
			},
		},
		"HookOfTheCluster": {
			reason:  "nor one whose objects are protected",
			account: true,
			given: with("x.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n"+
				"metadata: {name: '{{ .Release.Namespace }}', annotations: {helm.sh/hook: pre-delete}}\n"),
			want: observed.Release{
				State: observed.ReleaseDeployed, Revision: 1, HasHooks: true, HooksBlocked: `its hook "NAMESPACE" cannot run: ` +
					"ClusterRole NAMESPACE: " + clusterScoped,
			},
		},
		"OtherHooks": {
			reason: "hooks of an installation are over",
			given:  with("x.yaml", config("x", "helm.sh/hook: post-install", "helm.sh/hook-delete-policy: hook-succeeded")),
			want:   observed.Release{State: observed.ReleaseDeployed, Revision: 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.account {
				w.account = types.NamespacedName{Namespace: w.namespace, Name: "deleter"}
			}
			tc.given(w)
			got := w.look()
			tc.want.Name = "shop"
			tc.want.HooksBlocked = strings.ReplaceAll(tc.want.HooksBlocked, "NAMESPACE", w.namespace)
			if diff := cmp.Diff(tc.want, got.Release, cmpopts.IgnoreFields(observed.Release{}, "Digest", "UID", "Modified", "FirstDeployed", "Detail", "Rights", "HookRights")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if (got.Detail == "") != (got.Blocked == "") {
				t.Errorf("%s: reason %q has detail %q", tc.reason, got.Blocked, got.Detail)
			}
			if there := got.State != observed.ReleaseGone; there == (got.UID == "") || there == got.FirstDeployed.IsZero() {
				t.Errorf("%s: got UID %q, first deployed %v", tc.reason, got.UID, got.FirstDeployed)
			}
		})
	}
}

// clusterScoped is what is said of a ClusterRole that a release contains.
const clusterScoped = "clusterroles.rbac.authorization.k8s.io are cluster-scoped: a release may delete them only if the operator runs " +
	"with --allow-protected-kinds=clusterroles.rbac.authorization.k8s.io"

// TestOutsideTheNamespace has a release with an object outside its namespace, which an account answers for.
func TestOutsideTheNamespace(t *testing.T) {
	inOther := func(w *world, annotate string) string {
		other := must(controlPlane.Namespace(w.ctx, "other"))(w.t)
		c := shop()
		c.Templates["x.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: " + other + "}\n"
		w.install(c)
		if annotate != "" {
			must(w.client.CoreV1().ConfigMaps(other).Patch(w.ctx, "x", types.MergePatchType, []byte(annotate), metav1.PatchOptions{}))(w.t)
		}
		return other
	}
	inCluster := func(w *world) {
		c := shop()
		c.Templates["x.yaml"] = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: '{{ .Release.Namespace }}'}\n"
		w.install(c)
		w.t.Cleanup(func() {
			err := w.client.RbacV1().ClusterRoles().Delete(context.WithoutCancel(w.ctx), w.namespace, metav1.DeleteOptions{})
			if err != nil && !notfound.IsAnyObjectMissing(err) {
				w.t.Error(err)
			}
		})
	}
	cases := map[string]struct {
		reason  string
		given   func(*world)
		blocked string
		deleted string
		kept    string
	}{
		"OtherNamespace": {reason: "it says that it belongs to the release", given: func(w *world) { inOther(w, "") }, deleted: "ConfigMap x"},
		"TakenOver": {
			reason: "it says that it belongs to another release",
			given:  func(w *world) { inOther(w, `{"metadata":{"annotations":{"meta.helm.sh/release-namespace":"bank"}}}`) },
			kept:   "ConfigMap x",
		},
		"ProtectedNamespace": {
			reason: "it lies in a protected namespace",
			given: func(w *world) {
				w.protection.Namespaces = []string{inOther(w, "")}
			},
			blocked: v1alpha1.ReasonProtected,
		},
		"ClusterScoped": {reason: "a cluster may hang on it", given: inCluster, blocked: v1alpha1.ReasonProtected},
		"ClusterScopedFree": {
			reason: "the administrator says that none does",
			given: func(w *world) {
				w.protection.AllowedKinds = []string{"clusterroles.rbac.authorization.k8s.io"}
				inCluster(w)
			},
			deleted: "ClusterRole ",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.account = types.NamespacedName{Namespace: w.namespace, Name: "deleter"}
			tc.given(w)
			if diff := cmp.Diff(tc.blocked, w.look().Blocked); diff != "" {
				t.Errorf("%s: blocked (-want +got):\n%s", tc.reason, diff)
			}
			got, err := w.uninstaller().Uninstall(w.ctx, nil, w.committed(), allow{})
			if tc.blocked != "" {
				if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.Reason != tc.blocked || len(w.writes()) > 0 {
					t.Errorf("%s: got error %v, and %q", tc.reason, err, w.writes())
				}
				return
			}
			check(t, err)
			if has := strings.Contains(strings.Join(refs(got.Deleted), " "), tc.deleted); !has {
				t.Errorf("%s: deleted %q, want %s among them", tc.reason, refs(got.Deleted), tc.deleted)
			}
			if diff := cmp.Diff(tc.kept, strings.Join(kept(got.Kept), " ")); diff != "" {
				t.Errorf("%s: kept (-want +got):\n%s", tc.reason, diff)
			}
			w.wantGone()
			w.writes()
		})
	}
}

// TestReleaseOwnsServiceAccount has releases with what the account needs that would uninstall them.
func TestReleaseOwnsServiceAccount(t *testing.T) {
	binding := func(subject string) string {
		return "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: x}\n" +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects: [" + subject + "]\n"
	}
	const role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: x}\nrules: []\n"
	bind := func(name string) func(w *world) {
		return func(w *world) {
			must(w.client.RbacV1().RoleBindings(w.namespace).Create(w.ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "theirs"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "x"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: name}},
			}, metav1.CreateOptions{}))(w.t)
		}
	}
	cases := map[string]struct {
		reason string
		chart  string
		after  func(*world)
		owns   bool
	}{
		"Account":      {reason: "nobody is left to go on", chart: "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: deleter}\n", owns: true},
		"OtherAccount": {reason: "a release may have accounts", chart: "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: runner}\n"},
		"Binding":      {reason: "its rights go with the binding", chart: binding("{kind: ServiceAccount, name: deleter, namespace: '{{ .Release.Namespace }}'}"), owns: true},
		"Bare":         {reason: "the namespace of a subject may be left out", chart: binding("{kind: ServiceAccount, name: deleter}"), owns: true},
		"User":         {reason: "an account is a user too", chart: binding("{kind: User, apiGroup: rbac.authorization.k8s.io, name: 'system:serviceaccount:{{ .Release.Namespace }}:deleter'}"), owns: true},
		"Group":        {reason: "and in groups", chart: binding("{kind: Group, apiGroup: rbac.authorization.k8s.io, name: 'system:serviceaccounts:{{ .Release.Namespace }}'}"), owns: true},
		"OtherGroup":   {reason: "but not in those of other namespaces", chart: binding("{kind: Group, apiGroup: rbac.authorization.k8s.io, name: 'system:serviceaccounts:bank'}")},
		"OtherBinding": {reason: "a release may grant rights to others", chart: binding("{kind: ServiceAccount, name: runner}")},
		"OtherPlace":   {reason: "an account of that name elsewhere is another one", chart: binding("{kind: ServiceAccount, name: deleter, namespace: bank}")},
		"Edited": {
			reason: "what counts is the binding as it is", chart: binding("{kind: ServiceAccount, name: runner}"), owns: true,
			after: func(w *world) {
				patch := fmt.Appendf(nil, `[{"op":"add","path":"/subjects/-","value":{"kind":"ServiceAccount","name":"deleter","namespace":%q}}]`, w.namespace)
				must(w.client.RbacV1().RoleBindings(w.namespace).Patch(w.ctx, "x", types.JSONPatchType, patch, metav1.PatchOptions{}))(w.t)
			},
		},
		"Role":      {reason: "its rights go with the role", chart: role, after: bind("deleter"), owns: true},
		"OtherRole": {reason: "a role of others", chart: role, after: bind("runner")},
		"ClusterBinding": {
			reason: "its rights go with the binding", owns: true,
			chart: "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: '{{ .Release.Namespace }}'}\n" +
				"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n" +
				"subjects: [{kind: ServiceAccount, name: deleter, namespace: '{{ .Release.Namespace }}'}]\n",
		},
		"ClusterRole": {
			reason: "its rights go with the role", owns: true,
			chart: "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: '{{ .Release.Namespace }}'}\nrules: []\n",
			after: func(w *world) {
				must(w.client.RbacV1().RoleBindings(w.namespace).Create(w.ctx, &rbacv1.RoleBinding{
					ObjectMeta: metav1.ObjectMeta{Name: "theirs"},
					RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: w.namespace},
					Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "deleter"}},
				}, metav1.CreateOptions{}))(w.t)
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.account = types.NamespacedName{Namespace: w.namespace, Name: "deleter"}
			w.protection.AllowedKinds = []string{"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io"}
			w.install(helmtest.Chart{Templates: map[string]string{"x.yaml": tc.chart}})
			t.Cleanup(func() { check(t, helmtest.Uninstall(w.admin, w.namespace, "shop", false)) })
			if tc.after != nil {
				tc.after(w)
			}
			want := ""
			if tc.owns {
				want = v1alpha1.ReasonReleaseOwnsServiceAccount
			}
			got := w.look()
			if diff := cmp.Diff(want, got.Blocked); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if tc.owns && !strings.Contains(got.Detail, got.Objects[0].String()) {
				t.Errorf("%s: %q does not name the object", tc.reason, got.Detail)
			}
		})
	}
}

func TestBlocked(t *testing.T) {
	cases := map[string]struct {
		reason string
		chart  map[string]string
		after  func(*world)
		want   string
	}{
		"OutsideNamespace": {
			reason: "one object outside, and nothing of the release goes",
			chart:  map[string]string{"x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Namespace }}', namespace: default}\n"},
			want:   v1alpha1.ReasonReleaseOutsideNamespace,
		},
		"Hooks": {
			reason: "skipping a hook is not ours to decide",
			chart:  map[string]string{"x.yaml": config("x", "helm.sh/hook: pre-delete")},
			want:   v1alpha1.ReasonReleaseHasHooks,
		},
		"Unreadable": {
			reason: "what is there cannot be known",
			after: func(w *world) {
				must(w.client.CoreV1().Secrets(w.namespace).Patch(w.ctx, "sh.helm.release.v1.shop.v1", types.MergePatchType,
					[]byte(`{"data":{"release":"bm9uc2Vuc2U="}}`), metav1.PatchOptions{}))(w.t)
			},
			want: v1alpha1.ReasonReleaseUnreadable,
		},
		"OldRevisionUnreadable": {
			reason: "nobody knows whether it is the oldest",
			after: func(w *world) {
				secrets := w.client.CoreV1().Secrets(w.namespace)
				s := must(secrets.Get(w.ctx, "sh.helm.release.v1.shop.v1", metav1.GetOptions{}))(w.t)
				must(secrets.Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "older", Labels: s.Labels}, Type: s.Type}, metav1.CreateOptions{}))(w.t)
			},
			want: v1alpha1.ReasonReleaseUnreadable,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := shop()
			for file, text := range tc.chart {
				c.Templates[file] = text
			}
			w.install(c)
			want := w.committed()
			if tc.after != nil {
				tc.after(w)
			}
			got, err := w.uninstaller().Uninstall(w.ctx, nil, want, allow{})
			var blocked *BlockedError
			if !errors.As(err, &blocked) {
				t.Fatalf("%s: got error %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, blocked.Reason); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(Outcome{}, got); diff != "" {
				t.Errorf("%s: outcome (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]string(nil), w.writes()); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", tc.reason, diff)
			}
			if _, err := w.uninstaller().ReadRelease(w.ctx, nil, w.namespace, "shop"); (err != nil) != (tc.want == v1alpha1.ReasonReleaseUnreadable) {
				t.Errorf("%s: Look gives error %v", tc.reason, err)
			}
		})
	}
}
