// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/operator"
)

// env is a control plane with the operator installed; nil with -short.
type env struct {
	*cluster.Cluster
	*objects
	audit  *cluster.Witness
	gate   *operator.Gate
	binary string
}

var shared *env

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Suite{Cluster: cluster.Options{APIServerFlags: operator.Routing()}, Ready: ready}.Main(m)
}

// ready installs the operator, and does not run it.
func ready(ctx context.Context, c *cluster.Cluster) error {
	binary, err := operator.Build(ctx, c.Dir(), os.Stderr)
	if err != nil {
		return err
	}
	e := &env{Cluster: c, binary: binary}
	if e.objects, err = newObjects(c.Config()); err != nil {
		return err
	}
	if e.audit, err = c.Witness(); err != nil {
		return err
	}
	if err := operator.InstallWithWebhook(ctx, c); err != nil {
		return err
	}
	if e.gate, err = operator.OpenGate(ctx, c); err != nil {
		return err
	}
	shared = e
	return nil
}

// newObjects reads and writes objects of all kinds by a configuration, as fast as the API server lets it.
func newObjects(config *rest.Config) (*objects, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &objects{client}, nil
}
