// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"container/list"
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"
	eventsv1 "k8s.io/api/events/v1"
)

const (
	// maxSeries is how many series are remembered, and maxSeriesOfNamespace how many of one namespace: those that wait to be written, and
	// those that were written and may continue.
	maxSeries            = 4096
	maxSeriesOfNamespace = 512
	// Requests are paced: so many a second, after so many at once; of one namespace, and in all.
	requestsOfNamespace, burstOfNamespace = 5, 200
	requests, burst                       = 20, 400
	// repeatAfter is how long after its count was written a series that continues is written again. The second time is written at once.
	repeatAfter = time.Minute
	// forgetAfter is how long after it has last happened a series is over.
	forgetAfter = 6 * time.Minute
	// retryAfter is how long a namespace waits after a request that failed, and maxTries how often a series is tried.
	retryAfter = 10 * time.Second
	maxTries   = 6
)

// series is an Event, and how often it has happened.
type series struct {
	id    Event // without the version of the object
	of    *share
	event *eventsv1.Event
	count int32
	last  time.Time
	// written is the count that the API server has, 0 if it does not have the Event; and writtenAt is since when.
	written   int32
	writtenAt time.Time
	tries     int
	// in is the list that it is in, at place; nil while it is being written.
	in    *list.List
	place *list.Element
}

// isDue says that there is something to write now.
func (s *series) isDue(now time.Time, ending bool) bool {
	return s.count > s.written && (ending || s.written <= 1 || !now.Before(s.writtenAt.Add(repeatAfter)))
}

// share is what a namespace has of a Recorder.
type share struct {
	namespace string
	pace      *rate.Limiter
	notBefore time.Time
	// waiting are the series that wait to be written, in order; idle are the others, oldest first.
	waiting, idle list.List
	writing       bool // one of its series, and no more at a time
}

func (h *share) countSeries() int {
	n := h.waiting.Len() + h.idle.Len()
	if h.writing {
		n++
	}
	return n
}

// shares are the series of all namespaces.
type shares struct {
	metrics Metrics
	known   map[Event]*series
	of      map[string]*share
	// turns are the namespaces that have something to write, and are not writing, in the order of their turns.
	turns   []*share
	writing int
	pace    *rate.Limiter
	// ending means that everything is written now, and no failure is retried.
	ending bool
	// dropped counts the Events that were not written and not yet reported, by reason.
	dropped map[string]int
	failure error
}

func newShares(m Metrics) *shares {
	return &shares{metrics: m, known: map[Event]*series{}, of: map[string]*share{}, pace: rate.NewLimiter(requests, burst), dropped: map[string]int{}}
}

// countDropped counts Events that are not written.
func (a *shares) countDropped(why string, n int) {
	if n > 0 {
		a.dropped[why] += n
		a.metrics.CountDroppedEvents(why, n)
	}
}

// addSeries adds a series, and makes room for it. Nil if there is none.
func (a *shares) addSeries(id Event) *series {
	own := a.of[id.Regarding.Namespace]
	if own == nil {
		own = &share{namespace: id.Regarding.Namespace, pace: rate.NewLimiter(requestsOfNamespace, burstOfNamespace)}
		a.of[own.namespace] = own
	}
	from := own
	if own.countSeries() < maxSeriesOfNamespace {
		from = a.largestShare()
	}
	switch {
	case from == nil:
	case from.idle.Len() > 0:
		a.forgetSeries(from.idle.Front().Value.(*series), DroppedFull)
	case from != own && from.waiting.Len() > 0:
		a.forgetSeries(from.waiting.Back().Value.(*series), DroppedFull)
	default:
		return nil
	}
	s := &series{id: id, of: own}
	a.known[id] = s
	return s
}

// largestShare is the share that has most series, if there are too many in all; else nil.
func (a *shares) largestShare() (most *share) {
	if len(a.known) < maxSeries {
		return nil
	}
	for _, h := range a.of {
		if most == nil || h.countSeries() > most.countSeries() {
			most = h
		}
	}
	return most
}

// moveSeries puts a series that is not being written into a list of its share; nil: into none.
func (a *shares) moveSeries(s *series, to *list.List) {
	if s.in != nil {
		s.in.Remove(s.place)
	}
	if s.in = to; to != nil {
		s.place = to.PushBack(s)
	}
	h := s.of
	switch i := slices.Index(a.turns, h); {
	case i < 0 && h.waiting.Len() > 0 && !h.writing:
		a.turns = append(a.turns, h)
	case i >= 0 && (h.waiting.Len() == 0 || h.writing):
		a.turns = slices.Delete(a.turns, i, i+1)
	}
}

// settleSeries puts a series that is not being written where it belongs now.
func (a *shares) settleSeries(s *series, now time.Time) {
	switch due := s.isDue(now, a.ending); {
	case s.in == &s.of.waiting: // it has its place
	case due:
		a.moveSeries(s, &s.of.waiting)
	default:
		a.moveSeries(s, &s.of.idle)
	}
}

// forgetSeries drops a series, and what was not written of it.
func (a *shares) forgetSeries(s *series, why string) {
	a.countDropped(why, int(s.count-s.written))
	a.moveSeries(s, nil)
	delete(a.known, s.id)
}

// nextSeries returns the series whose turn it is; or how long there is nothing to write.
func (a *shares) nextSeries(now time.Time) (s *series, wait time.Duration) {
	if wait = untilToken(a.pace, now); wait > 0 && !a.ending {
		return nil, wait
	}
	wait = math.MaxInt64
	for _, h := range a.turns {
		if d := max(h.notBefore.Sub(now), untilToken(h.pace, now)); d > 0 && !a.ending {
			wait = min(wait, d)
			continue
		}
		a.pace.AllowN(now, 1)
		h.pace.AllowN(now, 1)
		s = h.waiting.Front().Value.(*series)
		h.writing = true
		a.writing++
		a.moveSeries(s, nil)
		return s, 0
	}
	return nil, wait
}

// recordWritten records the result of writing a series with a count.
func (a *shares) recordWritten(s *series, count int32, err error, now time.Time) {
	s.of.writing = false
	a.writing--
	switch {
	case err == nil:
		s.written, s.writtenAt, s.tries = count, now, 0
	case isRefusal(err):
		a.failure = err
		a.forgetSeries(s, DroppedRefused)
		return
	case a.ending, s.tries+1 >= maxTries:
		a.failure = err
		a.forgetSeries(s, DroppedUnanswered)
		return
	default:
		s.tries++
		s.of.notBefore = now.Add(retryAfter)
	}
	a.settleSeries(s, now)
}

// sweepSeries has counts written that are due, and forgets what is over.
func (a *shares) sweepSeries(now time.Time) {
	for namespace, h := range a.of {
		for e := h.idle.Front(); e != nil; {
			s := e.Value.(*series)
			e = e.Next()
			switch {
			case s.isDue(now, a.ending):
				a.moveSeries(s, &h.waiting)
			case s.count == s.written && !now.Before(s.last.Add(forgetAfter)):
				a.forgetSeries(s, "")
			}
		}
		if h.countSeries() == 0 && !now.Before(h.notBefore) && h.pace.TokensAt(now) >= burstOfNamespace {
			delete(a.of, namespace)
		}
	}
}

// dropAll drops all that there is.
func (a *shares) dropAll() {
	for _, s := range a.known {
		a.forgetSeries(s, DroppedShutdown)
	}
}

// untilToken is how long it is until a request may be sent.
func untilToken(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing/float64(l.Limit())*float64(time.Second)) + 1
}
