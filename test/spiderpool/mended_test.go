// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package spiderpool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/test/live"
	"github.com/vtex/cleaner/test/operator"
)

// repair is how somebody puts right what is found, and what is found no more then.
type repair struct {
	name  string
	mend  func()
	finds []string // "rule: item"
}

// edit merges fields into an object, or into its status.
func (w *wrong) edit(o client.Object, fields map[string]any, subresources ...string) {
	w.t.Helper()
	text, err := json.Marshal(fields)
	if err != nil {
		w.t.Fatal(err)
	}
	patch := client.RawPatch("application/merge-patch+json", text)
	if len(subresources) > 0 {
		err = shared.SubResource(subresources[0]).Patch(w.t.Context(), o, patch)
	} else {
		err = shared.Patch(w.t.Context(), o, patch)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// respec changes the spec of a pool, a subnet, or reserved addresses.
func (w *wrong) respec(kind, name string, fields map[string]any) {
	w.t.Helper()
	w.edit(bare(Group(), kind, "", w.prefix+name), map[string]any{"spec": fields})
}

// record writes what a pool records.
func (w *wrong) record(name string, records ...Record) {
	w.t.Helper()
	all := map[string]Record{}
	for _, r := range records {
		all[r.IP] = r
	}
	w.edit(bare(Group(), "SpiderIPPool", "", w.prefix+name), map[string]any{"status": map[string]any{"allocatedIPs": encode(w.t, all)}}, "status")
}

// nic is an interface of an endpoint.
func nic(name, ip, pool string) map[string]any {
	family := "ipv4"
	if strings.Contains(ip, ":") {
		family = "ipv6"
	}
	return map[string]any{"interface": name, family: ip, family + "Pool": pool}
}

// attach makes the endpoint of a Pod with interfaces.
func (w *wrong) attach(pod *corev1.Pod, nics ...map[string]any) *unstructured.Unstructured {
	w.t.Helper()
	ips := []any{}
	for _, n := range nics {
		ips = append(ips, n)
	}
	u := bare(Group(), "SpiderEndpoint", w.namespace, pod.Name)
	u.SetFinalizers([]string{Finalizer})
	u.Object["status"] = map[string]any{"ownerControllerType": "Deployment", "ownerControllerName": "app", "current": map[string]any{"uid": string(pod.UID), "node": w.prefix, "ips": ips}}
	w.create(u)
	return u
}

// wants makes a Pod that waits for addresses, as an annotation says.
func (w *wrong) wants(name, annotation, value string, owners ...metav1.OwnerReference) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Annotations: map[string]string{"ipam.spidernet.io/" + annotation: value}, OwnerReferences: owners},
		Spec:       corev1.PodSpec{NodeName: w.prefix, Containers: containers()},
	}
	w.create(pod)
	return pod
}

// move gives a Pod another address, as its kubelet would say.
func (w *wrong) move(pod *corev1.Pod, ip string) {
	w.t.Helper()
	w.edit(pod, map[string]any{"status": map[string]any{"podIP": ip, "podIPs": []any{map[string]any{"ip": ip}}}}, "status")
}

