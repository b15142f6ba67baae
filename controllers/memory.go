// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/plan"
)

// memory is what this process remembers of one Cleaner. Losing it costs reads, and never deletes more. Only the pass
// that holds the Cleaner's key touches it.
type memory struct {
	uid types.UID
	// written is the resourceVersion that this process's last write gave the Cleaner; empty once the cache has it.
	written string
	// verified is where the record was found to be one of this operator.
	verified verified
	// record is the last one of this operator that was read or written; nil before.
	record *v1alpha1.CleanerStatus
	run    plan.Memory
	judged judged
	// hands are those of the Cleaner's ServiceAccount, if it has one.
	hands *hands
	// evaluated is when the Cleaner was evaluated last, and reported when its status was written last.
	evaluated, reported time.Time
	// expected is when the last evaluation expected another one to be of use.
	expected time.Time
	// listening is since when this process watches the Cleaner's targets; zero: it does not.
	listening time.Time
	// After a decision that live reads did not confirm as a whole, and after a run that left something, the next live reads
	// wait until retryAt, and held is said meanwhile. The waits grow: disagreed is the last one of the first kind, rested
	// that of the second. asked is what an author changes to ask again at once.
	retryAt           time.Time
	held              plan.Plan
	disagreed, rested time.Duration
	asked             string
	// calm says when the next event may be of interest.
	calm calm
	// actions are the latest deeds, newest first.
	actions []v1alpha1.Action
	// own is how many of them are of this process.
	own int
	// unwritable says that the API server has refused the report, as it does where somebody else has written into the status what
	// is no more valid when it is written again.
	unwritable bool
	// counters are what the status says was done so far; nil until something is.
	counters *v1alpha1.Counters
	// rehearsed is what would be done, where mode is DryRun.
	rehearsed rehearsed
	// decides is the fingerprint of a version of what is to be done.
	decides, version string
	// holds, backoff, remade, unconfirmed, overlay and done are what rules have to remember: since when something holds,
	// which objects wait after failures, which were made anew, and which items wait for live reads to say the same, what the
	// watches have not shown yet of what was done, and what was done lately.
	holds       plan.Holds
	backoff     plan.Backoff
	remade      plan.Remade
	unconfirmed plan.Unconfirmed
	overlay     plan.Acted
	done        plan.Done
	// ticked is the time of the schedule that was over last, and answered the last request for an evaluation that was answered:
	// recorded, or about to be.
	ticked   time.Time
	answered string
	// asking is since when an evaluation that the author asked for, besides those of the schedule, is not over; zero if it is.
	asking time.Time
	// request is the last request for an evaluation, requestFor what was to be done when it was made, and requestVersion a version
	// of that.
	request, requestFor, requestVersion string
	// pace is how many requests a second limits let through.
	pace *rate.Limiter
	// patches are those that need not be made again.
	patches patches
	// told are the items of which a report was made, and of which version.
	told reports
	// stopUninstall ends the uninstall that is under way.
	stopUninstall context.CancelFunc
	// ended takes the end of an uninstall from the pool.
	ended chan uninstallEnd
}

// verified is a version of a Cleaner whose record the key has signed that signs now.
type verified struct{ version, key string }

// calm is until when a version of a Cleaner waits, and nothing but its own changes is of interest for it.
type calm struct {
	version string
	until   time.Time
}

// uninstallEnd is how an uninstall ended.
type uninstallEnd struct {
	run     int64 // whose uninstall it was
	swept   bool  // it came to its end
	why     string
	actions []v1alpha1.Action
}

// memories holds what this process remembers of each Cleaner.
type memories struct {
	mu sync.Mutex
	m  map[types.NamespacedName]*memory
	// remembered is how much there is for what is remembered of items: see settle.
	remembered
}

func (s *memories) of(key types.NamespacedName) *memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[types.NamespacedName]*memory{}
	}
	if s.m[key] == nil {
		s.m[key] = newMemory("")
	}
	s.hold(key)
	return s.m[key]
}

func (s *memories) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, key)
	s.drop(key)
}

func newMemory(uid types.UID) *memory {
	return &memory{
		uid: uid, rehearsed: rehearsed{}, ended: make(chan uninstallEnd, 1),
		pace: actuate.NewRateLimiter(0), backoff: plan.Backoff{}, remade: plan.Remade{}, unconfirmed: plan.Unconfirmed{}, overlay: plan.Acted{}, patches: patches{},
	}
}

// fingerprint is that of what a Cleaner is to do, computed once a version.
func (m *memory) fingerprint(a *assignment, o *Options) (string, error) {
	if m.decides != "" && m.version == a.version {
		return m.decides, nil
	}
	d, err := o.decides(a.work)
	if err != nil {
		return "", err
	}
	m.decides, m.version = d, a.version
	return d, nil
}

// panicked drops what a pass that ended by a panic may have left half done: it is found out by looking, as after a restart.
// An uninstall that is under way goes on.
func (m *memory) panicked() {
	if !m.run.Busy {
		m.run = plan.Memory{}
	}
}

// pause holds the next live reads back, each time twice as long up to a limit, and remembers what is said meanwhile.
func (m *memory) pause(say plan.Plan, wait *time.Duration, limit time.Duration, now time.Time) plan.Plan {
	*wait = min(max(2**wait, time.Second), limit)
	m.retryAt = now.Add(*wait)
	say.Next, say.Look, say.Flip = m.retryAt, time.Time{}, time.Time{}
	m.held = say
	return say
}

// flipped takes that the watches want nothing: what live reads had yet to say the same of is over, and what is wanted later
// does not wait for it. The pause after a run that left something stays.
func (m *memory) flipped() {
	m.disagreed = 0
	if m.held.Reason != v1alpha1.ReasonPartial {
		m.retryAt = time.Time{}
	}
}

// resume lets live reads begin at once, because the author has asked for it: by an edit, of a template too, or by the
// annotation.
func (m *memory) resume(version string, c v1alpha1.Owner) {
	asked := version + " " + c.GetAnnotations()[v1alpha1.AnnotationRequestedAt]
	if m.asked != "" && m.asked != asked {
		m.retryAt, m.disagreed, m.rested = time.Time{}, 0, 0
		clear(m.remade)
		clear(m.unconfirmed)
		clear(m.patches)
		clear(m.rehearsed)
	}
	m.asked = asked
}

// endRequest ends a request for an evaluation when something else is to be done than when it was made: whoever made it had the
// rights to that, and nobody knows whether they have those to this.
func (m *memory) endRequest(spec, request string) {
	if m.requestFor != "" && m.requestFor != spec {
		m.asking = time.Time{}
		if m.request == request {
			m.answered = request
		}
	}
	m.request, m.requestFor = request, spec
}

// acted remembers deeds, newest first.
func (m *memory) acted(known []v1alpha1.Action, actions ...v1alpha1.Action) {
	if m.actions == nil {
		m.actions = slices.Clone(known)
	}
	for _, a := range actions { // in place: a run may have thousands of deeds
		a.Object = clean(a.Object)
		m.actions = slices.Insert(m.actions[:min(len(m.actions), maxActions-1)], 0, a)
		m.own = min(m.own+1, maxActions)
	}
}

// reportRefused has the next pass begin the report with what this process has done. The second time it says that this was of no
// use.
func (m *memory) reportRefused() (again bool) {
	again, m.unwritable = m.unwritable, true
	m.actions = append([]v1alpha1.Action{}, m.actions[:m.own]...) // not nil: nothing is taken over from the status
	return again
}

// maxActions is how many deeds a status shows.
const maxActions = 20
