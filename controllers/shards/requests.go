// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// renewGate renews the Lease of earlier versions, or takes it when none of them holds it. Where another replica is faster, the gate is read again:
// that one has renewed it for all.
func (s *Shards) renewGate(ctx context.Context) error {
	err := s.tryGate(ctx)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		err = s.tryGate(ctx)
	}
	return err
}

func (s *Shards) tryGate(ctx context.Context) error {
	read := s.opts.Clock.Now()
	gate, err := s.leases.getLease(ctx, s.opts.Name)
	switch {
	case apierrors.IsNotFound(err):
		gate = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.opts.Name, Namespace: s.opts.Namespace}}
	case err != nil:
		return fmt.Errorf("cannot read the Lease %s: %w", s.opts.Name, err)
	}
	s.mu.Lock()
	writes, free := s.state.noteGate(renewedLease(gate), time.Duration(ptr.Deref(gate.Spec.LeaseDurationSeconds, 0))*time.Second, read, s.opts.Clock.Now())
	s.mu.Unlock()
	if !free {
		return fmt.Errorf("%s leads: it holds the Lease %s, by which earlier versions elect a leader", *gate.Spec.HolderIdentity, s.opts.Name)
	}
	if !writes {
		return nil
	}
	s.leases.setHolder(gate, GateHolder)
	return s.renewLease(ctx, gate, func(l *coordinationv1.Lease, sent, answered time.Time) {
		s.state.noteGateWritten(renewedLease(l).version, sent, answered)
	})
}

// renewedLease is a Lease whose version is its last renewal: a change of its metadata is none.
func renewedLease(l *coordinationv1.Lease) lease {
	out := lease{holder: ptr.Deref(l.Spec.HolderIdentity, "")}
	if l.Spec.RenewTime != nil {
		out.version = l.Spec.RenewTime.String()
	}
	return out
}

// renewLease writes a Lease, and notes when that was sent and answered.
func (s *Shards) renewLease(ctx context.Context, l *coordinationv1.Lease, note func(l *coordinationv1.Lease, sent, answered time.Time)) error {
	sent := s.opts.Clock.Now()
	l, err := s.leases.writeLease(ctx, l)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	note(l, sent, s.opts.Clock.Now())
	return nil
}

// renewReplica renews the Lease of this replica, or takes one that is free.
func (s *Shards) renewReplica(ctx context.Context) error {
	s.mu.Lock()
	lists := s.state.canList(s.opts.Clock.Now())
	s.mu.Unlock()
	if !lists { // it owns nothing then, and others take its shards when its Lease expires
		return errors.New("cannot list Leases")
	}
	own := s.own
	if own == nil {
		l, err := s.leases.listLeases(ctx)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.state.noteListing(&l.listing)
		place, ok := s.state.findPlace(&l.listing)
		s.mu.Unlock()
		if !ok {
			return fmt.Errorf("%d other replicas run, and there are no more than %d shards", Count, Count)
		}
		own = l.find(s.leases.nameReplica(place))
		s.taken = own.Name
	}
	s.own = nil // unless it is written, it is read again
	s.leases.setHolder(own, s.opts.Identity)
	return s.renewLease(ctx, own, func(l *coordinationv1.Lease, sent, answered time.Time) {
		s.own = l
		s.state.noteRenewal(ofReplica, sent, answered)
	})
}

// assignShards takes and gives away shards.
func (s *Shards) assignShards(ctx context.Context) error {
	l, err := s.leases.listLeases(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.state.noteRenewal(ofListing, l.sent, s.opts.Clock.Now())
	writes := s.state.decideWrites(&l.listing, s.opts.Clock.Now())
	s.mu.Unlock()
	s.tellChanges() // what was lost, before anything is taken
	var writing sync.WaitGroup
	failed := make([]error, len(writes))
	for i, w := range writes {
		writing.Go(func() { failed[i] = s.carryOut(ctx, w, l.find(s.leases.nameShard(w.shard))) })
	}
	writing.Wait()
	s.tellChanges()
	return errors.Join(failed...)
}

// carryOut writes who holds a shard. That another replica was faster is no error.
func (s *Shards) carryOut(ctx context.Context, w write, l *coordinationv1.Lease) error {
	holder := ""
	if w.takes {
		holder = s.opts.Identity
	}
	s.leases.setHolder(l, holder)
	written, err := s.leases.writeLease(ctx, l)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.noteWritten(w, written.ResourceVersion, s.opts.Clock.Now())
	return nil
}
