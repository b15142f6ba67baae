// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package podgc

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	policyv1client "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/live"
)

const (
	pressure = "pod-ip-pressure"
	// dedicated is the key of somebody else's taint.
	dedicated = "example.com/dedicated"
	ourTaint  = "cleaner.vtex.dev/pod-ip-pressure"
)

// kube-controller-manager has nothing like pod-ip-pressure, so it is held to what its README says.
func TestPodIPPressure(t *testing.T) {
	t.Cleanup(func() { live.Judge(t, ours, ours.Dir(), ours.audit) })
	const stuckFor = 2 * time.Second
	cc := collect(t, pressure, map[string]any{"stuckFor": stuckFor.String()})

	t.Run("taints and untaints", func(t *testing.T) {
		n := newShortNode(t, cc, "10.10.0.0/29") // 5 addresses
		n.pods(true, "a", "b", "c", "d")
		n.pod("on-the-host", true, func(p *corev1.Pod) { p.Spec.HostNetwork = true })
		n.pod("ended", true, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		live.Evaluates(t, ours, cc)
		n.tainted(false)
		n.pods(true, "e")
		n.tainted(true)

		n.gone("a") // one address is free: between the marks
		live.Evaluates(t, ours, cc)
		n.pods(true, "f")
		live.Evaluates(t, ours, cc)
		n.gone("b")
		live.Evaluates(t, ours, cc)
		n.tainted(true)
		n.gone("c") // two are
		n.tainted(false)
		n.pods(true, "g") // between the marks again
		live.Evaluates(t, ours, cc)
		n.tainted(false)
		if sent := n.requests("patch", "nodes"); len(sent) != 2 {
			t.Errorf("to taint a Node and to take the taint off takes 2 patches, not %v", sent)
		}
	})

	t.Run("dual stack", func(t *testing.T) {
		n := newShortNode(t, cc, "10.11.0.0/24", "fd00:11::/125") // 253 addresses and 6
		n.pods(true, "a", "b", "c", "d", "e")
		live.Evaluates(t, ours, cc)
		n.tainted(false)
		n.pods(true, "f")
		n.tainted(true)
	})

	t.Run("evicts those that are too many", func(t *testing.T) {
		n := newShortNode(t, cc, "10.12.0.0/29")
		n.pod("bare", false, func(p *corev1.Pod) { p.OwnerReferences = nil })
		for _, name := range []string{"oldest", "newer", "newest"} {
			if err := nextSecond(t.Context()); err != nil {
				t.Fatal(err)
			}
			n.pods(false, name)
		}
		n.pods(true, "a")
		n.tainted(true)        // 5 Pods for 5 addresses
		n.pods(true, "b", "c") // 2 too many
		n.leave("newer", "newest")
		live.Evaluates(t, ours, cc)
		n.leave("newer", "newest")
		for _, e := range n.requests("create", "pods") {
			if e.ObjectRef.Name == "oldest" || e.ObjectRef.Name == "bare" || e.Code() >= http.StatusMultipleChoices {
				t.Errorf("nobody should ask for this: %s", e)
			}
		}
		taint := n.requests("patch", "nodes")[0]
		for _, e := range n.requests("create", "pods") {
			if waited := e.RequestReceivedTimestamp.Sub(taint.RequestReceivedTimestamp.Time); waited < stuckFor {
				t.Errorf("%s came %s after %s", e, waited, taint)
			}
		}
	})

	t.Run("a budget is respected", func(t *testing.T) {
		n := newShortNode(t, cc, "10.13.0.0/29")
		budget := n.budget()
		n.pods(true, "a", "b", "c", "d", "e")
		// It has lost its address: of those that are Pending the API server asks no budget.
		n.pod("held", false, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
		live.Eventually(t, "the eviction is refused, and tried again", func() string {
			refused := 0
			for _, e := range n.requests("create", "pods") {
				if e.Code() == http.StatusTooManyRequests {
					refused++
				}
			}
			if refused < 2 {
				return fmt.Sprintf("it was refused %d times", refused)
			}
			return ""
		})
		n.leave()
		n.allow(budget)
		n.leave("held")
	})
}

// shortNode is a Node with a small range of addresses.
type shortNode struct {
	*testing.T
	cc              *v1alpha1.ClusterCleaner
	name, namespace string
	owner           metav1.OwnerReference
	addresses       int
}

// newShortNode makes a Node with its ranges and somebody else's taint. cc watches it.
func newShortNode(t *testing.T, cc *v1alpha1.ClusterCleaner, ranges ...string) *shortNode {
	t.Helper()
	ns, err := ours.Namespace(t.Context(), "pressure")
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: corev1.NodeSpec{
			PodCIDR: ranges[0], PodCIDRs: ranges, Taints: []corev1.Taint{{Key: dedicated, Effect: corev1.TaintEffectNoSchedule}},
		},
	}
	// Nobody here makes Pods for it, and nobody deletes them.
	rc := &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "web"}, Template: &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}}},
		}},
	}
	for _, o := range []client.Object{node, rc} {
		if err := ours.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // what a Node of another test wants is none of the next one's business
		if err := ours.purge(context.WithoutCancel(t.Context()), client.InNamespace(ns)); err != nil {
			t.Error(err)
		}
	})
	return &shortNode{T: t, cc: cc, name: ns, namespace: ns, owner: *metav1.NewControllerRef(rc, corev1.SchemeGroupVersion.WithKind("ReplicationController"))}
}

