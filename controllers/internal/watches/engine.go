// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/vtex/cleaner/controllers/internal/keptparts"
	"github.com/vtex/cleaner/controllers/internal/labelgroups"
	"github.com/vtex/cleaner/controllers/internal/memorybudget"
	"github.com/vtex/cleaner/controllers/internal/nameturns"
	"github.com/vtex/cleaner/controllers/internal/news"
	"github.com/vtex/cleaner/controllers/internal/rightswatch"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/internal/wakeups"
	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

var (
	_ manager.LeaderElectionRunnable = (*Engine)(nil)
	_ manager.Runnable               = (*Engine)(nil)
	_ snapshot.Reader                = (*Engine)(nil)
)

// defaultRetryEvery is how often what cannot be read is tried again, at least.
const defaultRetryEvery = 30 * time.Second

// Owner is a Cleaner.
type Owner = types.NamespacedName

// Interest is what a Cleaner wants to know of.
type Interest struct {
	snapshot.Query
	// Quiet means that its objects may be read, and that their changes wake no Cleaner.
	Quiet bool
}

// Metrics counts what the Engine does. It may be called by several goroutines, and under the Engine's lock, and must return at once.
type Metrics interface {
	// SetWatchCounts says how many informers there are now, and how many objects they hold.
	SetWatchCounts(informers, objects int)
	// CountWakeups says that so many Cleaners must look again.
	CountWakeups(owners int)
	// CountTooLarge says that a watch was ended because its objects took too much memory.
	CountTooLarge()
}

// NopMetrics counts nothing.
type NopMetrics struct{}

// SetWatchCounts does nothing.
func (NopMetrics) SetWatchCounts(int, int) {}

// CountWakeups does nothing.
func (NopMetrics) CountWakeups(int) {}

// CountTooLarge does nothing.
func (NopMetrics) CountTooLarge() {}

// Options are what an Engine is made of.
type Options struct {
	// Config is where clients are made from. Required. Discovery and Access may be given.
	Config    *rest.Config
	Discovery served.Discovery
	Access    authorizationv1client.SelfSubjectAccessReviewInterface

	Clock   clock.WithTicker
	Metrics Metrics
	// Budget is the memory that the operator may have. There is no limit without it.
	Budget *memorybudget.Budget
	// DefinitionChanged hears of each CustomResourceDefinition that is created, changed or deleted, by its name. It is called under the Engine's
	// lock, and must return at once. It may be nil.
	DefinitionChanged func(name string)
	// RetryEvery is how often a kind that is forbidden or not served is tried again, at least. 30s without it.
	RetryEvery time.Duration
	// WatchRights has RBAC rules watched, if the operator may: so it hears at once of rights that it has been given.
	WatchRights bool
}

// Engine watches what Cleaners want, and says which of them must look again.
type Engine struct {
	*background
	// News is of all owners.
	News     *news.News
	resolver *served.Resolver
	catalog  *catalog
	answers  *answers
	matcher  *matcher
	owners   map[Owner]map[interestKey]*want // guarded by the lock
	rights   *rightswatch.Watcher            // nil without Options.WatchRights
}

// want is one interest of one owner.
type want struct {
	owner Owner
	query snapshot.Query
	quiet bool
	// required are the labels that its objects must have.
	required []snapshot.RequiredLabel
	// full says that metadata is not enough.
	full bool
	// transitionsOnly says that only an object that begins or ceases to match wakes the owner.
	transitionsOnly bool
	// byFields says that it compares what metadata does not have.
	byFields bool
	// comparisons is how many terms are compared with an object, and placeComparisons with the namespace of one.
	comparisons, placeComparisons int

	kind *kind
	// scopes are those that it hangs on: for each namespace that is asked for, or for all at once, from the cluster down to
	// the one that serves it.
	scopes []*scope
	// buckets are those of the index that it is in, and positions where in each.
	buckets   []bucketKey
	positions []int
	// reportedState is the state that its owner knows of.
	reportedState observed.TargetState
	// lost is until when changes are known, where it has lost the informers that served it; zero: it has not. Those that serve it next do not
	// know what was missed.
	lost time.Time
}

// interestKey tells the interests of an owner apart.
type interestKey struct {
	query                  [sha256.Size]byte
	quiet, transitionsOnly bool
}

