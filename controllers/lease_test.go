// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
)

// lock is a lock whose writes take their time, and may fail.
type lock struct {
	resourcelock.Interface
	clock *clocktesting.FakeClock
	took  time.Duration
	err   error
}

func (l *lock) Identity() string { return "me" }

func (l *lock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	l.clock.Step(l.took)
	return l.err
}

func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func TestLeaseIsFreshForTenSecondsAfterARenewalWasSent(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	inner := &lock{clock: c}
	l := NewLease(inner, c)
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	if l.Fresh() {
		t.Error("a lease that was never taken is fresh")
	}
	if err := l.Create(t.Context(), mine); err != nil || !l.Fresh() {
		t.Errorf("a lease that was just taken is not fresh (%v)", err)
	}
	c.Step(10 * time.Second)
	if l.Fresh() {
		t.Error("a lease is fresh 10 s after its renewal")
	}
	inner.took = 4 * time.Second
	if err := l.Update(t.Context(), mine); err != nil || !l.Fresh() {
		t.Errorf("a renewed lease is not fresh (%v)", err)
	}
	c.Step(6 * time.Second)
	if l.Fresh() {
		t.Error("the time of the answer counts, not that of the request")
	}
	inner.took, inner.err = 0, errors.New("conflict")
	if err := l.Update(t.Context(), mine); err == nil || l.Fresh() {
		t.Errorf("a renewal that failed makes the lease fresh (%v)", err)
	}
	inner.err = nil
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: ""}); err != nil || l.Fresh() {
		t.Errorf("giving the lease away makes it fresh (%v)", err)
	}
}
