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
	objects map[string]shelf // by namespace
	groups  groups
	// failing says why its objects are not to be believed, and failingSince when that began.
	failing      string
	failingSince time.Time

	ended  bool
	cancel context.CancelFunc
}

// serving is the informer that answers those who want whole objects, or only metadata; nil if none runs.
func (s *scope) serving(full bool) *informer {
	if !full && s.meta != nil && (s.full == nil || !s.full.synced) {
		return s.meta
	}
	return s.full
}

// near adds to what was found the objects that may match a query, in order: of these namespaces, or of all when there is
// no list of them; of a name, when there is one; and of the query's group, if that is there.
func (i *informer) near(found shelf, q *snapshot.Query, namespaces []string) shelf {
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

// inform sees to it that an informer runs that serves whole objects, or at least metadata.
func (e *Engine) inform(s *scope, full bool) {
	switch {
	case full && s.full == nil:
		s.full = e.newInformer(s, true)
	case !full && s.full == nil && s.meta == nil:
		s.meta = e.newInformer(s, false)
	}
}

// stop ends the informers of a scope, and drops what they hold.
func (e *Engine) stop(s *scope) {
	e.endInformer(s.full)
	e.endInformer(s.meta)
	s.full, s.meta = nil, nil
}

func (e *Engine) newInformer(s *scope, full bool) *informer {
	i := &informer{scope: s, full: full}
	e.count(1, 0)
	i.cancel = e.launch(func(ctx context.Context) { e.run(ctx, i) })
	return i
}

func (e *Engine) endInformer(i *informer) {
	if i == nil {
		return
	}
	i.ended = true
	i.cancel()
	held := 0
	for _, objects := range i.objects {
		held += len(objects)
	}
	i.objects, i.groups = nil, nil
	e.count(-1, -held)
}

func (e *Engine) count(informers, objects int) {
	e.informers += informers
	e.objects += objects
	e.metrics.Watching(e.informers, e.objects)
}

// run keeps an informer in touch with the API server until ctx is done or the scope cannot be watched any more. The
// Reflector's own loop is not used, because it writes each failure to the log and tells nobody else.
func (e *Engine) run(ctx context.Context, i *informer) {
	quiet := logr.Discard()
	ctx = klog.NewContext(ctx, quiet)
	r := cache.NewReflectorWithOptions(e.listWatch(i), nil, &store{engine: e, informer: i}, cache.ReflectorOptions{
		Logger: &quiet, Clock: e.clock, TypeDescription: plan.ResourceName(i.scope.resource.GVR),
	})
	delay := wait.Backoff{Duration: reconnectAfter, Cap: e.retryEvery * 2 / 3, Steps: 30, Factor: 2, Jitter: 0.5}.
		DelayWithReset(e.clock, reconnectCalm)
	for {
		var err error
		if p := contain.Catch(func() { err = r.ListAndWatchWithContext(ctx) }); p != nil {
			err = p
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			e.failed(i, err)
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

// listWatch asks for what an informer is for.
func (e *Engine) listWatch(i *informer) cache.ListerWatcher {
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

// failed takes note of an error that keeps an informer from listing or watching.
func (e *Engine) failed(i *informer, err error) {
	e.mu.Lock()
	defer e.unlock()
	if i.ended {
		return
	}
	switch {
	case apierrors.IsNotFound(err):
		e.lost(i.scope.resource)
	case apierrors.IsForbidden(err):
		e.refused(i.scope)
	default:
		e.doubt(i, err)
	}
}

// doubt marks an informer as failing: at once while it knows nothing, else when it has been out of touch for long.
func (e *Engine) doubt(i *informer, err error) {
	now := e.clock.Now()
	if i.failingSince.IsZero() {
		i.failingSince = now
	}
	if i.failing != "" || i.synced && now.Sub(i.failingSince) < e.retryEvery {
		return
	}
	s := i.scope
	i.failing = fmt.Sprintf("cannot list and watch %s: %v", where(s.resource.Resource, s.namespace, s.name), err)
	e.tellAll(s.wants)
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
	o, err := take(s.informer.scope.resource.GVR, obj)
	if err != nil {
		return err
	}
	s.engine.mu.Lock()
	defer s.engine.unlock()
	if !s.informer.ended {
		s.engine.changed(s.informer, o)
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
	defer s.engine.unlock()
	if !s.informer.ended {
		s.engine.gone(s.informer, o.GetNamespace(), o.GetName())
	}
	return nil
}

// Replace takes in all objects there are. Those that are not among them are gone.
func (s *store) Replace(list []any, _ string) error {
	i := s.informer
	objects := make([]*object, len(list))
	for n, obj := range list {
		o, err := take(i.scope.resource.GVR, obj)
		if err != nil {
			return err
		}
		objects[n] = o
	}
	s.engine.mu.Lock()
	defer s.engine.unlock()
	if !i.ended {
		s.engine.replaced(i, objects)
	}
	return nil
}

// Resync does nothing: Cleaners look again by their own clocks.
func (*store) Resync() error { return nil }

// changed stores an object and wakes whom it concerns.
func (e *Engine) changed(i *informer, now *object) {
	before := i.objects[now.Namespace].get(now.Namespace, now.Name)
	if before != nil && before.ResourceVersion == now.ResourceVersion {
		return
	}
	i.objects[now.Namespace] = i.objects[now.Namespace].with(now)
	i.groups.changed(before, now)
	if before == nil {
		e.count(0, 1)
	}
	e.event(i, before, now)
}

// gone drops an object and wakes whom it concerned.
func (e *Engine) gone(i *informer, namespace, name string) {
	before := i.objects[namespace].get(namespace, name)
	if before == nil {
		return
	}
	i.objects[namespace] = i.objects[namespace].without(namespace, name)
	if len(i.objects[namespace]) == 0 {
		delete(i.objects, namespace)
	}
	i.groups.changed(before, nil)
	e.count(0, -1)
	e.event(i, before, nil)
}

func (e *Engine) event(i *informer, before, now *object) {
	r := i.scope.resource
	if i.synced { // else its owners hear of the whole
		e.woken = r.index.route(e.woken, before, now)
	}
	if r.GVR.Group == definitionsGroup {
		o := now
		if o == nil {
			o = before
		}
		e.definitionChanged(o.Name)
	}
}

// replaced stores a whole list. Owners hear of the first one once; later only of what is different.
func (e *Engine) replaced(i *informer, objects []*object) {
	if !i.synced {
		i.objects, i.groups = map[string]shelf{}, nil
	}
	slices.SortFunc(objects, byName) // so that each goes to the end of its shelf
	present := make(map[scopeKey]struct{}, len(objects))
	for _, o := range objects {
		present[scopeKey{o.Namespace, o.Name}] = struct{}{}
		e.changed(i, o)
	}
	for namespace := range i.objects {
		for n := len(i.objects[namespace]) - 1; n >= 0; n-- { // from the end, where nothing has to move up
			o := i.objects[namespace][n]
			if _, ok := present[scopeKey{namespace, o.Name}]; !ok {
				e.gone(i, namespace, o.Name)
			}
		}
	}
	i.failing, i.failingSince = "", time.Time{}
	if !i.synced {
		e.synced(i)
	}
	e.tellAll(i.scope.wants)
}

// synced takes note that an informer has its first whole list. All whom it serves hear of it, even those who knew an older
// state, because what happened in between was not seen.
func (e *Engine) synced(i *informer) {
	i.synced = true
	s := i.scope
	if i.full {
		e.endInformer(s.meta)
		s.meta = nil
	}
	s.alarm.failures = 0
	for k := range s.resource.kinds {
		k.alarm.failures = 0
	}
	for w := range s.wants {
		if l := e.look(&w.query); slices.Contains(l.informers, i) {
			w.told = plan.Unknown
		}
	}
}
