// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/vtex/cleaner/controllers/internal/alarms"
	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/keptparts"
	"github.com/vtex/cleaner/controllers/internal/labelgroups"
	"github.com/vtex/cleaner/controllers/internal/listdiff"
	"github.com/vtex/cleaner/controllers/internal/memorybudget"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// reconnectAfter is the wait before an informer that lost its watch lists again, doubled each time.
	reconnectAfter = 800 * time.Millisecond
	// reconnectCalm is how long an informer must be without trouble until its wait is short again.
	reconnectCalm = 2 * time.Minute
	// maxSilence is for how long a watch may say nothing, not even by a bookmark, which an API server sends each minute. After that all is
	// listed again.
	maxSilence = 3 * time.Minute
	// maxListSilence is for how long nothing of a list may arrive. It is longer than a request for a list that is no stream may take.
	maxListSilence = 90 * time.Second
	// refusalShare is the part of retryEvery for which watches may be refused without a list: an API server that has too much to do answers
	// so, too, and a list costs it more than a watch.
	refusalShare = 6
	// maxMissed is how many changes are remembered one by one between the list of an informer and its taking over. After more, all Cleaners look.
	maxMissed = 4096
	// listsPerRetry is how often in retryEvery all may be listed because more is read.
	listsPerRetry = 15
	// bytesPerObject is about how much memory an object takes besides its content.
	bytesPerObject = 600
	// changesAtATime is how many changes that a list has shown are added to the backlog before others have the lock.
	changesAtATime = 64
)

