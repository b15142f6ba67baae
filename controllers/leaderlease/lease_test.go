// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderlease

import (
	"context"
	"errors"
	"testing"
	"time"
	"unsafe"

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

// TestALeaseIsNotFreshAfterASleep shows that a machine that was suspended does not take itself for the leader when it wakes:
// another process may lead since, and what time.Time subtracts did not go on.
func TestALeaseIsNotFreshAfterASleep(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Now())
	l := NewLease(&lock{clock: c}, c)
	if err := l.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
		t.Fatal(err)
	}
	c.Step(time.Second)
	if !l.Fresh() {
		t.Error("a lease that was taken a second ago is not fresh")
	}
	now := c.Now()
	*(*uint64)(unsafe.Pointer(&now)) += uint64(time.Hour/time.Second) << 30 //nolint:gosec // it moves the time of day alone, which no function does
	c.SetTime(now)
	if l.Fresh() {
		t.Error("a lease that was renewed an hour ago is fresh")
	}
}

// shared is a lock that others may hold.
type shared struct {
	resourcelock.Interface
	record  resourcelock.LeaderElectionRecord
	err     error
	written []resourcelock.LeaderElectionRecord
}

func (s *shared) Identity() string { return "me" }
func (s *shared) Describe() string { return "operators/cleaner" }

func (s *shared) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &s.record, nil, s.err
}

func (s *shared) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	s.written = append(s.written, r)
	return s.err
}

func TestRelease(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for name, tc := range map[string]struct {
		holder   string
		led      bool
		err      error
		releases bool
	}{
		"Leader":  {"me", true, nil, true},
		"Standby": {"other", false, nil, false},
		"Lost":    {"other", true, nil, false},
		"Failed":  {"me", true, errors.New("the API server is gone"), false},
	} {
		inner := &shared{record: resourcelock.LeaderElectionRecord{HolderIdentity: tc.holder, LeaderTransitions: 7}}
		l := NewLease(inner, c)
		if tc.led {
			if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
				t.Fatal(err)
			}
		}
		inner.written, inner.err = nil, tc.err
		if err := l.Release(t.Context()); !errors.Is(err, tc.err) {
			t.Errorf("%s: %v", name, err)
		}
		switch {
		case tc.releases && (len(inner.written) != 1 || inner.written[0].HolderIdentity != "" || inner.written[0].LeaderTransitions != 7 || inner.written[0].LeaseDurationSeconds != 1):
			t.Errorf("%s: it writes %+v", name, inner.written)
		case !tc.releases && len(inner.written) > 0:
			t.Errorf("%s: it changes the Lease to %+v", name, inner.written)
		}
		inner.err = nil
		if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil || l.Fresh() {
			t.Errorf("%s: it is the leader after it has released the Lease (%v)", name, err)
		}
	}
}
