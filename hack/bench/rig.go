// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
)

const (
	// patience bounds every wait.
	patience = 10 * time.Minute
	// makers is how many objects are made at a time.
	makers = 16
)

// rig is a control plane with the operator running on it.
type rig struct {
	*cluster.Cluster
	admin    client.Client
	as       *rest.Config // the operator's ServiceAccount
	audit    *cluster.Witness
	binary   string
	proc     *operator.Process
	fixtures *fixtures
	field    *field // nil until a measurement needs many Pods
	// waiting is the status of a Cleaner that waited.
	waiting v1alpha1.CleanerStatus
}

// neededControllers are those that the operator and its ServiceAccount need. Others would hold all Pods too, and one would delete Pods whose owners
// nothing has made.
func neededControllers() []string {
	return []string{
		"namespace-controller", "serviceaccount-controller", "serviceaccount-token-controller", "root-ca-certificate-publisher-controller", "clusterrole-aggregation-controller",
	}
}

func newRig(ctx context.Context) (*rig, error) {
	c, err := cluster.Start(ctx, cluster.Options{Log: os.Stderr, Controllers: neededControllers()})
	if err != nil {
		return nil, err
	}
	r := &rig{Cluster: c}
	if err := r.set(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return r, nil
}

func (r *rig) set(ctx context.Context) error {
	var err error
	if r.binary, err = operator.Build(ctx, r.Dir(), os.Stderr); err != nil {
		return err
	}
	if err := operator.Install(ctx, r.Cluster); err != nil {
		return err
	}
	if err := operator.InstallTemplates(ctx, r.Cluster); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), admissionregistrationv1.AddToScheme(scheme)); err != nil {
		return err
	}
	config := r.Config()
	config.QPS = -1
	if r.admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	r.fixtures = &fixtures{r.Cluster, r.admin}
	if r.as, err = r.ServiceAccountConfig(ctx, operator.Namespace, operator.ServiceAccount); err != nil {
		return err
	}
	if err := r.mayReadMetrics(ctx); err != nil {
		return err
	}
	r.as.QPS = -1 // as the operator's own clients: the API server has its own limits
	if r.audit, err = r.Witness(); err != nil {
		return err
	}
	r.proc, err = r.start(ctx, "")
	return err
}

// start runs the operator as its Deployment declares it, with further flags if need be. Several have names.
func (r *rig) start(ctx context.Context, name string, flags ...string) (*operator.Process, error) {
	container, err := operator.Declared(ctx, r.Cluster, operator.Deployment)
	if err != nil {
		return nil, err
	}
	o := operator.As(container)
	o.Binary, o.Name = r.binary, name
	o.Args = append(o.Args, flags...)
	return operator.Run(ctx, r.Cluster, o)
}

// mayReadMetrics lets the operator's ServiceAccount read its metrics.
func (r *rig) mayReadMetrics(ctx context.Context) error {
	out, err := r.Kubectl(ctx, "create", "clusterrolebinding", "bench-metrics", "--clusterrole=cleaner-metrics-reader",
		"--serviceaccount="+operator.Namespace+":"+operator.ServiceAccount)
	if err != nil {
		return fmt.Errorf("cannot grant the metrics: %w\n%s", err, out)
	}
	return nil
}

// each does something n times, some at a time, and returns the first error.
func each(n, atATime int, do func(i int) error) error {
	next, failed := make(chan int), make(chan error, atATime)
	for range atATime {
		go func() {
			var first error
			for i := range next {
				if first == nil {
					first = do(i)
				}
			}
			failed <- first
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	var errs []error
	for range atATime {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}

// until asks once a second: each question costs the API server something too, and the figures are read from the audit log.
func until(ctx context.Context, what string, check func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, check); err != nil {
		return fmt.Errorf("cannot see %s: %w", what, err)
	}
	return nil
}

// requests are those of the operator's ServiceAccount in a namespace, by verb and resource, and when the first and the
// last DELETE of an object of one kind came.
type requests struct {
	count       map[string]int
	first, last time.Time
	deletes     int
}

func (r *rig) requests(namespace, resource string) (requests, error) {
	events, err := r.audit.Events()
	if err != nil {
		return requests{}, err
	}
	out := requests{count: map[string]int{}}
	for _, e := range events {
		if !e.By(operator.User) || e.ObjectRef == nil || e.ObjectRef.Namespace != namespace || e.Verb == "watch" {
			continue
		}
		out.count[nameRequest(e)]++
		if e.Verb == "delete" && e.ObjectRef.Resource == resource {
			at := e.RequestReceivedTimestamp.Time
			if out.first.IsZero() || at.Before(out.first) {
				out.first = at
			}
			if at.After(out.last) {
				out.last = at
			}
			out.deletes++
		}
	}
	return out, nil
}

// nameRequest names a request about objects by verb and resource, such as patch cleaners/status.
func nameRequest(e cluster.Event) string {
	what := e.Verb + " " + e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		what += "/" + e.ObjectRef.Subresource
	}
	return what
}