// informer holds what there is in a scope. It is guarded by the Engine's lock, and its objects never change.
type informer struct {
	scope *scope
	full  bool

	synced  bool
	objects map[string]cachedobjects.Shelf // by namespace
	groups  labelgroups.Groups
	// history has the latest changes of the objects. It is another one when all were listed.
	history *cachedobjects.History
	// bytes is about how much memory its objects take. loading is the same of a list that is not stored yet.
	bytes   int
	loading atomic.Int64
	// failure says why its objects are not to be believed, and failingSince when that began.
	failure      string
	failingSince time.Time
	// heard is when the API server last said something of the scope.
	heard time.Time
	// asked is when the latest list was requested. All changes before known have been seen: what a list shows to be different may have
	// changed at any time since.
	asked, known time.Time
	// keeps is what its objects have at least, and listing what the list will have that is under way. They are one if none is.
	keeps, listing *keptparts.Parts
	// listed says that its latest list has arrived. Of one that is to take over, arrived is that list until then.
	listed  bool
	arrived *listing
	// base and changed are the resource versions of its latest list and of the latest change that it knows, and reached the one up to which it knows all changes.
	base, changed, reached string
	// confirmed is the version at which the API server had exactly what it has; "" once anything has changed since.
	confirmed string
	// settles is when a definition holds everywhere that has changed since the objects were read: the API server may show others at the same versions.
	// Zero: none has. defined is the version of a definition that became known while the first list was under way; "" if none did.
	settles time.Time
	defined string
	// edits counts the changes of what it has. awaited is closed when it may have reached more; nil if no caller waits for that.
	edits   int
	awaited chan struct{}
	// wider rings when it is time to list all aside, because more is read than it keeps.
	wider alarms.Alarm
	// caughtUp is when a watch is believed to have sent what changed while the list before it came: it has had as long as the list by then.
	caughtUp time.Time

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

// candidates are where the objects of an informer are that may match a query. They are found under the lock, and looked at without it: no
// event waits until a reader has looked at objects.
type candidates struct {
	cachedobjects.Candidates
	// changed is what has changed, where only that is asked for.
	changed []cachedobjects.Difference
	// repeated is a group that is not there and was asked for again; nil: there is none.
	repeated *missingGroup
}

// findCandidates finds where the objects are that may match a query: those of these namespaces, or of all when there is no list of them;
// and of the query's group, if that is there. If it is not, and is read again, it has to be made.
func (i *informer) findCandidates(q *snapshot.Query, namespaces []string) (c candidates) {
	own := i.scope.namespace
	if own != "" {
		if namespaces != nil && !slices.Contains(namespaces, own) {
			return c
		}
		namespaces = []string{own}
	}
	if g, ok := labelgroups.FindGroup(i.scope.resource.Resource, q); ok {
		switch m := i.groups.Of[g]; {
		case m != nil && !m.Unfinished:
			c.Grouped, c.Shelves = true, []cachedobjects.PlacedShelf{{Shelf: m.Shelf}}
			if many := i.groups.Of[g.OfManyLabels()]; many != nil {
				c.Shelves = append(c.Shelves, cachedobjects.PlacedShelf{Shelf: many.Shelf})
			}
			if own == "" && g.Namespace == "" {
				c.Namespaces = namespaces
			}
			return c
		case m == nil:
			if i.scope.demands.NoteRead(g) {
				c.repeated = &missingGroup{i, g}
			}
		}
	}
	c.Name, c.Shelves = q.Name, i.findShelves(namespaces)
	return c
}

// findShelves returns the objects of these namespaces, or of all when there is no list of them.
func (i *informer) findShelves(namespaces []string) []cachedobjects.PlacedShelf {
	return cachedobjects.PlaceShelves(i.objects, namespaces)
}

// feeds keeps informers in touch with the API server, and says what changes in them.
type feeds struct {
	*background
	dynamic  dynamic.Interface
	metadata metadata.Interface
	metrics  Metrics
	matcher  *matcher
	sharing  *keptparts.Sharing
	budget   *memorybudget.Budget
	// informers and objects count what there is, and groupBytes what groups take.
	informers, objects int
	groupBytes         *labelgroups.Bytes
	answers            *answers
	placement          *placement
	catalog            *catalog
}

// ensureInformer sees to it that an informer runs that serves whole objects, or at least metadata.
func (f *feeds) ensureInformer(s *scope, full bool) {
	switch {
	case full && s.full == nil:
		s.full = f.newInformer(s, true)
	case !full && s.full == nil && s.meta == nil:
		s.meta = f.newInformer(s, false)
	}
}

// ensureInformers sees to it that informers run that serve all wants of a scope. One of whole objects serves both.
func ensureInformers(f *feeds, s *scope) {
	for _, full := range []bool{true, false} {
		for w := range s.wants {
			if w.full == full {
				f.ensureInformer(s, full)
			}
		}
	}
}

// stopInformers ends the informers of a scope, and drops what they hold.
func (f *feeds) stopInformers(s *scope) {
	for _, i := range s.listInformers() {
		f.stopInformer(i)
	}
	s.full, s.meta, s.next = nil, nil, nil
}

func (f *feeds) newInformer(s *scope, full bool) *informer {
	i := &informer{
		scope: s, full: full, groups: labelgroups.New(f.groupBytes),
		listing: keptparts.KeepAll(), wider: alarms.New(time.Time{}), history: cachedobjects.NewHistory(),
	}
	i.settles = f.catalog.settling.FindEnd(s.resource.GVR.GroupResource(), f.clock.Now())
	f.adjustCounts(1, 0)
	follows := f.runInBackground(func(ctx context.Context) { f.runInformer(ctx, i) })
	widens := f.runInBackground(func(ctx context.Context) { widening{f}.runWidening(ctx, i) })
	i.cancel = func() { follows(); widens() }
	return i
}

func (f *feeds) stopInformer(i *informer) {
	if i == nil {
		return
	}
	i.stopped = true
	i.endWait()
	i.cancel()
	held := cachedobjects.CountObjects(i.findShelves(nil))
	i.objects, i.bytes = nil, 0
	i.groups.DropAll()
	f.adjustCounts(-1, -held)
}

func (f *feeds) adjustCounts(informers, objects int) {
	f.informers += informers
	f.objects += objects
	f.metrics.SetWatchCounts(f.informers, f.objects)
}

// runInformer keeps an informer in touch with the API server until ctx is done or the scope can no longer be watched. The Reflector's own
// loop is not used, because it reports failures only to the log.
func (f *feeds) runInformer(ctx context.Context, i *informer) {
	quiet := logr.Discard()
	ctx = klog.NewContext(ctx, quiet)
	s := &store{feeds: f, informer: i}
	r := cache.NewReflectorWithOptions(f.newListerWatcher(i), nil, s, cache.ReflectorOptions{
		Logger: &quiet, Clock: f.clock, TypeDescription: observed.ResourceName(i.scope.resource.GVR),
	})
	delay := wait.Backoff{Duration: reconnectAfter, Cap: f.retryEvery * 2 / 3, Steps: 30, Factor: 2, Jitter: 0.5}.
		DelayWithReset(f.clock, reconnectCalm)
	for {
		err := f.followScope(ctx, r, s)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.handleWatchError(i, err)
		}
		t := f.clock.NewTimer(delay())
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C():
		}
	}
}

