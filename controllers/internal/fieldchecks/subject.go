// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fieldchecks

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/speccache"
	"github.com/vtex/cleaner/controllers/internal/resolvedspec"
)

// SubjectReader reads what Cleaners do, as the passes evaluate it.
type SubjectReader struct {
	// FindCleaner returns a Cleaner as the watch knows it.
	FindCleaner    func(ctx context.Context, key types.NamespacedName) (v1alpha1.Owner, error)
	ReadAssignment func(ctx context.Context, c v1alpha1.Owner) (resolvedspec.Assignment, error)
	Compiler       *speccache.Cache
}

// ReadSubject reads what a Cleaner does, with its expressions compiled; nil if it is gone.
func (r SubjectReader) ReadSubject(ctx context.Context, key types.NamespacedName) (*Subject, error) {
	c, err := r.FindCleaner(ctx, key)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a, err := r.ReadAssignment(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &Subject{UID: c.GetUID(), Version: a.Version, Work: a.Work}
	if said := apimeta.FindStatusCondition(c.State().Conditions, v1alpha1.ConditionSchemaMismatch); said != nil {
		s.Reported = said.Message
	}
	if a.Missing != "" || len(a.Wrong) > 0 {
		return s, nil
	}
	programs, errs := r.Compiler.Get(ctx, c.GetNamespace(), c.GetUID(), a.Version, a.Work)
	switch {
	case len(errs) > 0:
	case programs == nil:
		return nil, fmt.Errorf("cannot compile the expressions: %w", context.Cause(ctx))
	default:
		s.Programs = programs
	}
	return s, nil
}
