// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/faults"
)

// defaultWorkers is how many attempts are under way at most, unless Options say otherwise.
const defaultWorkers = 32

// The attempts for one namespace may occupy 1/namespaceShare of the workers, and those of them that go to one sink
// 1/sinkShare.
const (
	namespaceShare = 4
	sinkShare      = 8
)

// Metrics counts what a Sender does.
type Metrics interface {
	// CountDelivery counts an attempt by what came of it: "delivered", or a Failure's Cause or, without one, its Class.
	CountDelivery(result string)
}

// Options are what a Sender needs. Only the Clock is required.
type Options struct {
	// Clock tells when to try again.
	Clock clock.WithTicker
	// Policy says which addresses may be connected to.
	Policy Policy
	// ClusterAddresses gives the addresses of the cluster's own machines, which no sink of a Cleaner in a namespace may have; nil: none.
	ClusterAddresses func(context.Context) (map[netip.Addr]bool, error)
	// Workers bounds the attempts under way: 32 when it is 0.
	Workers int
	// Resolver looks up the names of sinks: when nil, as the system does.
	Resolver *net.Resolver
	// RootCAs are whom a sink's certificate may be signed by: when nil, whom the system trusts.
	RootCAs *x509.CertPool
	// Metrics may be nil.
	Metrics Metrics
	// DeliveryChanged is called when what GetDelivery says has changed, to wake the Cleaner's reconcile. It must not block.
	DeliveryChanged func(types.NamespacedName)
	// ReadSecret reads the value that shows a sink with Auth who has sent an event. It is asked before each attempt, whether the
	// sink is still the Cleaner's too. Its error is for the author of the Cleaner.
	ReadSecret func(ctx context.Context, key types.NamespacedName, uid types.UID, sink Sink) ([]byte, error)
	// AttemptFailed, unless nil, receives each attempt that failed, for the operator's log; err may be nil. It must not block.
	AttemptFailed func(key types.NamespacedName, run int64, f Failure, err error)
}

// Delivery is how far the delivery of a run has come.
type Delivery struct {
	// Known says that the run was given to QueueDelivery in this process and not forgotten since.
	Known bool
	// Delivered says that the sink has answered with 2xx.
	Delivered bool
	// Attempts counts the answered and failed attempts at the present sink.
	Attempts int
	// Last is why the last of them failed. That no answer came is shown a fixed time after the attempt has begun.
	Last Failure
	// Next is when it is tried again; zero while an attempt is under way or waits for its slots.
	Next time.Time
}

// id identifies a delivery: a run of a Cleaner.
type id struct {
	key types.NamespacedName
	uid types.UID
	run int64
}

// delivery is a run on its way. The fields from sink on belong to Sender.mu.
type delivery struct {
	id
	cleaner CleanerRef
	record  *v1alpha1.Run // nil when delivered
	// changed holds a token when the sink is another one than the goroutine of this delivery knows.
	changed chan struct{}

	sink  Sink
	state Delivery
	// concealed is why the last attempt failed while it is not shown, and showAt when it will be; zero if nothing is
	// concealed.
	concealed Failure
	showAt    time.Time
	// quietUntil is until when no other sink is tried. Trying one earlier would reveal how long the attempt at this sink took.
	quietUntil time.Time
	lastSink   Sink
	cancel     context.CancelFunc // nil until it was begun
	// standing is where the Cleaner stands in a line for slots: -1 if the last attempt was answered with 2xx, else how many have failed
	// since.
	standing int
}

// Sender delivers the events of finished runs. Each delivery waits on its own. An attempt needs three slots, one after the other: of its
// sink within its namespace, of its namespace, and of all workers. So a sink that hangs takes from its own namespace half of its share at
// most, and a namespace full of such sinks takes a quarter of the workers; and what waits for a slot delays only what is behind it in
// that line, see pool. Workers are shared out among namespaces, see fair.Slots.
type Sender struct {
	clock           clock.WithTicker
	tenantClient    *http.Client // for Cleaners of a namespace
	clusterClient   *http.Client // for those that live in none
	concealFor      time.Duration
	secretTimeout   time.Duration // bounds the reading of a Secret, as it does an attempt
	readSecret      func(context.Context, types.NamespacedName, types.UID, Sink) ([]byte, error)
	metrics         Metrics
	deliveryChanged func(types.NamespacedName)
	attemptFailed   func(types.NamespacedName, int64, Failure, error)
	workers         *fair.Slots
	ofNamespace     int // how many attempts of one namespace may be under way, and
	ofSink          int // how many of them at one sink
	pools           pools
	added           chan struct{} // holds a token when there is something in pending

	mu         sync.Mutex
	deliveries map[types.NamespacedName][]*delivery // one or two of each Cleaner
	pending    []*delivery                          // not begun yet
}

