// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package remembered

import (
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/patched"
	"github.com/vtex/cleaner/controllers/internal/rehearsed"
	"github.com/vtex/cleaner/controllers/internal/reportdedup"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/idlepatches"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/reuse"
)

// About how much memory it takes to remember one thing of each kind, without its texts.
const (
	unconfirmedBytes = 180
	backoffBytes     = 280
	remadeBytes      = 420
)

// Items is what is remembered of items of rules, whose number and names users choose.
type Items struct {
	// Holds are since when something holds.
	Holds fortimers.Holds
	// Backoff are the objects that wait after failures, and Recreations those that were made anew.
	Backoff     backoff.Failures
	Recreations backoff.Recreations
	// Unconfirmed are the items that wait for live reads to say the same.
	Unconfirmed life.Unconfirmed
	// Awaited is what live reads want of a Cleaner that cleans once, and the watches have yet to show.
	Awaited life.Awaited
	// Overlay is what was done, and the watches have not shown yet.
	Overlay life.Acted
	// Lagging are the items that wait until the watches show a newer version of an object.
	Lagging life.Lagging
	// Done is what was done lately, for limits.
	Done limits.Done
	// Patches need not be made again.
	Patches patched.Patches
	// Idle are the patches that have changed nothing.
	Idle idlepatches.Patches
	// Told are the items of which a report was made.
	Told reportdedup.Reports
	// Results are for which items `when` was false in the evaluation of a version of the Cleaner, and Base is what that evaluation has seen.
	Results        *reuse.Results
	Base           *plan.Base
	ResultsVersion string
	// Rehearsed are those of which the API server was asked while mode is DryRun.
	Rehearsed rehearsed.Items
}

// NewItems makes an empty one.
func NewItems() Items {
	return Items{
		Backoff: backoff.Failures{}, Recreations: backoff.Recreations{}, Unconfirmed: life.Unconfirmed{}, Overlay: life.Acted{}, Lagging: life.Lagging{}, Patches: patched.Patches{}, Idle: idlepatches.Patches{}, Rehearsed: rehearsed.Items{},
	}
}

// CountBytes is about how much memory is taken.
func (m *Items) CountBytes() int64 {
	n := m.Holds.Bytes() + m.Done.CountBytes() + m.Told.CountBytes() + m.Rehearsed.CountBytes() + unconfirmedBytes*int64(len(m.Unconfirmed)) + m.Awaited.CountBytes() + m.Lagging.CountBytes() + m.Results.CountBytes() + m.Base.CountBytes()
	for _, e := range m.Backoff {
		n += backoffBytes + int64(len(e.Why))
	}
	for place := range m.Recreations {
		n += remadeBytes + int64(len(place.Namespace)+len(place.Name))
	}
	return n + m.Patches.CountBytes() + m.Idle.CountBytes()
}

// FitInto forgets, if there is not enough room, first what costs only time, then what costs requests and repeated reports, and then all. Evaluated is when the Cleaner was
// evaluated last.
func (m *Items) FitInto(room int64, evaluated time.Time) {
	for _, forget := range []func(){
		func() { m.ForgetResults() }, func() { clear(m.Patches) }, func() { clear(m.Idle) }, func() { clear(m.Rehearsed) }, func() { clear(m.Unconfirmed) }, m.Awaited.ForgetComparisons,
		func() { m.Told.ForgetUntil(evaluated.Add(v1alpha1.DefaultRetryPeriod)) }, func() { m.Forget(evaluated) },
	} {
		if m.CountBytes() <= room {
			return
		}
		forget()
	}
}

// Forget drops what is remembered of items. That costs requests and repeated reports, what holds begins anew, and what was used up of
// limits stays used up: nothing is done earlier for it.
func (m *Items) Forget(evaluated time.Time) {
	m.Holds, m.Done, m.Lagging, m.Results, m.Base = nil, m.Done.ForgetActions(), life.Lagging{}, nil, nil
	m.Patches, m.Idle, m.Rehearsed = patched.Patches{}, idlepatches.Patches{}, rehearsed.Items{}
	m.Unconfirmed, m.Backoff, m.Recreations = life.Unconfirmed{}, backoff.Failures{}, backoff.Recreations{}
	m.Told.ForgetUntil(evaluated.Add(v1alpha1.DefaultRetryPeriod))
	m.Awaited.ForgetComparisons()
}

// DropExpired drops what no longer matters at a moment, under these limits.
func (m *Items) DropExpired(l *v1alpha1.Limits, now time.Time) {
	per, err := limits.ParsePer(l)
	if err != nil { // nothing is decided then
		per = limits.DefaultPer
	}
	m.Done = m.Done.DropOlder(now, per)
	m.Backoff.DropExpired(now)
	m.Recreations.DropExpired(now)
	m.Patches.DropExpired(now)
	m.Idle.DropExpired(now)
}

// AskAgain forgets what keeps something from being tried again: its author asks for it.
func (m *Items) AskAgain() {
	m.Awaited = life.Awaited{}
	clear(m.Backoff)
	clear(m.Recreations)
	clear(m.Unconfirmed)
	clear(m.Patches)
	clear(m.Idle)
	clear(m.Rehearsed)
	m.ForgetResults()
}

// ResultsOf returns the results of a version of the Cleaner, for the next evaluation.
func (m *Items) ResultsOf(version string) *reuse.Results {
	if m.Results == nil || m.ResultsVersion != version {
		return &reuse.Results{}
	}
	return m.Results
}

// FindBase returns what the evaluation of a version of the Cleaner has seen; nil if all must be looked at, as after actions that the watches may not
// show.
func (m *Items) FindBase(version string) *plan.Base {
	if len(m.Overlay) > 0 || len(m.Lagging) > 0 {
		return nil
	}
	return m.BaseOf(version)
}

// BaseOf returns what belongs to the results of a version of the Cleaner; nil if there is nothing.
func (m *Items) BaseOf(version string) *plan.Base {
	if m.ResultsVersion != version {
		return nil
	}
	return m.Base
}

// ForgetResults forgets the results, and says whether there were any: it costs evaluations.
func (m *Items) ForgetResults() bool {
	had := m.Results != nil
	m.Results, m.Base = nil, nil
	return had
}

// MakeRoom is how much the next decision may remember, of so many bytes that are free: holds, actions and reports may all grow in one pass.
// Results take no room from them: they have an eighth in all, and go where the others need it. It is nil if it is not known how many are free.
func (m *Items) MakeRoom(free int64, known bool) *plan.Room {
	if !known {
		return nil
	}
	free += m.Results.CountBytes() + m.Base.CountBytes()
	part := free / 8
	m.Told.GrowBy(part)
	return &plan.Room{
		Holds: int(max(0, free-2*part+m.Holds.Bytes()) / fortimers.HoldBytes), DoneBytes: max(0, part+m.Done.CountBytes()), ResultBytes: max(0, part),
	}
}
