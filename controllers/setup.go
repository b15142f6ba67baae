// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/events"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/metrics"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/ration"
	"github.com/vtex/cleaner/controllers/internal/skew"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/signing"
)

// Options are what an administrator sets.
type Options struct {
	// Clock is the time; the real one if nil.
	Clock clock.WithTickerAndDelayedExecution
	// Lease says whether this process leads. Required.
	Lease interface{ Fresh() bool }
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
	// MinInterval is how long after an evaluation of a Cleaner the next one may follow.
	MinInterval time.Duration
	// Settle is how long what was deleted may take to go before a run goes on without it.
	Settle time.Duration
	// FinishGrace is how long a deleted Cleaner is held to finish and to report.
	FinishGrace time.Duration
	// SinkAllow and SinkDeny narrow the addresses that an event may be sent to; SinkAllowLoopback widens them.
	SinkAllow, SinkDeny []netip.Prefix
	SinkAllowLoopback   bool
	// Workers is how many Cleaners are worked on at a time, and Uninstalls how many releases are uninstalled.
	Workers, Uninstalls int
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
	DefaultWorkers     = 8
	DefaultUninstalls  = 4
)

// SetupWithManager puts the parts together and adds them to a manager. It is the only place where that is done.
func SetupWithManager(mgr ctrl.Manager, opts Options) error {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Skew == nil {
		opts.Skew = skew.New(skew.Options{Clock: opts.Clock})
	}
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS = -1 // requests are bounded by what is in flight, and by the API server's priority and fairness
	reviews, err := authorizationv1client.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client for access reviews: %w", err)
	}
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		return fmt.Errorf("cannot make the environment of expressions: %w", err)
	}
	count, err := metrics.New(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	if err := metrics.RegisterClockSkew(ctrlmetrics.Registry, opts.Skew.EstimateSkew); err != nil {
		return err
	}
	contain.SetObserver(func(p *contain.Panic) {
		count.CountPanic()
		mgr.GetLogger().Error(p, "Panic", "stack", p.Stack)
	})
	engine, err := watches.New(watches.Options{Config: config, Clock: opts.Clock, Metrics: count})
	if err != nil {
		return fmt.Errorf("cannot make the watches: %w", err)
	}
	maker := &handsMaker{
		config: config, engine: engine, access: identity.NewAccess(reviews.SubjectAccessReviews(), opts.Clock),
		protection: opts.newProtection(), slots: actuate.NewSlots(), ahead: opts.Skew.ClockAhead, clock: opts.Clock,
	}
	accounts, err := corev1client.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client for ServiceAccounts: %w", err)
	}
	own, err := maker.handsOf(identity.Account{})
	if err != nil {
		return err
	}
	wake := &waker{}
	log := mgr.GetLogger().WithName("sink")
	cluster, err := outbox.NewCluster(config, opts.Clock, func(what string, err error) {
		log.Info("Addresses that no sink of a Cleaner may have are not known", "what", what, "why", err.Error())
	})
	if err != nil {
		return err
	}
	authors := identity.NewAuthors(reviews.SubjectAccessReviews(), accounts, opts.Clock)
	secrets := &credentials{live: mgr.GetAPIReader(), keys: opts.Keys, hands: maker, own: own, authors: authors, opts: &opts}
	sender, err := outbox.NewSender(outbox.Options{
		Clock:            opts.Clock,
		Policy:           outbox.Policy{AllowLoopback: opts.SinkAllowLoopback, Allow: opts.SinkAllow, Deny: opts.SinkDeny},
		ClusterAddresses: cluster.ListAddresses,
		Metrics:          count,
		DeliveryChanged:  wake.Wake,
		ReadSecret:       secrets.readValue,
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
	r := &CleanerReconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), compiler: celenv.NewCache(compiler), watches: engine,
		resolver: engine.Resolver(), hands: maker, own: own, pool: newPool(opts.Uninstalls), sender: sender, recorder: recorder,
		clock: opts.Clock, wake: wake, turns: ration.NewTurns(opts.Clock, wake.Wake), metrics: count, opts: opts, keys: opts.Keys,
		authors: authors,
	}
	for _, part := range []interface {
		Start(ctx context.Context) error
	}{engine, sender, recorder, r.pool} {
		if err := mgr.Add(part); err != nil {
			return fmt.Errorf("cannot add a part to the manager: %w", err)
		}
	}
	return builder.ControllerManagedBy(mgr).
		For(&v1alpha1.Cleaner{}, builder.WithPredicates(r.evaluations.WatchCleaners(), wakesCleaner())).
		Watches(&v1alpha1.ClusterCleaner{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(r.evaluations.WatchCleaners(), wakesCleaner())).
		Watches(&v1alpha1.CleanerTemplate{}, handler.EnqueueRequestsFromMapFunc(r.usersOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(engine.Source()).
		WatchesRawSource(wake.newSource()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: opts.Workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(r)
}

// MetricsHandler gives the metrics of this process.
func MetricsHandler() http.Handler { return metrics.NewHandler(ctrlmetrics.Registry) }

func (o *Options) newProtection() plan.Protection {
	return plan.Protection{Namespaces: o.ProtectedNamespaces, Own: o.Namespace, AllowedKinds: o.AllowProtectedKinds}
}

// wakesCleaner lets through what can change what a Cleaner does: not a status that is there for people.
func wakesCleaner() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(v1alpha1.Owner)
		if !ok {
			return true
		}
		after, ok := e.ObjectNew.(v1alpha1.Owner)
		if !ok {
			return true
		}
		deletedBefore, deletedAfter := before.GetDeletionTimestamp(), after.GetDeletionTimestamp()
		return before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() ||
			before.GetAnnotations()[v1alpha1.AnnotationRequestedAt] != after.GetAnnotations()[v1alpha1.AnnotationRequestedAt] ||
			len(before.GetFinalizers()) != len(after.GetFinalizers()) || !deletedBefore.Equal(deletedAfter)
	}}
}

// waker puts Cleaners into the controller's queue when a part of ours has news of them.
type waker struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Wake asks for a pass over a Cleaner. Before the controller has started it does nothing: each Cleaner is looked at
// then anyway.
func (w *waker) Wake(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil {
		w.queue.Add(reconcile.Request{NamespacedName: key})
	}
}

func (w *waker) newSource() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = q
		return nil
	})
}
