// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/internal/actionlog"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/rehearsed"
	"github.com/vtex/cleaner/controllers/internal/remembered"
	"github.com/vtex/cleaner/controllers/internal/resolvedspec"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/internal/timergaps"
	"github.com/vtex/cleaner/controllers/internal/triggers"
	"github.com/vtex/cleaner/controllers/internal/uninstalls"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/duesince"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/shards"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// memory is what this process remembers of one Cleaner. Losing it costs reads, and never deletes more. Only the pass
// that holds the Cleaner's key touches it.
type memory struct {
	uid       types.UID
	tenure    shards.Tenure
	persisted cleanerstore.Memory
	rebuilt
	shortcuts
}

// rebuilt is what a process finds out again after a restart: what it knows of an open run, and of recent actions.
type rebuilt struct {
	run      life.Memory
	judged   *judged
	journal  actionlog.Memory
	triggers triggers.Memory
	pauses
	checks timergaps.Checks
	// due is since when work is due.
	due duesince.Record
	remembered.Items
	// underWay are the releases whose uninstall rules have begun.
	underWay uninstalls.UnderWay
	// refusal says what was refused last while mode is DryRun, and why.
	refusal rehearsed.Refusal
	// stopUninstall ends the uninstall that is under way.
	stopUninstall context.CancelFunc
	// ended receives the end of an uninstall from the pool.
	ended chan uninstalls.End
}

// pauses are the waits between live reads. After a decision that they did not confirm, and after a run that left something behind, the
// next ones wait until retryAt; meanwhile the status shows paused. disagreed and afterPartial are the last waits of the first and the second
// kind: they grow, except while Awaited waits for the watches. asked is the value with which an author ends the wait: a change of it ends
// the wait at once.
type pauses struct {
	retryAt                 time.Time
	paused                  reportedPlan
	disagreed, afterPartial time.Duration
	asked                   string
}

// reportedPlan is a plan for the status: its verdict, its reason and message, what waits, and when to evaluate again. No pass carries out its
// steps.
type reportedPlan struct{ plan.Plan }

// shortcuts are caches. Losing them costs only time.
type shortcuts struct {
	// clients are those of the Cleaner's ServiceAccount, if it has one.
	clients *clients.Set
	// evaluated is when the Cleaner was evaluated last.
	evaluated time.Time
	// took is how long the last evaluation took, and slotWait how long the last wait for a slot was.
	took, slotWait time.Duration
	// expected is when the last evaluation expected another one to be of use.
	expected time.Time
	// listening is since when this process watches the Cleaner's targets; zero: it does not.
	listening time.Time
	// resting says which events are of no interest.
	resting resting
	// fingerprint sums up what a version of the Cleaner does.
	fingerprint, version string
	// queried is what the targets ask for, while the Cleaner listens.
	queried queried
	// pace is how many requests a second limits let through.
	pace *rate.Limiter
	// lastNamespace is the namespace after which the next requests begin.
	lastNamespace string
}

// queried are the queries of the targets of one version, and what they read of an object.
type queried struct {
	version string
	queries snapshot.Queries
	reads   *projection.Projection
}

// resting is until when a version of a Cleaner ignores all events except changes of the Cleaner itself.
type resting struct {
	version string
	until   time.Time
}

// memories holds what this process remembers of each Cleaner.
type memories struct{ remembered.Register[*memory] }

func (s *memories) memoryOf(key types.NamespacedName) *memory {
	return s.BeginPass(key, func() *memory { return newMemory("", shards.Tenure{}) })
}

// settleMemory ends a pass: what it remembers is bounded.
func (s *memories) settleMemory(key types.NamespacedName, mem *memory) {
	mem.paused = reportedPlan{remembered.TrimPlan(mem.paused.Plan)}
	s.EndPass(key, mem)
}

// CountBytes is about how much memory is taken by what is remembered of items.
func (m *memory) CountBytes() int64 { return m.Items.CountBytes() + m.journal.CountBytes() }

// FitInto forgets, if there is not enough room, first what costs least.
func (m *memory) FitInto(room int64) {
	m.Items.FitInto(room-m.journal.CountBytes(), m.evaluated)
	if m.CountBytes() > room {
		m.ForgetItems()
	}
}

