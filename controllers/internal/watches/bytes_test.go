// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"

	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/keptparts"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
)

// usualPod is the JSON of a Pod as clusters have them, with so many containers.
func usualPod(tb testing.TB, n, containers int) []byte {
	tb.Helper()
	now := metav1.Unix(1767225600+int64(n), 0)
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("web-7d4b9c6f5d-%05d", n), Namespace: fmt.Sprintf("team-%d", n%50), UID: types.UID(fmt.Sprintf("9f0d9a3e-5a50-4a9e-8f6e-%012d", n)), ResourceVersion: fmt.Sprint(100000 + n),
			CreationTimestamp: now, Labels: map[string]string{"app": "web", "pod-template-hash": "7d4b9c6f5d", "team": fmt.Sprint("team-", n%50), "version": "v1"},
			Annotations:     map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "checksum/config": strings.Repeat("a1", 32)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c6f5d", UID: "1"}},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprint("node-", n%50), ServiceAccountName: "web", SchedulerName: "default-scheduler", Volumes: []corev1.Volume{{Name: "config"}, {Name: "token"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "10.0.0.1", PodIP: fmt.Sprintf("10.1.%d.%d", n/250, n%250), StartTime: &now, Conditions: []corev1.PodCondition{
			{Type: "PodScheduled", Status: "True", LastTransitionTime: now}, {Type: "Initialized", Status: "True", LastTransitionTime: now},
			{Type: "ContainersReady", Status: "True", LastTransitionTime: now}, {Type: "Ready", Status: "True", LastTransitionTime: now},
		}},
	}
	for i := range containers {
		c := corev1.Container{
			Name: fmt.Sprint("c", i), Image: "registry.example.com/team/web:v1.2.3", Args: []string{"--listen=:8080", "--config=/etc/web/config.yaml"},
			Ports:          []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}},
			Resources:      corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": apiresource.MustParse("100m"), "memory": apiresource.MustParse("128Mi")}, Limits: corev1.ResourceList{"memory": apiresource.MustParse("256Mi")}},
			VolumeMounts:   []corev1.VolumeMount{{Name: "config", MountPath: "/etc/web"}, {Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
			LivenessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}}, PeriodSeconds: 10},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http")}}, PeriodSeconds: 10},
		}
		for e := range 8 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", e), Value: "https://service.example.com/path"})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "registry.example.com/team/web@sha256:" + strings.Repeat("0f", 32), ContainerID: fmt.Sprintf("containerd://%064d", n*10+i), Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	text, err := json.Marshal(p)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// readsOfPods is what the templates read of Pods.
func readsOfPods(tb testing.TB, names ...string) *snapshot.Reads {
	tb.Helper()
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	var all []*snapshot.Reads
	for _, name := range names {
		template, err := templates.Load(name)
		if err != nil {
			tb.Fatal(err)
		}
		work, errs := templates.StandIn(template)
		if len(errs) > 0 {
			tb.Fatal(errs)
		}
		programs, errs := compiler.Compile(tb.Context(), work)
		if len(errs) > 0 {
			tb.Fatal(errs)
		}
		qs := snapshot.NewQueries("", work)
		qs.KeepReadings(work, programs.FindReadings())
		for i := range qs {
			if qs[i].Kind == "Pod" {
				all = append(all, qs[i].Reads)
			}
		}
	}
	if len(all) == 0 {
		tb.Fatal("the templates select no Pods")
	}
	return keptparts.MergeReads(all).Reads()
}

