// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package remembered

import (
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/cachetrim"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/plan"
)

// TrimPlan is as much of a decision as is said of it later: no steps, and not all that waits.
func TrimPlan(d plan.Plan) plan.Plan {
	d.Steps, d.Confirm, d.Holds, d.Idle, d.Shadowed, d.Counts, d.Data = nil, nil, nil, nil, nil, nil, ""
	d.Message, d.DeferDetail = shortenText(d.Message), shortenText(d.DeferDetail)
	pending := make([]plan.Pending, min(len(d.Pending), cachetrim.MaxListed))
	for i := range pending {
		pending[i] = d.Pending[i]
		pending[i].Key = shortenText(pending[i].Key)
	}
	errs := make([]v1alpha1.ItemError, min(len(d.Errors), cachetrim.MaxListed))
	for i := range errs {
		errs[i] = d.Errors[i]
		errs[i].Key, errs[i].Message = shortenText(errs[i].Key), shortenText(errs[i].Message)
	}
	withheld := make([]plan.Withheld, min(len(d.Withheld), cachetrim.MaxListed))
	for i := range withheld {
		withheld[i] = plan.Withheld{Object: d.Withheld[i].Object, Because: shortenText(d.Withheld[i].Because)}
	}
	d.Deferred = append([]plan.ItemKey(nil), d.Deferred[:min(len(d.Deferred), 1)]...)
	d.Pending, d.Errors, d.Withheld = nilIfEmpty(pending), nilIfEmpty(errs), nilIfEmpty(withheld)
	return d
}

func nilIfEmpty[T any](all []T) []T {
	if len(all) == 0 {
		return nil
	}
	return all
}

// shortenText is as much of a text as is shown; the rest is not kept in memory.
func shortenText(text string) string {
	return sanitize.CutToBytes(text, 4*sanitize.MaxText)
}
