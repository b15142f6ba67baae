// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package spiderpool

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cases"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/live"
	"github.com/vtex/cleaner/test/operator"
)

// observedFor is that of the templates here, and long is longer than any test takes.
const (
	observedFor = 2 * time.Second
	long        = 3600
)

// scene is a case on the control plane, in a namespace and with a pool of its own.
type scene struct {
	*Case
	t         *testing.T
	namespace string
	pool      *unstructured.Unstructured
	uids      map[string]string // those of the case, as they are here
}

// Cases without parameters are played all at once, by one ClusterCleaner: first where KubeVirt is not installed, then where
// it is.
func TestCases(t *testing.T) {
	root, err := operator.Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := cases.Load[Case](filepath.Join(root, "config", "templates", "testdata", "spiderpool"))
	if err != nil {
		t.Fatal(err)
	}
	var all, without, with []Case
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all = append(all, files[name]...)
	}
	for _, c := range all {
		switch {
		case len(c.Parameters) > 0:
		case c.KubeVirt:
			with = append(with, c)
		default:
			without = append(without, c)
		}
	}
	if played := len(with) + len(without); played*2 < len(all) || len(with) == 0 {
		t.Fatalf("%d cases of %d are played, %d with KubeVirt", played, len(all), len(with))
	}
	for _, profile := range []string{"safe", "parity"} {
		t.Run(profile, func(t *testing.T) { playAll(t, profile, without) })
	}
	t.Run("Outdated", func(t *testing.T) { playOutdated(t, without) })
	if err := cluster.InstallCRDs(t.Context(), shared.Config(), filepath.Join("crds", "kubevirt.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, profile := range []string{"safe", "parity"} {
		t.Run("KubeVirt/"+profile, func(t *testing.T) { playAll(t, profile, with) })
	}
	live.Judge(t, shared, shared.Dir(), shared.audit)
}

func playAll(t *testing.T, profile string, cases []Case) {
	scenes := make([]*scene, len(cases))
	for i := range cases {
		scenes[i] = stage(t, &cases[i], fmt.Sprintf("%s-%d-%t", profile, i, cases[i].KubeVirt))
	}
	t.Cleanup(func() {
		for _, s := range scenes {
			s.strike(context.WithoutCancel(t.Context()))
		}
	})
	cc := collect(t, "spiderpool-ip", map[string]any{"profile": profile, "observedFor": observedFor.String()})
	live.Eventually(t, "what the cases want", func() string {
		for _, s := range scenes {
			if diff := s.diff(s.Of(profile)); diff != "" {
				return fmt.Sprintf("%q (-want +got):\n%s", s.Name, diff)
			}
		}
		return ""
	})
	live.Evaluates(t, shared, cc)
	for _, s := range scenes {
		t.Run(s.Name, func(t *testing.T) {
			if diff := s.diff(s.Of(profile)); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			s.requests(t)
		})
	}
}

// playOutdated plays the cases with the other template. It is done in the profile parity alone: in safe it would take a minute.
func playOutdated(t *testing.T, cases []Case) {
	const profile = "parity"
	scenes := make([]*scene, len(cases))
	for i := range cases {
		scenes[i] = stage(t, &cases[i], fmt.Sprintf("outdated-%d", i))
	}
	t.Cleanup(func() {
		for _, s := range scenes {
			s.strike(context.WithoutCancel(t.Context()))
		}
	})
	cc := collect(t, "spiderpool-endpoints", map[string]any{"profile": profile})
	missing := func() string {
		for _, s := range scenes {
			want := Outcome{Endpoints: s.Of(profile).Outdated}
			if diff := s.diff(want); diff != "" {
				return fmt.Sprintf("%q (-want +got):\n%s", s.Name, diff)
			}
		}
		return ""
	}
	live.Eventually(t, "what the cases want", missing)
	live.Evaluates(t, shared, cc)
	if m := missing(); m != "" {
		t.Error(m)
	}
}

