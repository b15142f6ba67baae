// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/cases"
	"github.com/vtex/cleaner/test/spiderpool"
)

// observedFor is how long the templates look in the profile safe before they act.
const observedFor = 60 * time.Second

func TestSpiderpool(t *testing.T) {
	files, err := cases.Load[spiderpool.Case]("testdata/spiderpool")
	if err != nil || len(files) < 4 {
		t.Fatalf("the cases are not where they should be: %v, %v", slices.Collect(maps.Keys(files)), err)
	}
	users := users{}
	for file, cases := range files {
		for i := range cases {
			for _, profile := range []string{"safe", "parity"} {
				t.Run(file+"/"+cases[i].Name+"/"+profile, func(t *testing.T) { playLeak(t, &cases[i], profile, users) })
			}
		}
	}
}

// users are ClusterCleaners that use templates, by what they use: most cases use the same, and compiling takes its time.
type users map[string]*collector

// of is one that has seen nothing yet.
func (u users) of(t *testing.T, template string, parameters map[string]any) *collector {
	t.Helper()
	key := fmt.Sprint(template, parameters)
	if u[key] == nil {
		u[key] = using(t, template, parameters)
	}
	fresh := *u[key]
	fresh.holds = nil
	return &fresh
}

// playLeak plays a case with both templates, each for itself.
func playLeak(t *testing.T, tc *spiderpool.Case, profile string, all users) {
	want := tc.Of(profile)
	before := records(tc)
	n := newNetwork(t, tc)
	parameters := map[string]any{"profile": profile}
	maps.Copy(parameters, tc.Parameters)
	n.clean(all.of(t, "spiderpool-ip", parameters))
	var released []string
	left := n.left()
	for ip, r := range before {
		switch now, ok := left[ip]; {
		case !ok:
			released = append(released, ip)
		case now != r:
			t.Errorf("the record of %s was %v, and is %v", ip, r, now)
		}
	}
	sorted := cmpopts.SortSlices(strings.Compare)
	if diff := cmp.Diff(want.Released, released, sorted, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
	gone, held := n.endpoints(tc)
	if diff := cmp.Diff(want.Endpoints, gone, sorted, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("endpoints that are gone (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Held, held, sorted, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("endpoints that others hold (-want +got):\n%s", diff)
	}
	if n.patches > 1 {
		t.Errorf("the pool was patched %d times", n.patches)
	}

	n = newNetwork(t, tc)
	n.clean(all.of(t, "spiderpool-endpoints", map[string]any{"profile": profile}))
	gone, _ = n.endpoints(tc)
	if diff := cmp.Diff(want.Outdated, gone, sorted, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("outdated endpoints (-want +got):\n%s", diff)
	}
	if n.patches > 0 {
		t.Error("spiderpool-endpoints has patched the pool")
	}
}

func records(tc *spiderpool.Case) map[string]string {
	out := map[string]string{}
	for _, r := range tc.Records {
		out[r.IP] = r.Pod + " " + r.UID
	}
	return out
}

// network is a cluster with a pool of Spiderpool. What is done to it is done as an API server does.
type network struct {
	t        *testing.T
	kubeVirt bool
	objects  map[string]*unstructured.Unstructured
	version  int
	patches  int // of the pool
}

func newNetwork(t *testing.T, tc *spiderpool.Case) *network {
	t.Helper()
	n := &network{t: t, kubeVirt: tc.KubeVirt, objects: map[string]*unstructured.Unstructured{}}
	allocated := map[string]any{}
	for _, r := range tc.Records {
		allocated[r.IP] = map[string]any{"pod": r.Pod, "podUid": r.UID}
	}
	status := map[string]any{"totalIPCount": int64(9)}
	if len(allocated) > 0 {
		text, err := json.Marshal(allocated)
		if err != nil {
			t.Fatal(err)
		}
		status["allocatedIPs"], status["allocatedIPCount"] = string(text), int64(len(allocated))
	}
	n.add(spiderpool.Group(), "SpiderIPPool", "", spiderpool.Pool, map[string]any{
		"metadata": map[string]any{"finalizers": []any{spiderpool.Finalizer}},
		"spec":     map[string]any{"ipVersion": int64(4), "subnet": "172.31.192.0/20"}, "status": status,
	})
	for name, ready := range tc.Nodes {
		n.typed(&corev1.Node{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionStatus(ready)}}},
		})
	}
	for i := range tc.Pods {
		n.typed(leakedPod(t, &tc.Pods[i]))
	}
	for _, s := range tc.StatefulSets {
		set := &appsv1.StatefulSet{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}, ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: spiderpool.Namespace},
			Spec: appsv1.StatefulSetSpec{Replicas: &s.Replicas},
		}
		if s.Start > 0 {
			set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: s.Start}
		}
		n.typed(set)
	}
	for _, e := range tc.Endpoints {
		n.endpoint(e)
	}
	n.virtual("VirtualMachine", tc.Machines)
	n.virtual("VirtualMachineInstance", tc.Instances)
	return n
}

