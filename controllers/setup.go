// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/speccache"
	"github.com/vtex/cleaner/controllers/internal/anykinds"
	"github.com/vtex/cleaner/controllers/internal/cachedcleaners"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/credentials"
	"github.com/vtex/cleaner/controllers/internal/evalcancel"
	"github.com/vtex/cleaner/controllers/internal/events"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/memorybudget"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/internal/metrics"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/internal/skew"
	"github.com/vtex/cleaner/controllers/internal/triggers"
	"github.com/vtex/cleaner/controllers/internal/uninstallpool"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/kindschemas"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/shards"
	"github.com/vtex/cleaner/controllers/signing"
)

// Options are what an administrator sets.
type Options struct {
	// Clock is the time; the real one if nil.
	Clock clock.WithTickerAndDelayedExecution
	// Shards says which Cleaners this process owns. Required.
	Shards shards.Ownership
	// Skew is what MeasureSkew has made of the manager's configuration. The clock is trusted if nil.
	Skew *skew.Meter
	// Namespace is the operator's own, in which nothing is ever touched.
	Namespace string
	// ProtectedNamespaces are those in which nothing is deleted.
	ProtectedNamespaces []string
	// AllowProtectedKinds are protected resources, as <resource>.<group>, that may be deleted all the same.
	AllowProtectedKinds []string
	// Keys sign what the operator reads back from where others can write. Required.
	Keys signing.Keys
	// ActWithoutAuthor lets Cleaners whose author is not known act, with the operator's own rights or as the account that they name.
	ActWithoutAuthor bool
	// DefaultServiceAccount is the ServiceAccount, in each Cleaner's namespace, as which the operator acts for Cleaners that
	// name none; empty: it acts as itself.
	DefaultServiceAccount string
	// RequireServiceAccount refuses Cleaners for which the operator would act as itself.
	RequireServiceAccount bool
	// ObjectEvents has the objects that are cleaned get Events too.
	ObjectEvents bool
	// MinInterval is how long after an evaluation of a Cleaner the next one may follow.
	MinInterval time.Duration
	// Settle is how long deleted objects may take to go before a run continues without them.
	Settle time.Duration
	// FinishGrace is how long a deleted Cleaner is held to finish and to report.
	FinishGrace time.Duration
	// SinkAllow and SinkDeny narrow the addresses that an event may be sent to; SinkAllowLoopback widens them.
	SinkAllow, SinkDeny []netip.Prefix
	SinkAllowLoopback   bool
	// Workers is how many Cleaners are worked on at a time, and Uninstalls how many releases are uninstalled. Namespaces share both.
	Workers, Uninstalls int
	// MemoryLimit is how many bytes of memory the operator may use. If it is 0, GOMEMLIMIT says that.
	MemoryLimit int64
}

// firstRetry and lastRetry bound the wait after a pass that failed: doubled each time.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// The defaults of Options.
const (
	DefaultMinInterval = time.Second
	DefaultSettle      = 10 * time.Minute
	DefaultFinishGrace = 30 * time.Second
	DefaultWorkers     = 16
	DefaultUninstalls  = 8
)

const (
	// mostEvaluations is how many evaluations there are at a time at most, which all take memory, and changesAtATime how many requests that
	// change something.
	mostEvaluations = 8
	// shortEvaluations is how many more there are of namespaces whose evaluations were short.
	shortEvaluations = 1
	changesAtATime   = 128
	// shortChanges is how many of these are for namespaces whose requests were short.
	shortChanges = 16
	// readingsAtATime is how many records of releases are read at a time: what each may cost is not added up.
	readingsAtATime = 1
)

// countEvaluationSlots says how many evaluations there are at a time, without shortEvaluations: no more than compute at the same time, or
// each would have a part of a processor, and honest ones would not end in time.
func countEvaluationSlots() int { return min(mostEvaluations, runtime.GOMAXPROCS(0)) }

