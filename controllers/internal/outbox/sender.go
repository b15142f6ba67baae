// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// defaultWorkers is how many attempts are under way at most, unless Options say otherwise.
const defaultWorkers = 32

// hostShare is the part of the workers, 1/hostShare, that the attempts at one host may occupy.
const hostShare = 8

// Metrics counts what a Sender does.
type Metrics interface {
	// Delivery counts an attempt by what came of it: "delivered", or a Failure's Class.
	Delivery(result string)
}

// Options are what a Sender needs. Only the Clock is required.
type Options struct {
	// Clock tells when to try again.
	Clock clock.WithTicker
	// Policy says which addresses may be connected to.
	Policy Policy
	// Workers bounds the attempts under way: 32 when it is 0.
	Workers int
	// RootCAs are whom a sink's certificate may be signed by: when nil, whom the system trusts.
	RootCAs *x509.CertPool
	// Metrics may be nil.
	Metrics Metrics
	// Done, unless nil, is called after each attempt, to wake the Cleaner's reconcile. It must not block.
	Done func(types.NamespacedName)
}

// Delivery is how far the delivery of a run has come.
type Delivery struct {
	// Known says that the run was given to Send in this process and not forgotten since.
	Known bool
	// Delivered says that the sink has answered with 2xx.
	Delivered bool
	// Attempts counts the answered and failed attempts at the present sink.
	Attempts int
	// Last is why the last of them failed.
	Last Failure
	// Next is when it is tried again; zero while an attempt is under way or waits for its turn.
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
	cleaner Identity
	record  *v1alpha1.Run // nil when delivered
	// changed holds a token when the sink is another one than the goroutine of this delivery knows.
	changed chan struct{}

	sink   string
	state  Delivery
	cancel context.CancelFunc // nil until it was begun
}

// host bounds the attempts at one host.
type host struct {
	slots chan struct{}
	users int
}

// Sender delivers the events of finished runs. Each delivery waits on its own; an attempt needs a slot of its host and
// then one of all workers, so that the attempts at a sink that hangs keep at most an eighth of the workers busy.
type Sender struct {
	clock   clock.WithTicker
	client  *http.Client
	metrics Metrics
	done    func(types.NamespacedName)
	workers chan struct{}
	added   chan struct{} // holds a token when there is something in fresh

	mu         sync.Mutex
	deliveries map[id]*delivery
	fresh      []*delivery // not begun yet
	hosts      map[string]*host
}

// NewSender makes a Sender that sends nothing before Start.
func NewSender(o Options) (*Sender, error) {
	return newSender(o, timeouts{connect: 5 * time.Second, header: 10 * time.Second, total: 20 * time.Second})
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
		o.Metrics = noMetrics{}
	}
	if o.Done == nil {
		o.Done = func(types.NamespacedName) {}
	}
	return &Sender{
		clock:      o.Clock,
		client:     newClient(o.Policy, o.RootCAs, t),
		metrics:    o.Metrics,
		done:       o.Done,
		workers:    make(chan struct{}, o.Workers),
		added:      make(chan struct{}, 1),
		deliveries: map[id]*delivery{},
		hosts:      map[string]*host{},
	}, nil
}

// NeedLeaderElection says that only the leader sends.
func (s *Sender) NeedLeaderElection() bool { return true }

// Start delivers what Send was given, before and from now on, until ctx is done. Then it cancels the attempts under way
// and returns when they have ended. What was not delivered is given to Send again by the next leader.
func (s *Sender) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		s.mu.Lock()
		for _, d := range s.fresh {
			if s.deliveries[d.id] != d {
				continue // forgotten before it was begun
			}
			ctx, cancel := context.WithCancel(ctx)
			d.cancel = cancel
			running.Go(func() {
				defer cancel()
				s.deliver(ctx, d)
			})
		}
		s.fresh = nil
		s.mu.Unlock()

		select {
		case <-ctx.Done():
			return nil
		case <-s.added:
		}
	}
}

// Send queues the delivery of a finished run to a sink, and returns at once. To repeat it changes nothing. Another sink
// for the same run is tried at once, when an attempt that is under way has failed. A Cleaner has at most two finished
// runs that are not delivered: what is known of those before them, and of another Cleaner of its name, is forgotten.
func (s *Sender) Send(key types.NamespacedName, c Identity, sink string, run *v1alpha1.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := id{key: key, uid: c.UID, run: run.Number}
	if d, ok := s.deliveries[i]; ok {
		if d.sink != sink && !d.state.Delivered {
			d.sink, d.state = sink, Delivery{Known: true}
			signal(d.changed)
		}
		return
	}
	s.forget(func(other id) bool {
		return other.key == key && (other.uid != c.UID || other.run < run.Number-1)
	})
	d := &delivery{
		id: i, cleaner: c, record: run.DeepCopy(), changed: make(chan struct{}, 1),
		sink: sink, state: Delivery{Known: true},
	}
	s.deliveries[i] = d
	s.fresh = append(s.fresh, d)
	signal(s.added)
}

