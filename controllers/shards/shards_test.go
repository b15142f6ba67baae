// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// server has the Leases of a namespace, and checks versions as an API server does.
type server struct {
	coordinationclient.LeaseInterface
	mu       sync.Mutex
	versions int
	leases   map[string]*coordinationv1.Lease
	// fails answers all requests.
	fails error
}

func (s *server) Leases(string) coordinationclient.LeaseInterface { return s }

func (s *server) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[name]; l != nil && s.fails == nil {
		return l.DeepCopy(), nil
	}
	if s.fails != nil {
		return nil, s.fails
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, name)
}

func (s *server) List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &coordinationv1.LeaseList{}
	for _, l := range s.leases {
		out.Items = append(out.Items, *l.DeepCopy())
	}
	return out, s.fails
}

func (s *server) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return s.put(l, "")
}

func (s *server) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return s.put(l, l.ResourceVersion)
}

func (s *server) put(l *coordinationv1.Lease, version string) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		return nil, s.fails
	}
	old := ""
	if known := s.leases[l.Name]; known != nil {
		old = known.ResourceVersion
	}
	if old != version {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, l.Name, errors.New("another version"))
	}
	s.versions++
	l = l.DeepCopy()
	l.ResourceVersion = strconv.Itoa(s.versions)
	s.leases[l.Name] = l
	return l.DeepCopy(), nil
}

func (s *server) setFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// holder returns the holder of a Lease.
func (s *server) holder(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[name] == nil {
		return "(absent)"
	}
	return ptr.Deref(s.leases[name].Spec.HolderIdentity, "")
}

// newShards starts the shards of a process.
func newShards(t *testing.T, s *server, identity string, changed func([]int)) *Shards {
	t.Helper()
	out := New(Options{Client: s, Namespace: "system", Name: "gate", Identity: identity, Ready: func() bool { return true }, Clock: clock.RealClock{}, Log: logr.Discard()})
	out.NotifyChanges(changed)
	go func() { _ = out.Start(t.Context()) }()
	return out
}

func ignore([]int) {}

