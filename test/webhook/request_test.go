// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

// plugin is kubectl-cleaner, as an administrator runs it.
type plugin struct{ path, kubeconfig string }

// buildPlugin builds it.
func buildPlugin(t *testing.T, e *env) plugin {
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
	return plugin{path, filepath.Join(e.Dir(), "admin.kubeconfig")}
}

// evaluate asks for an evaluation of a ClusterCleaner, by kubectl cleaner run.
func (p plugin) evaluate(t *testing.T, name string) {
	t.Helper()
	if out, err := p.run(t, "clustercleaner/"+name); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// run gives what kubectl cleaner run says.
func (p plugin) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), p.path, append([]string{"run", "--kubeconfig", p.kubeconfig}, args...)...).CombinedOutput()
	return string(out), err
}

// Who holds a run, such as by a PodDisruptionBudget, does not hold a request with it, to let both go when others have Pods that
// match. What is asked then is carried out.
func TestARequestIsNotHeldWithARun(t *testing.T) {
	e, ctx := shared, t.Context()
	plugin := buildPlugin(t, e)
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
	plugin.evaluate(t, yearly.GetName())
	eventually(t, "a run is held", func(ctx context.Context) string {
		if c := now(ctx); c.Status.Run == nil || !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionStalled) {
			return fmt.Sprintf("%+v", c.Status)
		}
		return ""
	})

	plugin.evaluate(t, yearly.GetName())
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

	plugin.evaluate(t, yearly.GetName())
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

// What the webhook signs for a caller who is not the API server lets nobody ask for an evaluation, while the API server does not ask the
// webhook: whoever asks is who makes the request, and has the rights. Nor does what was signed for somebody else before.
func TestNobodyPlantsARequest(t *testing.T) {
	e, ctx := shared, t.Context()
	ns := e.namespace(t)
	mallory := "mallory-" + ns
	e.writers(t, ns)
	as, _ := e.as(t, mallory, "team")
	self := authenticationv1.UserInfo{Username: mallory, Groups: []string{"team", "system:authenticated"}}
	admin := authenticationv1.UserInfo{Username: "kubernetes-admin", Groups: []string{"system:masters", "system:authenticated"}}
	victim := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "victim", Labels: map[string]string{"doomed": "yes"}}}
	yearly := cleaner(t, ns, "yearly", `{lifecycle: Recurring, schedule: 0 3 1 1 *, targets: [{name: cm, delete: true, reference: {version: v1, kind: ConfigMap, matchLabels: {doomed: "yes"}}}]}`)
	if err := e.Create(ctx, yearly); err != nil {
		t.Fatal(err)
	}
	annotate := func(by client.Client, annotations map[string]string, opts ...client.PatchOption) error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err != nil {
			t.Fatal(err)
		}
		return by.Patch(ctx, yearly.DeepCopy(), client.RawPatch("application/merge-patch+json", patch), opts...)
	}
	now := func(ctx context.Context) *v1alpha1.Cleaner {
		c := &v1alpha1.Cleaner{}
		if err := e.Get(ctx, client.ObjectKeyFromObject(yearly), c); err != nil {
			t.Log(err)
		}
		return c
	}
	var before map[string]string
	for _, at := range []string{"1", "2"} { // the administrator asks twice, and nothing is there to be deleted
		if err := annotate(e, map[string]string{v1alpha1.AnnotationRequestedAt: at}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the administrator is answered", func(ctx context.Context) string {
			c := now(ctx)
			if c.Status.LastRequestedAt != at {
				return fmt.Sprintf("%+v", c.Status)
			}
			if at == "1" {
				before = map[string]string{v1alpha1.AnnotationRequestedAt: at, v1alpha1.AnnotationRequest: c.Annotations[v1alpha1.AnnotationRequest]}
			}
			return ""
		})
	}
	if err := e.Create(ctx, victim); err != nil {
		t.Fatal(err)
	}
	signed := func(user authenticationv1.UserInfo) map[string]string {
		old := yearly.DeepCopy()
		if err := e.Get(ctx, client.ObjectKeyFromObject(yearly), old); err != nil {
			t.Fatal(err)
		}
		u := old.DeepCopy()
		annotations := u.GetAnnotations()
		annotations[v1alpha1.AnnotationRequestedAt] = "mallory's"
		u.SetAnnotations(annotations)
		return map[string]string{v1alpha1.AnnotationRequestedAt: "mallory's", v1alpha1.AnnotationRequest: e.signs(t, user, u, old)[v1alpha1.AnnotationRequest]}
	}
	theirs, mine := signed(admin), signed(self)
	spaced := map[string]string{v1alpha1.AnnotationRequestedAt: "mallory's", v1alpha1.AnnotationRequest: " " + theirs[v1alpha1.AnnotationRequest]}
	grown := signed(authenticationv1.UserInfo{Username: mallory, Groups: append([]string{"system:masters"}, self.Groups...)})

	e.withoutWebhook(t, ns, func() error {
		const unsigned = "nobody's"
		if err := annotate(as, map[string]string{v1alpha1.AnnotationRequestedAt: unsigned}, client.DryRunAll); err != nil {
			return err
		}
		for name, planted := range map[string]map[string]string{
			"What is signed for somebody else": theirs, "The same behind a space": spaced, "What was signed before": before, "What is signed for groups": grown,
		} {
			if err := annotate(as, planted); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "metadata.annotations[cleaner.vtex.dev/request]: is not what the webhook writes for \""+mallory) {
				t.Errorf("%s is not refused: %v", name, err)
			}
		}
		if err := annotate(as, mine); err != nil {
			t.Errorf("what is signed for herself is refused: %v", err)
		}
		return nil
	})
	eventually(t, "it is dropped", func(ctx context.Context) string {
		c := now(ctx)
		said := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionRequestDropped)
		if said == nil || said.Reason != v1alpha1.ReasonRequestNotAllowed || !strings.Contains(said.Message, fmt.Sprintf("user %q, who made it, is not allowed to delete configmaps in namespace %q", mallory, ns)) || c.Status.LastRequestedAt != "mallory's" {
			return fmt.Sprintf("%+v", c.Status)
		}
		return ""
	})
	if err := e.Get(ctx, client.ObjectKeyFromObject(victim), victim); err != nil {
		t.Fatalf("what is to be deleted once a year is gone: %v", err)
	}

	// Who has the rights asks by the webhook, and is answered.
	bob := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "bob-" + ns}
	e.grant(t, ns, "bob", bob, configMapEditor()...)
	asBob, _ := e.as(t, bob.Name)
	eventually(t, "somebody else with the rights asks", func(context.Context) string {
		if err := annotate(asBob, map[string]string{v1alpha1.AnnotationRequestedAt: "bob's"}); err != nil {
			return err.Error()
		}
		return ""
	})
	eventually(t, "it acts", func(ctx context.Context) string {
		if err := e.Get(ctx, client.ObjectKeyFromObject(victim), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the object is there (%v): %+v", err, now(ctx).Status)
		}
		return ""
	})
}