// followScope lists and watches until that fails, or until the list or the watch has been silent for too long. A watch that has stopped looks like
// a watch of objects that do not change.
func (f *feeds) followScope(ctx context.Context, r *cache.Reflector, s *store) (err error) {
	s.beginList()
	ctx, cancel := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() { f.awaitSilence(ctx, s.informer, cancel) })
	defer waiting.Wait()
	defer cancel(nil)
	if p := contain.CatchPanic(func() { err = r.ListAndWatchWithContext(ctx) }); p != nil {
		err = p
	}
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return cause
	}
	return err
}

// errSilent ends a list or a watch.
var errSilent = errors.New("nothing was received for too long")

// awaitSilence ends a list if nothing of it arrives for too long, and a watch that has been silent for too long.
func (f *feeds) awaitSilence(ctx context.Context, i *informer, end func(error)) {
	for left, arrived := maxListSilence, int64(0); ; {
		t := f.clock.NewTimer(left)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C():
		}
		f.mu.RLock()
		heard, listed := i.heard, i.listed
		f.mu.RUnlock()
		more := i.loading.Load()
		switch left = maxListSilence; {
		case listed:
			left = heard.Add(maxSilence).Sub(f.clock.Now())
		case more == arrived:
			left = 0
		}
		if arrived = more; left <= 0 {
			end(errSilent)
			return
		}
	}
}

// newListerWatcher returns the ListerWatcher for the scope of an informer.
func (f *feeds) newListerWatcher(i *informer) cache.ListerWatcher {
	s := i.scope
	gvr := s.resource.GVR
	narrow := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = s.filter.Labels, s.filter.Fields
		if s.name != "" { // which no query with a filter has
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.name).String()
		}
		return o
	}
	var refusedSince time.Time // only the Reflector's own goroutine watches
	var client any = f.dynamic
	if !i.full {
		client = f.metadata
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			i.loading.Add(1) // each page shows that the list is not silent
			if i.full {
				return f.dynamic.Resource(gvr).Namespace(s.namespace).List(ctx, narrow(o))
			}
			return f.metadata.Resource(gvr).Namespace(s.namespace).List(ctx, narrow(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
			if refusedSince.IsZero() {
				refusedSince = f.clock.Now()
			}
			if o.SendInitialEvents != nil { // a stream that was cut begins again
				i.loading.Store(0)
			}
			if i.full {
				w, err = f.dynamic.Resource(gvr).Namespace(s.namespace).Watch(ctx, narrow(o))
			} else {
				w, err = f.metadata.Resource(gvr).Namespace(s.namespace).Watch(ctx, narrow(o))
			}
			if !utilnet.IsConnectionRefused(err) && !apierrors.IsTooManyRequests(err) {
				refusedSince = time.Time{}
				return w, err
			}
			if lasted := f.clock.Since(refusedSince); o.SendInitialEvents != nil || lasted >= f.retryEvery/refusalShare {
				// The Reflector would wait, for a time that no context ends, or try again without a word for as long as that lasts. Not
				// knowing the error, it lists instead.
				return nil, fmt.Errorf("cannot watch: %v", err) //nolint:errorlint // see above
			}
			return nil, err
		},
	}, client)
}

// handleWatchError records an error that keeps an informer from listing or watching.
func (f *feeds) handleWatchError(i *informer, err error) {
	f.mu.Lock()
	defer f.unlockAndWake()
	if i.stopped {
		return
	}
	switch {
	case apierrors.IsNotFound(err):
		f.catalog.handleMissingResource(i.scope.resource)
	case apierrors.IsForbidden(err):
		f.placement.markDenied(i.scope)
	default:
		f.markFailing(i, err)
	}
}

