// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// orphanEnv makes the test binary start a cluster, print its process ids and wait to be killed.
const orphanEnv = "CLEANER_TEST_ORPHAN"

// shared is the cluster that the tests of this package use together; nil with -short.
var shared *Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	c, err := Start(context.Background(), Options{Log: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv(orphanEnv) != "" {
		fmt.Println(c.Dir(), c.components.running[0].cmd.Process.Pid, c.components.running[1].cmd.Process.Pid, c.components.running[2].cmd.Process.Pid)
		select {}
	}
	shared = c
	code := m.Run()
	if code != 0 {
		c.Keep()
		fmt.Fprintln(os.Stderr, "the logs of the control plane are in", c.Dir())
	}
	if err := c.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// needCluster returns the shared cluster, and a client that may do everything.
func needCluster(t *testing.T) (*Cluster, kubernetes.Interface) {
	t.Helper()
	if shared == nil {
		t.Skip("needs a control plane: not with -short")
	}
	return shared, clientFor(t, shared.Config())
}

func clientFor(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func newNamespace(t *testing.T, c *Cluster) string {
	t.Helper()
	ns, err := c.Namespace(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	return ns
}