// stage makes the objects of a case as they are at its start.
func stage(t *testing.T, c *Case, name string) *scene {
	t.Helper()
	ns, err := shared.Namespace(t.Context(), "case")
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{Case: c, t: t, namespace: ns, uids: map[string]string{}}
	for node, ready := range c.Nodes {
		s.node(name+"-"+node, ready)
	}
	for i := range c.StatefulSets {
		s.set(&c.StatefulSets[i])
	}
	for i := range c.Pods {
		s.pod(&c.Pods[i], name)
	}
	for kind, of := range map[string][]Virtual{"VirtualMachine": c.Machines, "VirtualMachineInstance": c.Instances} {
		for _, v := range of {
			s.virtual(kind, v)
		}
	}
	for i := range c.Endpoints {
		s.endpoint(&c.Endpoints[i], name)
	}
	records := map[string]Record{}
	for _, r := range c.Records {
		pod := strings.Replace(r.Pod, Namespace+"/", ns+"/", 1)
		records[r.IP] = Record{IP: r.IP, Pod: pod, UID: s.uid(r.UID)}
	}
	s.pool = pool(t, name, records)
	return s
}

// uid is what a UID of the case is here: that of its Pod, or one that no Pod has.
func (s *scene) uid(of string) string {
	if s.uids[of] == "" {
		s.uids[of] = string(uuid.NewUUID())
	}
	return s.uids[of]
}

func (s *scene) create(o client.Object) {
	s.t.Helper()
	if err := shared.Create(s.t.Context(), o); err != nil {
		s.t.Fatalf("%q: %s", s.Name, err)
	}
}

func (s *scene) updateStatus(o client.Object) {
	s.t.Helper()
	if err := shared.Status().Update(s.t.Context(), o); err != nil {
		s.t.Fatalf("%q: %s", s.Name, err)
	}
}

func (s *scene) delete(o client.Object, more ...client.DeleteOption) {
	s.t.Helper()
	if err := shared.Delete(s.t.Context(), o, more...); err != nil {
		s.t.Fatalf("%q: %s", s.Name, err)
	}
}

func (s *scene) node(name, ready string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.create(node)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionStatus(ready)}}
	s.updateStatus(node)
}

func containers() []corev1.Container {
	return []corev1.Container{{Name: "main", Image: "example.com/main"}}
}

func (s *scene) set(of *StatefulSet) {
	labels := map[string]string{"app": of.Name}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: of.Name, Namespace: s.namespace},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &of.Replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: containers()}},
		},
	}
	if of.Start > 0 {
		set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: of.Start}
	}
	s.create(set)
}

// pod makes a Pod. What is long ago in the case is so here, as far as an API server lets one say so: a grace period of a
// second is soon over twice.
func (s *scene) pod(p *Pod, name string) {
	grace := int64(30)
	if p.Ended == "1s" {
		grace = long
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: s.namespace},
		Spec:       corev1.PodSpec{HostNetwork: p.HostNetwork, TerminationGracePeriodSeconds: &grace, Containers: containers()},
	}
	if p.Node != "" {
		pod.Spec.NodeName = name + "-" + p.Node
	}
	if p.Mirror {
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}
	if apiVersion, kind, ok := strings.Cut(p.Owner, " "); ok {
		controls := true
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: uuid.NewUUID(), Controller: &controls}}
	}
	s.create(pod)
	s.uids[p.UID] = string(pod.UID)
	pod.Status.Phase = corev1.PodPhase(p.Phase)
	for _, ip := range p.IPs {
		pod.Status.PodIP = p.IPs[0]
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if p.Ended != "" {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: s.ago(p.Ended)}}}}
	}
	if p.Evicted != "" {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: s.ago(p.Evicted)}}
	}
	s.updateStatus(pod)
	switch p.Deleted {
	case "":
	case "1s":
		s.delete(pod, client.GracePeriodSeconds(long))
	default:
		s.delete(pod, client.GracePeriodSeconds(1))
	}
}

func (s *scene) ago(d v1alpha1.Duration) metav1.Time {
	s.t.Helper()
	length, err := d.Parse(0)
	if err != nil {
		s.t.Fatal(err)
	}
	return metav1.NewTime(time.Now().Add(-length))
}

func (s *scene) virtual(kind string, v Virtual) {
	u := bare(KubeVirt(), kind, s.namespace, v.Name)
	if v.Machine {
		controls := true
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: KubeVirt().String(), Kind: "VirtualMachine", Name: v.Name, UID: uuid.NewUUID(), Controller: &controls}})
	}
	if v.Terminating {
		u.SetFinalizers([]string{"example.com/hold"})
	}
	s.create(u)
	if v.Terminating {
		s.delete(u)
	}
}