// markFailing marks an informer as failing: at once while it knows nothing, else when it has been out of touch for long.
func (f *feeds) markFailing(i *informer, err error) {
	now, s := f.clock.Now(), i.scope
	if i.failingSince.IsZero() {
		i.failingSince = now
	}
	if i.failure == "" && (!i.synced || now.Sub(i.failingSince) >= f.retryEvery) {
		f.answers.noteLosses(i)
		i.failure = fmt.Sprintf("cannot list and watch %s: %v", served.DescribeScope(s.resource.Resource, s.namespace, s.name), err)
		f.answers.reportStates(s.wants)
	}
	if s.access == opening && i.hasFailedSince(now.Add(-f.retryEvery/refusalShare)) {
		f.placement.repositionWants(s)
	}
}

// hasFailedSince reports whether an informer fails, and has since a moment.
func (i *informer) hasFailedSince(at time.Time) bool {
	return i.failure != "" && !i.failingSince.After(at)
}

// store is what a Reflector fills an informer through.
type store struct {
	feeds    *feeds
	informer *informer
	// reads is what objects are stored with, from the list that has begun last.
	reads *snapshot.Reads
}

var (
	_ cache.TransformingStore      = (*store)(nil)
	_ cache.ResourceVersionUpdater = (*store)(nil)
)

// UpdateResourceVersion records that the watch has sent an event or a bookmark.
func (s *store) UpdateResourceVersion(version string) {
	if s.noteVersion(version) {
		s.takeOver()
	}
}

// takeOver has what waits for the version that the informer has reached take over: the informer itself, or its scope.
func (s *store) takeOver() {
	widening{s.feeds}.takeOver(s.informer)
	breadth{s.feeds.placement}.endOpening(s.informer.scope)
}

// noteVersion records that all changes up to a version are known, and reports whether the informer or its scope waits for that to take over.
func (s *store) noteVersion(version string) (waits bool) {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	i := s.informer
	i.heard = s.feeds.clock.Now()
	i.noteReached(version)
	if i.missedSince(i.heard).IsZero() {
		i.known = i.heard
	}
	return i.arrived != nil || i.scope.access == opening
}

// missedSince is the earliest moment at which what the watch shows now can have happened, while it may still be sending what changed during
// the list before it. After that it is zero: what the watch shows has just happened.
func (i *informer) missedSince(now time.Time) time.Time {
	if now.Before(i.caughtUp) {
		return i.known
	}
	return time.Time{}
}

// Transformer slims objects while they arrive. One that it cannot read it leaves to Replace, which fails: an error here would only be logged,
// and the object would be missing.
func (s *store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if o, err := s.makeObject(obj); err == nil {
			return o, nil
		}
		return obj, nil
	}
}

// makeObject returns what is stored of a client's object.
func (s *store) makeObject(obj any) (*cachedobjects.Object, error) {
	if made, ok := obj.(*cachedobjects.Object); ok { // by Transformer
		return made, nil
	}
	r := &s.informer.scope.resource.Resource
	o, err := s.informer.scope.filter.NewObject(r.GVR, r.Kind, obj, s.reads)
	if err != nil {
		return nil, err
	}
	var bytes int
	o.Value, bytes = s.feeds.sharing.ShareValue(o.Value)
	o.Labels = s.feeds.sharing.ShareLabels(o.Labels)
	o.Bytes += bytesPerObject + bytes
	s.informer.loading.Add(int64(o.Bytes)) // until a list is stored, or a change
	return o, nil
}

// Add adds an object.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update stores a new version of an object.
func (s *store) Update(obj any) error {
	o, err := s.makeObject(obj)
	if err != nil {
		return err
	}
	s.feeds.mu.Lock()
	defer s.feeds.unlockAndWake()
	s.informer.loading.Store(0)
	switch {
	case s.informer.stopped:
	case o.LeftOut:
		s.informer.changed = cachedobjects.ChooseLater(s.informer.changed, o.ResourceVersion)
		s.feeds.removeObject(s.informer, o.Namespace, o.Name)
	default:
		s.feeds.storeObject(s.informer, o)
	}
	return nil
}

