// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shards says which Cleaners this process owns. Cleaners are divided into 16 shards, by their namespaces, and ClusterCleaners by their
// names. Each shard has a Lease, which names the replica that owns it; each replica has a Lease, which it renews. A replica takes its share of the
// shards. Those of one that no longer renews are taken by the others.
//
// A version before this one elected one leader by a Lease. All replicas together hold that, so that no such leader and no replica act at the same
// time.
//
// The package reads and writes Leases, and nothing else. It never says that a Cleaner is owned when another process may own it: a tenure that has
// been interrupted is over, also if the same process takes the shard again.
package shards

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// Count is how many shards there are, and how many replicas can own any. It never changes: replicas of two versions must agree on it.
const Count = 16

const (
	// GateHolder is the holder of the Lease by which earlier versions elect a leader, while replicas own shards.
	GateHolder = "shards"
	// period is how often Leases are renewed and read, and requestLimit how long one request may take.
	period       = 2 * time.Second
	requestLimit = 4 * time.Second
	// readyPeriod is how often a process that cannot act yet looks again.
	readyPeriod = 100 * time.Millisecond
)

// FindShard returns the shard of a Cleaner, from 0 to 15.
func FindShard(key types.NamespacedName) int {
	of := key.Namespace
	if of == "" {
		of = "/" + key.Name // no namespace has this name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(of))
	return int(h.Sum32() % Count)
}

// Tenure is the ownership of one Cleaner from when this process took its shard. The zero value is none.
type Tenure struct {
	number int64
	lasts  func() bool
}

// NewTenure returns a tenure with a number above 0, which no other one of the process has.
func NewTenure(number int64, lasts func() bool) Tenure { return Tenure{number, lasts} }

// Exists reports that it is not the zero value.
func (t Tenure) Exists() bool { return t.number != 0 }

// IsSame reports that two are one tenure.
func (t Tenure) IsSame(as Tenure) bool { return t.number == as.number }

// Fresh reports that this process owns the Cleaner, for all that it can know, and has without interruption since the tenure began.
func (t Tenure) Fresh() bool { return t.Exists() && t.lasts() }

// Ownership says which Cleaners this process owns. Other processes own the rest.
type Ownership interface {
	// FindTenure returns since when this process has owned a Cleaner without interruption; the zero value if it does not.
	FindTenure(key types.NamespacedName) Tenure
	// NotifyChanges has a function called with the shards that begin or cease to be this process's.
	NotifyChanges(changed func(shards []int))
	// CountOwned is how many shards this process owns.
	CountOwned() int
}

// Alone owns all shards, for a process that has no other beside it.
type Alone struct{}

// FindTenure returns the tenure of a Cleaner, which does not end.
func (Alone) FindTenure(types.NamespacedName) Tenure {
	return NewTenure(1, func() bool { return true })
}

// NotifyChanges does nothing: nothing changes.
func (Alone) NotifyChanges(func(shards []int)) {}

// CountOwned is all.
func (Alone) CountOwned() int { return Count }

// Release does nothing: no other process waits.
func (Alone) Release(context.Context) error { return nil }

// Options are what a Shards needs. All are required.
type Options struct {
	Client coordinationclient.LeasesGetter
	// Namespace has the Leases. Name is the name of the Lease of the gate, with which theirs begin.
	Namespace, Name string
	// Identity differs from those of all other processes.
	Identity string
	// Ready reports whether this process can act. It takes no shards before.
	Ready func() bool
	Clock clock.WithTicker
	Log   logr.Logger
}

// Shards are those of one process. It is safe for concurrent use.
type Shards struct {
	opts   Options
	leases leaseClient
	stop   context.CancelFunc
	ctx    context.Context //nolint:containedctx // it ends with Release, later than the manager
	loops  sync.WaitGroup

	// begun has shards taken at once when this replica may.
	begun chan struct{}

	mu       sync.Mutex
	state    state
	renewing bool // as it was last
	changed  func(shards []int)
	last     [Count]int64 // the tenures that were told
	// own is the Lease of this replica as it was written last, and taken the name of the one it tried to take last. Only the loop that renews it uses
	// them, and Release when that has ended. Without own, it is read.
	own   *coordinationv1.Lease
	taken string
}

// New returns the shards of a process that owns none yet. Start takes them.
func New(o Options) *Shards {
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // renewals must last until all parts of the manager have ended
	return &Shards{opts: o, leases: leaseClient{o.Client.Leases(o.Namespace), o}, ctx: ctx, stop: stop, state: state{me: o.Identity}, changed: func([]int) {}, begun: make(chan struct{}, 1)}
}

// NeedLeaderElection is true, so that a manager starts it when its caches are synced. There is no other election.
func (s *Shards) NeedLeaderElection() bool { return true }

// Start takes shards and keeps them until Release, so that work can end after the manager was stopped. It returns when ctx is done.
func (s *Shards) Start(ctx context.Context) error {
	s.loops.Go(func() { s.repeat(s.renewLeases, nil) })
	s.loops.Go(func() { s.repeat(s.assignShards, s.begun) })
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.leaving = true
	return nil
}

// repeat calls a function every period until Release, and when it is called for.
func (s *Shards) repeat(do func(ctx context.Context) error, called <-chan struct{}) {
	ticker := s.opts.Clock.NewTicker(period)
	defer ticker.Stop()
	for failed := ""; s.ctx.Err() == nil; {
		if !s.opts.Ready() {
			select {
			case <-s.opts.Clock.After(readyPeriod):
			case <-s.ctx.Done():
			}
			continue
		}
		if err := do(s.ctx); err == nil {
			failed = ""
		} else if failed != err.Error() && s.ctx.Err() == nil { // once, not every period
			failed = err.Error()
			s.opts.Log.Info("Cannot renew what this replica owns", "why", failed)
		}
		select {
		case <-ticker.C():
		case <-called:
		case <-s.ctx.Done():
		}
	}
}

// NotifyChanges has a function called with the shards that this process begins or ceases to own. Call it before Start.
func (s *Shards) NotifyChanges(f func(shards []int)) { s.changed = f }

// FindTenure returns the tenure of a Cleaner; the zero value if this process does not own it.
func (s *Shards) FindTenure(key types.NamespacedName) Tenure {
	shard := FindShard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Clock.Now()
	s.state.endLapsed(now)
	number := s.state.held[shard].number
	if !s.state.holds(shard, number, now) {
		return Tenure{}
	}
	return NewTenure(number, func() bool { return s.holds(shard, number) })
}

func (s *Shards) holds(shard int, number int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Clock.Now()
	s.state.endLapsed(now)
	return s.state.holds(shard, number, now)
}

// CountOwned is how many shards this process owns.
func (s *Shards) CountOwned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.countHeld(s.opts.Clock.Now())
}