// spoil makes a cluster in which much is wrong, and gives how each of it can be put right without taking away what is wrong. What
// only passes is there, too.
func (w *wrong) spoil() []repair {
	p := w.prefix
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p}})
	subnet := func(name, ips string) client.Object {
		u := bare(Group(), "SpiderSubnet", "", p+name)
		u.Object["spec"] = map[string]any{"ipVersion": int64(4), "subnet": "10.8.0.0/16", "ips": []any{ips}}
		w.create(u)
		return u
	}
	gives := subnet("-a", "10.8.1.1-10.8.1.9")
	subnet("-b", "10.8.1.9-10.8.1.20")
	w.give(gives, `{"one": {"ips": ["10.8.1.1-10.8.1.3"]}, "other": {"ips": ["10.8.1.3"]}}`)
	broken := subnet("-c", "10.8.1.30")
	w.give(broken, "[]")

	unknown, quiet, moved := w.pod("unknown", "10.8.0.2"), w.pod("quiet", "10.8.0.3"), w.pod("moved", "10.8.0.77")
	left := []Record{of(quiet, "10.8.0.3"), of(moved, "10.8.0.4"), of(moved, "10.8.0.5")}
	w.ranged(p+"-left", "10.8.0.1-10.8.0.9", left...)
	w.ranged(p+"-right", "10.8.0.9-10.8.0.20")
	w.attach(unknown, nic("eth0", "10.8.0.2/8", p+"-left"))
	w.attach(moved, nic("eth0", "10.8.0.4/8", p+"-left"), nic("net1", "10.8.0.5/8", p+"-left")) // whose address no status has

	outside := w.pod("outside", "fd00::8:9")
	w.ranged(p+"-six", "fd00::8:1-fd00::8:5", of(outside, "fd00::8:9"))
	w.respec("SpiderIPPool", "-six", map[string]any{"ipVersion": 6})
	w.attach(outside, nic("eth0", "fd00::8:9/64", p+"-six"))

	one, two := w.pod("one", "10.8.2.1"), w.pod("two", "10.8.2.1")
	w.ranged(p+"-one", "10.8.2.1-10.8.2.9", of(one, "10.8.2.1"))
	w.ranged(p+"-two", "10.8.3.1-10.8.3.9", of(two, "10.8.2.1"))
	w.attach(one, nic("eth0", "10.8.2.1/8", p+"-one"))
	twos := w.attach(two, nic("eth0", "10.8.2.1/8", p+"-two"))

	holds := w.pod("holds", "10.8.4.1")
	w.ranged(p+"-reserved", "10.8.4.1-10.8.4.2", of(holds, "10.8.4.1"))
	w.attach(holds, nic("eth0", "10.8.4.1/8", p+"-reserved"))
	reserved := bare(Group(), "SpiderReservedIP", "", p+"-kept")
	reserved.Object["spec"] = map[string]any{"ipVersion": int64(4), "ips": []any{"10.8.4.2"}}
	w.create(reserved)
	w.wants("wants-reserved", "ippool", fmt.Sprintf(`{"ipv4": [%q]}`, p+"-reserve?"))

	second := w.pod("second", "10.8.0.6")
	left = append(left, of(second, "10.8.0.6"))
	w.record("-left", left...)
	w.ranged(p+"-net1", "10.8.5.1", of(second, "10.8.5.1"))
	seconds := w.attach(second, nic("eth0", "10.8.0.6/8", p+"-left"), nic("net1", "10.8.5.1/8", p+"-net1"))
	w.wants("wants-net1", "ippools", fmt.Sprintf(`[{"interface": "eth0", "ipv4": [%q]}, {"interface": "net1", "ipv4": [%q]}]`, p+"-left", p+"-net1"))

	sixth := w.pod("sixth", "fd00::9:1")
	w.ranged(p+"-full6", "fd00::9:1", of(sixth, "fd00::9:1"))
	w.respec("SpiderIPPool", "-full6", map[string]any{"ipVersion": 6})
	w.attach(sixth, nic("eth0", "fd00::9:1/64", p+"-full6"))
	w.wants("wants-six", "ippool", fmt.Sprintf(`{"ipv6": [%q]}`, p+"-full6"))

	w.ranged(p+"-text", "10.8.7.1")
	w.edit(bare(Group(), "SpiderIPPool", "", p+"-text"), map[string]any{"status": map[string]any{"allocatedIPs": "{"}}, "status")
	w.ranged(p+"-range", "10.8.8.9-10.8.8.1")
	w.create(bare(Group(), "SpiderIPPool", "", p+"-bare")) // the schema asks for no spec

	again := w.pod("again", "10.8.9.1")
	w.ranged(p+"-again", "10.8.9.1-10.8.9.9", Record{IP: "10.8.9.1", Pod: w.namespace + "/again", UID: "before"})
	stale := w.attach(again, nic("eth0", "10.8.9.1/8", p+"-again"))
	w.edit(stale, map[string]any{"status": map[string]any{"current": map[string]any{"uid": "before"}}})

	w.pass()
	return []repair{
		{"excludeIPs", func() { w.respec("SpiderIPPool", "-right", map[string]any{"excludeIPs": []any{"10.8.0.9"}}) }, []string{"pools-overlap: 10.8.0.9"}},
		{"the range of a subnet", func() { w.respec("SpiderSubnet", "-b", map[string]any{"ips": []any{"10.8.1.10-10.8.1.20"}}) }, []string{"subnets-overlap: 10.8.1.9"}},
		{"a subnet gives an address to one pool", func() {
			w.give(gives, `{"one": {"ips": ["10.8.1.1-10.8.1.2"]}, "other": {"ips": ["10.8.1.3"]}}`)
		}, []string{"address-in-two-subnets: 10.8.1.3"}},
		{"what a subnet gives is JSON", func() { w.give(broken, "{}") }, []string{"pool-not-readable: SpiderSubnet " + p + "-c"}},
		{"a record is added", func() { w.record("-left", append(left, of(unknown, "10.8.0.2"))...) }, []string{"endpoint-without-record: " + w.namespace + "/unknown 10.8.0.2"}},
		{"the record and the endpoint are of the Pod", func() {
			w.record("-again", of(again, "10.8.9.1"))
			w.edit(stale, map[string]any{"status": map[string]any{"current": map[string]any{"uid": string(again.UID)}}})
		}, []string{"record-of-an-earlier-pod: " + p + "-again 10.8.9.1 " + w.namespace + "/again"}},
		{"an endpoint is added", func() { w.attach(quiet, nic("eth0", "10.8.0.3/8", p+"-left")) }, []string{"record-without-endpoint: " + p + "-left 10.8.0.3 " + w.namespace + "/quiet"}},
		{"the range has what is recorded", func() { w.respec("SpiderIPPool", "-six", map[string]any{"ips": []any{"fd00::8:1-fd00::8:9"}}) }, []string{"record-outside-pool: " + p + "-six fd00::8:9"}},
		{"the Pod has its address", func() { w.move(moved, "10.8.0.4") }, []string{"pod-with-another-address: " + p + "-left 10.8.0.4 " + w.namespace + "/moved"}},
		{"a Pod has another address", func() {
			w.record("-two", of(two, "10.8.3.1"))
			w.edit(twos, map[string]any{"status": map[string]any{"current": map[string]any{"ips": []any{nic("eth0", "10.8.3.1/8", p+"-two")}}}})
			w.move(two, "10.8.3.1")
		}, []string{"address-of-two-pods: 10.8.2.1", "address-in-two-pools: 10.8.2.1", "record-outside-pool: " + p + "-two 10.8.2.1"}},
		{"an address is reserved no more", func() { w.respec("SpiderReservedIP", "-kept", map[string]any{"ips": []any{"10.8.4.200"}}) }, []string{"pool-without-addresses: " + p + "-reserved"}},
		{"an address is freed", func() {
			w.record("-net1")
			w.edit(seconds, map[string]any{"status": map[string]any{"current": map[string]any{"ips": []any{nic("eth0", "10.8.0.6/8", p+"-left")}}}})
		}, []string{"pool-without-addresses: " + p + "-net1"}},
		{"the range has one more", func() { w.respec("SpiderIPPool", "-full6", map[string]any{"ips": []any{"fd00::9:1-fd00::9:2"}}) }, []string{"pool-without-addresses: " + p + "-full6"}},
		{"the records are JSON", func() { w.record("-text") }, []string{"pool-not-readable: " + p + "-text"}},
		{"the range is one", func() { w.respec("SpiderIPPool", "-range", map[string]any{"ips": []any{"10.8.8.1-10.8.8.9"}}) }, []string{"pool-not-readable: " + p + "-range"}},
		{"there is a spec", func() {
			w.respec("SpiderIPPool", "-bare", map[string]any{"ipVersion": 4, "subnet": "10.8.11.0/24", "ips": []any{"10.8.11.1"}})
		}, []string{"pool-not-readable: " + p + "-bare"}},
	}
}