func leakedPod(t *testing.T, p *spiderpool.Pod) *corev1.Pod {
	t.Helper()
	grace := int64(30)
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: spiderpool.Namespace, UID: types.UID(p.UID)},
		Spec:       corev1.PodSpec{NodeName: p.Node, HostNetwork: p.HostNetwork, TerminationGracePeriodSeconds: &grace},
		Status:     corev1.PodStatus{Phase: corev1.PodPhase(p.Phase)},
	}
	if p.Mirror {
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}
	if apiVersion, kind, ok := strings.Cut(p.Owner, " "); ok {
		controls := true
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: "owner", Controller: &controls}}
	}
	for _, ip := range p.IPs {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if p.Deleted != "" {
		at := ago(t, p.Deleted)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	}
	if p.Ended != "" {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: ago(t, p.Ended)}}}}
	}
	if p.Evicted != "" {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: ago(t, p.Evicted)}}
	}
	return pod
}

func ago(t *testing.T, d v1alpha1.Duration) metav1.Time {
	t.Helper()
	length, err := d.Parse(0)
	if err != nil {
		t.Fatal(err)
	}
	return metav1.NewTime(start.Add(-length))
}

func (n *network) endpoint(e spiderpool.Endpoint) {
	ips := []any{}
	for _, ip := range e.IPs {
		pool := e.Pool
		if pool == "" {
			pool = spiderpool.Pool
		}
		ips = append(ips, map[string]any{"interface": "eth0", "ipv4": ip, "ipv4Pool": pool})
	}
	metadata := map[string]any{}
	finalizers := []any{spiderpool.Finalizer}
	for _, f := range e.Finalizers {
		finalizers = append(finalizers, f)
	}
	metadata["finalizers"] = finalizers
	if e.Terminating {
		metadata["deletionTimestamp"] = start.Add(-time.Hour).Format(time.RFC3339)
	}
	n.add(spiderpool.Group(), "SpiderEndpoint", spiderpool.Namespace, e.Name, map[string]any{
		"metadata": metadata,
		"status": map[string]any{
			"ownerControllerType": e.Owner, "ownerControllerName": "app",
			"current": map[string]any{"uid": e.UID, "node": "worker-1", "ips": ips},
		},
	})
}

func (n *network) virtual(kind string, all []spiderpool.Virtual) {
	for _, v := range all {
		metadata := map[string]any{}
		if v.Terminating {
			metadata["deletionTimestamp"] = start.Add(-5 * time.Second).Format(time.RFC3339)
		}
		if v.Machine {
			metadata["ownerReferences"] = []any{map[string]any{
				"apiVersion": spiderpool.KubeVirt().String(), "kind": "VirtualMachine", "name": v.Name, "uid": "o", "controller": true,
			}}
		}
		n.add(spiderpool.KubeVirt(), kind, spiderpool.Namespace, v.Name, map[string]any{"metadata": metadata})
	}
}