// SetupWithManager puts the parts together and adds them to a manager. It is the only place where that is done.
func SetupWithManager(mgr ctrl.Manager, opts Options) error {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Skew == nil {
		opts.Skew = skew.New(skew.Options{Clock: opts.Clock})
	}
	config, memory := rest.CopyConfig(mgr.GetConfig()), memorybudget.New(opts.MemoryLimit)
	config.QPS = -1 // requests are bounded by what is in flight, and by the API server's priority and fairness
	reviews, err := authorizationv1client.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client for access reviews: %w", err)
	}
	compiler, err := celenv.NewCompiler(celenv.Options{Memory: memory.Limit()})
	if err != nil {
		return fmt.Errorf("cannot make the environment of expressions: %w", err)
	}
	count, err := registerMetrics(mgr, &opts)
	if err != nil {
		return err
	}
	contain.SetObserver(func(p *contain.Panic) {
		count.CountPanic()
		mgr.GetLogger().Error(p, "Panic", "stack", p.Stack)
	})
	var r *CleanerReconciler // before the watches are started
	engine, err := watches.New(watches.Options{
		Config: config, Clock: opts.Clock, Metrics: count, Budget: memory, WatchRights: true, DefinitionChanged: func(name string) { r.fields.NoteDefinition(name) },
	})
	if err != nil {
		return fmt.Errorf("cannot make the watches: %w", err)
	}
	factory, own, err := clients.New(clients.Config{
		Operator: config, Watches: engine, Access: identity.NewAccess(reviews.SubjectAccessReviews(), opts.Clock), Metrics: count,
		Protection: opts.newProtection(), Slots: fair.NewSlotsForShort(changesAtATime-shortChanges, shortChanges, opts.Clock), Ahead: opts.Skew.ClockAhead, Clock: opts.Clock,
	})
	if err != nil {
		return err
	}
	accounts, err := corev1client.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client for ServiceAccounts: %w", err)
	}
	wake := &fair.Waker{}
	log := mgr.GetLogger().WithName("sink")
	cluster, err := outbox.NewCluster(config, opts.Clock, func(what string, err error) {
		log.Info("Addresses that no sink of a Cleaner may have are not known", "what", what, "why", err.Error())
	})
	if err != nil {
		return err
	}
	authors := identity.NewAuthors(reviews.SubjectAccessReviews(), accounts, opts.Clock)
	secrets := &credentials.Reader{
		Live: mgr.GetAPIReader(), Keys: opts.Keys, Clients: factory, Own: own, Authors: authors, Policy: opts.identityPolicy(), Namespace: opts.Namespace,
	}
	sender, err := outbox.NewSender(outbox.Options{
		Clock:            opts.Clock,
		Policy:           outbox.Policy{AllowLoopback: opts.SinkAllowLoopback, Allow: opts.SinkAllow, Deny: opts.SinkDeny},
		ClusterAddresses: cluster.ListAddresses,
		Metrics:          count,
		DeliveryChanged:  wake.Wake,
		ReadSecret:       secrets.ReadValue,
		AttemptFailed: func(key types.NamespacedName, run int64, f outbox.Failure, err error) {
			log.Info("A sink did not take an event", "cleaner", key, "run", run, "failure", f.String(), "cause", f.Cause, "why", fmt.Sprint(err))
		},
	})
	if err != nil {
		return fmt.Errorf("cannot make the sender: %w", err)
	}
	recorder, err := events.NewRecorder(events.Options{
		Config: config, Clock: opts.Clock, Metrics: count,
		EventsDropped: func(counts map[string]int, last error) {
			mgr.GetLogger().WithName("events").Info("Events were not written", "counts", counts, "lastError", fmt.Sprint(last))
		},
	})
	if err != nil {
		return err
	}
	discovered, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a discovery client: %w", err)
	}
	kinds := newKindsFinder(discovered, &opts, own, identity.NewKindReviews(reviews.SubjectAccessReviews(), opts.Clock), reviews.SelfSubjectRulesReviews())
	r = &CleanerReconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), compiler: speccache.NewCache(compiler), watches: engine,
		resolver: engine.Resolver(), clients: factory, own: own, pool: uninstallpool.NewPool(fair.NewSlots(opts.Uninstalls, opts.Clock), wake.Wake), sender: sender, recorder: recorder,
		clock: opts.Clock, wake: wake, turns: memoryquota.NewTurns(opts.Clock, wake.Wake), slots: fair.NewSlotsForShort(countEvaluationSlots(), shortEvaluations, opts.Clock), readings: fair.NewSlots(readingsAtATime, opts.Clock), metrics: count, opts: opts, keys: opts.Keys,
		authors: authors, kinds: kinds,
	}
	r.fields = r.newFieldChecker(kindschemas.NewReader(discovered.RESTClient(), opts.Clock))
	opts.Shards.NotifyChanges(func(changed []int) { cachedcleaners.WakeShards(context.Background(), r.client, changed, r.wake.Wake) }) //nolint:forbidigo // a cache is read
	for _, part := range []manager.Runnable{memorybudget.NewPacer(), memorybudget.NewReleaser(clock.RealClock{}), engine, sender, recorder, r.pool, r.fields} {
		if err := mgr.Add(part); err != nil {
			return fmt.Errorf("cannot add a part to the manager: %w", err)
		}
	}
	return builder.ControllerManagedBy(mgr).
		For(&v1alpha1.Cleaner{}, builder.WithPredicates(r.evaluations.WatchCleaners(), evalcancel.WakesCleaner())).
		Watches(&v1alpha1.ClusterCleaner{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(r.evaluations.WatchCleaners(), evalcancel.WakesCleaner())).
		Watches(&v1alpha1.CleanerTemplate{}, handler.EnqueueRequestsFromMapFunc(r.assignments().ListUsers), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(engine.Source()).
		WatchesRawSource(wake.NewSource()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: opts.Workers,
			NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
				return fair.NewQueue(name, opts.Workers, limiter, opts.Clock, count)
			},
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(r)
}

// registerMetrics registers the metrics of this process.
func registerMetrics(mgr ctrl.Manager, o *Options) (*metrics.Metrics, error) {
	count, err := metrics.New(ctrlmetrics.Registry)
	if err != nil {
		return nil, err
	}
	return count, errors.Join(metrics.RegisterClockSkew(ctrlmetrics.Registry, o.Skew.EstimateSkew), metrics.RegisterShards(ctrlmetrics.Registry, o.Shards.CountOwned), metrics.RegisterReadiness(ctrlmetrics.Registry, func() ([]metrics.Readiness, error) {
		return cachedcleaners.ListReadiness(context.Background(), mgr.GetClient(), o.Shards) //nolint:forbidigo // a scrape has no context, and a cache is read
	}))
}

// newKindsFinder returns what finds the kinds of targets of all kinds.
func newKindsFinder(d served.AllResources, o *Options, own *clients.Set, reviews *identity.KindReviews, rules rights.RulesReviews) *anykinds.Finder {
	return anykinds.NewFinder(anykinds.Options{
		Namespace: o.Namespace, Kinds: served.NewDirectory(o.Clock, d), Watched: own.Watched, Reviews: reviews, Own: rules, Clock: o.Clock,
	})
}

// MetricsHandler gives the metrics of this process.
func MetricsHandler() http.Handler { return metrics.NewHandler(ctrlmetrics.Registry) }

func (o *Options) newProtection() plan.Protection {
	return plan.Protection{Namespaces: o.ProtectedNamespaces, Own: o.Namespace, AllowedKinds: o.AllowProtectedKinds}
}

func (o *Options) newTriggerPolicy() triggers.Policy {
	return triggers.Policy{ActWithoutAuthor: o.ActWithoutAuthor, Ahead: o.Skew.ClockAhead}
}

// DefaultMaxClockSkew is how far the operator's clock may be from the API server's.
const DefaultMaxClockSkew = time.Minute

// MeasureSkew has all clients that are made of a configuration from now on measure how far the clock is from the API
// server's. The result belongs into Options. With a limit of 0 nothing follows from what is measured.
func MeasureSkew(config *rest.Config, limit time.Duration, c clock.PassiveClock) *skew.Meter {
	log := ctrl.Log.WithName("clock")
	root := ""
	if server, _, err := rest.DefaultServerUrlFor(config); err == nil { // without an address there are no clients
		root = server.Path
	}
	meter := skew.New(skew.Options{Clock: c, Root: root, Max: limit, SuspectChanged: func(suspect bool, by time.Duration) {
		if suspect {
			log.Info("The operator's clock differs too much from the API server's: evaluations and deletions are paused", "skew", by.String(), "limit", limit.String())
			return
		}
		log.Info("The operator's clock agrees with the API server's again", "skew", by.String(), "limit", limit.String())
	}})
	config.Wrap(meter.WrapTransport)
	return meter
}