// ForgetItems drops what is remembered of items.
func (m *memory) ForgetItems() {
	m.Forget(m.evaluated)
	m.journal.ForgetActions()
}

func newMemory(uid types.UID, t shards.Tenure) *memory {
	return &memory{
		uid: uid, tenure: t,
		rebuilt:   rebuilt{ended: make(chan uninstalls.End, 1), Items: remembered.NewItems()},
		shortcuts: shortcuts{pace: actuate.NewRateLimiter(0)},
	}
}

// fingerprintWork returns the fingerprint of what a Cleaner does, computed once for each version.
func (m *memory) fingerprintWork(a *resolvedspec.Assignment, o *Options) (string, error) {
	if m.fingerprint != "" && m.version == a.Version {
		return m.fingerprint, nil
	}
	d, err := o.fingerprintWork(a.Work)
	if err != nil {
		return "", err
	}
	m.fingerprint, m.version = d, a.Version
	return d, nil
}

// forgetOld drops what no longer matters of what is remembered for rules, and sets the pace of requests.
func (m *memory) forgetOld(l *v1alpha1.Limits, now time.Time) {
	perSecond := int64(0)
	if l != nil {
		perSecond = l.ActionsPerSecond
	}
	m.DropExpired(l, now)
	if limit := actuate.NewRateLimiter(perSecond); m.pace == nil || m.pace.Limit() != limit.Limit() {
		m.pace = limit
	}
}

// dropUnfinished drops what a pass that panicked may have left half done: the next pass finds it out again, as after a restart. An
// uninstall in the pool continues.
func (m *memory) dropUnfinished() {
	if !m.run.Busy {
		m.run = life.Memory{}
	}
}

// backOffReads postpones the next live reads, each time twice as long up to a limit, and remembers what the status shows meanwhile.
func (m *memory) backOffReads(show plan.Plan, wait *time.Duration, limit time.Duration, now time.Time) reportedPlan {
	*wait = min(max(2**wait, time.Second), limit)
	m.Awaited = life.Awaited{} // nothing was decided
	return m.postponeReads(show, *wait, now)
}

// postponeReads has the next live reads wait, and remembers what the status shows meanwhile.
func (m *memory) postponeReads(show plan.Plan, wait time.Duration, now time.Time) reportedPlan {
	m.retryAt = now.Add(wait)
	show.Next, show.NextCheck, show.FlipsAt = m.retryAt, time.Time{}, time.Time{}
	m.paused = reportedPlan{show}
	return m.paused
}

// forgetUnconfirmed records that the watches want nothing: what live reads did not confirm is over, and later work does not wait for it.
// The pause after a run that left something behind stays.
func (m *memory) forgetUnconfirmed() {
	m.disagreed, m.Awaited = 0, life.Awaited{}
	if m.paused.Reason != v1alpha1.ReasonPartial {
		m.retryAt = time.Time{}
	}
}

// resumeReads lets live reads begin at once, because the author has asked for it: by an edit, of a template too, or by the
// annotation. Refused requests are tried again at once, too.
func (m *memory) resumeReads(version string, c v1alpha1.Owner) {
	asked := version + " " + sanitize.CleanText(c.GetAnnotations()[v1alpha1.AnnotationRequestedAt])
	if m.asked != "" && m.asked != asked {
		m.retryAt, m.disagreed, m.afterPartial = time.Time{}, 0, 0
		m.AskAgain()
		m.underWay.LookAgain()
		m.run.EndWaits()
	}
	m.asked = asked
}

// makeQueries returns the queries of a version's targets, which read what its expressions do. While the Cleaner listens they are made once: their selectors may be as large
// as a spec can be, and there may be a pass each second.
func (m *memory) makeQueries(version, namespace string, work *v1alpha1.Work, programs *celenv.Programs) snapshot.Queries {
	if m.queried.queries != nil && m.queried.version == version {
		return m.queried.queries
	}
	q := queried{version: version, queries: snapshot.NewReadingQueries(namespace, work, programs.FindReadings())}
	q.reads = q.queries.MergeReads()
	m.Overlay.ForgetOthers(q.reads)
	if !m.listening.IsZero() {
		m.queried = q
	}
	return q.queries
}