func (n *network) typed(o runtime.Object) {
	n.t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.put(&unstructured.Unstructured{Object: content})
}

func (n *network) add(gv schema.GroupVersion, kind, namespace, name string, content map[string]any) {
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(gv.String())
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	n.put(u)
}

// put makes an object, or a version of it.
func (n *network) put(u *unstructured.Unstructured) {
	n.version++
	u.SetResourceVersion(fmt.Sprint(n.version))
	if u.GetUID() == "" {
		u.SetUID(types.UID(u.GetKind() + " " + u.GetName()))
	}
	n.objects[u.GetKind()+" "+u.GetName()] = u
}

// reader is the cluster as it is now.
func (n *network) reader() snapshot.Reader {
	n.t.Helper()
	world := snapshot.NewObjects()
	serve := func(gv schema.GroupVersion, plural, kind string, namespaced bool) {
		world.AddKind(gv, metav1.APIResource{Name: plural, SingularName: strings.ToLower(kind), Kind: kind, Namespaced: namespaced})
	}
	serve(corev1.SchemeGroupVersion, "pods", "Pod", true)
	serve(corev1.SchemeGroupVersion, "nodes", "Node", false)
	serve(appsv1.SchemeGroupVersion, "statefulsets", "StatefulSet", true)
	serve(spiderpool.Group(), "spiderippools", "SpiderIPPool", false)
	serve(spiderpool.Group(), "spiderendpoints", "SpiderEndpoint", true)
	if n.kubeVirt {
		serve(spiderpool.KubeVirt(), "virtualmachines", "VirtualMachine", true)
		serve(spiderpool.KubeVirt(), "virtualmachineinstances", "VirtualMachineInstance", true)
	}
	for _, name := range slices.Sorted(maps.Keys(n.objects)) {
		if err := world.AddObject(n.objects[name].DeepCopy()); err != nil {
			n.t.Fatal(err)
		}
	}
	if err := world.SortObjects(); err != nil {
		n.t.Fatal(err)
	}
	return world
}

// clean lets a template look once, and then, when it has looked for long enough, act until it wants nothing any more.
func (n *network) clean(c *collector) {
	n.t.Helper()
	n.pass(c, start.Add(-observedFor))
	const enough = 5
	for range enough {
		steps := n.pass(c, start)
		if len(steps) == 0 {
			return
		}
		for i := range steps {
			n.act(&steps[i])
		}
	}
	n.t.Errorf("after %d passes there is still something to do", enough)
}

// pass is what one evaluation wants to do.
func (n *network) pass(c *collector, now time.Time) []plan.Step {
	n.t.Helper()
	ctx, r := n.t.Context(), n.reader()
	in := plan.Input{
		Owner: plan.Owner{Name: "leaks", UID: "leaks", Created: start.Add(-time.Hour)}, Spec: c.work, Programs: c.programs,
		Snapshot: snapshot.ReadTargets(ctx, r, "", c.work), Now: now, Holds: c.holds,
		Batch: 1000, Confirmed: map[observed.Read]bool{}, Unreadable: map[observed.Read]string{},
	}
	first := plan.ComputePlan(ctx, in)
	last := first
	for len(last.Confirm) > 0 {
		found := map[observed.Read]*observed.Object{}
		for _, read := range last.Confirm {
			in.Confirmed[read] = true
			if read.All { // it is what it was
				continue
			}
			o, _, state, detail := snapshot.ReadObject(ctx, r, "", &c.work.Targets[read.Target], read.Namespace, read.Name)
			if state != observed.Complete {
				n.t.Fatalf("%v: %s", read, detail)
			}
			found[read] = o
		}
		in.Snapshot = in.Snapshot.WithLive(found)
		last = plan.ComputePlan(ctx, in)
	}
	c.holds = last.Holds
	if len(last.Errors) > 0 {
		n.t.Errorf("errors: %v", last.Errors)
	}
	return slices.DeleteFunc(plan.IntersectPlans(first, last).Steps, func(s plan.Step) bool { return !s.IsChange() })
}