// New returns an Engine that watches nothing until it is started.
func New(o Options) (*Engine, error) {
	if o.Clock == nil || o.Config == nil {
		return nil, errors.New("cannot make a watch engine without a clock and a rest.Config")
	}
	clients, err := wire.NewClients(o.Config, o.Clock)
	if err != nil {
		return nil, err
	}
	if o.Discovery == nil {
		o.Discovery = clients.Discovery
	}
	if o.Access == nil {
		o.Access = clients.Access
	}
	if o.Metrics == nil {
		o.Metrics = NopMetrics{}
	}
	if o.DefinitionChanged == nil {
		o.DefinitionChanged = func(string) {}
	}
	o.Budget, o.RetryEvery = cmp.Or(o.Budget, &memorybudget.Budget{}), cmp.Or(o.RetryEvery, defaultRetryEvery)
	m := &matcher{backlog: newBacklog(o.Clock)}
	changes := news.New(o.Clock, m.pendingSince)
	l := &lock{wakeups: &wakeups.Wakeups{Count: o.Metrics.CountWakeups, News: changes}}
	b := &background{lock: l, clock: o.Clock, retryEvery: o.RetryEvery}
	owners, kinds := map[Owner]map[interestKey]*want{}, map[kindKey]*kind{}
	resolver := served.NewResolver(o.Clock, o.Discovery, o.RetryEvery)
	a := &answers{lock: l, owners: owners, kinds: kinds}
	m.mu, m.wakeups, m.findNamespace, m.reaches = l.mu.RLocker(), l.wakeups, a.findNamespace, a.reaches
	f := &feeds{background: b, dynamic: clients.Dynamic, metadata: clients.Metadata, metrics: o.Metrics, sharing: keptparts.NewSharing(), budget: o.Budget, groupBytes: &labelgroups.Bytes{}, answers: a, matcher: m}
	p := &placement{background: b, access: o.Access, names: nameturns.New[*scope](o.RetryEvery), alarms: newNameAlarms(), answers: a, feeds: f, few: fewNamespaces, fewNames: fewNames}
	c := &catalog{background: b, dynamic: clients.Dynamic, resolver: resolver, kinds: kinds, resources: map[served.Resource]*resource{}, answers: a, placement: p, definitionChanged: o.DefinitionChanged, settling: served.NewSettling(o.RetryEvery / settlingShare)}
	f.placement, f.catalog = p, c
	e := &Engine{background: b, News: changes, resolver: resolver, catalog: c, answers: a, matcher: m, owners: owners}
	if o.WatchRights {
		e.rights = rightswatch.New(rightswatch.Options{Metadata: clients.Metadata, Access: o.Access, Clock: o.Clock, Tell: e.noteRights})
	}
	return e, nil
}

// Resolver returns what the Engine finds kinds with. The Engine keeps it fresh.
func (e *Engine) Resolver() *served.Resolver { return e.resolver }

// noteRights has access that was denied, and is needed, checked at once, because RBAC rules have changed.
func (e *Engine) noteRights() {
	e.mu.Lock()
	defer e.unlockAndWake()
	now := e.clock.Now()
	for _, r := range e.catalog.resources {
		for _, s := range r.scopes {
			if s.access == denied && s.alarm.Due.After(now) && e.catalog.placement.isNeeded(s) { // else it is being checked
				e.catalog.placement.setAlarm(s, now)
			}
		}
	}
}

// NeedLeaderElection has it started after the caches. There is no election.
func (e *Engine) NeedLeaderElection() bool { return true }

// Start watches until ctx is done, and returns after all goroutines have ended.
func (e *Engine) Start(ctx context.Context) error {
	e.mu.Lock()
	if e.ctx != nil {
		e.mu.Unlock()
		return errors.New("cannot start a watch engine twice")
	}
	e.ctx = ctx
	e.runInBackground(e.matcher.run)
	e.runInBackground(func(ctx context.Context) {
		e.catalog.placement.feeds.budget.Run(ctx, e.clock, pressure{e.catalog.placement}.closeLargest)
	})
	if e.rights != nil {
		e.runInBackground(e.rights.Run)
	}
	for range namesAtATime {
		e.runInBackground(e.catalog.placement.checkNames)
	}
	for _, k := range e.catalog.kinds {
		e.catalog.startFollowing(k)
	}
	// The Engine itself wants to notice at once that a kind appears, changes or goes.
	e.setInterestsLocked(Owner{}, keyInterests([]Interest{{Quiet: true, Query: served.NewDefinitionQuery("")}}))
	e.unlockAndWake()

	<-ctx.Done()
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	e.running.Wait() // the lock is free, because they need it to end
	return nil
}

