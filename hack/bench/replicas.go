// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/vtex/cleaner/test/operator"
)

const (
	// shards is how many shards replicas divide.
	shards = 16
	// districts is how many namespaces the Cleaners of replicas are in: some for each shard.
	districts = 64
)

// replicas measures one, two and four replicas of the operator with the same work, and how soon others own the shards of one that ends.
func replicas(ctx context.Context, r *rig, s sizes) (figures []figure, err error) {
	for _, n := range []int{1, 2, 4} {
		got, err := divide(ctx, r, n, s)
		if err != nil {
			return nil, fmt.Errorf("%d replicas: %w", n, err)
		}
		figures = append(figures, got...)
	}
	return figures, nil
}

// troop is all replicas of the operator.
type troop struct {
	*rig
	all []*operator.Process
}

// divide measures so many replicas. Those that it starts it ends.
func divide(ctx context.Context, r *rig, n int, s sizes) (figures []figure, err error) {
	t := &troop{r, []*operator.Process{r.proc}}
	defer func() {
		for _, p := range t.all[1:] {
			_ = p.Kill() // it may be gone
		}
	}()
	for i := range n - 1 {
		p, err := r.start(ctx, fmt.Sprintf("-%d-of-%d", i+2, n))
		if err != nil {
			return nil, err
		}
		t.all = append(t.all, p)
	}
	if _, err := t.untilShared(ctx); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d replicas, %d Cleaners in %d namespaces with %d objects each: ", n, districts*s.district, districts, s.each)
	if n == 1 {
		what = strings.Replace(what, "replicas", "replica", 1)
	}
	perSecond, err := t.cleanDistricts(ctx, s)
	if err != nil {
		return nil, err
	}
	resident := 0.0
	for _, p := range t.all {
		now, err := r.metricsOf(ctx, p)
		if err != nil {
			return nil, err
		}
		resident = max(resident, now["process_resident_memory_bytes"]/mebibyte)
	}
	figures = []figure{
		{What: what + "deletions per second", Value: fmt.Sprintf("%.0f", perSecond)},
		{What: what + "resident memory of each, at most", Value: fmt.Sprintf("%.0f MiB", resident)},
	}
	if n == 1 {
		return figures, nil
	}
	for _, end := range []struct {
		how string
		sig syscall.Signal
		aim string
	}{{"killed", syscall.SIGKILL, ""}, {"stopped", syscall.SIGTERM, "below 5s"}} {
		if len(t.all) == 1 {
			break
		}
		last := t.all[len(t.all)-1]
		if err := last.Signal(end.sig); err != nil {
			return nil, fmt.Errorf("cannot end a replica: %w", err)
		}
		t.all = t.all[:len(t.all)-1]
		took, err := t.untilOwned(ctx)
		if err != nil {
			return nil, err
		}
		figures = append(figures, figure{What: fmt.Sprintf("%d replicas: until others own the shards of one that is %s", len(t.all)+1, end.how), Value: took.Round(100 * time.Millisecond).String(), Aim: end.aim})
	}
	return figures, nil
}

// untilShared returns when replicas have the same number of shards each, and how long that took.
func (t *troop) untilShared(ctx context.Context) (time.Duration, error) {
	return t.untilShards(ctx, "the shards divided", func(most float64) bool { return most == float64(shards/len(t.all)) })
}

// untilOwned returns when replicas own all shards, and how long that took.
func (t *troop) untilOwned(ctx context.Context) (time.Duration, error) {
	return t.untilShards(ctx, "all shards owned", func(float64) bool { return true })
}

// untilShards returns when replicas own all shards, and the most that one of them owns is right.
func (t *troop) untilShards(ctx context.Context, what string, isRight func(most float64) bool) (time.Duration, error) {
	began := time.Now()
	err := until(ctx, what, func(ctx context.Context) (bool, error) {
		most, sum := 0.0, 0.0
		for _, p := range t.all {
			now, err := t.metricsOf(ctx, p)
			if err != nil {
				return false, nil //nolint:nilerr // it may not serve them yet
			}
			most, sum = max(most, now["cleaner_shards"]), sum+now["cleaner_shards"]
		}
		return sum == shards && isRight(most), nil
	})
	return time.Since(began), err
}

// cleanDistricts lets Cleaners of many namespaces delete at the same time, and returns the deletions per second of all.
func (t *troop) cleanDistricts(ctx context.Context, s sizes) (float64, error) {
	namespaces := make([]string, districts)
	for i := range namespaces {
		ns, err := t.stage(ctx, "district", s.district, s.each)
		if err != nil {
			return 0, err
		}
		namespaces[i] = ns
		err = each(s.district, makers, func(i int) error { return t.admin.Create(ctx, gated(ns, member(i), "gate", member(i))) })
		if err != nil {
			return 0, err
		}
	}
	for _, ns := range namespaces {
		if err := t.fixtures.waits(ctx, ns, s.district); err != nil {
			return 0, err
		}
	}
	if err := each(districts, makers, func(i int) error { return t.fixtures.open(ctx, namespaces[i], "gate") }); err != nil {
		return 0, err
	}
	var first, last time.Time
	deletes := 0
	for _, ns := range namespaces {
		if err := t.fixtures.gone(ctx, ns); err != nil {
			return 0, err
		}
		got, err := t.requests(ns, "configmaps")
		if err != nil {
			return 0, err
		}
		deletes += got.deletes
		if first.IsZero() || got.first.Before(first) {
			first = got.first
		}
		if got.last.After(last) {
			last = got.last
		}
	}
	if want := districts * s.district * s.each; deletes != want {
		return 0, fmt.Errorf("cannot measure: the audit log has %d deletions, want %d", deletes, want)
	}
	return float64(deletes) / last.Sub(first).Seconds(), nil
}
