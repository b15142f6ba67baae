// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cookbook plays recipes of config/samples/cookbook with the built operator, on a real control plane and over the
// CRDs of others: first as they are, in DryRun, then in Enforce. It never touches a cluster that it has not started.
package cookbook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/operator"
)

// env is a control plane on which the operator is installed, and does not run yet.
type env struct {
	*cluster.Cluster
	client.Client
	audit  *cluster.Witness
	binary string
	// recipes is the folder of the cookbook.
	recipes string
}

var shared *env

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Suite{Live: true, Ready: func(ctx context.Context, c *cluster.Cluster) (err error) {
		shared, err = install(ctx, c)
		return err
	}}.Main(m)
}

// install makes the control plane ready: the operator's rights, those of the recipes, and the kinds of others.
func install(ctx context.Context, c *cluster.Cluster) (*env, error) {
	root, err := operator.Root()
	if err != nil {
		return nil, err
	}
	e := &env{Cluster: c, recipes: filepath.Join(root, "config", "samples", "cookbook")}
	if e.audit, err = c.Witness(); err != nil {
		return nil, err
	}
	if err := operator.Install(ctx, c); err != nil {
		return nil, err
	}
	for _, find := range []func(context.Context) ([]string, error){cluster.KnativeServingCRDs, cluster.TektonCRDs} {
		files, err := find(ctx)
		if err != nil {
			return nil, err
		}
		if err := cluster.InstallCRDs(ctx, c.Config(), files...); err != nil {
			return nil, err
		}
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	if e.Client, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if err := e.grant(ctx); err != nil {
		return nil, err
	}
	e.binary, err = operator.Build(ctx, c.Dir(), os.Stderr)
	return e, err
}

// grant gives the operator the rights that the recipes say they need, and returns when they are in force.
func (e *env) grant(ctx context.Context) error {
	roles, err := filepath.Glob(filepath.Join(e.recipes, "*", "role.yaml"))
	if err != nil {
		return err
	}
	args := []string{"apply", "--server-side"}
	for _, role := range roles {
		args = append(args, "-f", role)
	}
	if out, err := e.Kubectl(ctx, args...); err != nil {
		return fmt.Errorf("cannot grant what the recipes need: %w\n%s", err, out)
	}
	for _, kind := range []string{"leases.coordination.k8s.io", "namespaces", "pipelineruns.tekton.dev", "taskruns.tekton.dev"} {
		err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			_, err := e.Kubectl(ctx, "auth", "can-i", "delete", kind, "--all-namespaces", "--as="+operator.User)
			return err == nil, nil // it exits with 1 for no
		})
		if err != nil {
			return fmt.Errorf("cannot see the operator's right to delete %s: %w", kind, err)
		}
	}
	return nil
}

// recipe is the ClusterCleaner of the cookbook, as the API server has it; made by kubectl if there is none yet.
func (e *env) recipe(t *testing.T, name string) *v1alpha1.ClusterCleaner {
	t.Helper()
	c := &v1alpha1.ClusterCleaner{}
	err := e.Get(t.Context(), client.ObjectKey{Name: name}, c)
	if err == nil {
		return c
	}
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if out, err := e.Kubectl(t.Context(), "apply", "-f", filepath.Join(e.recipes, name, "cleaner.yaml")); err != nil {
		t.Fatalf("cannot apply recipe %s: %s\n%s", name, err, out)
	}
	if err := e.Get(t.Context(), client.ObjectKey{Name: name}, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// would are the objects that a recipe in DryRun says it would delete, sorted.
func would(c *v1alpha1.ClusterCleaner) []string {
	var out []string
	for _, a := range c.Status.LastActions {
		if strings.HasPrefix(a.Result, "would be deleted") {
			out = append(out, a.Object)
		}
	}
	slices.Sort(out)
	return out
}
