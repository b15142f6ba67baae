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
)

// shared is the control plane of all tests, with config/default applied; nil with -short.
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
	c, err := cluster.Start(ctx, cluster.Options{Log: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared = c
	code := 1
	if _, err := c.Kubectl(ctx, "apply", "--server-side", "-k", "../../config/default"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else if _, err := c.Kubectl(ctx, "wait", "--for=condition=Established", "crd/cleaners.cleaner.vtex.dev"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	if err := c.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
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