// Release gives all shards up, so that other processes take them at once and do not wait until they expire. Call it when nothing in this process
// can still write: from then on it owns nothing, also if the request fails.
func (s *Shards) Release(ctx context.Context) error {
	s.stop()
	s.mu.Lock()
	s.state.stopped = true
	s.state.giveUpAll()
	s.mu.Unlock()
	s.loops.Wait() // a renewal under way may still be written
	name := s.taken
	if name == "" {
		return nil
	}
	held, err := s.leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot read the Lease %s: %w", name, err)
	}
	if ptr.Deref(held.Spec.HolderIdentity, "") != s.opts.Identity {
		return nil
	}
	s.leases.setHolder(held, "")
	if _, err := s.leases.Update(ctx, held, metav1.UpdateOptions{}); err != nil { // shards whose owner has no Lease are free
		return fmt.Errorf("cannot release the Lease %s: %w", name, err)
	}
	return nil
}

// renewLeases renews the gate and the Lease of this replica.
func (s *Shards) renewLeases(ctx context.Context) error {
	var gate error
	var renewing sync.WaitGroup
	renewing.Go(func() { gate = s.renewGate(ctx) })
	own := s.renewReplica(ctx)
	renewing.Wait()
	if s.noteBeginning() {
		s.begun <- struct{}{}
	}
	s.tellChanges()
	if gate != nil {
		return gate
	}
	return own
}

// noteBeginning reports whether this replica may act from now on, and could not before.
func (s *Shards) noteBeginning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.renewing
	s.renewing = s.state.isRenewed(s.opts.Clock.Now())
	return s.renewing && !before && len(s.begun) == 0
}

// tellChanges calls back with the shards whose tenure has begun or ended.
func (s *Shards) tellChanges() {
	s.mu.Lock()
	var changed []int
	now := s.opts.Clock.Now()
	owned := 0
	for shard, t := range s.state.held {
		number := t.number
		if s.state.holds(shard, number, now) {
			owned++
		} else {
			number = 0
		}
		if s.last[shard] != number {
			s.last[shard] = number
			changed = append(changed, shard)
		}
	}
	s.mu.Unlock()
	if len(changed) == 0 {
		return
	}
	s.opts.Log.Info("The shards of this replica have changed", "changed", changed, "owned", owned, "of", Count)
	s.changed(changed)
}
