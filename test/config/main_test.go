// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/operator"
)

// shared is the control plane of all tests, with config/default applied and the manager serving the webhook; nil with
// -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Suite{Cluster: cluster.Options{APIServerFlags: operator.Routing()}, Ready: install}.Main(m)
}

// install applies config/default and runs the manager.
func install(ctx context.Context, c *cluster.Cluster) error {
	shared = c
	binary, err := operator.Build(ctx, c.Dir(), os.Stderr)
	if err != nil {
		return err
	}
	if err := operator.InstallWithWebhook(ctx, c); err != nil {
		return err
	}
	gate, err := operator.OpenGate(ctx, c)
	if err != nil {
		return err
	}
	_, err = operator.Run(ctx, c, operator.Options{Binary: binary, Webhook: gate})
	return err
}

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
