// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rightswatch notices that the RBAC rules of a cluster change, so that what was forbidden can be tried again at once. It watches the
// metadata of roles and bindings, if it may list and watch all of them, and keeps none. It does not know what the rules say.
package rightswatch

import (
	"context"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/served"
)

const (
	// tellAfter is the wait between a change and its report: by then API servers know it, and others may have come. burst is how many reports may
	// follow each other, and restAfter the time for each in the long run, so that access is not checked more often than without them.
	tellAfter = time.Second
	restAfter = 30 * time.Second
	burst     = 3
	// askEvery is the time between two attempts to find out whether roles and bindings may be watched, if there is no answer, and leastPause and
	// mostPause are the waits before a watch that has failed begins again.
	askEvery              = time.Minute
	leastPause, mostPause = time.Second, time.Minute
)

// listKinds lists the kinds that RBAC rules are made of.
func listKinds() []string {
	return []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}
}

// Options are what a Watcher is made of. All are required.
type Options struct {
	Metadata metadata.Interface
	Access   authorizationv1client.SelfSubjectAccessReviewInterface
	Clock    clock.WithTicker
	// Tell hears that rules may have changed. It must return soon.
	Tell func()
}

// Watcher watches roles and bindings.
type Watcher struct {
	Options

	changed chan struct{}
}

// New makes a Watcher, which watches nothing until it runs.
func New(o Options) *Watcher {
	return &Watcher{o, make(chan struct{}, 1)}
}

// Run watches until ctx is done. If the operator may not, it ends at once.
func (w *Watcher) Run(ctx context.Context) {
	if !w.mayWatch(ctx) {
		return
	}
	var running sync.WaitGroup
	for _, kind := range listKinds() {
		running.Go(func() { w.followKind(ctx, kind) })
	}
	w.tellChanges(ctx)
	running.Wait()
}

// mayWatch finds out whether all roles and bindings may be listed and watched.
func (w *Watcher) mayWatch(ctx context.Context) bool {
	for kinds := listKinds(); len(kinds) > 0; {
		r := served.Resource{GVR: rbacv1.SchemeGroupVersion.WithResource(kinds[0])}
		missing, err := served.FindMissingVerbs(ctx, w.Access, r, "", "")
		switch {
		case len(missing) > 0, err != nil && !w.waitFor(ctx, askEvery):
			return false
		case err == nil:
			kinds = kinds[1:]
		}
	}
	return true
}

// waitFor waits, and reports whether ctx is still open.
func (w *Watcher) waitFor(ctx context.Context, d time.Duration) bool {
	t := w.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
		return true
	}
}

// followKind keeps in touch with a kind until ctx is done, or the operator may no longer watch it.
func (w *Watcher) followKind(ctx context.Context, kind string) {
	delay := wait.Backoff{Duration: leastPause, Cap: mostPause, Steps: 30, Factor: 2, Jitter: 0.5}.DelayWithReset(w.Clock, 2*mostPause)
	for ctx.Err() == nil {
		began, err := w.Clock.Now(), error(nil)
		if p := contain.CatchPanic(func() { err = w.watchKind(ctx, kind) }); p != nil {
			err = p
		}
		if err == nil && w.Clock.Since(began) >= mostPause {
			continue // as an API server ends each watch after some time
		}
		if apierrors.IsForbidden(err) || !w.waitFor(ctx, delay()) {
			return
		}
	}
}

// watchKind watches a kind until the watch ends. It begins with all that there is, so that no change between two watches is missed.
func (w *Watcher) watchKind(ctx context.Context, kind string) error {
	opened, err := w.Metadata.Resource(rbacv1.SchemeGroupVersion.WithResource(kind)).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer opened.Stop()
	w.noteChange() // of before, if it was not watched then
	for event := range opened.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		w.noteChange()
	}
	return nil
}

func (w *Watcher) noteChange() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// tellChanges tells of changes, of several at once where they follow each other.
func (w *Watcher) tellChanges(ctx context.Context) {
	var told [burst]time.Time
	for n := 0; ; n = (n + 1) % burst {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		}
		rest := told[n].Add(burst * restAfter).Sub(w.Clock.Now())
		if !w.waitFor(ctx, max(tellAfter, rest)) {
			return
		}
		select { // one report is enough for what has come meanwhile
		case <-w.changed:
		default:
		}
		contain.CatchPanic(w.Tell)
		told[n] = w.Clock.Now()
	}
}
