// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package skew measures how far the clock of this process is from the API server's.
//
// It reads the Date of answers that are sent for anyway: live reads, writes, renewals of the Lease. It sends no request of
// its own, changes no request and no answer, and holds nothing up: what follows from a clock that is wrong is decided
// elsewhere.
package skew

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Options say how a Meter judges.
type Options struct {
	// Clock is the clock that is measured. Required.
	Clock clock.PassiveClock
	// Root is the path below which the API server serves, such as the path of a cluster behind a gateway; empty if there is none.
	Root string
	// Max is how far it may be from the API server's. 0: however far, and nothing is corrected.
	Max time.Duration
	// SuspectChanged is called when the clock becomes suspect, and when it no longer is. It may be nil.
	SuspectChanged func(suspect bool, skew time.Duration)
}

// Meter knows between which bounds the skew lies: the API server's clock minus ours. It is safe for concurrent use.
type Meter struct {
	opts Options

	mu        sync.Mutex
	measured  bool
	low, high time.Duration
}

// New makes a Meter that has measured nothing yet, and suspects nothing.
func New(o Options) *Meter { return &Meter{opts: o} }

// WrapTransport measures with each answer that comes through a transport.
func (m *Meter) WrapTransport(next http.RoundTripper) http.RoundTripper {
	return &transport{next: next, meter: m}
}

type transport struct {
	next  http.RoundTripper
	meter *Meter
}

// RoundTrip sends a request.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := t.meter.opts.Clock.Now()
	resp, err := t.next.RoundTrip(r)
	if err == nil && t.meter.opts.isServedByAPIServer(r.URL.Path) {
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			t.meter.recordAnswer(sent, date, t.meter.opts.Clock.Now())
		}
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find what is inside.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// isServedByAPIServer reports whether the API server itself answers a request. The clocks of others are no concern of ours: other groups
// may belong to an extension server, and a tenant chooses what is behind the subresource proxy.
func (o *Options) isServedByAPIServer(path string) bool {
	path, below := strings.CutPrefix(path, strings.TrimSuffix(o.Root, "/")+"/")
	parts := strings.Split(path, "/")
	if !below || slices.Contains(parts, "proxy") {
		return false
	}
	switch parts[0] {
	case "api", "version":
		return true
	case "apis":
		return len(parts) == 1 || parts[1] == coordinationv1.GroupName || parts[1] == v1alpha1.GroupVersion.Group
	default:
		return false
	}
}

// recordAnswer takes one answer. Its Date has whole seconds: the API server's clock stood at date, or less than a second
// later, at a moment between sent and received. Bounds that agree with what is known narrow it down; others replace it,
// because one of the clocks was set.
func (m *Meter) recordAnswer(sent, date, received time.Time) {
	low, high := date.Sub(received), date.Add(time.Second).Sub(sent)
	if high < low { // our clock was set back meanwhile
		return
	}
	m.mu.Lock()
	before := m.isSuspectLocked()
	if m.measured && low <= m.high && m.low <= high {
		low, high = max(low, m.low), min(high, m.high)
	}
	m.low, m.high, m.measured = low, high, true
	after, skew := m.isSuspectLocked(), m.middleOfRange()
	m.mu.Unlock()
	if before != after && m.opts.SuspectChanged != nil {
		m.opts.SuspectChanged(after, skew)
	}
}

// isSuspectLocked says that the skew is certainly more than it may be.
func (m *Meter) isSuspectLocked() bool {
	return m.opts.Max > 0 && (m.low > m.opts.Max || m.high < -m.opts.Max)
}

func (m *Meter) middleOfRange() time.Duration { return m.low + (m.high-m.low)/2 }

// IsSuspect says that the clocks certainly differ by more than they may.
func (m *Meter) IsSuspect() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isSuspectLocked()
}

// ClockAhead is by how much our clock is ahead of the API server's, at most and in whole seconds; 0 when it may well not be.
func (m *Meter) ClockAhead() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opts.Max <= 0 || m.high >= 0 {
		return 0
	}
	return (-m.low + time.Second - time.Nanosecond).Truncate(time.Second)
}

// EstimateSkew returns how far the API server's clock is ahead of ours, as well as it is known; negative if it is behind, and 0 before
// the first answer.
func (m *Meter) EstimateSkew() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.middleOfRange()
}

// DescribeSuspect says in words that nothing may be decided by the clock; empty if it may. It has no measured number, which would make it
// another text each time: the metric has that.
func (m *Meter) DescribeSuspect() string {
	if !m.IsSuspect() {
		return ""
	}
	than := "behind"
	if m.EstimateSkew() < 0 {
		than = "ahead of"
	}
	return fmt.Sprintf("The operator's clock is more than %s %s the API server's: evaluations and deletions are paused until the clocks agree.", m.opts.Max, than)
}
