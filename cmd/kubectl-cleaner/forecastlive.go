// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/cluster"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/forecast"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/planning"
)

// predictCluster predicts the named Cleaner of the cluster, or all that are meant. One that cannot be predicted keeps none of the others
// from it.
func (f *forecastCommand) predictCluster(ctx context.Context, d *forecast.Document, times planning.Times, args []string) error {
	cleaners, err := f.listCleaners(ctx, args)
	if err != nil {
		return err
	}
	loader, err := f.loadClusterTemplates(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for _, u := range cleaners {
		if err := f.predictLive(ctx, loader, d, u, times); err != nil {
			problems = append(problems, fmt.Errorf("cannot predict %s: %w", nameOwnerOf(u), err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if len(d.Cleaners) == 0 {
		return errors.Join(problems...)
	}
	for _, p := range problems {
		f.terminal.printWarning(p)
	}
	return nil
}

// nameOwnerOf names a Cleaner for messages.
func nameOwnerOf(u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return u.GetKind() + " " + u.GetName()
	}
	return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
}

// listCleaners returns the Cleaner of the argument, all of the namespace, or all of the cluster.
func (f *forecastCommand) listCleaners(ctx context.Context, args []string) ([]*unstructured.Unstructured, error) {
	if len(args) == 1 {
		named, err := f.cluster.findCleaner(args[0])
		if err != nil {
			return nil, err
		}
		u, err := named.get(ctx)
		return []*unstructured.Unstructured{u}, err
	}
	from, err := f.cluster.newClusterClient()
	if err != nil {
		return nil, err
	}
	cleaners := from.Dynamic.Resource(v1alpha1.GroupVersion.WithResource("cleaners"))
	if !f.allNamespaces {
		namespace, err := f.cluster.readNamespace()
		if err != nil {
			return nil, fmt.Errorf("cannot find the namespace: %w; set it with -n", err)
		}
		return cluster.ListAll(ctx, cleaners.Namespace(namespace), "cleaners")
	}
	all, err := cluster.ListAll(ctx, from.Dynamic.Resource(v1alpha1.GroupVersion.WithResource("clustercleaners")), "clustercleaners")
	if err != nil {
		return nil, err
	}
	more, err := cluster.ListAll(ctx, cleaners, "cleaners")
	return append(all, more...), err
}

// loadClusterTemplates returns a loader with the templates of the cluster, instead of those that are shipped, and with those of the flags.
func (p *planCommand) loadClusterTemplates(ctx context.Context) (*manifests.Loader, error) {
	from, err := p.cluster.newClusterClient()
	if err != nil {
		return nil, err
	}
	templates, err := cluster.ListAll(ctx, from.Dynamic.Resource(v1alpha1.GroupVersion.WithResource("cleanertemplates")), "cleanertemplates")
	if err != nil {
		return nil, err
	}
	documents, err := p.terminal.in.ReadPaths(p.flags.templates)
	if err != nil {
		return nil, err
	}
	for _, t := range templates {
		read, err := documentOf(t)
		if err != nil {
			return nil, err
		}
		documents = append(documents, read)
	}
	l, err := manifests.NewLoader()
	if err != nil {
		return nil, err
	}
	l.AllowedKinds, l.Stored = p.flags.allowedKinds, true
	if err := p.openCluster(l); err != nil {
		return nil, err
	}
	for _, found := range l.AddTemplates(ctx, documents) {
		p.terminal.printProblem(found)
	}
	return l, nil
}

// documentOf returns an object of the cluster as a document, without what only the cluster writes.
func documentOf(u *unstructured.Unstructured) (*manifests.Document, error) {
	own := u.DeepCopy()
	own.SetManagedFields(nil)
	return manifests.NewDocument(nameOwnerOf(u), own.Object)
}

// predictLive predicts a Cleaner of the cluster, from where its status says it is.
func (f *forecastCommand) predictLive(ctx context.Context, loader *manifests.Loader, d *forecast.Document, u *unstructured.Unstructured, times planning.Times) error {
	c, state, err := loadStored(ctx, loader, u)
	if err != nil {
		return err
	}
	in := forecast.Input{}
	if f.flags.since == "" {
		in.Waiting = state.Pending
	}
	if state.LastScheduleTime != nil {
		in.LastTick = state.LastScheduleTime.Time
	}
	return f.predictCleaner(ctx, d, c, times, in)
}

// loadStored reads a Cleaner of the cluster, and its status. What the operator says prevents it is a warning: the user's rights may suffice
// where the operator's do not.
func loadStored(ctx context.Context, loader *manifests.Loader, u *unstructured.Unstructured) (*manifests.Cleaner, *v1alpha1.CleanerStatus, error) {
	read, err := documentOf(u)
	if err != nil {
		return nil, nil, err
	}
	c := loader.LoadCleaner(ctx, read, nil)
	if c.IsInvalid() {
		return nil, nil, manifests.JoinErrors(c.Problems)
	}
	owner, err := manifests.DecodeOwner(u) // a document of a file has no status
	if err != nil {
		return nil, nil, err
	}
	state := owner.State()
	if ready := meta.FindStatusCondition(state.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status == metav1.ConditionFalse {
		c.AddWarning(read, "status", fmt.Sprintf("Ready is False, %s: %s As long as that is so, the operator may do less than is shown here.", ready.Reason, ready.Message))
	}
	return c, state, nil
}
