// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package spiderpool

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/invariants"
	"github.com/vtex/cleaner/test/operator"
)

// patience bounds every wait: far more than a busy machine needs.
const patience = 2 * time.Minute

// lab is a control plane with the operator, the templates, and Spiderpool's kinds.
type lab struct {
	*cluster.Cluster
	client.Client
	audit *cluster.Witness
}

var shared *lab

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := &lab{}
	defer l.stop()
	if err := l.start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "spiderpool:", err)
		return 1
	}
	shared = l
	return m.Run()
}

// start starts the control plane and the operator. Who would make or collect Pods of owners is left out: the cases say which
// there are.
func (l *lab) start(ctx context.Context) (err error) {
	controllers := slices.DeleteFunc(cluster.DefaultControllers(), func(name string) bool {
		return slices.Contains([]string{"garbage-collector-controller", "statefulset-controller", "replicaset-controller", "job-controller", "disruption-controller"}, name)
	})
	if l.Cluster, err = cluster.Start(ctx, cluster.Options{Log: os.Stderr, Controllers: controllers}); err != nil {
		return err
	}
	if l.audit, err = l.Witness(); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config := l.Config()
	config.QPS = -1 // whoever allocates is not slowed down
	if l.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := cluster.InstallCRDs(ctx, l.Config(), filepath.Join("crds", "spiderpool.yaml")); err != nil {
		return err
	}
	if err := operator.Install(ctx, l.Cluster); err != nil {
		return err
	}
	if err := operator.InstallTemplates(ctx, l.Cluster, "spiderpool"); err != nil {
		return err
	}
	binary, err := operator.Build(ctx, l.Dir(), os.Stderr)
	if err != nil {
		return err
	}
	_, err = operator.Run(ctx, l.Cluster, operator.Options{Binary: binary, Args: []string{"--min-interval=100ms"}})
	return err
}

func (l *lab) stop() {
	if l.Cluster == nil {
		return
	}
	if err := l.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "spiderpool:", err)
	}
}

// eventually waits until nothing is missing.
func eventually(t *testing.T, what string, missing func() string) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = missing()
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("%s: still missing: %s", what, last)
	}
}

// collect makes a ClusterCleaner of a template, which goes with the test.
func collect(t *testing.T, template string, parameters map[string]any) *v1alpha1.ClusterCleaner {
	t.Helper()
	text, err := json.Marshal(parameters)
	if err != nil {
		t.Fatal(err)
	}
	cc := &v1alpha1.ClusterCleaner{
		ObjectMeta: metav1.ObjectMeta{GenerateName: template + "-"},
		Spec: v1alpha1.ClusterCleanerSpec{CommonSpec: v1alpha1.CommonSpec{
			Lifecycle: v1alpha1.LifecycleRecurring, Retry: &v1alpha1.Retry{Period: "10s"},
			TemplateRef: &v1alpha1.TemplateRef{Name: template, Parameters: &runtime.RawExtension{Raw: text}},
		}},
	}
	if err := shared.Create(t.Context(), cc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.Delete(context.WithoutCancel(t.Context()), cc); err != nil {
			t.Error(err)
		}
	})
	return cc
}

// evaluates asks a ClusterCleaner to look, and waits until it has.
func evaluates(t *testing.T, cc *v1alpha1.ClusterCleaner) {
	t.Helper()
	asked := time.Now().Format(time.RFC3339Nano)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationRequestedAt, asked)
	if err := shared.Patch(t.Context(), cc, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an evaluation of "+cc.Name, func() string {
		if err := shared.Get(t.Context(), client.ObjectKeyFromObject(cc), cc); err != nil {
			return err.Error()
		}
		if cc.Status.LastRequestedAt != asked {
			return fmt.Sprintf("its status is %+v", cc.Status)
		}
		return ""
	})
}

// judge holds what the operator did until now against what it promises.
func judge(t *testing.T) {
	t.Helper()
	list := &v1alpha1.ClusterCleanerList{}
	if err := shared.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	events := events(t)
	log, err := invariants.ReadLogs(filepath.Join(shared.Dir(), "manager*.log"))
	if err != nil {
		t.Fatal(err)
	}
	r := &invariants.Record{
		Operator: operator.User, Audit: events, Log: log,
		Protected: []string{"kube-system", "kube-public", "kube-node-lease", operator.Namespace}, Own: operator.Namespace,
	}
	for i := range list.Items {
		r.Cleaners = append(r.Cleaners, &list.Items[i])
	}
	for _, v := range invariants.Check(r) {
		t.Error(v)
	}
}

func events(t *testing.T) []cluster.Event {
	t.Helper()
	events, err := shared.audit.Events()
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// bare is an object of a kind that is defined by a CRD, by its name.
func bare(gv schema.GroupVersion, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gv.WithKind(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// encode writes records as Spiderpool does.
func encode(t *testing.T, records map[string]Record) string {
	t.Helper()
	out := map[string]record{}
	for ip, r := range records {
		out[ip] = record{Pod: r.Pod, UID: r.UID}
	}
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pool makes a pool with records.
func pool(t *testing.T, name string, records map[string]Record) *unstructured.Unstructured {
	t.Helper()
	u := bare(Group(), "SpiderIPPool", "", name)
	u.SetFinalizers([]string{Finalizer})
	u.Object["spec"] = map[string]any{"ipVersion": int64(4), "subnet": "10.0.0.0/8"}
	if err := shared.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	status := map[string]any{"totalIPCount": int64(10000)}
	if len(records) > 0 {
		status["allocatedIPs"], status["allocatedIPCount"] = encode(t, records), int64(len(records))
	}
	u.Object["status"] = status
	if err := shared.Status().Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	return u
}
