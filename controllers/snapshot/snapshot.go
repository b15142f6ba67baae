// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snapshot looks at the targets of a spec, and hands what it finds to package plan.
//
// It turns each target into a Query and asks a Reader: the watches' stores, the live API, or files. What a Reader could
// not read stays in the snapshot as a state of its own; nothing is guessed, and nothing is left out.
//
// It never writes, and it never decides.
package snapshot

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
)

// readsAtATime bounds the live reads of one Cleaner.
const readsAtATime = 8

// Query asks for the objects that a reference stands for.
type Query struct {
	// Group, Version and Kind are as the user wrote them: Kind may be the kind, or the resource's singular or plural
	// name, in any case.
	Group, Version, Kind string
	// Namespace limits a namespaced kind. It is ignored for a cluster-scoped one.
	Namespace string
	// Name asks for one object. Empty: for all that match.
	Name string
	// Labels and Fields must match. Never nil.
	Labels labels.Selector
	Fields fields.Selector
	// MetadataOnly says that nobody reads more than the objects' metadata.
	MetadataOnly bool
}

// Reader answers queries. It never returns an error: what went wrong is the state of the target.
type Reader interface {
	Read(ctx context.Context, q Query) plan.Target
}

// Take reads every target of a spec.
func Take(ctx context.Context, r Reader, namespace string, spec *v1alpha1.Work) plan.Snapshot {
	s := make(plan.Snapshot, len(spec.Targets))
	for i := range spec.Targets {
		s[i] = take(ctx, r, namespace, &spec.Targets[i])
	}
	return s
}

// QueryOf is what a target of a Cleaner in a namespace asks for. It errs on selectors that are none.
func QueryOf(namespace string, t *v1alpha1.ClusterTarget) (Query, error) {
	q := Query{
		Group: t.Reference.APIGroup, Version: t.Reference.Version, Kind: t.Reference.Kind,
		Namespace: namespace, Name: t.Reference.Name,
		Labels: labels.Everything(), Fields: fields.Everything(),
		MetadataOnly: !t.Included(),
	}
	var err error
	if t.Reference.MatchLabels != nil || t.Reference.MatchExpressions != nil {
		q.Labels, err = metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: t.Reference.MatchLabels, MatchExpressions: t.Reference.MatchExpressions})
		if err != nil {
			return Query{}, fmt.Errorf("cannot read the label selector of target %q: %w", t.Name, err)
		}
	}
	if t.Reference.FieldSelector != "" {
		q.Fields, err = fields.ParseSelector(t.Reference.FieldSelector)
		if err != nil {
			return Query{}, fmt.Errorf("cannot read the field selector of target %q: %w", t.Name, err)
		}
	}
	return q, nil
}

// TakeLive reads the targets of a spec that a confirmation needs: those that expressions see and those that are deleted.
// The others stay Unknown. Some are read at a time: a confirmation is as old as its first read.
func TakeLive(ctx context.Context, r Reader, namespace string, spec *v1alpha1.Work) plan.Snapshot {
	s := make(plan.Snapshot, len(spec.Targets))
	var reads errgroup.Group
	reads.SetLimit(readsAtATime)
	for i := range spec.Targets {
		if t := &spec.Targets[i]; t.Included() || t.Delete {
			reads.Go(func() error {
				s[i] = take(ctx, r, namespace, t)
				return nil
			})
		}
	}
	_ = reads.Wait() // what went wrong is in the snapshot
	return s
}

func take(ctx context.Context, r Reader, namespace string, t *v1alpha1.ClusterTarget) plan.Target {
	q, err := QueryOf(namespace, t)
	if err != nil {
		return plan.Target{State: plan.Failed, Detail: err.Error()}
	}
	return r.Read(ctx, q)
}

// Where names a part of a resource, for people: one object, a namespace, or all of it.
func Where(resource schema.GroupResource, namespaced bool, namespace, name string) string {
	s := resource.String()
	if name != "" {
		s += fmt.Sprintf(" %q", name)
	}
	switch {
	case !namespaced:
		return s + " (cluster-scoped)"
	case namespace == "":
		return s + " in all namespaces"
	default:
		return s + fmt.Sprintf(" in namespace %q", namespace)
	}
}