// act carries a step out.
func (n *network) act(s *plan.Step) {
	n.t.Helper()
	kind, _ := s.Object.Value["kind"].(string)
	u := n.objects[kind+" "+s.Object.Name]
	if u == nil || u.GetUID() != s.Object.UID {
		n.t.Fatalf("%s of %s, which is not there", s.Verb, s.Object.Ref)
	}
	switch s.Verb {
	case plan.VerbDelete:
		u.SetDeletionTimestamp(&metav1.Time{Time: start})
	case plan.VerbRemoveFinalizer:
		u.SetFinalizers(slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f == s.Finalizer }))
	case plan.VerbPatch:
		n.patch(u, s)
	default:
		n.t.Errorf("%s of %s", s.Verb, s.Object.Ref)
	}
	n.put(u)
	if u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 {
		delete(n.objects, kind+" "+s.Object.Name)
	}
}

// patch changes the status of the pool.
func (n *network) patch(u *unstructured.Unstructured, s *plan.Step) {
	n.t.Helper()
	n.patches++
	if u.GetKind() != "SpiderIPPool" || s.Patch.Type != v1alpha1.PatchMerge || s.Patch.Subresource != "status" {
		n.t.Errorf("patched %q of %s by %s", s.Patch.Subresource, s.Object.Ref, s.Patch.Type)
	}
	before, err := json.Marshal(u.Object)
	if err != nil {
		n.t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, s.Patch.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(after, &object); err != nil {
		n.t.Fatal(err)
	}
	held := n.left()
	u.Object = object
	for ip := range n.left() {
		delete(held, ip)
	}
	n.judgeReleased(held)
}

// judgeReleased looks whether an endpoint that nobody has deleted claims what the pool has given back: then the address may have
// two owners.
func (n *network) judgeReleased(released map[string]string) {
	for _, o := range n.objects {
		if o.GetKind() != "SpiderEndpoint" || o.GetDeletionTimestamp() != nil {
			continue
		}
		if pod := n.objects["Pod "+o.GetName()]; pod != nil {
			if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase == "Succeeded" || phase == "Failed" {
				continue // it uses no address, and its endpoint goes with it
			}
		}
		uid, _, _ := unstructured.NestedString(o.Object, "status", "current", "uid")
		ips, _, _ := unstructured.NestedSlice(o.Object, "status", "current", "ips")
		for _, details := range ips {
			ip, _, _ := strings.Cut(fmt.Sprint(details.(map[string]any)["ipv4"]), "/")
			if released[ip] == o.GetNamespace()+"/"+o.GetName()+" "+uid {
				n.t.Errorf("the record of %s went before the endpoint %s", ip, o.GetName())
			}
		}
	}
}

// left are the records of the pool.
func (n *network) left() map[string]string {
	n.t.Helper()
	left, err := spiderpool.Records(n.objects["SpiderIPPool "+spiderpool.Pool])
	if err != nil {
		n.t.Error(err)
	}
	out := map[string]string{}
	for ip, r := range left {
		out[ip] = r.Pod + " " + r.UID
	}
	return out
}

// endpoints are those of a case that are gone, and those that only somebody else holds.
func (n *network) endpoints(tc *spiderpool.Case) (gone, held []string) {
	for _, e := range tc.Endpoints {
		switch u := n.objects["SpiderEndpoint "+e.Name]; {
		case u == nil:
			gone = append(gone, e.Name)
		case !slices.Contains(u.GetFinalizers(), spiderpool.Finalizer):
			held = append(held, e.Name)
		case u.GetDeletionTimestamp() != nil && !e.Terminating:
			n.t.Errorf("%s is terminating for ever", e.Name)
		}
	}
	return gone, held
}
