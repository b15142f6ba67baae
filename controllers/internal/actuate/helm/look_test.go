// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
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
		reason string
		given  func(*world)
		want   plan.Release
	}{
		"None":            {reason: "there is none", given: func(*world) {}, want: plan.Release{State: plan.ReleaseGone}},
		"Deployed":        {reason: "the usual", given: status(release.StatusDeployed), want: plan.Release{State: plan.ReleaseDeployed, Revision: 1}},
		"Failed":          {reason: "it can be uninstalled", given: status(release.StatusFailed), want: plan.Release{State: plan.ReleaseDeployed, Revision: 1}},
		"Superseded":      {reason: "the newest record was deleted by hand", given: status(release.StatusSuperseded), want: plan.Release{State: plan.ReleaseDeployed, Revision: 1}},
		"Uninstalling":    {reason: "somebody began", given: status(release.StatusUninstalling), want: plan.Release{State: plan.ReleaseUninstalling, Revision: 1}},
		"PendingInstall":  {reason: "somebody installs", given: status(release.StatusPendingInstall), want: plan.Release{State: plan.ReleasePending, Revision: 1, Blocked: v1alpha1.ReasonReleasePending}},
		"PendingUpgrade":  {reason: "somebody upgrades", given: status(release.StatusPendingUpgrade), want: plan.Release{State: plan.ReleasePending, Revision: 1, Blocked: v1alpha1.ReasonReleasePending}},
		"PendingRollback": {reason: "somebody rolls back", given: status(release.StatusPendingRollback), want: plan.Release{State: plan.ReleasePending, Revision: 1, Blocked: v1alpha1.ReasonReleasePending}},
		"KeptHistory": {
			reason: "there is nothing left to uninstall, and somebody wants the record",
			given: func(w *world) {
				w.install(shop())
				check(w.t, helmtest.Uninstall(w.admin, w.namespace, "shop", true))
			},
			want: plan.Release{State: plan.ReleaseGone},
		},
		"ClusterScoped": {
			reason: "a release that reaches out of its namespace",
			given: func(w *world) {
				with("x.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: '{{ .Release.Namespace }}'}\n")(w)
				w.t.Cleanup(func() {
					check(w.t, w.client.RbacV1().ClusterRoles().Delete(context.WithoutCancel(w.ctx), w.namespace, metav1.DeleteOptions{}))
				})
			},
			want: plan.Release{State: plan.ReleaseDeployed, Revision: 1, Blocked: v1alpha1.ReasonReleaseOutsideNamespace},
		},
		"OtherNamespace": {
			reason: "a release that reaches into another namespace",
			given: func(w *world) {
				other := must(controlPlane.Namespace(w.ctx, "other"))(w.t)
				with("x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: "+other+"}\n")(w)
			},
			want: plan.Release{State: plan.ReleaseDeployed, Revision: 1, Blocked: v1alpha1.ReasonReleaseOutsideNamespace},
		},
		"KeptOutside": {
			reason: "what is not deleted anyway blocks nothing",
			given: func(w *world) {
				other := must(controlPlane.Namespace(w.ctx, "other"))(w.t)
				with("x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: "+other+", annotations: {helm.sh/resource-policy: keep}}\n")(w)
			},
			want: plan.Release{State: plan.ReleaseDeployed, Revision: 1},
		},
		"Hooks": {
			reason: "a hook is told of",
			given:  with("x.yaml", config("x", "helm.sh/hook: post-delete")),
			want:   plan.Release{State: plan.ReleaseDeployed, Revision: 1, HasHooks: true},
		},
		"OtherHooks": {
			reason: "hooks of an installation are over",
			given:  with("x.yaml", config("x", "helm.sh/hook: post-install", "helm.sh/hook-delete-policy: hook-succeeded")),
			want:   plan.Release{State: plan.ReleaseDeployed, Revision: 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.given(w)
			got := w.look()
			tc.want.Name = "shop"
			if diff := cmp.Diff(tc.want, got.Release, cmpopts.IgnoreFields(plan.Release{}, "UID", "FirstDeployed", "Detail")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if (got.Detail == "") != (got.Blocked == "") {
				t.Errorf("%s: reason %q has detail %q", tc.reason, got.Blocked, got.Detail)
			}
			if there := got.State != plan.ReleaseGone; there == (got.UID == "") || there == got.FirstDeployed.IsZero() {
				t.Errorf("%s: got UID %q, first deployed %v", tc.reason, got.UID, got.FirstDeployed)
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
			got, err := w.uninstaller().Uninstall(w.ctx, want, allow{})
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
			if _, err := w.uninstaller().Look(w.ctx, w.namespace, "shop"); (err != nil) != (tc.want == v1alpha1.ReasonReleaseUnreadable) {
				t.Errorf("%s: Look gives error %v", tc.reason, err)
			}
		})
	}
}
