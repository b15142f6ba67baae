// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/utils/clock"
)

const (
	// senders is how many requests are under way at a time, and requestTime how long one may take.
	senders     = 4
	requestTime = 5 * time.Second
	// sweepEvery is how often the recorder looks for counts to write, and tellEvery how often it reports what it dropped.
	sweepEvery = 10 * time.Second
	tellEvery  = time.Minute
	// At the end, Events of passes that end are waited for, and what there is then is written, for so long.
	lingerTime = time.Second
	flushTime  = 5 * time.Second
)

// Recorder writes Events. It queues them in shares of namespaces, which take turns; a namespace has one request in flight at a time. It
// is safe for concurrent use, and never blocks a caller that records.
type Recorder struct {
	clock         clock.WithTickerAndDelayedExecution
	client        eventsv1client.EventsGetter
	instance      string
	eventsDropped func(map[string]int, error)
	changed       chan struct{} // holds a token when there may be something to write

	mu      sync.Mutex
	shares  *shares
	named   int64 // what the last name ends with
	stopped bool
}

// NeedLeaderElection has it started after the caches. There is no election.
func (r *Recorder) NeedLeaderElection() bool { return true }

// RecordEvent queues an Event and returns immediately.
func (r *Recorder) RecordEvent(e Event) {
	now, id := r.clock.Now(), e
	id.Regarding.ResourceVersion, id.Related.ResourceVersion = "", ""
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		r.shares.countDropped(DroppedShutdown, 1)
		return
	}
	s := r.shares.known[id]
	isNew := s == nil
	if isNew {
		if s = r.shares.addSeries(id); s == nil {
			r.shares.countDropped(DroppedFull, 1)
			return
		}
		s.event = r.newEvent(e, now)
	}
	s.count, s.last = countUp(s.count), now
	if isNew || s.in != nil {
		r.shares.settleSeries(s, now)
	}
	r.wakeDispatcher()
}

func (r *Recorder) withShares(do func(a *shares)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do(r.shares)
}

func (r *Recorder) wakeDispatcher() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// describeSeries returns the Event to write for a series, and whether the API server knows it already.
func (r *Recorder) describeSeries(s *series) (e *eventsv1.Event, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e = s.event.DeepCopy()
	if s.count > 1 {
		e.Series = &eventsv1.EventSeries{Count: s.count, LastObservedTime: metav1.NewMicroTime(s.last)}
	}
	return e, s.written > 0
}

// settleSeries records the result of writing a series with a count.
func (r *Recorder) settleSeries(s *series, count int32, err error) {
	r.withShares(func(a *shares) { a.recordWritten(s, count, err, r.clock.Now()) })
	r.wakeDispatcher()
}

// Start writes what is recorded, before and from now on, until ctx is done, and what there is then, for a while.
func (r *Recorder) Start(ctx context.Context) error {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { r.clock.AfterFunc(flushTime, stop) })()
	turns := make(chan *series)
	var running sync.WaitGroup
	for range senders {
		running.Go(func() {
			for s := range turns {
				r.writeSeries(sending, s)
			}
		})
	}
	told := r.dispatchSeries(ctx, sending, turns)
	close(turns)
	running.Wait()
	r.withShares(func(a *shares) {
		r.stopped = true
		a.dropAll()
	})
	r.tellDropped(told, 0)
	return nil
}

// dispatchSeries hands series to the writers. After ctx is done, it continues until nothing is left to write, or until sending is done.
// It returns when it last reported what was dropped.
func (r *Recorder) dispatchSeries(ctx, sending context.Context, turns chan<- *series) (told time.Time) {
	var swept, ended time.Time
	done := ctx.Done()
	for sending.Err() == nil {
		now := r.clock.Now()
		if now.Sub(swept) >= sweepEvery {
			r.withShares(func(a *shares) { a.sweepSeries(now) })
			told, swept = r.tellDropped(told, tellEvery), now
		}
		var s *series
		var wait time.Duration
		var idle bool
		r.withShares(func(a *shares) {
			s, wait = a.nextSeries(now)
			idle = a.writing == 0
		})
		if s != nil {
			turns <- s // each of those who write ends in time
			continue
		}
		wait = min(wait, swept.Add(sweepEvery).Sub(now))
		if done == nil {
			linger := ended.Add(lingerTime).Sub(now)
			if idle && linger <= 0 {
				return told
			}
			if wait = min(wait, linger); linger <= 0 {
				wait = flushTime // until what is under way has ended
			}
		}
		timer := r.clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-r.changed:
		case <-sending.Done():
		case <-done:
			done, ended = nil, now
			r.withShares(func(a *shares) {
				a.ending = true
				a.sweepSeries(now)
			})
		}
		timer.Stop()
	}
	return told
}

// tellDropped tells what was dropped, unless that was told a short while ago. It returns when it was last told.
func (r *Recorder) tellDropped(told time.Time, every time.Duration) time.Time {
	now := r.clock.Now()
	if now.Sub(told) < every {
		return told
	}
	var counts map[string]int
	var last error
	r.withShares(func(a *shares) {
		counts, last = a.dropped, a.failure
		a.dropped, a.failure = map[string]int{}, nil
	})
	if len(counts) == 0 {
		return told
	}
	r.eventsDropped(counts, last)
	return now
}