// SetInterests declares all that a Cleaner wants to know of, instead of what it wanted before. It returns at once; what cannot be
// read yet has a state of its own. Its queries are compiled and told apart before the lock is taken, which all watches wait for: under
// it an interest costs the same whatever its selectors are.
func (e *Engine) SetInterests(owner Owner, interests []Interest) {
	keyed := keyInterests(interests)
	e.mu.RLock()
	known := e.owners[owner]
	same := len(known) == len(keyed) && !slices.ContainsFunc(keyed, func(i keyedInterest) bool { return known[i.interestKey] == nil })
	e.mu.RUnlock()
	if same {
		return
	}
	e.mu.Lock()
	defer e.unlockAndWake()
	e.setInterestsLocked(owner, keyed)
	e.News.NoteChange(owner) // changes before a new query, and after a dropped one, go unseen
}

// DropInterests drops all that a Cleaner wants.
func (e *Engine) DropInterests(owner Owner) { e.SetInterests(owner, nil) }

// keyedInterest is an interest and what tells it apart.
type keyedInterest struct {
	Interest
	interestKey
}

// keyInterests prepares interests, each once. The Namespaces that one chooses by their labels are one of their own, before it.
func keyInterests(interests []Interest) []keyedInterest {
	keyed := make([]keyedInterest, 0, len(interests))
	known := make(map[interestKey]struct{}, len(interests))
	add := func(i Interest, transitionsOnly bool) {
		k := interestKey{i.Query.Digest(), i.Quiet, transitionsOnly}
		if _, ok := known[k]; !ok {
			known[k] = struct{}{}
			keyed = append(keyed, keyedInterest{i, k})
		}
	}
	for _, i := range interests {
		i.Compile()
		if i.Namespaces.Labels != nil {
			add(Interest{Query: i.Namespaces.NewListQuery(), Quiet: i.Quiet}, true)
		}
		add(i, false)
	}
	return keyed
}

func (e *Engine) setInterestsLocked(owner Owner, keyed []keyedInterest) {
	before := e.owners[owner]
	now := make(map[interestKey]*want, len(keyed))
	var added []*want
	for n := range keyed {
		k := keyed[n].interestKey
		w := before[k]
		if w == nil {
			w = newWant(owner, &keyed[n].Interest, k.transitionsOnly)
			added = append(added, w)
		}
		now[k] = w
	}
	for _, w := range added { // before the others are dropped, so that informers that both need keep running
		e.catalog.attachWant(w)
	}
	for k, w := range before {
		if now[k] == nil {
			e.catalog.detachWant(w)
		}
	}
	if len(now) == 0 {
		delete(e.owners, owner)
		return
	}
	e.owners[owner] = now
}

func newWant(owner Owner, i *Interest, turns bool) *want {
	w := &want{
		owner: owner, query: i.Query, required: snapshot.CompileSelector(i.Labels).RequiredLabels(), quiet: i.Quiet,
		byFields: snapshot.NeedsValue(i.Fields), transitionsOnly: turns,
	}
	w.full = !i.MetadataOnly || w.byFields
	w.comparisons, w.placeComparisons = w.query.CountComparisons()
	return w
}

// namespacesFor returns the namespaces that a query names; each can be watched by itself. For a query that asks for all, and for a
// cluster-scoped kind, it returns one empty name.
func (r *resource) namespacesFor(q *snapshot.Query) []string {
	if r.Namespaced && q.Namespaces.Names != nil {
		return q.Namespaces.Names
	}
	return []string{served.NamespaceFor(r.Resource, *q)}
}

// Source puts each Cleaner that must look again into the queue of a controller.
func (e *Engine) Source() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		e.mu.Lock()
		defer e.unlockAndWake()
		e.wakeups.SetQueue(q)
		for o := range e.owners {
			if o != (Owner{}) {
				e.wakeups.AddOwners(o)
			}
		}
		return nil
	})
}