// State says how far the delivery of a run has come.
func (s *Sender) State(key types.NamespacedName, uid types.UID, run int64) Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.deliveries[id{key: key, uid: uid, run: run}]
	if !ok {
		return Delivery{}
	}
	return d.state
}

// Forget ends all deliveries of a Cleaner, and what is known of them.
func (s *Sender) Forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(func(other id) bool { return other.key == key })
}

func (s *Sender) forget(which func(id) bool) {
	for i, d := range s.deliveries {
		if !which(i) {
			continue
		}
		delete(s.deliveries, i)
		if d.cancel != nil {
			d.cancel()
		}
	}
}

// deliver tries until the run is delivered or ctx is done.
func (s *Sender) deliver(ctx context.Context, d *delivery) {
	for {
		sink := s.begin(d)
		failure, asked, tried := s.inTurn(ctx, d, sink)
		if ctx.Err() != nil {
			return
		}
		if !tried {
			continue
		}
		again := s.settle(d, sink, failure, asked)
		s.metrics.Delivery(result(failure))
		s.done(d.key)
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

// begin says where the next attempt goes.
func (s *Sender) begin(d *delivery) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-d.changed: // what has changed is read here
	default:
	}
	d.state.Next = time.Time{}
	return d.sink
}

// inTurn makes an attempt as soon as the sink's host and all workers have room for it. It is not tried when the sink
// changes before, or ctx is done.
func (s *Sender) inTurn(ctx context.Context, d *delivery, sink string) (f Failure, asked time.Duration, tried bool) {
	h, leave := s.enter(hostOf(sink))
	defer leave()
	for _, slots := range []chan struct{}{h.slots, s.workers} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-d.changed:
			return Failure{}, 0, false
		case <-ctx.Done():
			return Failure{}, 0, false
		}
	}
	f, asked = s.attempt(ctx, d, sink)
	return f, asked, true
}

// enter gives the bound of the host's attempts, which is kept until everybody who has entered has left.
func (s *Sender) enter(name string) (h *host, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.hosts[name]
	if !ok {
		h = &host{slots: make(chan struct{}, max(1, cap(s.workers)/hostShare))}
		s.hosts[name] = h
	}
	h.users++
	return h, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(s.hosts, name)
		}
	}
}

// attempt sends the event once. No failure means that it was delivered.
func (s *Sender) attempt(ctx context.Context, d *delivery, sink string) (f Failure, asked time.Duration) {
	e, err := EventOf(d.cleaner, d.record)
	if err != nil {
		return Failure{Class: ClassInvalidRun}, 0
	}
	if CheckSink(sink) != nil {
		return Failure{Class: ClassInvalidSink}, 0
	}
	status, header, err := post(ctx, s.client, sink, e)
	if err != nil {
		return classify(err), 0
	}
	if status/100 == 2 {
		return Failure{}, 0
	}
	return Failure{Class: ClassAnswered, Status: status}, retryAfter(header, s.clock.Now())
}

// settle takes down what came of an attempt, and gives the timer of the next one: nil when there is none.
func (s *Sender) settle(d *delivery, sink string, f Failure, asked time.Duration) clock.Timer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f == (Failure{}) {
		d.state = Delivery{Known: true, Delivered: true, Attempts: d.state.Attempts + 1}
		d.record = nil
		return nil
	}
	wait := firstRetry
	if d.sink == sink { // else changed holds a token, and what the former sink did says nothing about this one
		d.state.Attempts++
		d.state.Last = f
		wait = backoff(d.state.Attempts, f, asked)
		d.state.Next = s.clock.Now().Add(wait)
	}
	return s.clock.NewTimer(wait) // under the lock: whoever sees Next may rely on it
}

func result(f Failure) string {
	if f == (Failure{}) {
		return "delivered"
	}
	return f.Class
}

// hostOf names what attempts at a sink are bounded by. Sinks that are no URLs are bounded together.
func hostOf(sink string) string {
	u, err := url.Parse(sink)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// signal leaves a token, unless there is one already.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

type noMetrics struct{}

func (noMetrics) Delivery(string) {}
