// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// reconnectAfter is the wait before an informer that lost its watch lists again, doubled each time.
	reconnectAfter = 800 * time.Millisecond
	// reconnectCalm is how long an informer must be without trouble until its wait is short again.
	reconnectCalm = 2 * time.Minute
)

// informer holds what there is in a scope. It is guarded by the Engine's lock, and its objects never change.
type informer struct {
	scope *scope
	full  bool

	synced  bool
	objects map[string]sortedObjects // by namespace
	groups  groups
	// failure says why its objects are not to be believed, and failingSince when that began.
	failure      string
	failingSince time.Time

	stopped bool
	cancel  context.CancelFunc
}

// informerFor is the informer that answers those who want whole objects, or only metadata; nil if none runs.
func (s *scope) informerFor(full bool) *informer {
	if !full && s.meta != nil && (s.full == nil || !s.full.synced) {
		return s.meta
	}
	return s.full
}

// appendCandidates adds to what was found the objects that may match a query, in order: of these namespaces, or of all when there is
// no list of them; of a name, when there is one; and of the query's group, if that is there.
func (i *informer) appendCandidates(found sortedObjects, q *snapshot.Query, namespaces []string) sortedObjects {
	if own := i.scope.namespace; own != "" {
		if namespaces != nil && !slices.Contains(namespaces, own) {
			return found
		}
		namespaces = []string{own}
	}
	if g, ok := groupOf(i.scope.resource.Resource, q); ok {
		if members, ok := i.groups[g]; ok {
			found = slices.Grow(found, len(members))
			for _, o := range members {
				if _, in := slices.BinarySearch(namespaces, o.Namespace); in || namespaces == nil {
					found = append(found, o)
				}
			}
			return found
		}
	}
	if namespaces == nil {
		namespaces = slices.Sorted(maps.Keys(i.objects))
	}
	if q.Name == "" {
		n := 0
		for _, namespace := range namespaces {
			n += len(i.objects[namespace])
		}
		found = slices.Grow(found, n)
	}
	for _, namespace := range namespaces {
		objects := i.objects[namespace]
		if q.Name == "" {
			found = append(found, objects...)
		} else if o := objects.get(namespace, q.Name); o != nil {
			found = append(found, o)
		}
	}
	return found
}

// ensureInformer sees to it that an informer runs that serves whole objects, or at least metadata.
func (e *Engine) ensureInformer(s *scope, full bool) {
	switch {
	case full && s.full == nil:
		s.full = e.newInformer(s, true)
	case !full && s.full == nil && s.meta == nil:
		s.meta = e.newInformer(s, false)
	}
}

// stopInformers ends the informers of a scope, and drops what they hold.
func (e *Engine) stopInformers(s *scope) {
	e.stopInformer(s.full)
	e.stopInformer(s.meta)
	s.full, s.meta = nil, nil
}

func (e *Engine) newInformer(s *scope, full bool) *informer {
	i := &informer{scope: s, full: full}
	e.adjustCounts(1, 0)
	i.cancel = e.runInBackground(func(ctx context.Context) { e.runInformer(ctx, i) })
	return i
}

func (e *Engine) stopInformer(i *informer) {
	if i == nil {
		return
	}
	i.stopped = true
	i.cancel()
	held := 0
	for _, objects := range i.objects {
		held += len(objects)
	}
	i.objects, i.groups = nil, nil
	e.adjustCounts(-1, -held)
}

func (e *Engine) adjustCounts(informers, objects int) {
	e.informers += informers
	e.objects += objects
	e.metrics.SetWatchCounts(e.informers, e.objects)
}

// runInformer keeps an informer in touch with the API server until ctx is done or the scope cannot be watched any more. The
// Reflector's own loop is not used, because it writes each failure to the log and tells nobody else.
func (e *Engine) runInformer(ctx context.Context, i *informer) {
	quiet := logr.Discard()
	ctx = klog.NewContext(ctx, quiet)
	r := cache.NewReflectorWithOptions(e.newListerWatcher(i), nil, &store{engine: e, informer: i}, cache.ReflectorOptions{
		Logger: &quiet, Clock: e.clock, TypeDescription: plan.ResourceName(i.scope.resource.GVR),
	})
	delay := wait.Backoff{Duration: reconnectAfter, Cap: e.retryEvery * 2 / 3, Steps: 30, Factor: 2, Jitter: 0.5}.
		DelayWithReset(e.clock, reconnectCalm)
	for {
		var err error
		if p := contain.CatchPanic(func() { err = r.ListAndWatchWithContext(ctx) }); p != nil {
			err = p
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			e.handleWatchError(i, err)
		}
		t := e.clock.NewTimer(delay())
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C():
		}
	}
}

// newListerWatcher asks for what an informer is for.
func (e *Engine) newListerWatcher(i *informer) cache.ListerWatcher {
	s := i.scope
	gvr := s.resource.GVR
	narrow := func(o metav1.ListOptions) metav1.ListOptions {
		if s.name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.name).String()
		}
		return o
	}
	var client any = e.dynamic
	if !i.full {
		client = e.metadata
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if i.full {
				return e.dynamic.Resource(gvr).Namespace(s.namespace).List(ctx, narrow(o))
			}
			return e.metadata.Resource(gvr).Namespace(s.namespace).List(ctx, narrow(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
			if i.full {
				w, err = e.dynamic.Resource(gvr).Namespace(s.namespace).Watch(ctx, narrow(o))
			} else {
				w, err = e.metadata.Resource(gvr).Namespace(s.namespace).Watch(ctx, narrow(o))
			}
			if o.SendInitialEvents != nil && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
				// The Reflector would wait for a time that no context ends. Not knowing the error, it lists instead.
				return nil, fmt.Errorf("cannot stream: %v", err) //nolint:errorlint // see above
			}
			return w, err
		},
	}, client)
}

