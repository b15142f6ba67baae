// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package spiderpool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/test/live"
	"github.com/vtex/cleaner/test/operator"
)

// wrong is a cluster in which all is wrong that can be found; its methods make parts of it.
type wrong struct {
	*scene
	prefix string
	made   []client.Object
}

func (w *wrong) create(o client.Object) {
	w.t.Helper()
	if err := shared.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
	w.made = append(w.made, o)
}

// pod makes a Pod with addresses, or one that waits for its first.
func (w *wrong) pod(name string, ips ...string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: corev1.PodSpec{NodeName: w.prefix, Containers: containers()}}
	pod.Annotations = map[string]string{"ipam.spidernet.io/ippool": fmt.Sprintf(`{"ipv4": [%q]}`, w.prefix+"-full")}
	w.create(pod)
	if len(ips) > 0 {
		pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, ips[0]
		for _, ip := range ips {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		if err := shared.Status().Update(w.t.Context(), pod); err != nil {
			w.t.Fatal(err)
		}
	}
	return pod
}

// claim makes the endpoint of a Pod.
func (w *wrong) claim(pod *corev1.Pod, pool string, ips ...string) {
	w.t.Helper()
	w.uids[string(pod.UID)] = string(pod.UID)
	w.endpoint(&Endpoint{Name: pod.Name, UID: string(pod.UID), Owner: "Deployment", IPs: ips}, pool)
}

// of is a record of a Pod.
func of(pod *corev1.Pod, ip string) Record {
	return Record{IP: ip, Pod: pod.Namespace + "/" + pod.Name, UID: string(pod.UID)}
}

// ranged makes a pool with records and a range.
func (w *wrong) ranged(name, ips string, records ...Record) {
	w.t.Helper()
	all := map[string]Record{}
	for _, r := range records {
		all[r.IP] = r
	}
	u := pool(w.t, name, all)
	patch := fmt.Appendf(nil, `{"spec":{"ips":[%q]}}`, ips)
	if err := shared.Patch(w.t.Context(), u, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		w.t.Fatal(err)
	}
	w.pool = u // one of them, for strike
	w.made = append(w.made, u)
}

// give writes what a SpiderSubnet records for its pools.
func (w *wrong) give(subnet client.Object, pools string) {
	w.t.Helper()
	w.edit(subnet, map[string]any{"status": map[string]any{"controlledIPPools": pools}}, "status")
}