// bytesOfAPod is how much memory one of many Pods takes in a store, where so much is read of it, and how much it is said to take.
func bytesOfAPod(tb testing.TB, containers int, reads *snapshot.Reads) (took, said int64) {
	tb.Helper()
	s := &store{feeds: &feeds{sharing: keptparts.NewSharing()}, informer: &informer{scope: &scope{resource: &resource{Resource: served.Resource{GVR: apiserver.Pods}}}}, reads: reads}
	var kept cachedobjects.SortedObjects
	var shelf cachedobjects.Shelf
	took = bytesOf(tb, containers, func(u *unstructured.Unstructured) {
		o, err := s.makeObject(u)
		if err != nil {
			tb.Fatal(err)
		}
		kept, said = append(kept, o), said+int64(o.Bytes)
		if len(kept) == manyPods {
			shelf, kept = cachedobjects.NewShelf(kept), nil
		}
	})
	runtime.KeepAlive(shelf)
	runtime.KeepAlive(s)
	return took, said / manyPods
}

// bytesOfUnstructured is how much memory one of many Pods takes in a cache of client-go.
func bytesOfUnstructured(tb testing.TB, containers int) int64 {
	tb.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	took := bytesOf(tb, containers, func(u *unstructured.Unstructured) {
		if err := indexer.Add(u); err != nil {
			tb.Fatal(err)
		}
	})
	runtime.KeepAlive(indexer)
	return took
}

const manyPods = 500

// bytesOf is how much more memory is used when each of many Pods was kept, for one of them.
func bytesOf(tb testing.TB, containers int, keep func(*unstructured.Unstructured)) int64 {
	tb.Helper()
	texts := make([][]byte, manyPods)
	for n := range texts {
		texts[n] = usualPod(tb, n, containers)
	}
	before := heapInUse()
	for _, text := range texts {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(text); err != nil {
			tb.Fatal(err)
		}
		keep(u)
	}
	took := heapInUse() - before
	runtime.KeepAlive(texts)
	return took / manyPods
}

// medianOf is the median of three measurements: what other tests have left may go meanwhile.
func medianOf(measure func() int64) int64 {
	all := []int64{measure(), measure(), measure()}
	slices.Sort(all)
	return all[1]
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The four templates of podgc together read little of a Pod.
func TestAPodTakesWhatIsReadOfIt(t *testing.T) {
	reads := readsOfPods(t, "podgc-orphaned", "podgc-out-of-service", "podgc-terminated", "podgc-unscheduled-terminating")
	for _, containers := range []int{1, 3} {
		usual := medianOf(func() int64 { return bytesOfUnstructured(t, containers) })
		sizeOf := func(reads *snapshot.Reads) int64 {
			var said int64
			took := medianOf(func() (took int64) {
				took, said = bytesOfAPod(t, containers, reads)
				return took
			})
			if said < took*2/3 || said > took*3/2 {
				t.Errorf("a Pod takes %d bytes, and is said to take %d", took, said)
			}
			return took
		}
		whole, part := sizeOf(nil), sizeOf(reads)
		t.Logf("a Pod of %d containers, %d bytes of JSON: %d bytes in a cache of client-go, %d as a whole, %d of what is read: %v", containers, len(usualPod(t, 1, containers)), usual, whole, part, reads.Projection().ListPaths())
		if whole > usual/2 || part > whole/2 || part > 3200 {
			t.Errorf("a Pod of %d containers takes %d bytes of %d", containers, part, whole)
		}
	}
}

// BenchmarkBytesOfAPod says how many bytes a Pod takes, by what is read of it.
func BenchmarkBytesOfAPod(b *testing.B) {
	for name, reads := range map[string]*snapshot.Reads{
		"Whole": nil, "PodGC": readsOfPods(b, "podgc-orphaned", "podgc-out-of-service", "podgc-terminated", "podgc-unscheduled-terminating"), "Orphaned": readsOfPods(b, "podgc-orphaned"),
	} {
		for _, containers := range []int{1, 3} {
			b.Run(fmt.Sprintf("%s/containers=%d", name, containers), func(b *testing.B) {
				var took int64
				for b.Loop() {
					took, _ = bytesOfAPod(b, containers, reads)
				}
				b.ReportMetric(float64(took), "bytes/pod")
			})
		}
	}
}