// pass makes what passes in the life of a Pod: a replica of a StatefulSet that has its address and waits for its volume, and a Pod
// that ends.
func (w *wrong) pass() {
	w.set(&StatefulSet{Name: "db", Replicas: 1})
	w.uids["before"] = "before"
	w.ranged(w.prefix+"-fixed", "10.8.6.1", Record{IP: "10.8.6.1", Pod: w.namespace + "/db-0", UID: "before"})
	w.endpoint(&Endpoint{Name: "db-0", UID: "before", Owner: "StatefulSet", IPs: []string{"10.8.6.1/8"}}, w.prefix+"-fixed")
	w.wants("db-0", "ippool", fmt.Sprintf(`{"ipv4": [%q]}`, w.prefix+"-fixed"),
		metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "set", Controller: ptr.To(true)})
	ends := w.pod("ends", "10.8.10.77")
	w.ranged(w.prefix+"-ends", "10.8.10.1", of(ends, "10.8.10.1"))
	w.attach(ends, nic("eth0", "10.8.10.1/8", w.prefix+"-ends"))
	if err := shared.Delete(w.t.Context(), ends, client.GracePeriodSeconds(long)); err != nil {
		w.t.Fatal(err)
	}
}

// listFindings lists what status.findings has: "rule: item".
func listFindings(t *testing.T, cc *v1alpha1.ClusterCleaner) []string {
	t.Helper()
	if err := shared.Get(t.Context(), client.ObjectKeyFromObject(cc), cc); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range cc.Status.Findings {
		if int(f.Count) != len(f.Items) {
			return []string{fmt.Sprintf("%d of %q", f.Count, f.Items)}
		}
		for _, item := range f.Items {
			all = append(all, f.Rule+": "+item)
		}
	}
	slices.Sort(all)
	return all
}

