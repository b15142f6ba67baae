// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/operator-framework/api/pkg/manifests"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/olm"
	"github.com/vtex/cleaner/test/operator"
)

// shared is the control plane of all tests, with what OLM creates from the bundle, and the manager running; nil with -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Suite{Cluster: cluster.Options{APIServerFlags: operator.Routing()}, Ready: start}.Main(m)
}

// start installs the bundle, and runs what its Deployment declares.
func start(ctx context.Context, c *cluster.Cluster) error {
	shared = c
	binary, err := operator.Build(ctx, c.Dir(), os.Stderr)
	if err != nil {
		return err
	}
	b, err := manifests.GetBundleFromDir(dir)
	if err != nil {
		return err
	}
	if err := install(ctx, c, b); err != nil {
		return err
	}
	w := b.CSV.Spec.WebhookDefinitions[0]
	gate, err := operator.OpenGateOf(ctx, c, olm.Service(w.DeploymentName), fmt.Sprint(w.ContainerPort))
	if err != nil {
		return err
	}
	container, err := operator.Declared(ctx, c, w.DeploymentName)
	if err != nil {
		return err
	}
	o := operator.As(container) // TestPodServesTheWebhook looks at the ports and folders
	o.Binary, o.Webhook, o.WebhookSecret = binary, gate, olm.Secret(w.DeploymentName)
	_, err = operator.Run(ctx, c, o)
	return err
}

// install creates what OLM creates, and returns when all rights are in force and the kinds are served.
func install(ctx context.Context, c *cluster.Cluster, b *manifests.Bundle) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	// OLM has its user make the namespace, from the template that the bundle has for it.
	namespace := &corev1.Namespace{}
	if err := yaml.UnmarshalStrict([]byte(b.CSV.Annotations["operatorframework.io/suggested-namespace-template"]), namespace); err != nil {
		return fmt.Errorf("cannot read the template of the namespace: %w", err)
	}
	if namespace.Name != operator.Namespace || namespace.Name != b.CSV.Annotations["operatorframework.io/suggested-namespace"] {
		return fmt.Errorf("the suggested namespace is %q", namespace.Name)
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	objects, err := olm.Install(b, namespace.Name)
	if err != nil {
		return err
	}
	path := filepath.Join(c.Dir(), "olm.yaml")
	var text []byte
	for _, o := range objects {
		document, err := yaml.Marshal(o.Object)
		if err != nil {
			return err
		}
		text = append(append(text, "---\n"...), document...)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	if out, err := c.Kubectl(ctx, "apply", "--server-side", "--validate=strict", "-f", path); err != nil {
		return fmt.Errorf("cannot create what OLM creates: %w\n%s", err, out)
	}
	for _, crd := range b.V1CRDs {
		if out, err := c.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "crd/"+crd.Name); err != nil {
			return errors.Join(err, fmt.Errorf("%s", out))
		}
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := c.Kubectl(ctx, "auth", "can-i", "delete", "pods", "--all-namespaces", "--as="+operator.User)
		return err == nil, nil // it exits with 1 for no
	})
}

// needCluster returns the control plane and a client of it.
func needCluster(t *testing.T) (*cluster.Cluster, kubernetes.Interface) {
	t.Helper()
	if shared == nil {
		t.Skip("needs a control plane: not with -short")
	}
	client, err := kubernetes.NewForConfig(shared.Config())
	if err != nil {
		t.Fatal(err)
	}
	return shared, client
}
