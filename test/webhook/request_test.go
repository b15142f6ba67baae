// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

// runs asks for an evaluation of a ClusterCleaner, by kubectl cleaner run.
func (e *env) runs(t *testing.T, plugin, name string) {
	t.Helper()
	run := exec.CommandContext(t.Context(), plugin, "run", "clustercleaner/"+name, "--kubeconfig", filepath.Join(e.Dir(), "admin.kubeconfig"))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// buildPlugin builds kubectl-cleaner, and says where it is.
func buildPlugin(t *testing.T) string {
	t.Helper()
	root, err := operator.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubectl-cleaner")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/kubectl-cleaner")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// Who holds a run, such as by a PodDisruptionBudget, does not hold a request with it, to let both go when others have Pods that
// match. What is asked then is carried out.
func TestARequestIsNotHeldWithARun(t *testing.T) {
	e, ctx, plugin := shared, t.Context(), buildPlugin(t)
	tenant, victim := e.namespace(t), e.namespace(t)
	e.apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: evict-%[1]s}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch, delete]}
- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: evict-%[1]s}
roleRef: {apiGroup: %[2]s, kind: ClusterRole, name: evict-%[1]s}
subjects: [{kind: ServiceAccount, namespace: %[3]s, name: %[4]s}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: all, namespace: %[1]s}
spec: {minAvailable: "100%%", selector: {}}`, tenant, rbacv1.GroupName, operator.Namespace, operator.ServiceAccount))
	seems := func(namespace, name string) {
		t.Helper()
		pod := object(t, "Pod", name, "{containers: [{name: c, image: example.test/c}], terminationGracePeriodSeconds: 0, automountServiceAccountToken: false}")
		pod.SetAPIVersion("v1")
		pod.SetNamespace(namespace)
		pod.SetLabels(map[string]string{"of": tenant})
		eventually(t, "a Pod can be made", func(ctx context.Context) string {
			if err := e.Create(ctx, pod.DeepCopy()); err != nil {
				return err.Error()
			}
			return ""
		})
		running := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`))
		if err := e.Status().Patch(ctx, pod, running); err != nil {
			t.Fatal(err)
		}
	}
	seems(tenant, "held")
	yearly := object(t, "ClusterCleaner", "yearly-"+tenant, fmt.Sprintf(`
lifecycle: Once
schedule: "0 0 1 1 *"
startingDeadline: 10s
targets: [{name: pods, reference: {version: v1, kind: Pod, matchLabels: {of: %s}}}]
rules: [{name: old, forEach: pods.items, when: "true", actions: [{evict: {}}]}]`, tenant))
	if err := e.Create(ctx, yearly); err != nil {
		t.Fatal(err)
	}
	now := func(ctx context.Context) *v1alpha1.ClusterCleaner {
		c := &v1alpha1.ClusterCleaner{}
		if err := e.Get(ctx, client.ObjectKeyFromObject(yearly), c); err != nil {
			t.Log(err)
		}
		return c
	}
	e.runs(t, plugin, yearly.GetName())
	eventually(t, "a run is held", func(ctx context.Context) string {
		if c := now(ctx); c.Status.Run == nil || !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionStalled) {
			return fmt.Sprintf("%+v", c.Status)
		}
		return ""
	})

	e.runs(t, plugin, yearly.GetName())
	asked := now(ctx).Annotations[v1alpha1.AnnotationRequestedAt]
	eventually(t, "the request is over while the run is held", func(ctx context.Context) string {
		c := now(ctx)
		said := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionRequestDropped)
		if said == nil || said.Reason != v1alpha1.ReasonRequestExpired || c.Status.LastRequestedAt != asked || c.Status.Run == nil || c.Status.Run.Result != "" {
			return fmt.Sprintf("%+v", c.Status)
		}
		return ""
	})

	seems(victim, "victim")
	held := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "held"}}
	if err := e.Delete(ctx, held, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	seems(tenant, "held")
	eventually(t, "the run is over, and the schedule is waited for", func(ctx context.Context) string {
		c := now(ctx)
		ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
		if c.Status.Run != nil || ready == nil || ready.Reason != v1alpha1.ReasonWaitingForSchedule || meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReconciling) != nil {
			return fmt.Sprintf("%+v", c.Status)
		}
		return ""
	})
	there := &metav1.PartialObjectMetadata{TypeMeta: held.TypeMeta}
	if err := e.Get(ctx, client.ObjectKey{Namespace: victim, Name: "victim"}, there); err != nil {
		t.Fatalf("what came after the request is gone: %v", err)
	}

	e.runs(t, plugin, yearly.GetName())
	eventually(t, "what is asked now is carried out", func(ctx context.Context) string {
		if err := e.Get(ctx, client.ObjectKey{Namespace: victim, Name: "victim"}, there); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Sprintf("the Pod is there (%v): %+v", err, now(ctx).Status)
		}
		return ""
	})
	eventually(t, "nothing is said of the request before", func(ctx context.Context) string {
		if c := now(ctx); meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionRequestDropped) != nil || c.Status.LastRequestedAt == asked {
			return fmt.Sprintf("%+v", c.Status)
		}
		return ""
	})
}
