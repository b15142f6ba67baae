// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/fieldchecks"
	"github.com/vtex/cleaner/controllers/internal/resolvedspec"
	"github.com/vtex/cleaner/controllers/internal/statusreport"
)

// newFieldChecker returns what checks the fields that the expressions of Cleaners read.
func (r *CleanerReconciler) newFieldChecker(schemas fieldchecks.Documents) *fieldchecks.Checker {
	subjects := fieldchecks.SubjectReader{
		FindCleaner: r.knownCleaner, Compiler: r.compiler,
		ReadAssignment: func(ctx context.Context, c v1alpha1.Owner) (resolvedspec.Assignment, error) {
			return r.assignments().ReadAssignment(ctx, c)
		},
	}
	return fieldchecks.NewChecker(fieldchecks.Options{
		Schemas: schemas, ReadSubject: subjects.ReadSubject, MistakesChanged: r.wake.Wake, Clock: r.opts.Clock,
		FindResource: func(ctx context.Context, gvk schema.GroupVersionKind) schema.GroupResource {
			found, _, _ := r.resolver.Resolve(ctx, gvk.Group, gvk.Version, gvk.Kind)
			return found.GVR.GroupResource()
		},
	})
}

// reportMistakes drafts what is known to be wrong with the fields that expressions read. What was said before stays until that is known of the
// spec as it is now.
func reportMistakes(p *pass) {
	if p.store.Draft.GetDeletionTimestamp() != nil {
		return
	}
	if mistakes, known := p.r.fields.FindMistakes(p.store.Key, p.store.Draft.GetUID(), p.assignment.Version); known {
		statusreport.SetMistakes(p.newReport(), mistakes)
	}
}