// pods makes Pods of a controller on the Node, that have an address or want one.
func (n *shortNode) pods(address bool, names ...string) {
	n.Helper()
	for _, name := range names {
		n.pod(name, address, func(*corev1.Pod) {})
	}
}

// pod makes one Pod, changed.
func (n *shortNode) pod(name string, address bool, change func(*corev1.Pod)) {
	n.Helper()
	status := corev1.PodStatus{Phase: corev1.PodPending}
	if address {
		n.addresses++
		ip := fmt.Sprintf("192.0.2.%d", n.addresses)
		status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: name, Labels: map[string]string{"app": "web"}, OwnerReferences: []metav1.OwnerReference{n.owner}},
		Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}}},
		Status:     status,
	}
	change(pod)
	status = pod.Status
	if err := ours.Create(n.Context(), pod); err != nil {
		n.Fatal(err)
	}
	pod.Status = status
	if err := ours.Status().Update(n.Context(), pod); err != nil {
		n.Fatal(err)
	}
}

// gone deletes a Pod at once.
func (n *shortNode) gone(name string) {
	n.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: name}}
	if err := ours.Delete(n.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		n.Fatal(err)
	}
}

// tainted waits until the Node has our taint, or has not, and has those of others: somebody's, and that of the API server.
func (n *shortNode) tainted(yes bool) {
	n.Helper()
	want := []string{dedicated, corev1.TaintNodeNotReady}
	if yes {
		want = append(want, ourTaint)
	}
	live.Eventually(n.T, fmt.Sprintf("the Node has the taints %v", want), func() string {
		node := &corev1.Node{}
		if err := ours.Get(n.Context(), client.ObjectKey{Name: n.name}, node); err != nil {
			return err.Error()
		}
		var got []string
		for _, taint := range node.Spec.Taints {
			got = append(got, taint.Key)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			return diff + n.status()
		}
		return ""
	})
}

// status is what the ClusterCleaner says.
func (n *shortNode) status() string {
	cc := &v1alpha1.ClusterCleaner{}
	if err := ours.Get(n.Context(), client.ObjectKeyFromObject(n.cc), cc); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("its ClusterCleaner's status is %+v", cc.Status)
}

// leave waits until these Pods of the Node are terminating, and no others.
func (n *shortNode) leave(names ...string) {
	n.Helper()
	live.Eventually(n.T, fmt.Sprintf("%v leave", names), func() string {
		list := &corev1.PodList{}
		if err := ours.List(n.Context(), list, client.InNamespace(n.namespace)); err != nil {
			return err.Error()
		}
		var got []string
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp != nil {
				got = append(got, list.Items[i].Name)
			}
		}
		return gocmp.Diff(names, got)
	})
}

// requests are those that the operator sent about the Node, or about its Pods.
func (n *shortNode) requests(verb, resource string) []cluster.Event {
	n.Helper()
	events, err := ours.audit.Events()
	if err != nil {
		n.Fatal(err)
	}
	return slices.DeleteFunc(events, func(e cluster.Event) bool {
		return !e.By(ours.user) || e.Verb != verb || e.ObjectRef == nil || e.ObjectRef.Resource != resource ||
			!strings.Contains(e.RequestURI, "/"+n.name)
	})
}

func (n *shortNode) budgets() policyv1client.PodDisruptionBudgetInterface {
	n.Helper()
	c, err := kubernetes.NewForConfig(ours.Config())
	if err != nil {
		n.Fatal(err)
	}
	return c.PolicyV1().PodDisruptionBudgets(n.namespace)
}

// budget forbids to evict Pods that are not ready. No controller writes its status here.
func (n *shortNode) budget() *policyv1.PodDisruptionBudget {
	n.Helper()
	budgets := n.budgets()
	budget, err := budgets.Create(n.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		n.Fatal(err)
	}
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, DesiredHealthy: 1, ExpectedPods: 1}
	if budget, err = budgets.UpdateStatus(n.Context(), budget, metav1.UpdateOptions{}); err != nil {
		n.Fatal(err)
	}
	return budget
}

// allow lets them be evicted.
func (n *shortNode) allow(budget *policyv1.PodDisruptionBudget) {
	n.Helper()
	budget.Status.CurrentHealthy = budget.Status.DesiredHealthy
	if _, err := n.budgets().UpdateStatus(n.Context(), budget, metav1.UpdateOptions{}); err != nil {
		n.Fatal(err)
	}
}
