// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package spiderpool

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/operator"
)

// lab is a control plane with the operator, the templates, and Spiderpool's kinds.
type lab struct {
	*cluster.Cluster
	client.Client
	audit   *cluster.Witness
	metrics string // where the operator serves them
}

var shared *lab

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	// Who would make or collect Pods of owners is left out: the cases say which there are.
	controllers := slices.DeleteFunc(cluster.DefaultControllers(), func(name string) bool {
		return slices.Contains([]string{"garbage-collector-controller", "statefulset-controller", "replicaset-controller", "job-controller", "disruption-controller"}, name)
	})
	clustertest.Suite{Live: true, Cluster: cluster.Options{Controllers: controllers}, Ready: func(ctx context.Context, c *cluster.Cluster) error {
		shared = &lab{Cluster: c}
		return shared.start(ctx)
	}}.Main(m)
}

// start installs Spiderpool's kinds and the templates, and runs the operator.
func (l *lab) start(ctx context.Context) (err error) {
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
	p, err := operator.Run(ctx, l.Cluster, operator.Options{Binary: binary, Args: []string{"--min-interval=100ms"}})
	if err != nil {
		return err
	}
	l.metrics = p.Metrics
	return nil
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
