// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// stale is a spec that deletes what is labelled in a namespace, of any kind.
const stale = `{lifecycle: Recurring, targets: [{name: stale, reference: {kind: "*", matchLabels: {stage: stale}, namespaces: [%s]}}], rules: [{name: all, forEach: stale.items, when: "true", actions: [{delete: {}}]}]}`

// What the author may not clean stays: the webhook warns of it and the status names it. Without a right to any kind the ClusterCleaner is refused.
func TestAnyKindSkipsWhatTheAuthorMayNotClean(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	labels := map[string]string{"stage": "stale"}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stale", Labels: labels}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stale", Labels: labels}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
	} {
		if err := e.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	create := rule("*", "cleaner.vtex.dev", "clustercleaners")
	dave, carol := "dave-"+ns, "carol-"+ns
	e.grant(t, "", dave, rbacv1.Subject{Kind: rbacv1.UserKind, Name: dave}, create)
	e.grant(t, "", carol, rbacv1.Subject{Kind: rbacv1.UserKind, Name: carol}, create)
	e.grant(t, ns, "carol", rbacv1.Subject{Kind: rbacv1.UserKind, Name: carol}, configMapEditor()...)

	asDave, _ := e.as(t, dave)
	eventually(t, "a ClusterCleaner without a kind is refused", func(ctx context.Context) string {
		err := asDave.Create(ctx, object(t, "ClusterCleaner", "refused-"+ns, fmt.Sprintf(stale, ns)))
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), `no kind is left for target "stale"`) {
			return ""
		}
		return fmt.Sprint(err)
	})

	asCarol, warned := e.as(t, carol)
	cc := object(t, "ClusterCleaner", ns, fmt.Sprintf(stale, ns))
	eventually(t, "a ClusterCleaner with a kind is created", func(ctx context.Context) string {
		if err := asCarol.Create(ctx, cc.DeepCopy()); err != nil {
			return err.Error() // the API server may not know her rights yet
		}
		return ""
	})
	t.Cleanup(func() {
		if err := e.Delete(context.WithoutCancel(t.Context()), cc); err != nil {
			t.Error(err)
		}
	})
	if all := strings.Join(warned.warnings, "\n"); !strings.Contains(all, "kinds are skipped") {
		t.Errorf("it warns: %s", all)
	}
	c := &v1alpha1.ClusterCleaner{}
	eventually(t, "the ConfigMap goes, and the status names Services", func(ctx context.Context) string {
		err := e.Get(ctx, client.ObjectKey{Namespace: ns, Name: "stale"}, &corev1.ConfigMap{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprint("the ConfigMap: ", err)
		}
		if err := e.Get(ctx, client.ObjectKey{Name: ns}, c); err != nil {
			return err.Error()
		}
		if k := c.Status.SkippedKinds; k != nil {
			for _, one := range k.Kinds {
				if one.Kind == "services" && strings.Contains(one.Reason, "the author is not allowed to delete") {
					return ""
				}
			}
		}
		return fmt.Sprintf("it is %+v", c.Status.SkippedKinds)
	})
	if err := e.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "stale"}, &corev1.Service{}); err != nil {
		t.Errorf("what the author may not delete: %v", err)
	}
}