// NewSender makes a Sender that sends nothing before Start.
func NewSender(o Options) (*Sender, error) {
	return newSender(o, timeouts{connect: 5 * time.Second, header: 10 * time.Second, total: 20 * time.Second, concealFor: 20 * time.Second})
}

func newSender(o Options, t timeouts) (*Sender, error) {
	if o.Clock == nil {
		return nil, errors.New("cannot make a sender without a clock")
	}
	if o.Workers < 0 {
		return nil, errors.New("cannot make a sender with a negative number of workers")
	}
	if o.Workers == 0 {
		o.Workers = defaultWorkers
	}
	if o.Metrics == nil {
		o.Metrics = nopMetrics{}
	}
	if o.ReadSecret == nil {
		o.ReadSecret = func(context.Context, types.NamespacedName, types.UID, Sink) ([]byte, error) {
			return nil, errors.New("no Secret is read")
		}
	}
	if o.AttemptFailed == nil {
		o.AttemptFailed = func(types.NamespacedName, int64, Failure, error) {}
	}
	return &Sender{
		clock:           o.Clock,
		tenantClient:    newClient(o, t, true),
		clusterClient:   newClient(o, t, false),
		concealFor:      t.concealFor,
		secretTimeout:   t.total,
		readSecret:      o.ReadSecret,
		metrics:         o.Metrics,
		deliveryChanged: o.DeliveryChanged,
		attemptFailed:   o.AttemptFailed,
		workers:         fair.NewSlots(o.Workers, o.Clock),
		ofNamespace:     max(1, o.Workers/namespaceShare),
		ofSink:          max(1, o.Workers/sinkShare),
		added:           make(chan struct{}, 1),
		deliveries:      map[types.NamespacedName][]*delivery{},
		pools:           pools{m: map[string]*pool{}},
	}, nil
}

// NeedLeaderElection has it started after the caches. There is no election.
func (s *Sender) NeedLeaderElection() bool { return true }

// Start delivers what QueueDelivery was given, before and from now on, until ctx is done. Then it cancels the attempts under way
// and returns when they have ended. What was not delivered is given to QueueDelivery again by the next owner of the Cleaner.
func (s *Sender) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	later := func(at time.Time, do func()) {
		running.Go(func() {
			s.sleepUntil(ctx, at)
			do()
		})
	}
	for {
		s.mu.Lock()
		for _, d := range s.pending {
			if !slices.Contains(s.deliveries[d.key], d) {
				continue // forgotten before it was begun
			}
			ctx, cancel := context.WithCancel(ctx)
			d.cancel = cancel
			running.Go(func() {
				defer cancel()
				s.deliverRun(ctx, d, later)
			})
		}
		s.pending = nil
		s.mu.Unlock()

		select {
		case <-ctx.Done():
			return nil
		case <-s.added:
		}
	}
}

// QueueDelivery queues the delivery of a finished run to a sink, and returns at once. To repeat it changes nothing. Another sink
// for the same run is tried when an attempt that is under way has failed: at once if it was answered, else when that is shown. A Cleaner has at most two finished
// runs that are not delivered: what is known of those before them, and of another Cleaner of its name, is forgotten.
func (s *Sender) QueueDelivery(key types.NamespacedName, c CleanerRef, sink Sink, run *v1alpha1.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := id{key: key, uid: c.UID, run: run.Number}
	if d := s.findDelivery(i); d != nil {
		if d.sink != sink && !d.state.Delivered {
			d.sink, d.state, d.concealed, d.showAt = sink, Delivery{Known: true}, Failure{}, time.Time{}
			putToken(d.changed)
		}
		return
	}
	s.cancelMatching(key, func(other *delivery) bool { return other.uid != c.UID || other.run < run.Number-1 })
	standing := 0
	for _, before := range s.deliveries[key] {
		standing = before.standing
	}
	d := &delivery{
		id: i, standing: standing, cleaner: c, record: run.DeepCopy(), changed: make(chan struct{}, 1),
		sink: sink, state: Delivery{Known: true},
	}
	s.deliveries[key] = append(s.deliveries[key], d)
	s.pending = append(s.pending, d)
	putToken(s.added)
}

// GetDelivery says how far the delivery of a run has come.
func (s *Sender) GetDelivery(key types.NamespacedName, uid types.UID, run int64) Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.findDelivery(id{key: key, uid: uid, run: run}); d != nil {
		return d.state
	}
	return Delivery{}
}

// CancelDeliveries ends all deliveries of a Cleaner, and what is known of them.
func (s *Sender) CancelDeliveries(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelMatching(key, func(*delivery) bool { return true })
}

