// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/patched"
	"github.com/vtex/cleaner/controllers/internal/reported"
	"github.com/vtex/cleaner/controllers/internal/shown"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// memory is what this process remembers of one Cleaner. Losing it costs reads, and never deletes more. Only the pass
// that holds the Cleaner's key touches it.
type memory struct {
	uid types.UID
	persisted
	rebuilt
	shortcuts
}

// rebuilt is what a process finds out anew after a restart: what it knows of an open run, and of what was done lately.
type rebuilt struct {
	run    plan.Memory
	judged judged
	telling
	timing
	pauses
	items
	// stopUninstall ends the uninstall that is under way.
	stopUninstall context.CancelFunc
	// ended takes the end of an uninstall from the pool.
	ended chan uninstallEnd
}

// pauses are until when live reads wait. After a decision that they did not confirm as a whole, and after a run that left something, the
// next ones wait until retryAt, and held is said meanwhile. The waits grow: disagreed is the last one of the first kind, rested that of
// the second. asked is what an author changes to ask again at once.
type pauses struct {
	retryAt           time.Time
	held              plan.Plan
	disagreed, rested time.Duration
	asked             string
}

// items is what is remembered of items of rules, whose number and names users choose: since when something holds, which objects wait
// after failures, which were made anew, and which items wait for live reads to say the same, what the watches have not shown yet of
// what was done, what was done lately, which patches need not be made again, of which items a report was made, and what would be done
// where mode is DryRun.
type items struct {
	holds       plan.Holds
	backoff     plan.Backoff
	remade      plan.Remade
	unconfirmed plan.Unconfirmed
	overlay     plan.Acted
	done        plan.Done
	patches     patched.Patches
	told        reported.Reports
	rehearsed   rehearsed
}

// shortcuts save work, and are as good empty.
type shortcuts struct {
	// hands are those of the Cleaner's ServiceAccount, if it has one.
	hands *hands
	// evaluated is when the Cleaner was evaluated last, and reported when its status was written last.
	evaluated, reported time.Time
	// expected is when the last evaluation expected another one to be of use.
	expected time.Time
	// listening is since when this process watches the Cleaner's targets; zero: it does not.
	listening time.Time
	// calm says when the next event may be of interest.
	calm calm
	// decides is the fingerprint of a version of what is to be done.
	decides, version string
	// queried is what the targets ask for, while the Cleaner listens.
	queried queried
	// pace is how many requests a second limits let through.
	pace *rate.Limiter
}

// queried is what the targets of a version of what is to be done ask for.
type queried struct {
	version string
	queries snapshot.Queries
}

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

func (s *memories) memoryOf(key types.NamespacedName) *memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[types.NamespacedName]*memory{}
	}
	if s.m[key] == nil {
		s.m[key] = newMemory("")
	}
	s.holdMemory(key)
	return s.m[key]
}

func (s *memories) forgetCleaner(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, key)
	s.dropMemory(key)
}

func newMemory(uid types.UID) *memory {
	return &memory{
		uid: uid,
		rebuilt: rebuilt{
			ended: make(chan uninstallEnd, 1),
			items: items{
				backoff: plan.Backoff{}, remade: plan.Remade{}, unconfirmed: plan.Unconfirmed{}, overlay: plan.Acted{}, patches: patched.Patches{}, rehearsed: rehearsed{},
			},
		},
		shortcuts: shortcuts{pace: actuate.NewRateLimiter(0)},
	}
}

// fingerprintWork is that of what a Cleaner is to do, computed once a version.
func (m *memory) fingerprintWork(a *assignment, o *Options) (string, error) {
	if m.decides != "" && m.version == a.version {
		return m.decides, nil
	}
	d, err := o.fingerprintWork(a.work)
	if err != nil {
		return "", err
	}
	m.decides, m.version = d, a.version
	return d, nil
}

// dropUnfinished drops what a pass that ended by a panic may have left half done: it is found out by looking, as after a restart.
// An uninstall that is under way goes on.
func (m *memory) dropUnfinished() {
	if !m.run.Busy {
		m.run = plan.Memory{}
	}
}

// pauseReads holds the next live reads back, each time twice as long up to a limit, and remembers what is said meanwhile.
func (m *memory) pauseReads(say plan.Plan, wait *time.Duration, limit time.Duration, now time.Time) plan.Plan {
	*wait = min(max(2**wait, time.Second), limit)
	m.retryAt = now.Add(*wait)
	say.Next, say.Look, say.Flip = m.retryAt, time.Time{}, time.Time{}
	m.held = say
	return say
}

// forgetUnconfirmed takes that the watches want nothing: what live reads had yet to say the same of is over, and what is wanted later
// does not wait for it. The pause after a run that left something stays.
func (m *memory) forgetUnconfirmed() {
	m.disagreed = 0
	if m.held.Reason != v1alpha1.ReasonPartial {
		m.retryAt = time.Time{}
	}
}

// resumeReads lets live reads begin at once, because the author has asked for it: by an edit, of a template too, or by the
// annotation.
func (m *memory) resumeReads(version string, c v1alpha1.Owner) {
	asked := version + " " + shown.CleanText(c.GetAnnotations()[v1alpha1.AnnotationRequestedAt])
	if m.asked != "" && m.asked != asked {
		m.retryAt, m.disagreed, m.rested = time.Time{}, 0, 0
		clear(m.remade)
		clear(m.unconfirmed)
		clear(m.patches)
		clear(m.rehearsed)
	}
	m.asked = asked
}

// makeQueries returns what the targets of a version of what is to be done ask for. While the Cleaner listens they are made once:
// their selectors may have as many values as a spec has room for, and a pass may come each second.
func (m *memory) makeQueries(version, namespace string, work *v1alpha1.Work) snapshot.Queries {
	if m.queried.queries != nil && m.queried.version == version {
		return m.queried.queries
	}
	q := queried{version, snapshot.NewQueries(namespace, work)}
	if !m.listening.IsZero() {
		m.queried = q
	}
	return q.queries
}
