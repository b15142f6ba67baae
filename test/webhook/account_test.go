// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

// TestAnOpenRunLendsNobodyItsAccount shows that a run which was begun as one account, and is still open, has no part in as whom
// an edited spec is carried out: neither as an account that its author may not name, nor as the operator past the account that
// is to bound it.
func TestAnOpenRunLendsNobodyItsAccount(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after string // the ServiceAccount
		acts          bool
	}{
		"Dropped": {before: "stripped", after: "", acts: true}, // as the author, not as the account, which has no rights any more
		"Named":   {before: "", after: "stripped", acts: false},
		"Absent":  {before: "", after: "absent", acts: false},
	} {
		t.Run(name, func(t *testing.T) {
			e := shared
			ns := e.namespace(t)
			account := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:serviceaccount:" + ns + ":stripped"}
			if err := e.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stripped"}}); err != nil {
				t.Fatal(err)
			}
			e.grant(t, ns, "for-now", account, configMapEditor()...)
			out, err := e.Kubectl(t.Context(), "create", "rolebinding", "impersonation", "-n", ns, "--clusterrole=cleaner-impersonation", "--serviceaccount="+operator.Namespace+":"+operator.ServiceAccount)
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			u := cleaner(t, ns, "c", fmt.Sprintf(`{lifecycle: Recurring, cloudEventSink: "http://sink.invalid/", serviceAccountName: %q,
				targets: [{name: m, reference: {version: v1, kind: ConfigMap, matchLabels: {old: "yes"}}}],
				rules: [{name: a, forEach: m.items, when: "true", actions: [{delete: {}}]}]}`, tc.before))
			if tc.before == "" {
				delete(u.Object["spec"].(map[string]any), "serviceAccountName") //nolint:forcetypeassert // it was just made
			}
			if err := e.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			old := func(name string) *corev1.ConfigMap {
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"old": "yes"}}}
				if err := e.Create(t.Context(), cm); err != nil {
					t.Fatal(err)
				}
				return cm
			}
			gone := func(cm *corev1.ConfigMap) {
				eventually(t, cm.Name+" goes", func(ctx context.Context) string {
					if err := e.Get(ctx, client.ObjectKeyFromObject(cm), cm); !apierrors.IsNotFound(err) {
						return fmt.Sprintf("it is there (%v)", err)
					}
					return ""
				})
			}
			state := func(ctx context.Context) v1alpha1.CleanerStatus {
				c := &v1alpha1.Cleaner{}
				if err := e.Get(ctx, client.ObjectKeyFromObject(u), c); err != nil {
					t.Fatal(err)
				}
				return c.Status
			}
			gone(old("first"))
			eventually(t, "an event waits", func(ctx context.Context) string {
				if state(ctx).Unsent == nil {
					return "none does"
				}
				return ""
			})
			gone(old("second"))
			if run := state(t.Context()).Run; run == nil || run.Result != "" || run.ServiceAccountName != tc.before {
				t.Fatalf("no run is open: %+v", run)
			}

			// The account has rights no more, and the author names another one.
			if err := e.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "for-now"}}); err != nil {
				t.Fatal(err)
			}
			named := fmt.Sprintf("%q", tc.after)
			if tc.after == "" {
				named = "null"
			}
			if err := e.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"serviceAccountName":`+named+`}}`))); err != nil {
				t.Fatal(err)
			}
			last := old("last")
			if tc.acts {
				gone(last)
				return
			}
			e.becomes(t, client.ObjectKeyFromObject(u), "AccessDenied")
			if err := e.Get(t.Context(), client.ObjectKeyFromObject(last), last); err != nil {
				t.Errorf("the object is gone: %v", err)
			}
		})
	}
}
