// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package podgc

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
)

// collector is the user as which kube-controller-manager collects.
const collector = "system:serviceaccount:kube-system:pod-garbage-collector"

// plane is a control plane on which somebody collects Pods.
type plane struct {
	*cluster.Cluster
	client.WithWatch
	audit *cluster.Witness
	user  string // who collects

	mu   sync.Mutex
	seen map[client.ObjectKey]sighting
}

// sighting is what was seen last of a Pod.
type sighting struct {
	*corev1.Pod
	gone bool
}

// ours has the operator, upstream has kube-controller-manager's pod garbage collector when a test runs it.
var ours, upstream *plane

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		fmt.Fprintln(os.Stderr, "these tests need control planes: not with -short")
		return 0
	}
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ours, upstream = &plane{user: operator.User}, &plane{user: collector}
	defer ours.stop()
	defer upstream.stop()
	started := make(chan error)
	for _, p := range planes() {
		go func() { started <- p.start(ctx) }()
	}
	if err := errors.Join(<-started, <-started); err != nil {
		fmt.Fprintln(os.Stderr, "podgc:", err)
		return 1
	}
	return m.Run()
}

func planes() []*plane { return []*plane{ours, upstream} }

// start starts the control plane, watches its Pods, and installs the operator with the templates if it is the collector.
func (p *plane) start(ctx context.Context) (err error) {
	// The disruption controller takes the condition DisruptionTarget back from Pods that stay, and a case is about it.
	controllers := slices.DeleteFunc(cluster.DefaultControllers(), func(name string) bool { return name == "disruption-controller" })
	if p.Cluster, err = cluster.Start(ctx, cluster.Options{Log: os.Stderr, Controllers: controllers}); err != nil {
		return err
	}
	if p.audit, err = p.Witness(); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	if p.WithWatch, err = client.NewWithWatch(p.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := p.look(ctx); err != nil {
		return err
	}
	if p.user != operator.User {
		return nil
	}
	return p.install(ctx)
}

func (p *plane) stop() {
	if p.Cluster == nil {
		return
	}
	if err := p.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "podgc:", err)
	}
}

// install runs the operator, with the rights and the templates for Pods.
func (p *plane) install(ctx context.Context) error {
	if err := operator.Install(ctx, p.Cluster); err != nil {
		return err
	}
	if err := operator.InstallTemplates(ctx, p.Cluster, "nodes"); err != nil {
		return err
	}
	binary, err := operator.Build(ctx, p.Dir(), os.Stderr)
	if err != nil {
		return err
	}
	_, err = operator.Run(ctx, p.Cluster, operator.Options{Binary: binary, Args: []string{"--min-interval=100ms"}})
	return err
}

// look remembers all Pods of the control plane as they were last.
func (p *plane) look(ctx context.Context) error {
	p.seen = map[client.ObjectKey]sighting{}
	w, err := p.Watch(ctx, &corev1.PodList{})
	if err != nil {
		return fmt.Errorf("cannot watch Pods: %w", err)
	}
	go func() {
		for e := range w.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				p.mu.Lock()
				p.seen[client.ObjectKeyFromObject(pod)] = sighting{pod, e.Type == "DELETED"}
				p.mu.Unlock()
			}
		}
	}()
	return nil
}

// pod is what was seen last of a Pod; nothing at first.
func (p *plane) pod(namespace, name string) sighting {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[client.ObjectKey{Namespace: namespace, Name: name}]
}

// requests are those for Pods that a collector sent, in the namespaces that are asked for.
func (p *plane) requests(t *testing.T, in func(namespace string) bool) []cluster.Event {
	t.Helper()
	events, err := p.audit.Events()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(events, func(e cluster.Event) bool {
		return !e.By(p.user) || e.ObjectRef == nil || e.ObjectRef.Resource != "pods" || !in(e.ObjectRef.Namespace) ||
			!strings.Contains("delete patch", e.Verb)
	})
}