// Delete removes an object.
func (s *store) Delete(obj any) error {
	o, err := meta.Accessor(obj) // the store knows the rest
	if err != nil {
		return err
	}
	s.feeds.mu.Lock()
	defer s.feeds.unlockAndWake()
	if !s.informer.stopped {
		s.informer.changed = cachedobjects.ChooseLater(s.informer.changed, o.GetResourceVersion())
		s.feeds.removeObject(s.informer, o.GetNamespace(), o.GetName())
	}
	return nil
}

// Replace replaces all objects. Those that are not in the list are gone.
func (s *store) Replace(list []any, version string) error {
	i := s.informer
	objects := make([]*cachedobjects.Object, 0, len(list))
	for _, obj := range list {
		o, err := s.makeObject(obj)
		if err != nil {
			return err
		}
		if !o.LeftOut {
			objects = append(objects, o)
		}
	}
	s.feeds.replaceObjects(i, objects, version)
	s.takeOver()
	return nil
}

// Resync does nothing: Cleaners look again by their own clocks.
func (*store) Resync() error { return nil }

// storeObject stores an object and wakes whom it concerns.
func (f *feeds) storeObject(i *informer, now *cachedobjects.Object) {
	before := i.objects[now.Namespace].Get(now.Namespace, now.Name)
	if before != nil && before.ResourceVersion == now.ResourceVersion {
		return
	}
	now.InheritContent(before)
	i.noteEdit(before, now)
	i.changed = cachedobjects.ChooseLater(i.changed, now.ResourceVersion)
	i.objects[now.Namespace] = i.objects[now.Namespace].PutObject(now)
	i.groups.MoveObject(before, now)
	i.bytes += now.Bytes
	if before == nil {
		f.adjustCounts(0, 1)
	} else {
		i.bytes -= before.Bytes
	}
	f.notifyChange(i, before, now, i.missedSince(f.clock.Now()))
}

// removeObject drops an object and wakes whom it concerned.
func (f *feeds) removeObject(i *informer, namespace, name string) {
	before := i.objects[namespace].Get(namespace, name)
	if before == nil {
		return
	}
	if left := i.objects[namespace].DeleteObject(namespace, name); left.CountObjects() > 0 {
		i.objects[namespace] = left
	} else {
		delete(i.objects, namespace)
	}
	i.groups.MoveObject(before, nil)
	i.noteEdit(before, nil)
	i.bytes -= before.Bytes
	f.adjustCounts(0, -1)
	f.notifyChange(i, before, nil, i.missedSince(f.clock.Now()))
}

// notifyChange adds a change to the backlog that happened between since and now. If since is zero, it happened now.
func (f *feeds) notifyChange(i *informer, before, now *cachedobjects.Object, since time.Time) {
	r := i.scope.resource
	if i.synced { // otherwise markSynced wakes all owners
		f.matcher.backlog.add(newChange(r, before, now, since))
	} else if i.arrived != nil { // owners hear of it when it takes over
		i.arrived.noteMissed(before, now)
	}
	f.noteDefinition(i, before, now)
}

// noteDefinition has kinds looked up again whose definition has changed.
func (f *feeds) noteDefinition(i *informer, before, now *cachedobjects.Object) {
	if i.scope.resource.GVR.Group == served.DefinitionsGroup {
		o := now
		if o == nil {
			o = before
		}
		f.catalog.refreshKinds(o.Name, before, now)
	}
}

// replaceObjects stores a whole list. Owners hear of the first one once; later only of what is different. The list is compared with what
// there is before the lock is taken, which all watches wait for; meanwhile nothing changes, because the goroutine that calls it is the only
// one that changes what an informer holds. The differences go to the backlog in parts.
func (f *feeds) replaceObjects(i *informer, objects []*cachedobjects.Object, version string) {
	f.mu.RLock()
	before, first, renews := maps.Clone(i.objects), !i.synced, i.keeps != i.listing || i.isOutdated()
	var known map[string]cachedobjects.Shelf // by the informer that it takes over from
	var since time.Time
	if old := i.findPredecessor(); old != nil {
		known, since, first = maps.Clone(old.objects), old.known, false
	}
	f.mu.RUnlock()
	var missed *listdiff.Diff
	if !since.IsZero() {
		missed = listdiff.CompareObjects(known, slices.Clone(objects), true)
	}
	l := &listing{Diff: listdiff.CompareObjects(before, objects, renews), version: version, missedSince: since}
	if missed != nil {
		l.Changes, l.ChangedIn = missed.Changes, missed.ChangedIn
	}
	defer f.matcher.backlog.endReport(l)
	since, stored := f.storeListing(i, l)
	if !stored || first && i.scope.resource.GVR.Group != served.DefinitionsGroup {
		return
	}
	f.notifyAll(i, l.Changes, since, first)
}

