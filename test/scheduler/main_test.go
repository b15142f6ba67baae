// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/hack/kustomize"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/operator"
)

const (
	system = "cleaner-system"
	// ours is the name of everything that the component brings.
	ours = "cleaner-scheduler"
	// sparing is a profile with args of its own.
	sparing = "sparing"
	// plain is a profile without the plugin.
	plain = "plain"
)

// shared is the control plane of all tests, with the scheduler at work.
var shared struct {
	*cluster.Cluster
	client.Client
	clientset kubernetes.Interface
	// binary is the scheduler, and kubeconfig makes it the ServiceAccount that the component brings.
	binary, kubeconfig, log string
	// url is where it serves.
	url        string
	deployment appsv1.Deployment
	config     map[string]any
}

func TestMain(m *testing.M) {
	clustertest.Suite{Ready: ready, After: mayAllItTries, Live: true}.Main(m)
}

// ready builds the scheduler, applies what its component declares, and runs it.
func ready(ctx context.Context, c *cluster.Cluster) error {
	var err error
	shared.Cluster = c
	if shared.Client, err = client.New(c.Config(), client.Options{}); err != nil {
		return err
	}
	if shared.clientset, err = kubernetes.NewForConfig(c.Config()); err != nil {
		return err
	}
	if err := build(ctx); err != nil {
		return err
	}
	if err := apply(ctx); err != nil {
		return err
	}
	account, err := c.ServiceAccountConfig(ctx, system, shared.deployment.Spec.Template.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	shared.kubeconfig = filepath.Join(c.Dir(), ours+".kubeconfig")
	if err := cluster.WriteKubeconfig(shared.kubeconfig, account); err != nil {
		return err
	}
	shared.log = filepath.Join(c.Dir(), ours+".log")
	args, port, err := arguments(shared.config)
	if err != nil {
		return err
	}
	shared.url = fmt.Sprintf("https://127.0.0.1:%d", port)
	_, err = c.Run(ctx, cluster.ProgramOptions{Name: ours, Path: shared.binary, Args: args, LogPath: shared.log})
	return err
}

// build builds the scheduler from its module.
func build(ctx context.Context) error {
	root, err := operator.Root()
	if err != nil {
		return err
	}
	shared.binary = filepath.Join(shared.Dir(), ours)
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", shared.binary, "./cmd/"+ours)
	cmd.Dir = filepath.Join(root, "scheduler")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot build %s: %w", ours, err)
	}
	return nil
}

// apply creates the objects of the component as config/default has them, the namespace that they are in, and the role of who reads
// metrics.
func apply(ctx context.Context) error {
	root, err := operator.Root()
	if err != nil {
		return err
	}
	dir := filepath.Join(shared.Dir(), "config")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "config"))); err != nil {
		return err
	}
	file := filepath.Join(dir, "default", "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	on := bytes.Replace(text, []byte("#- ../components/scheduler\n"), []byte("- ../components/scheduler\n"), 1)
	if bytes.Equal(on, text) {
		return errors.New("config/default has no switch for the scheduler")
	}
	if err := os.WriteFile(file, on, 0o600); err != nil {
		return err
	}
	objects, err := kustomize.Build(filepath.Dir(file))
	if err != nil {
		return err
	}
	for _, u := range objects {
		if u.GetName() != system && u.GetName() != "cleaner-metrics-reader" && !strings.HasPrefix(u.GetName(), ours) {
			continue
		}
		if err := shared.Create(ctx, u); err != nil {
			return err
		}
		switch u.GetKind() {
		case "Deployment":
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &shared.deployment)
		case "ConfigMap":
			text, _, _ := unstructured.NestedString(u.Object, "data", "scheduler.yaml")
			err = yaml.Unmarshal([]byte(text), &shared.config)
		}
		if err != nil {
			return err
		}
	}
	if shared.deployment.Name != ours || shared.config["kind"] != "KubeSchedulerConfiguration" {
		return fmt.Errorf("the component has the Deployment %q and the configuration %v", shared.deployment.Name, shared.config)
	}
	return nil
}

// arguments are those of the Deployment, for this machine: with a configuration that is as declared, but for the API server's
// address, and has two profiles more.
func arguments(declared map[string]any) (args []string, port int, err error) {
	config := runtime.DeepCopyJSON(declared)
	config["clientConnection"] = map[string]any{"kubeconfig": shared.kubeconfig}
	profiles, _ := config["profiles"].([]any)
	config["profiles"] = append(profiles,
		map[string]any{
			"schedulerName": sparing, "plugins": map[string]any{"multiPoint": map[string]any{"enabled": []any{map[string]any{"name": "PodAllocatableIP"}}}},
			"pluginConfig": []any{map[string]any{"name": "PodAllocatableIP", "args": map[string]any{"reservedIPv4": int64(6)}}},
		},
		map[string]any{"schedulerName": plain},
	)
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, 0, err
	}
	file, err := os.CreateTemp(shared.Dir(), ours+"-*.yaml")
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	if _, err := file.Write(text); err != nil {
		return nil, 0, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, 0, err
	}
	defer l.Close()
	port = l.Addr().(*net.TCPAddr).Port
	for _, arg := range shared.deployment.Spec.Template.Spec.Containers[0].Args {
		switch flag, _, _ := strings.Cut(arg, "="); flag {
		case "--config":
			args = append(args, "--config="+file.Name())
		case "--secure-port":
			args = append(args, fmt.Sprintf("--secure-port=%d", port))
		default:
			args = append(args, arg)
		}
	}
	// In a Pod it finds the API server by itself.
	return append(args, "--bind-address=127.0.0.1", "--authentication-kubeconfig="+shared.kubeconfig, "--authorization-kubeconfig="+shared.kubeconfig, "-v=2"), port, nil
}

