// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// cacheRetry is how long the operator waits before it tries again to watch a kind of ours.
const cacheRetry = time.Second

// cacheSync fills the caches of Cleaners, ClusterCleaners and templates as soon as the process starts, also of those that other
// replicas own, so that it can act at once when it takes their shards. The process is not ready before, and owns nothing.
type cacheSync struct {
	cache  interface{ cache.Informers }
	synced atomic.Bool
}

// addCacheCheck makes a manager ready when its caches are synced, and returns the check.
func addCacheCheck(mgr ctrl.Manager) (*cacheSync, error) {
	s := &cacheSync{cache: mgr.GetCache()}
	if err := mgr.Add(s); err != nil {
		return nil, fmt.Errorf("cannot add the caches to the manager: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", s.checkReady); err != nil {
		return nil, fmt.Errorf("cannot add a readiness check: %w", err)
	}
	return s, nil
}

// NeedLeaderElection is false: all replicas fill their caches.
func (s *cacheSync) NeedLeaderElection() bool { return false }

// Start waits until the caches are synced. A kind that is not served yet is tried again.
func (s *cacheSync) Start(ctx context.Context) error {
	for _, kind := range []client.Object{&v1alpha1.Cleaner{}, &v1alpha1.ClusterCleaner{}, &v1alpha1.CleanerTemplate{}} {
		watch, cancel := context.WithCancel(ctx)
		wait.UntilWithContext(watch, func(ctx context.Context) {
			if _, err := s.cache.GetInformer(ctx, kind); err == nil {
				cancel()
			} else if ctx.Err() == nil {
				logf.FromContext(ctx).Info("Cannot watch a kind of the operator yet", "kind", fmt.Sprintf("%T", kind), "error", err.Error())
			}
		}, cacheRetry)
		cancel()
	}
	if s.cache.WaitForCacheSync(ctx) {
		s.synced.Store(true)
	}
	<-ctx.Done()
	return nil
}

// checkReady is a readiness check.
func (s *cacheSync) checkReady(*http.Request) error {
	if !s.synced.Load() {
		return errors.New("the caches of Cleaners, ClusterCleaners, CleanerTemplates and signing keys are not synced yet")
	}
	return nil
}
