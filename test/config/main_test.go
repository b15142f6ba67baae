// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
)

// shared is the control plane of all tests, with config/default applied and the manager serving the webhook; nil with
// -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	ctx := context.Background()
	c, err := cluster.Start(ctx, cluster.Options{Log: os.Stderr, APIServerFlags: operator.Routing()})
	if err != nil {
		return fail(err)
	}
	defer c.Stop()
	binary, err := operator.Build(ctx, c.Dir(), os.Stderr)
	if err != nil {
		return fail(err)
	}
	if err := operator.InstallWithWebhook(ctx, c); err != nil {
		return fail(err)
	}
	gate, err := operator.OpenGate(ctx, c)
	if err != nil {
		return fail(err)
	}
	if _, err := operator.Run(ctx, c, operator.Options{Binary: binary, Webhook: gate}); err != nil {
		return fail(err)
	}
	shared = c
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "config:", err)
	return 1
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
