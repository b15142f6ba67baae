// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	typed "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vtex/cleaner/test/cluster"
)

// way is another way to know the Pods and Nodes of a cluster. Each runs in a process of its own, because memory is what is measured.
type way struct {
	name, what string
	// part says as which part of its heap for each Pod the operator's should be at most: 1/part; 0: it keeps none.
	part int
	// look reads all Pods and Nodes, and returns how many Pods it holds and what must not be collected.
	look func(context.Context, *rest.Config) (pods int, keep any, err error)
}

func waysToHold() []way {
	return []way{
		{"typed", "cache of client-go, typed", 5, cacheTyped},
		{"unstructured", "cache of client-go, unstructured", 20, cacheUnstructured},
		{"list", "a list of unstructured objects at each look, as k8s-cleaner makes it", 0, listOrphans},
	}
}

// holding is what a process says that has looked.
type holding struct {
	Pods                 int
	Heap, Resident, Peak float64 // bytes: after a garbage collection; of the process then; at most
	CPU                  float64 // seconds, of the look
}

// hold looks at the cluster in one way, in a process of its own.
func hold(ctx context.Context, r *rig, w way) (holding, error) {
	path := filepath.Join(r.Dir(), "bench.kubeconfig")
	if err := cluster.WriteKubeconfig(path, r.as); err != nil {
		return holding{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return holding{}, fmt.Errorf("cannot find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "--hold="+w.name)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+path)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return holding{}, fmt.Errorf("cannot measure %s: %w", w.what, err)
	}
	var h holding
	if err := json.Unmarshal(out.Bytes(), &h); err != nil {
		return holding{}, fmt.Errorf("cannot read what %s takes: %w", w.what, err)
	}
	return h, nil
}

func (h *holding) figures(c crowd, w way) []figure {
	what, x := fmt.Sprintf("%s over %s: ", strings.ToUpper(w.what[:1])+w.what[1:], c), float64(c.pods)
	memory := "resident memory"
	resident := h.Resident
	if w.name == "list" {
		memory, resident = "most resident memory", h.Peak // it keeps nothing
	}
	figures := []figure{figure{What: what + memory, Value: fmt.Sprintf("%.0f MiB", resident/mebibyte)}.on("memory-pods", w.what, x, resident/mebibyte)}
	if w.name == "list" {
		return append(figures, figure{What: what + "CPU time of one look, without the API server's", Value: fmt.Sprintf("%.0f ms", h.CPU*1000)}.on("cpu-looks", w.what, x, h.CPU*1000))
	}
	return append(figures, figure{What: what + "heap for each Pod", Value: fmt.Sprintf("%.1f KiB", h.Heap/x/1024)})
}

// measureHolding looks in one way, and prints what it took.
func measureHolding(ctx context.Context, name string) error {
	for _, w := range waysToHold() {
		if w.name != name {
			continue
		}
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err != nil {
			return fmt.Errorf("cannot read the kubeconfig: %w", err)
		}
		config.QPS = -1
		before, err := ownCPU()
		if err != nil {
			return err
		}
		pods, keep, err := w.look(ctx, config)
		if err != nil {
			return err
		}
		h := holding{Pods: pods}
		after, err := ownCPU()
		if err != nil {
			return err
		}
		h.CPU = after - before
		if h.Peak, err = memoryOf("self", "VmHWM"); err != nil {
			return err
		}
		if err := pause(ctx, 20*time.Second); err != nil { // as the operator: Go gives memory back to the system later
			return err
		}
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		h.Heap = float64(m.HeapAlloc)
		if h.Resident, err = memoryOf("self", "VmRSS"); err != nil {
			return err
		}
		runtime.KeepAlive(keep)
		return json.NewEncoder(os.Stdout).Encode(h)
	}
	return fmt.Errorf("there is no way %q", name)
}

// memoryOf reads a value in bytes of what Linux says of a process.
func memoryOf(process, name string) (float64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", process, "status"))
	if err != nil {
		return 0, fmt.Errorf("cannot read the memory of a process: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name+":" {
			kilobytes, err := strconv.ParseFloat(fields[1], 64)
			return kilobytes * 1024, err
		}
	}
	return 0, fmt.Errorf("cannot find %s of process %s", name, process)
}

func podsResource() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("pods")
}

func nodesResource() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("nodes")
}

// cacheTyped watches Pods and Nodes as most controllers do.
func cacheTyped(ctx context.Context, config *rest.Config) (int, any, error) {
	all, err := newTypedInformers(config)
	if err != nil {
		return 0, nil, err
	}
	return holdAll(ctx, all.Pods().Informer(), all.Nodes().Informer())
}

// newTypedInformers makes informers that read protobuf, as those of kube-controller-manager do.
func newTypedInformers(config *rest.Config) (typed.Interface, error) {
	config = rest.CopyConfig(config)
	config.ContentType = k8sruntime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return informers.NewSharedInformerFactory(client, 0).Core().V1(), nil
}

// cacheUnstructured watches Pods and Nodes as controllers do that learn at run time what they watch.
func cacheUnstructured(ctx context.Context, config *rest.Config) (int, any, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return 0, nil, err
	}
	all := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	return holdAll(ctx, all.ForResource(podsResource()).Informer(), all.ForResource(nodesResource()).Informer())
}

// runInformers runs informers until the context ends, and returns when they have all objects.
func runInformers(ctx context.Context, informers ...cache.SharedIndexInformer) error {
	var synced []cache.InformerSynced
	for _, i := range informers {
		go i.RunWithContext(ctx)
		synced = append(synced, i.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("cannot watch all objects: %w", ctx.Err())
	}
	return nil
}

func holdAll(ctx context.Context, pods, nodes cache.SharedIndexInformer) (int, any, error) {
	if err := runInformers(ctx, pods, nodes); err != nil {
		return 0, nil, err
	}
	return len(pods.GetStore().ListKeys()), []any{pods, nodes}, nil
}

// listOrphans lists Nodes and Pods, and looks for Pods on missing Nodes.
func listOrphans(ctx context.Context, config *rest.Config) (int, any, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return 0, nil, err
	}
	nodes, err := client.Resource(nodesResource()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, nil, fmt.Errorf("cannot list Nodes: %w", err)
	}
	pods, err := client.Resource(podsResource()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, nil, fmt.Errorf("cannot list Pods: %w", err)
	}
	names := map[string]bool{}
	for i := range nodes.Items {
		names[nodes.Items[i].GetName()] = true
	}
	orphans := 0
	for i := range pods.Items {
		on, _, err := unstructured.NestedString(pods.Items[i].Object, "spec", "nodeName")
		if err != nil {
			return 0, nil, fmt.Errorf("cannot read the Node of a Pod: %w", err)
		}
		if !names[on] {
			orphans++
		}
	}
	if orphans > 0 {
		return 0, nil, fmt.Errorf("cannot measure: %d Pods are on missing Nodes", orphans)
	}
	return len(pods.Items), nil, nil
}