// findDelivery gives the delivery of a run; nil when it is not known.
func (s *Sender) findDelivery(i id) *delivery {
	for _, d := range s.deliveries[i.key] {
		if d.id == i {
			return d
		}
	}
	return nil
}

// cancelMatching ends deliveries of a Cleaner.
func (s *Sender) cancelMatching(key types.NamespacedName, which func(*delivery) bool) {
	left := slices.DeleteFunc(s.deliveries[key], func(d *delivery) bool {
		if !which(d) {
			return false
		}
		if d.cancel != nil {
			d.cancel()
		}
		return true
	})
	if len(left) == 0 {
		delete(s.deliveries, key)
		return
	}
	s.deliveries[key] = left
}

// sleepUntil returns at a moment, or when ctx is done.
func (s *Sender) sleepUntil(ctx context.Context, at time.Time) {
	wait := at.Sub(s.clock.Now())
	if wait <= 0 {
		return
	}
	timer := s.clock.NewTimer(wait)
	defer timer.Stop()
	if !s.clock.Now().Before(at) { // the clock was set before there was a timer
		return
	}
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}

// deliverRun tries until the run is delivered or ctx is done. Later does something at a moment, or when the Sender ends.
func (s *Sender) deliverRun(ctx context.Context, d *delivery, later func(time.Time, func())) {
	var showing sync.WaitGroup
	defer showing.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		sink, quiet, standing := s.prepareAttempt(d)
		s.sleepUntil(ctx, quiet)
		tried, ok := s.attemptInSlots(ctx, d, sink, standing, later)
		if ctx.Err() != nil {
			return
		}
		if !ok {
			continue
		}
		again, show := s.recordAttempt(d, sink, tried)
		s.metrics.CountDelivery(resultLabel(tried.failure))
		if tried.failure != (Failure{}) {
			s.attemptFailed(d.key, d.run, tried.failure, tried.err)
		}
		if show != nil {
			showing.Go(func() { s.showConcealed(ctx, d, show) })
		}
		if !s.isConcealing(d) {
			s.deliveryChanged(d.key)
		}
		if again == nil {
			return
		}
		select {
		case <-again.C():
		case <-d.changed:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// prepareAttempt says where the next attempt goes, when it may begin, and where its Cleaner stands.
func (s *Sender) prepareAttempt(d *delivery) (to Sink, at time.Time, standing int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-d.changed: // what has changed is read here
	default:
	}
	d.state.Next = time.Time{}
	if d.sink != d.lastSink {
		at = d.quietUntil
	}
	d.lastSink = d.sink
	return d.sink, at, d.standing
}

// attemptInSlots makes an attempt as soon as its sink, its namespace and all workers have room for it. It is not tried when the
// sink changes before, or ctx is done. Of an attempt that a namespace gets no answer to, the slots are given back when that is
// shown: else others that wait for them could tell how long it took.
func (s *Sender) attemptInSlots(ctx context.Context, d *delivery, sink Sink, standing int, later func(time.Time, func())) (tried attemptResult, ok bool) {
	ofSink := s.pools.enterPool("sink "+d.key.Namespace+" "+parseSinkHost(sink.URL), s.ofSink)
	ofNamespace := s.pools.enterPool("namespace "+d.key.Namespace, s.ofNamespace)
	var taken []*pool
	leave := func() {
		for _, p := range taken {
			p.giveBack()
		}
		ofNamespace.leavePool()
		ofSink.leavePool()
	}
	for _, p := range []*pool{ofSink, ofNamespace} {
		if !p.takeSlot(ctx, standing, d.changed) {
			leave()
			return attemptResult{}, false
		}
		taken = append(taken, p)
	}
	here := make(chan struct{})
	// Who of a namespace comes first is decided: its pool has called them one by one.
	worker := s.workers.AskSlot(types.NamespacedName{Namespace: d.key.Namespace}, func() { close(here) })
	defer worker.GiveBack()
	select {
	case <-here:
	case <-d.changed:
		leave()
		return attemptResult{}, false
	case <-ctx.Done():
		leave()
		return attemptResult{}, false
	}
	began := s.clock.Now()
	if p := contain.CatchPanic(func() { tried = s.sendEvent(ctx, d, sink) }); p != nil {
		tried = attemptResult{failure: Failure{Class: ClassPanic}}
	}
	tried.began = began
	if noAnswer := tried.failure.Class == ClassNoAnswer || ctx.Err() != nil; noAnswer && !d.cleaner.isClusterScoped() {
		later(began.Add(s.concealFor), leave)
	} else {
		leave()
	}
	return tried, true
}

// attemptResult is what came of one attempt.
type attemptResult struct {
	began time.Time
	// failure is zero when the event was delivered.
	failure Failure
	// err says more about the failure, for the operator's log; it may be nil.
	err error
	// retryAfter is how long the sink asked to wait.
	retryAfter time.Duration
}

// sendEvent sends the event once.
func (s *Sender) sendEvent(ctx context.Context, d *delivery, sink Sink) attemptResult {
	e, err := NewEvent(d.cleaner, d.record)
	if err != nil {
		return attemptResult{failure: Failure{Class: ClassInvalidRun}, err: err}
	}
	if err := CheckSink(sink.URL); err != nil {
		return attemptResult{failure: Failure{Class: ClassInvalidSink}, err: err}
	}
	client := s.tenantClient
	if d.cleaner.isClusterScoped() {
		client = s.clusterClient
	}
	auth, err := s.buildAuthHeader(ctx, d, sink, e)
	if err != nil {
		return attemptResult{failure: Failure{Class: ClassNoCredential, Why: err.Error()}, err: err}
	}
	faults.PassPoint("before the event")
	status, header, err := postEvent(ctx, client, sink.URL, auth, e)
	faults.PassPoint("after the event")
	if err != nil {
		return attemptResult{failure: classifyError(err), err: err}
	}
	if status/100 == 2 {
		return attemptResult{}
	}
	return attemptResult{failure: Failure{Class: ClassAnswered, Status: status}, retryAfter: parseRetryAfter(header, s.clock.Now())}
}

// recordAttempt records the result of an attempt. It returns the timer of the next attempt, and the timer after which a concealed result
// is shown; nil if there is none.
func (s *Sender) recordAttempt(d *delivery, sink Sink, tried attemptResult) (again, show clock.Timer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tried.failure == (Failure{}) {
		d.state = Delivery{Known: true, Delivered: true, Attempts: d.state.Attempts + 1}
		d.record, d.concealed, d.showAt, d.standing = nil, Failure{}, time.Time{}, -1
		return nil, nil
	}
	d.standing = max(d.standing, 0) + 1
	wait, now := firstRetry, s.clock.Now()
	if tried.failure.Class == ClassNoAnswer && !d.cleaner.isClusterScoped() {
		d.quietUntil = tried.began.Add(s.concealFor)
	}
	if d.sink == sink { // else changed holds a token, and what the former sink did says nothing about this one
		d.state.Attempts++
		wait = computeBackoff(d.state.Attempts, tried.failure, tried.retryAfter)
		d.state.Next = now.Add(wait)
		show = s.recordFailure(d, tried, now)
	}
	return s.clock.NewTimer(wait), show // under the lock: a caller that sees Next may rely on it
}

// recordFailure shows a failure, or conceals it for as long as how long it took could tell its cause.
func (s *Sender) recordFailure(d *delivery, tried attemptResult, now time.Time) clock.Timer {
	at := tried.began.Add(s.concealFor)
	concealing := !d.showAt.IsZero()
	tells := tried.failure.Class == ClassNoAnswer && d.state.Last.Class != ClassNoAnswer && at.After(now)
	switch {
	case tried.failure.Class == ClassNoAnswer && concealing: // it is shown when the first one is
		d.concealed = tried.failure
		return nil
	case tells && !d.cleaner.isClusterScoped():
		d.concealed, d.showAt = tried.failure, at
		return s.clock.NewTimer(at.Sub(now))
	}
	d.state.Last, d.concealed, d.showAt = tried.failure, Failure{}, time.Time{}
	return nil
}

// isConcealing says that the last failure of a delivery is not shown yet.
func (s *Sender) isConcealing(d *delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !d.showAt.IsZero()
}

// showConcealed shows what is concealed when its time has come.
func (s *Sender) showConcealed(ctx context.Context, d *delivery, timer clock.Timer) {
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C():
	}
	s.mu.Lock()
	due := !d.showAt.IsZero() && !d.showAt.After(s.clock.Now()) // else another sink was named, or it has answered
	if due {
		d.state.Last, d.concealed, d.showAt = d.concealed, Failure{}, time.Time{}
	}
	s.mu.Unlock()
	if due {
		s.deliveryChanged(d.key)
	}
}

func resultLabel(f Failure) string {
	if f == (Failure{}) {
		return "delivered"
	}
	return cmp.Or(f.Cause, f.Class)
}

// parseSinkHost names what attempts at a sink are bounded by. Sinks that are no URLs are bounded together.
func parseSinkHost(sink string) string {
	u, err := url.Parse(sink)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Host)
}

// putToken leaves a token, unless there is one already.
func putToken(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

type nopMetrics struct{}

func (nopMetrics) CountDelivery(string) {}
