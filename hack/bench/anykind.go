// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// anyKind measures what the template ttl takes, whose target selects objects of all kinds by an annotation: no API server selects by annotations, so
// that the operator receives the metadata of every object, and keeps only the metadata of objects that have one.
func anyKind(ctx context.Context, r *rig, s sizes) (figures []figure, err error) {
	f, err := crowded(ctx, r)
	if err != nil {
		return nil, err
	}
	if f.crowd.pods < s.busy.pods {
		if err := f.grow(ctx, s.busy); err != nil {
			return nil, err
		}
	}
	cc := collector("ttl", nil)
	if err := r.admin.Create(ctx, cc); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.admin.Delete(ctx, cc)) }()
	took, err := r.restart(ctx, "the template ttl to be evaluated", func(now map[string]float64) bool { return sum(now, "cleaner_evaluations_total") > 0 })
	if err != nil {
		return nil, err
	}
	resident, err := r.rest(ctx)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("The template ttl over %s: ", f.crowd)
	figures = []figure{
		{What: what + "from the start of the operator until it is evaluated", Value: took.Round(100 * time.Millisecond).String()},
		{What: what + "resident memory of the operator", Value: fmt.Sprintf("%.0f MiB", resident)},
	}
	for _, rate := range s.rates {
		var written float64
		meanwhile, err := r.measureInterval(ctx, func() (err error) {
			written, err = f.change(ctx, rate, s.writes)
			return err
		})
		if err != nil {
			return nil, err
		}
		figures = append(figures, figure{What: fmt.Sprintf("%s%.0f changes of Pods without the annotation per second: CPU time of the operator per second", what, written), Value: fmt.Sprintf("%.0f ms", meanwhile.cpu())})
	}
	return figures, nil
}