func (s *scene) endpoint(e *Endpoint, pool string) {
	if e.Pool != "" {
		pool = e.Pool
	}
	ips := []any{}
	for _, ip := range e.IPs {
		ips = append(ips, map[string]any{"interface": "eth0", "ipv4": ip, "ipv4Pool": pool})
	}
	u := bare(Group(), "SpiderEndpoint", s.namespace, e.Name)
	u.SetFinalizers(append([]string{Finalizer}, e.Finalizers...))
	u.Object["status"] = map[string]any{
		"ownerControllerType": e.Owner, "ownerControllerName": "app",
		"current": map[string]any{"uid": s.uid(e.UID), "node": "worker-1", "ips": ips},
	}
	s.create(u)
	if e.Terminating {
		s.delete(u)
	}
}

// strike takes away what nobody else would, so that it is not seen by the next cases.
func (s *scene) strike(ctx context.Context) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(Group().WithKind("SpiderEndpointList"))
	if err := shared.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
		s.t.Error(err)
	}
	objects := []client.Object{s.pool}
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	for _, o := range objects {
		free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := shared.Patch(ctx, o, free); client.IgnoreNotFound(err) != nil {
			s.t.Error(err)
		}
		if err := shared.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			s.t.Error(err)
		}
	}
}

// diff is what differs between what became of the case and what is wanted.
func (s *scene) diff(want Outcome) string {
	var got Outcome
	now := bare(Group(), "SpiderIPPool", "", s.pool.GetName())
	if err := shared.Get(s.t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
		return err.Error()
	}
	left, err := Records(now)
	if err != nil {
		return err.Error()
	}
	for _, r := range s.Records {
		if there, ok := left[r.IP]; !ok {
			got.Released = append(got.Released, r.IP)
		} else if there.UID != s.uid(r.UID) {
			return fmt.Sprintf("the record of %s is %v", r.IP, there)
		}
	}
	for _, e := range s.Endpoints {
		u := bare(Group(), "SpiderEndpoint", s.namespace, e.Name)
		err := shared.Get(s.t.Context(), client.ObjectKeyFromObject(u), u)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return err.Error()
		case err != nil:
			got.Endpoints = append(got.Endpoints, e.Name)
		case !slices.Contains(u.GetFinalizers(), Finalizer):
			got.Held = append(got.Held, e.Name)
		case u.GetDeletionTimestamp() != nil && !e.Terminating:
			return e.Name + " is terminating, and still held"
		}
	}
	return gocmp.Diff(want, got, cmpopts.IgnoreFields(Outcome{}, "Outdated"), cmpopts.SortSlices(strings.Compare), cmpopts.EquateEmpty())
}

// requests looks at how a pool was patched: once, at the version that was read, after it was read, and before it the Pods
// of its records.
func (s *scene) requests(t *testing.T) {
	t.Helper()
	patches := 0
	var read time.Time // when the pool was read last
	pods := map[string]time.Time{}
	for _, e := range events(t) {
		if !e.By(operator.User) || e.ObjectRef == nil {
			continue
		}
		switch ref := e.ObjectRef; {
		case ref.Resource == "spiderippools" && ref.Name == s.pool.GetName() && e.Verb == "get":
			read = e.StageTimestamp.Time
		case ref.Resource == "pods" && ref.Namespace == s.namespace && e.Verb == "get":
			pods[s.namespace+"/"+ref.Name] = e.RequestReceivedTimestamp.Time
		case ref.Resource == "spiderippools" && ref.Name == s.pool.GetName() && e.Verb == "patch":
			body := e.RequestObject.Raw
			if e.Code() < 300 {
				patches++
			}
			if ref.Subresource != "status" || !bytes.Contains(body, []byte(`"resourceVersion":"`)) || bytes.Contains(body, []byte(`"allocatedIPs":""`)) {
				t.Errorf("%s: %s", e, body)
			}
			for _, r := range s.Records {
				pod := strings.Replace(r.Pod, Namespace+"/", s.namespace+"/", 1)
				if at := pods[pod]; strings.Contains(pod, "/") && slices.Contains(s.released(body), r.IP) && (at.IsZero() || at.Before(read)) {
					t.Errorf("the record of %s was released by what was known of its Pod at %s, and the pool was read at %s", pod, at, read)
				}
			}
		}
	}
	if patches > 1 {
		t.Errorf("the pool was patched %d times", patches)
	}
}

// released are the addresses that a patch leaves out.
func (s *scene) released(body []byte) []string {
	var out []string
	for _, r := range s.Records {
		if !bytes.Contains(body, []byte(r.IP)) {
			out = append(out, r.IP)
		}
	}
	return out
}