// handleWatchError takes note of an error that keeps an informer from listing or watching.
func (e *Engine) handleWatchError(i *informer, err error) {
	e.mu.Lock()
	defer e.unlockAndWake()
	if i.stopped {
		return
	}
	switch {
	case apierrors.IsNotFound(err):
		e.handleMissingResource(i.scope.resource)
	case apierrors.IsForbidden(err):
		e.markDenied(i.scope)
	default:
		e.markFailing(i, err)
	}
}

// markFailing marks an informer as failing: at once while it knows nothing, else when it has been out of touch for long.
func (e *Engine) markFailing(i *informer, err error) {
	now := e.clock.Now()
	if i.failingSince.IsZero() {
		i.failingSince = now
	}
	if i.failure != "" || i.synced && now.Sub(i.failingSince) < e.retryEvery {
		return
	}
	s := i.scope
	i.failure = fmt.Sprintf("cannot list and watch %s: %v", describeScope(s.resource.Resource, s.namespace, s.name), err)
	e.reportStates(s.wants)
}

// store is what a Reflector fills an informer through.
type store struct {
	engine   *Engine
	informer *informer
}

var _ cache.TransformingStore = (*store)(nil)

// Transformer slims objects while they arrive.
func (*store) Transformer() cache.TransformFunc { return dropManagedFields }

// Add takes an object in.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update takes a new version of an object in.
func (s *store) Update(obj any) error {
	o, err := newObject(s.informer.scope.resource.GVR, obj)
	if err != nil {
		return err
	}
	s.engine.mu.Lock()
	defer s.engine.unlockAndWake()
	if !s.informer.stopped {
		s.engine.storeObject(s.informer, o)
	}
	return nil
}

// Delete takes an object out.
func (s *store) Delete(obj any) error {
	o, err := meta.Accessor(obj) // the store knows the rest
	if err != nil {
		return err
	}
	s.engine.mu.Lock()
	defer s.engine.unlockAndWake()
	if !s.informer.stopped {
		s.engine.removeObject(s.informer, o.GetNamespace(), o.GetName())
	}
	return nil
}

// Replace takes in all objects there are. Those that are not among them are gone.
func (s *store) Replace(list []any, _ string) error {
	i := s.informer
	objects := make([]*object, len(list))
	for n, obj := range list {
		o, err := newObject(i.scope.resource.GVR, obj)
		if err != nil {
			return err
		}
		objects[n] = o
	}
	s.engine.mu.Lock()
	defer s.engine.unlockAndWake()
	if !i.stopped {
		s.engine.replaceObjects(i, objects)
	}
	return nil
}

// Resync does nothing: Cleaners look again by their own clocks.
func (*store) Resync() error { return nil }

// storeObject stores an object and wakes whom it concerns.
func (e *Engine) storeObject(i *informer, now *object) {
	before := i.objects[now.Namespace].get(now.Namespace, now.Name)
	if before != nil && before.ResourceVersion == now.ResourceVersion {
		return
	}
	i.objects[now.Namespace] = i.objects[now.Namespace].putObject(now)
	i.groups.moveObject(before, now)
	if before == nil {
		e.adjustCounts(0, 1)
	}
	e.notifyChange(i, before, now)
}

// removeObject drops an object and wakes whom it concerned.
func (e *Engine) removeObject(i *informer, namespace, name string) {
	before := i.objects[namespace].get(namespace, name)
	if before == nil {
		return
	}
	i.objects[namespace] = i.objects[namespace].deleteObject(namespace, name)
	if len(i.objects[namespace]) == 0 {
		delete(i.objects, namespace)
	}
	i.groups.moveObject(before, nil)
	e.adjustCounts(0, -1)
	e.notifyChange(i, before, nil)
}

func (e *Engine) notifyChange(i *informer, before, now *object) {
	r := i.scope.resource
	if i.synced { // else its owners hear of the whole
		e.woken = r.index.appendOwners(e.woken, before, now)
	}
	if r.GVR.Group == definitionsGroup {
		o := now
		if o == nil {
			o = before
		}
		e.refreshKinds(o.Name)
	}
}

// replaceObjects stores a whole list. Owners hear of the first one once; later only of what is different.
func (e *Engine) replaceObjects(i *informer, objects []*object) {
	if !i.synced {
		i.objects, i.groups = map[string]sortedObjects{}, nil
	}
	slices.SortFunc(objects, compareNames) // so that each goes to the end of its list
	present := make(map[scopeKey]struct{}, len(objects))
	for _, o := range objects {
		present[scopeKey{o.Namespace, o.Name}] = struct{}{}
		e.storeObject(i, o)
	}
	for namespace := range i.objects {
		for n := len(i.objects[namespace]) - 1; n >= 0; n-- { // from the end, where nothing has to move up
			o := i.objects[namespace][n]
			if _, ok := present[scopeKey{namespace, o.Name}]; !ok {
				e.removeObject(i, namespace, o.Name)
			}
		}
	}
	i.failure, i.failingSince = "", time.Time{}
	if !i.synced {
		e.markSynced(i)
	}
	e.reportStates(i.scope.wants)
}

// markSynced takes note that an informer has its first whole list. All whom it serves hear of it, even those who knew an older
// state, because what happened in between was not seen.
func (e *Engine) markSynced(i *informer) {
	i.synced = true
	s := i.scope
	if i.full {
		e.stopInformer(s.meta)
		s.meta = nil
	}
	s.alarm.failures = 0
	for k := range s.resource.kinds {
		k.alarm.failures = 0
	}
	for w := range s.wants {
		if l := e.checkCoverage(&w.query); slices.Contains(l.informers, i) {
			w.reportedState = plan.Unknown
		}
	}
}
