// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informers is a cache that has to be asked some times before it knows a kind.
type informers struct {
	cache.Informers
	unknown int
	asked   []string
	synced  chan struct{}
}

func (i *informers) GetInformer(_ context.Context, kind client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if i.unknown > 0 {
		i.unknown--
		return nil, errors.New("no matches for kind")
	}
	i.asked = append(i.asked, fmt.Sprintf("%T", kind))
	return nil, nil
}

func (i *informers) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-i.synced:
		return true
	case <-ctx.Done():
		return false
	}
}

// A process is ready when its caches are synced, also if the kinds are not served at first.
func TestReadyWhenCachesAreSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &informers{unknown: 3, synced: make(chan struct{})}
		s := &cacheSync{cache: i}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Start(ctx) }()
		synctest.Wait()
		if s.checkReady(nil) == nil || len(i.asked) > 0 {
			t.Errorf("ready without its kinds: %v", i.asked)
		}
		time.Sleep(4 * cacheRetry) // of the bubble's clock
		if want := []string{"*v1alpha1.Cleaner", "*v1alpha1.ClusterCleaner", "*v1alpha1.CleanerTemplate"}; !slices.Equal(i.asked, want) {
			t.Errorf("caches of %v", i.asked)
		}
		if s.checkReady(nil) == nil {
			t.Error("ready before the caches are synced")
		}
		close(i.synced)
		synctest.Wait()
		if err := s.checkReady(nil); err != nil || s.NeedLeaderElection() {
			t.Errorf("not ready: %v", err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// manager is one that stops as it is told.
type manager struct{ err error }

func (m manager) Start(context.Context) error { return m.err }

// lease notes whether it was released.
type lease struct {
	released bool
	err      error
}

func (l *lease) Release(ctx context.Context) error {
	l.released = ctx.Err() == nil
	return l.err
}

// What did not stop in time may still write: only when the Lease expires, other processes own what this one did.
func TestReleaseOnlyWhenAllHasStopped(t *testing.T) {
	late := errors.New("failed waiting for all runnables to end")
	for name, tc := range map[string]struct {
		stopped, released error
		waits             time.Duration
		want              bool
	}{
		"Stopped":      {nil, nil, time.Second, true},
		"NotReleased":  {nil, errors.New("the API server is gone"), time.Second, true},
		"Late":         {late, nil, time.Second, false},
		"WaitsForNone": {nil, nil, 0, false}, // as with --shutdown-timeout=0
	} {
		ctx, stop := context.WithCancel(t.Context())
		stop() // as a signal does
		l := &lease{err: tc.released}
		err := runUntilStopped(ctx, manager{tc.stopped}, l, tc.waits)
		if l.released != tc.want || !errors.Is(err, cmp.Or(tc.stopped, tc.released)) {
			t.Errorf("%s: released: %t, %v", name, l.released, err)
		}
	}
}