// findPredecessor is the informer that one takes over from when its list is there; nil if there is none.
func (i *informer) findPredecessor() *informer {
	switch s := i.scope; {
	case i == s.next:
		return s.full
	case !i.synced && i.full && s.meta != nil && s.meta.synced:
		return s.meta
	}
	return nil
}

// storeListing stores a list that was compared, and returns since when what is different may have been.
func (f *feeds) storeListing(i *informer, l *listing) (since time.Time, stored bool) {
	f.mu.Lock()
	defer f.unlockAndWake()
	if i.stopped {
		return since, false
	}
	i.groups.DropAll() // the next reads make them again
	i.objects, i.groups.Of, i.bytes, i.base, i.changed, i.listed = l.Objects, l.Groups, l.Bytes, l.version, l.version, true
	i.history = cachedobjects.NewHistory()
	i.noteChange()
	i.reached = "" // a list may be older than what was known
	i.noteReached(l.version)
	i.loading.Store(0)
	f.adjustCounts(0, l.More)
	now := f.clock.Now()
	if i.asked.IsZero() {
		i.asked = now
	}
	since = monotime.ChooseEarlier(i.known, l.missedSince)
	i.known, i.heard, i.caughtUp = i.asked, now, now.Add(now.Sub(i.asked))
	i.failure, i.failingSince = "", time.Time{}
	if i.defined != "" {
		f.catalog.noteDefined(i, i.defined)
		i.defined = ""
	}
	renewed := i.endOutdated()
	if i == i.scope.next {
		i.arrived = l
		i.scope.pace.NoteEnd(now.Sub(i.asked))
		f.answers.reportStates(i.scope.wants)
		return since, false // takeOver tells of it
	}
	widening{f}.endList(i, now, since)
	if !since.IsZero() {
		f.matcher.backlog.beginReport(l, since) // as long as they are not added, which takes several turns of the lock
	}
	if renewed || !i.synced {
		f.markSynced(i)
	}
	f.catalog.noteDefinitions(i)
	f.answers.reportStates(i.scope.wants)
	return since, true
}

// notifyAll adds all differences that a list has shown to the backlog.
func (f *feeds) notifyAll(i *informer, changes []listdiff.Difference, since time.Time, first bool) {
	for some := range slices.Chunk(changes, changesAtATime) {
		f.notifyChanges(i, some, since, first)
	}
}

// notifyChanges adds some of the differences that a list has shown to the backlog, although the informer may have ended since it was stored:
// who wants to know of them may be served by another one, which does not know them.
func (f *feeds) notifyChanges(i *informer, changes []listdiff.Difference, since time.Time, first bool) {
	f.mu.Lock()
	defer f.unlockAndWake()
	for _, c := range changes {
		if first {
			f.noteDefinition(i, c.Before, c.Now)
		} else {
			f.notifyChange(i, c.Before, c.Now, since)
		}
	}
}

// markSynced records that an informer has its first whole list. It wakes every Cleaner that the informer serves, even those that knew an
// older state, because the changes in between were not seen.
func (f *feeds) markSynced(i *informer) {
	i.synced = true
	s := i.scope
	if i.full {
		f.stopInformer(s.meta)
		s.meta = nil
	}
	s.alarm.Failures = 0
	for k := range s.resource.kinds {
		k.alarm.Failures = 0
	}
	for w := range s.wants {
		if l := f.answers.checkCoverage(&w.query); slices.Contains(l.informers, i) {
			w.reportedState = observed.Unknown
		}
	}
}