// miscounted says what the metric does not say: how much each rule of the template finds.
func miscounted(t *testing.T, reader *rest.Config, cc *v1alpha1.ClusterCleaner, findings []string) string {
	t.Helper()
	status, text, err := operator.Scrape(t.Context(), shared.metrics, reader)
	if err != nil || status != http.StatusOK {
		return fmt.Sprintf("metrics answer %d, %v", status, err)
	}
	template, err := templates.Load("spiderpool-conflicts")
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for i := range template.Spec.Template.Rules {
		counts[template.Spec.Template.Rules[i].Name] = 0
	}
	for _, f := range findings {
		rule, _, _ := strings.Cut(f, ": ")
		counts[rule]++
	}
	for _, rule := range slices.Sorted(maps.Keys(counts)) {
		if line := fmt.Sprintf("cleaner_findings{cleaner=%q,namespace=\"\",rule=%q} %d\n", cc.Name, rule, counts[rule]); !strings.Contains(text, line) {
			return line
		}
	}
	return ""
}

// Each finding goes from the status and from the metric once that is put right which it is about, however that is done, and leaves
// the others as they are.
func TestFindingsGoWithWhatIsWrong(t *testing.T) {
	ns, err := shared.Namespace(t.Context(), "mended")
	if err != nil {
		t.Fatal(err)
	}
	w := &wrong{scene: &scene{Case: &Case{Name: t.Name()}, t: t, namespace: ns, uids: map[string]string{}}, prefix: "mended"}
	t.Cleanup(func() { w.mend(context.WithoutCancel(t.Context())) })
	repairs := w.spoil()
	var left []string
	for _, r := range repairs {
		left = append(left, r.finds...)
	}
	slices.Sort(left)
	cc := collect(t, "spiderpool-conflicts", map[string]any{"observedFor": observedFor.String()})
	reader := metricsReader(t, ns)
	differs := func() string {
		if diff := cmp.Diff(left, listFindings(t, cc), cmpopts.EquateEmpty()); diff != "" {
			return "-want +got\n" + diff
		}
		return miscounted(t, reader, cc, left)
	}
	live.Eventually(t, "all that is wrong is found", differs)
	for _, r := range repairs {
		r.mend()
		left = slices.DeleteFunc(left, func(f string) bool { return slices.Contains(r.finds, f) })
		live.Eventually(t, r.name+": that is found no more, and all else is", differs)
	}
	if len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}
