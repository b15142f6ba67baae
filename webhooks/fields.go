// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/controllers/kindschemas"
)

const (
	// fieldCheckTime is how much of the time of an answer the check of fields may wait: for other checks, and for schemas. What it does not
	// reach in time is a warning, and the rights of the author are reviewed in any case.
	fieldCheckTime = 2 * time.Second
	// fieldChecks is how many specs are checked at a time: what a spec can make a check compute is bounded, but others wait for the processor.
	fieldChecks = 2
)

// fieldChecker checks the fields that expressions read.
type fieldChecker struct {
	schemas kindschemas.Source
	slots   chan struct{}
	// time is how long a check waits.
	time time.Duration
}

func newFieldChecker(schemas kindschemas.Source) *fieldChecker {
	return &fieldChecker{schemas: schemas, slots: make(chan struct{}, fieldChecks), time: fieldCheckTime}
}

// checkFields says which fields the expressions of a spec read that no object has, and what is only likely wrong.
func (f *fieldChecker) checkFields(ctx context.Context, work *v1alpha1.Work, programs *celenv.Programs) (errs field.ErrorList, likely []expr.Warning) {
	ctx, cancel := context.WithTimeout(ctx, f.time)
	defer cancel()
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
		return kindschemas.CheckFields(ctx, f.schemas, work, programs)
	case <-ctx.Done():
		return nil, []expr.Warning{expr.WarnUnchecked("too many others are checked at this moment: apply it again to have them checked")}
	}
}
