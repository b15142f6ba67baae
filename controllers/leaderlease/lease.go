// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leaderlease says whether this process leads, for all that it can know. It does not elect: client-go does.
package leaderlease

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/plan/monotime"
)

// leaseServes is how long after a renewal this process may still act as the leader. It is below the 15 s after which
// another one may take over.
const leaseServes = 10 * time.Second

// Lease watches how fresh the leadership of this process is. Leader election alone is no fence: a process that was paused continues where
// it was, while another one leads.
type Lease struct {
	resourcelock.Interface
	clock    clock.PassiveClock
	renewed  atomic.Pointer[time.Time]
	released atomic.Bool
}

// NewLease wraps the lock of a leader election. Use it in place of the lock.
func NewLease(lock resourcelock.Interface, c clock.PassiveClock) *Lease {
	return &Lease{Interface: lock, clock: c}
}

// Create and Update renew the lease. What counts is the moment before the request was sent.
func (l *Lease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.renew(r, func() error { return l.Interface.Create(ctx, r) })
}

// Update renews the lease.
func (l *Lease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.renew(r, func() error { return l.Interface.Update(ctx, r) })
}

func (l *Lease) renew(r resourcelock.LeaderElectionRecord, send func() error) error {
	sent := l.clock.Now()
	err := send()
	if err == nil && r.HolderIdentity == l.Identity() {
		l.renewed.Store(&sent)
	}
	return err
}

// Release gives the Lease up, so that another process leads at once and does not wait until it expires. Call it when the election has ended and
// nothing in this process can still write: from then on this process is not the leader, also if the request fails. A Lease that this
// process does not hold stays as it is.
func (l *Lease) Release(ctx context.Context) error {
	l.released.Store(true)
	if l.renewed.Load() == nil {
		return nil
	}
	held, _, err := l.Get(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the Lease %s: %w", l.Describe(), err)
	}
	if held.HolderIdentity != l.Identity() {
		return nil
	}
	now := metav1.NewTime(l.clock.Now())
	free := resourcelock.LeaderElectionRecord{LeaderTransitions: held.LeaderTransitions, LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now}
	if err := l.Interface.Update(ctx, free); err != nil {
		return fmt.Errorf("cannot release the Lease %s: %w", l.Describe(), err)
	}
	return nil
}

// Fresh says that this process is the leader, for all that it can know.
func (l *Lease) Fresh() bool {
	at := l.renewed.Load()
	return at != nil && !l.released.Load() && monotime.ElapsedTime(*at, l.clock.Now()) < leaseServes
}
