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

// TestNoRuleSetsOwners shows that who may patch Pods, and not delete them, has none deleted by giving it an owner that is not
// there: for the garbage collector, which would.
func TestNoRuleSetsOwners(t *testing.T) {
	const owners = `[{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "6f1f8b5e-0000-4000-8000-000000000000"}]`
	e := shared
	ns := e.namespace(t)
	pat := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "pat-" + ns}
	e.grant(t, ns, "pat", pat, rule("get list watch patch", "", "pods"), rule("*", "cleaner.vtex.dev", "cleaners"))
	as, _ := e.as(t, pat.Name)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	eventually(t, "the namespace takes Pods", func(ctx context.Context) string { // once it has its ServiceAccount
		if err := e.Create(ctx, pod); err != nil {
			return err.Error()
		}
		return ""
	})
	eventually(t, "she may patch Pods", func(ctx context.Context) string {
		if err := as.Patch(ctx, pod.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"by":"pat"}}}`))); err != nil {
			return err.Error()
		}
		return ""
	})
	if err := as.Delete(t.Context(), pod.DeepCopy()); !apierrors.IsForbidden(err) {
		t.Fatalf("she may delete them: %v", err)
	}
	for kind, patch := range map[v1alpha1.PatchType]string{
		v1alpha1.PatchStrategic: `{"metadata": {"ownerReferences": ` + owners + `}}`,
		v1alpha1.PatchMerge:     `{"metadata": {"ownerReferences": ` + owners + `}}`,
		v1alpha1.PatchJSON:      `[{"op": "add", "path": "/metadata/ownerReferences", "value": ` + owners + `}]`,
		v1alpha1.PatchApply:     `{"metadata": {"ownerReferences": ` + owners + `}}`,
	} {
		u := cleaner(t, ns, strings.ToLower(string(kind)), fmt.Sprintf(`{lifecycle: Recurring, targets: [{name: pods, reference: {version: v1, kind: Pod}}],
			rules: [{name: a, forEach: pods.items, when: '!has(item.metadata.ownerReferences)', actions: [{patch: {type: %s, expression: '%s'}}]}]}`, kind, patch))
		if err := as.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		eventually(t, string(kind)+" is refused", func(ctx context.Context) string {
			c := &v1alpha1.Cleaner{}
			if err := e.Get(ctx, client.ObjectKeyFromObject(u), c); err != nil {
				return err.Error()
			}
			if last := c.Status.LastEvaluation; last != nil && len(last.Errors) == 1 && strings.Contains(last.Errors[0].Message, "metadata.ownerReferences, which Kubernetes garbage collection uses") {
				return ""
			}
			ready, _ := e.ready(ctx, client.ObjectKeyFromObject(u))
			return "it says " + ready
		})
	}
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || len(pod.OwnerReferences) > 0 || pod.DeletionTimestamp != nil {
		t.Errorf("the Pod is %v (%v)", pod.ObjectMeta, err)
	}
}
