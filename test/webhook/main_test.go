// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/operator"
)

// patience is how long something that will happen may take.
const patience = time.Minute

// env is a control plane with the operator installed, webhook and all.
type env struct {
	*cluster.Cluster
	client.Client
	binary string
	// gate is where the API server calls the webhook, and manager the operator that answers.
	gate    *operator.Gate
	manager *operator.Process
}

// shared is the control plane of the tests that may share one, with the operator running.
var shared *env

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Suite{Live: true, Cluster: options(), Ready: func(ctx context.Context, c *cluster.Cluster) error {
		binary, err := operator.Build(ctx, c.Dir(), os.Stderr)
		if err != nil {
			return err
		}
		if shared, err = install(ctx, c, binary); err != nil {
			return err
		}
		shared.manager, err = operator.Run(ctx, c, operator.Options{Binary: binary, Webhook: shared.gate, Args: []string{"--min-interval=100ms"}})
		return err
	}}.Main(m)
}

// options are those of a control plane that calls the webhook.
func options() cluster.Options {
	return cluster.Options{Log: os.Stderr, APIServerFlags: operator.Routing()}
}

// newEnv starts a control plane and installs the operator, without running it.
func newEnv(ctx context.Context, binary string) (*env, error) {
	c, err := cluster.Start(ctx, options())
	if err != nil {
		return nil, err
	}
	e, err := install(ctx, c, binary)
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return e, nil
}

// install installs the operator, without running it.
func install(ctx context.Context, c *cluster.Cluster, binary string) (*env, error) {
	e := &env{Cluster: c, binary: binary}
	var err error
	if e.Client, err = clientOf(c.Config()); err != nil {
		return nil, err
	}
	if err := operator.InstallWithWebhook(ctx, c); err != nil {
		return nil, err
	}
	e.gate, err = operator.OpenGate(ctx, c)
	return e, err
}

func clientOf(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme, admissionregistrationv1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config.QPS = -1
	return client.New(config, client.Options{Scheme: scheme})
}

// namespace makes a namespace for one test.
func (e *env) namespace(t *testing.T) string {
	t.Helper()
	ns, err := e.Namespace(t.Context(), "webhook")
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// cleaner reads the YAML of the spec of a Cleaner.
func cleaner(t *testing.T, namespace, name, spec string) *unstructured.Unstructured {
	t.Helper()
	u := object(t, "Cleaner", name, spec)
	u.SetNamespace(namespace)
	return u
}

// object reads the YAML of the spec of one of our kinds.
func object(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(spec), &u.Object); err != nil {
		t.Fatalf("cannot read %s: %v", spec, err)
	}
	u.Object = map[string]any{"spec": u.Object}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "cleaner.vtex.dev", Version: "v1alpha1", Kind: kind})
	u.SetName(name)
	return u
}

// eventually waits until a check passes; check returns what is missing, or "".
func eventually(t *testing.T, what string, check func(ctx context.Context) string) {
	t.Helper()
	var missing string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		now := check(ctx)
		if now != "" && missing != "" && ctx.Err() != nil {
			return false, ctx.Err() // what it said before tells more than that it was cut
		}
		missing = now
		return missing == "", nil
	})
	if err != nil {
		t.Fatalf("%s: still missing: %s", what, missing)
	}
}

// apply applies a manifest.
func (e *env) apply(t *testing.T, manifest string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Kubectl(t.Context(), "apply", "-f", path); err != nil {
		t.Fatal(err)
	}
}