// mayAllItTries says what the scheduler was refused while the tests ran.
func mayAllItTries() error {
	text, err := os.ReadFile(shared.log)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			return fmt.Errorf("the scheduler has no right to what it does: %s", line)
		}
	}
	return nil
}

// eventually waits until nothing is missing.
func eventually(t *testing.T, what string, missing func() string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		last := missing()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: still missing: %s", what, last)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lab is a namespace with Nodes of its own: no Pod of another lab goes there.
type lab struct {
	*testing.T
	namespace string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	ns, err := shared.Namespace(t.Context(), "ips")
	if err != nil {
		t.Fatal(err)
	}
	return &lab{t, ns}
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// node makes a Node with room for everything but addresses. It lives as long as the test.
func (l *lab) node(name string, ranges ...string) string {
	l.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.namespace + "-" + name, Labels: map[string]string{"lab": l.namespace, "node": name}}, Spec: corev1.NodeSpec{PodCIDRs: ranges}}
	if len(ranges) > 0 {
		n.Spec.PodCIDR = ranges[0]
	}
	// It is unschedulable until all of it is written.
	n.Spec.Unschedulable = true
	l.must(shared.Create(l.Context(), n))
	l.Cleanup(func() {
		if err := shared.Delete(context.WithoutCancel(l.Context()), n); err != nil {
			l.Error(err)
		}
	})
	n.Status.Capacity = resources()
	n.Status.Allocatable = resources()
	l.must(shared.Status().Update(l.Context(), n))
	// The API server has added a taint of a Node that is not ready. This one keeps the Pods of others away.
	n.Spec.Taints, n.Spec.Unschedulable = []corev1.Taint{{Key: "lab", Value: l.namespace, Effect: corev1.TaintEffectNoSchedule}}, false
	l.must(shared.Update(l.Context(), n))
	return n.Name
}

// pod makes a Pod for this lab's Nodes.
func (l *lab) pod(name string, changes ...func(*corev1.Pod)) {
	l.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: l.namespace},
		Spec: corev1.PodSpec{
			SchedulerName: ours, NodeSelector: map[string]string{"lab": l.namespace}, Tolerations: []corev1.Toleration{{Key: "lab", Value: l.namespace}},
			Containers: []corev1.Container{{Name: "c", Image: "example.test/c"}},
		},
	}
	for _, change := range changes {
		change(p)
	}
	l.must(shared.Create(l.Context(), p))
}

// pods makes some.
func (l *lab) pods(prefix string, n int, changes ...func(*corev1.Pod)) []string {
	l.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", prefix, i))
		l.pod(names[i], changes...)
	}
	return names
}

// get reads a Pod.
func (l *lab) get(name string) *corev1.Pod {
	l.Helper()
	p := &corev1.Pod{}
	l.must(shared.Get(l.Context(), client.ObjectKey{Namespace: l.namespace, Name: name}, p))
	return p
}

// bound waits until these Pods have a Node, and says how many of them are on each.
func (l *lab) bound(names ...string) map[string]int {
	l.Helper()
	on := map[string]int{}
	for _, name := range names {
		eventually(l.T, name+" has a Node", func() string {
			p := l.get(name)
			if p.Spec.NodeName == "" {
				return fmt.Sprint(p.Status.Conditions)
			}
			return ""
		})
		on[strings.TrimPrefix(l.get(name).Spec.NodeName, l.namespace+"-")]++
	}
	return on
}

// pending waits until the scheduler has said why a Pod has no Node, and says it.
func (l *lab) pending(name string) string {
	l.Helper()
	message := ""
	eventually(l.T, name+" is told why it waits", func() string {
		p := l.get(name)
		if p.Spec.NodeName != "" {
			l.Fatalf("%s went to %s", name, p.Spec.NodeName)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
				message = c.Message
				return ""
			}
		}
		return fmt.Sprint(p.Status.Conditions)
	})
	return message
}

// gone deletes a Pod as its kubelet would in the end.
func (l *lab) gone(name string) {
	l.Helper()
	l.must(shared.Delete(l.Context(), l.get(name), client.GracePeriodSeconds(0)))
}

// ends has a Pod end.
func (l *lab) ends(name string, phase corev1.PodPhase) {
	l.Helper()
	p := l.get(name)
	p.Status.Phase = phase
	l.must(shared.Status().Update(l.Context(), p))
}

// resources are those of a Node that is short of nothing.
func resources() corev1.ResourceList {
	list := corev1.ResourceList{}
	_ = yaml.Unmarshal([]byte("{cpu: '64', memory: 256Gi, pods: '500'}"), &list)
	return list
}

// on sends a Pod to one of the lab's Nodes.
func on(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector["node"] = name }
}

// prefers lets a Pod go elsewhere if it cannot be there.
func prefers(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "node", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}},
		}}}}
	}
}

func by(scheduler string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SchedulerName = scheduler }
}

func hostNetwork(p *corev1.Pod) { p.Spec.HostNetwork = true }