// All that is wrong is found, once, and nothing is changed; what is mended is found no more.
func TestConflicts(t *testing.T) {
	ns, err := shared.Namespace(t.Context(), "conflicts")
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "conflicts"
	w := &wrong{scene: &scene{Case: &Case{Name: t.Name()}, t: t, namespace: ns, uids: map[string]string{}}, prefix: prefix}
	t.Cleanup(func() {
		if len(w.made) > 0 {
			w.mend(context.WithoutCancel(t.Context()))
		}
	})
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: prefix}})
	a, b, moved, quiet, full, old := w.pod("a", "10.7.0.1"), w.pod("b", "10.7.0.1"), w.pod("moved", "10.7.0.77"), w.pod("quiet", "10.7.0.5"), w.pod("full", "10.7.1.1"), w.pod("old", "10.7.2.1")
	fine := w.pod("fine", "10.7.0.6")
	w.pod("again", "10.7.0.7")
	w.uids["before"] = "before"
	w.ranged(prefix+"-one", "10.7.0.1-10.7.0.9", of(a, "10.7.0.1"), of(moved, "10.7.0.4"), of(quiet, "10.7.0.5"), of(fine, "10.7.0.6"),
		Record{IP: "10.7.0.7", Pod: ns + "/again", UID: "before"})
	w.endpoint(&Endpoint{Name: "again", UID: "before", Owner: "StatefulSet", IPs: []string{"10.7.0.7/8"}}, prefix+"-one")
	w.ranged(prefix+"-two", "10.7.0.9-10.7.0.20", of(b, "10.7.0.1"))
	w.ranged(prefix+"-full", "10.7.1.1", of(full, "10.7.1.1"))
	w.claim(a, prefix+"-one", "10.7.0.1/8")
	w.claim(b, prefix+"-two", "10.7.0.1/8")
	w.claim(moved, prefix+"-one", "10.7.0.4/8")
	w.claim(fine, prefix+"-one", "10.7.0.6/8")
	w.claim(full, prefix+"-full", "10.7.1.1/8")
	w.claim(old, prefix+"-one", "10.7.2.1/8")
	w.pod("waits")
	for name, ips := range map[string]string{"-a": "10.7.3.1-10.7.3.9", "-b": "10.7.3.9"} {
		u := bare(Group(), "SpiderSubnet", "", prefix+name)
		u.Object["spec"] = map[string]any{"ipVersion": int64(4), "subnet": "10.7.0.0/16", "ips": []any{ips}}
		w.create(u)
		w.give(u, `{"pool`+name+`": {"ips": ["10.7.3.9"]}}`)
	}
	broken := pool(t, prefix+"-broken", nil)
	broken.Object["status"] = map[string]any{"allocatedIPs": "{"}
	if err := shared.Status().Update(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	w.made = append(w.made, broken)

	cc := collect(t, "spiderpool-conflicts", map[string]any{"observedFor": observedFor.String()})
	found := func() string {
		if err := shared.Get(t.Context(), client.ObjectKeyFromObject(cc), cc); err != nil {
			return err.Error()
		}
		var lines []string
		for _, f := range cc.Status.Findings {
			if int(f.Count) != len(f.Items) {
				return fmt.Sprintf("%d of %q", f.Count, f.Items)
			}
			lines = append(lines, f.Rule+": "+strings.Join(f.Items, ", "))
		}
		return strings.Join(lines, "\n")
	}
	want := strings.Join([]string{
		"address-of-two-pods: 10.7.0.1",
		"address-in-two-pools: 10.7.0.1",
		"pools-overlap: 10.7.0.9",
		"subnets-overlap: 10.7.3.9",
		"address-in-two-subnets: 10.7.3.9",
		"endpoint-without-record: " + ns + "/old 10.7.2.1",
		"record-of-an-earlier-pod: " + prefix + "-one 10.7.0.7 " + ns + "/again",
		"record-without-endpoint: " + prefix + "-one 10.7.0.5 " + ns + "/quiet",
		"record-outside-pool: " + prefix + "-two 10.7.0.1",
		"pod-with-another-address: " + prefix + "-one 10.7.0.4 " + ns + "/moved",
		"pool-not-readable: " + prefix + "-broken",
		"pool-without-addresses: " + prefix + "-full",
	}, "\n")
	live.Eventually(t, "all that is wrong is found", func() string {
		if diff := cmp.Diff(want, found()); diff != "" {
			return "-want +got\n" + diff
		}
		return ""
	})
	live.Eventually(t, "an Event of each finding", func() string {
		all := &corev1.EventList{}
		if err := shared.List(t.Context(), all); err != nil {
			return err.Error()
		}
		for _, f := range cc.Status.Findings {
			if !slices.ContainsFunc(all.Items, func(e corev1.Event) bool {
				return e.InvolvedObject.UID == cc.UID && e.Reason == "Reported" && strings.HasPrefix(e.Message, f.Rule+": ")
			}) {
				return "there is none of " + f.Rule
			}
		}
		return ""
	})
	reader := metricsReader(t, ns)
	live.Eventually(t, "the metric says how much is found", func() string { return miscounted(t, reader, cc, listFindings(t, cc)) })
	w.mend(t.Context())
	live.Eventually(t, "what is mended is found no more", found)
	live.Eventually(t, "the metric says that it is mended", func() string { return miscounted(t, reader, cc, nil) })
	for _, e := range events(t) {
		if ref := e.ObjectRef; e.By(operator.User) && ref != nil && (ref.APIGroup == Group().Group || ref.Namespace == ns && ref.Resource == "pods") &&
			!slices.Contains([]string{"get", "list", "watch"}, e.Verb) && strings.HasPrefix(ref.Name+ref.Namespace, prefix) {
			t.Errorf("the operator sent %s %s %s", e.Verb, ref.Resource, ref.Name)
		}
	}
}

// mend removes all that was made, and what the endpoints are held by.
func (w *wrong) mend(ctx context.Context) {
	w.t.Helper()
	w.strike(ctx)
	for _, o := range w.made {
		if len(o.GetFinalizers()) > 0 {
			if err := shared.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
				w.t.Error(err)
			}
		}
		if err := shared.Delete(ctx, o, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			w.t.Error(err)
		}
	}
	w.made = nil
}

// metricsReader is an account of a namespace that may read the operator's metrics.
func metricsReader(t *testing.T, ns string) *rest.Config {
	t.Helper()
	reader, err := shared.ServiceAccountConfig(t.Context(), ns, "default")
	if err != nil {
		t.Fatal(err)
	}
	binding := bare(schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, "ClusterRoleBinding", "", ns+"-reads-metrics")
	binding.Object["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cleaner-metrics-reader"}
	binding.Object["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "namespace": ns, "name": "default"}}
	if err := shared.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	return reader
}