// TestReplicasOwnShares has a second replica follow a first one, which then stops.
func TestReplicasOwnShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{leases: map[string]*coordinationv1.Lease{}}
		var mu sync.Mutex
		told := map[int]int{}
		a := newShards(t, s, "a", func(shards []int) {
			mu.Lock()
			defer mu.Unlock()
			for _, shard := range shards {
				told[shard]++
			}
		})
		time.Sleep(time.Second) // of the bubble: no time passes
		synctest.Wait()
		if got := a.CountOwned(); got != Count {
			t.Fatalf("the only replica owns %d shards", got)
		}
		b := newShards(t, s, "b", ignore)
		time.Sleep(settlesAfter - time.Second)
		synctest.Wait()
		if gotA, gotB := a.CountOwned(), b.CountOwned(); gotA != Count || gotB != 0 {
			t.Errorf("before the second one has settled they own %d and %d", gotA, gotB)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if gotA, gotB := a.CountOwned(), b.CountOwned(); gotA != Count/2 || gotB != Count/2 {
			t.Errorf("they own %d and %d", gotA, gotB)
		}
		for shard := range Count {
			key := types.NamespacedName{Namespace: namespaceIn(shard), Name: "c"}
			if a.FindTenure(key).Fresh() == b.FindTenure(key).Fresh() {
				t.Errorf("shard %d is owned by both or by none", shard)
			}
		}
		mu.Lock()
		for shard := range Count {
			if want := 1 + shard*2/Count; told[shard] != want { // those above are given away
				t.Errorf("changes of shard %d were told %d times, want %d", shard, told[shard], want)
			}
		}
		mu.Unlock()
		before := a.FindTenure(types.NamespacedName{Namespace: namespaceIn(0)})
		if err := a.Release(t.Context()); err != nil || before.Fresh() || a.CountOwned() != 0 {
			t.Errorf("after the release: %v, fresh: %t, owned: %d", err, before.Fresh(), a.CountOwned())
		}
		time.Sleep(2 * period)
		synctest.Wait()
		if got := b.CountOwned(); got != Count {
			t.Errorf("after the other one has stopped it owns %d", got)
		}
		if got := s.holder("gate"); got != GateHolder {
			t.Errorf("the gate is held by %q", got)
		}
		if err := b.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// namespaceIn returns a namespace of a shard.
func namespaceIn(shard int) string {
	for n := 0; ; n++ {
		if name := fmt.Sprint("n", n); FindShard(types.NamespacedName{Namespace: name}) == shard {
			return name
		}
	}
}

// The shards of a Cleaner never change: replicas of two versions must agree.
func TestFindShard(t *testing.T) {
	for key, want := range map[types.NamespacedName]int{
		{Namespace: "shop", Name: "c"}: 9, {Namespace: "shop", Name: "d"}: 9, {Namespace: "default", Name: "c"}: 14, {Name: "podgc-orphaned"}: 5, {Name: "shop"}: 2,
	} {
		if got := FindShard(key); got != want {
			t.Errorf("%v is in shard %d, want %d", key, got, want)
		}
	}
}

// TestTheGateOfEarlierVersions shows that nothing is owned while an earlier version leads, and that it lasts as long as its Lease says.
func TestTheGateOfEarlierVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{leases: map[string]*coordinationv1.Lease{}}
		gate := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "gate", Annotations: map[string]string{"note": "kept"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("earlier"), LeaseDurationSeconds: new(int32(30))},
		}
		gate, err := s.put(gate, "")
		if err != nil {
			t.Fatal(err)
		}
		a := newShards(t, s, "a", ignore)
		for range 20 {
			time.Sleep(2 * time.Second)
			synctest.Wait()
			gate.Spec.RenewTime = new(metav1.NowMicro())
			if gate, err = s.put(gate, gate.ResourceVersion); err != nil || a.CountOwned() != 0 {
				t.Fatalf("%d shards are owned while an earlier version leads (%v)", a.CountOwned(), err)
			}
		}
		time.Sleep(29 * time.Second)
		if got := a.CountOwned(); got != 0 {
			t.Errorf("%d shards are owned before its Lease has expired", got)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := a.CountOwned(); got != Count {
			t.Errorf("%d shards are owned when its Lease has expired", got)
		}
		if got := s.leases["gate"]; got.Annotations["note"] != "kept" || *got.Spec.LeaseDurationSeconds != 15 || *got.Spec.LeaseTransitions != 1 {
			t.Errorf("the gate is %+v", got)
		}
		if err := a.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestATenureThatWasInterruptedIsOver has all requests fail for a while. The same replica then owns the shards again, and nothing that began before may go on.
func TestATenureThatWasInterruptedIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, key := &server{leases: map[string]*coordinationv1.Lease{}}, types.NamespacedName{Namespace: "shop"}
		a := newShards(t, s, "a", ignore)
		time.Sleep(time.Second)
		synctest.Wait()
		first := a.FindTenure(key)
		s.setFailure(errors.New("the API server is gone"))
		time.Sleep(7 * time.Second)
		if !first.Fresh() {
			t.Error("the tenure ends before the last renewal is too old")
		}
		time.Sleep(4 * time.Second)
		if first.Fresh() || a.FindTenure(key).Exists() || a.CountOwned() != 0 {
			t.Error("the tenure lasts, although no renewal has been answered for 10 s")
		}
		s.setFailure(nil)
		time.Sleep(3 * period)
		synctest.Wait()
		second := a.FindTenure(key)
		if first.Fresh() || !second.Fresh() || first.IsSame(second) || a.CountOwned() != Count {
			t.Errorf("first: %t, second: %t, the same: %t, owned: %d", first.Fresh(), second.Fresh(), first.IsSame(second), a.CountOwned())
		}
		failure := errors.New("the API server is gone")
		s.setFailure(failure)
		if err := a.Release(t.Context()); !errors.Is(err, failure) || second.Fresh() {
			t.Errorf("a release that fails: %v, fresh: %t", err, second.Fresh())
		}
	})
}

// TestAReplicaWithoutAPlace shows that a seventeenth replica owns nothing, until another one ends.
func TestAReplicaWithoutAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{leases: map[string]*coordinationv1.Lease{}}
		var all []*Shards
		for i := range Count + 1 {
			all = append(all, newShards(t, s, fmt.Sprint("r", i), ignore))
			time.Sleep(3 * period)
		}
		time.Sleep(3 * settlesAfter)
		synctest.Wait()
		owned := 0
		for i, a := range all {
			if got := a.CountOwned(); got > 1 {
				t.Errorf("replica %d owns %d", i, got)
			}
			owned += a.CountOwned()
		}
		if owned != Count || all[Count].CountOwned() != 0 {
			t.Errorf("%d are owned, and %d of them by the one without a place", owned, all[Count].CountOwned())
		}
		for i, a := range all {
			if err := a.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if i == 0 {
				time.Sleep(2 * settlesAfter) // another one may have taken the shard first, and hands it over
			}
			synctest.Wait()
			if i == 0 && all[Count].CountOwned() != 1 {
				t.Errorf("the last one owns %d shards when it has a place", all[Count].CountOwned())
			}
		}
	})
}

// TestAlone shows that a process without others owns all.
func TestAlone(t *testing.T) {
	a := Alone{}
	a.NotifyChanges(ignore)
	tenure := a.FindTenure(types.NamespacedName{Namespace: "shop"})
	if err := a.Release(t.Context()); err != nil || !tenure.Fresh() || !tenure.Exists() || a.CountOwned() != Count || (Tenure{}).Fresh() {
		t.Errorf("%v, fresh: %t, owned: %d", err, tenure.Fresh(), a.CountOwned())
	}
}
