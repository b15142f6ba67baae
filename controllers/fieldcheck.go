// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/fieldchecks"
)

// newFieldChecker returns what checks the fields that the expressions of Cleaners read.
func (r *CleanerReconciler) newFieldChecker(schemas fieldchecks.Documents) *fieldchecks.Checker {
	return fieldchecks.NewChecker(fieldchecks.Options{
		Schemas: schemas, ReadSubject: r.readSubject, MistakesChanged: r.wake.Wake, Clock: r.opts.Clock,
		FindResource: func(ctx context.Context, gvk schema.GroupVersionKind) schema.GroupResource {
			found, _, _ := r.resolver.Resolve(ctx, gvk.Group, gvk.Version, gvk.Kind)
			return found.GVR.GroupResource()
		},
	})
}

// readSubject reads what a Cleaner does, with its expressions compiled; nil if it is gone.
func (r *CleanerReconciler) readSubject(ctx context.Context, key types.NamespacedName) (*fieldchecks.Subject, error) {
	c, err := r.knownCleaner(ctx, key)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a, err := r.assignments().ReadAssignment(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &fieldchecks.Subject{UID: c.GetUID(), Version: a.Version, Work: a.Work}
	if said := apimeta.FindStatusCondition(c.State().Conditions, v1alpha1.ConditionSchemaMismatch); said != nil {
		s.Reported = said.Message
	}
	if a.Missing != "" || len(a.Wrong) > 0 {
		return s, nil
	}
	programs, errs := r.compiler.Get(ctx, c.GetNamespace(), c.GetUID(), a.Version, a.Work)
	switch {
	case len(errs) > 0:
	case programs == nil:
		return nil, fmt.Errorf("cannot compile the expressions: %w", context.Cause(ctx))
	default:
		s.Programs = programs
	}
	return s, nil
}

// reportMistakes drafts what is known to be wrong with the fields that expressions read. What was said before stays until that is known of the
// spec as it is now.
func reportMistakes(p *pass) {
	if p.store.Draft.GetDeletionTimestamp() != nil {
		return
	}
	if mistakes, known := p.r.fields.FindMistakes(p.store.Key, p.store.Draft.GetUID(), p.assignment.Version); known {
		p.newReport().SetMistakes(mistakes)
	}
}
