// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
)

const (
	// MaxBatch is how many objects one batch of a Cleaner with a sink acts on: their rows are written before.
	MaxBatch = 500
	// maxRun is how many objects a run of a Cleaner that stays counts before it is finished.
	maxRun = 500
)

// BeforeBatch says what a batch of a Cleaner with a sink needs before its first deed: that the Cleaner is held, that what
// became of the batch before is known and a full run has made room, and then that its own rows are recorded.
func BeforeBatch(c v1alpha1.Owner, l *Ledger) Request {
	s := c.State()
	rows := []int(nil)
	if s.Run != nil {
		rows = l.UnknownRows(s.Run)
	}
	switch {
	case !View{Cleaner: c}.hasFinalizer():
		return Request{Kind: AddFinalizer}
	case len(rows) > 0:
		return Request{Kind: LookRows, Rows: rows}
	case s.Run != nil && IsRunFull(s.Run) && s.Unsent == nil:
		return Request{Kind: MoveToUnsent}
	default:
		return Request{Kind: Record}
	}
}

// AtRest says what is to be done with the run of a Cleaner that stays, with a sink, while nothing else is: it is finished,
// if there is room for it.
func AtRest(c v1alpha1.Owner, l *Ledger) Request {
	s := c.State()
	if s.Run == nil || s.Run.Result != "" || IsHeld(c.Common()) {
		return Request{Kind: Idle}
	}
	return View{Cleaner: c}.settleRun(s.Run, l)
}

// IsRunFull says that a run counts so many objects that it is time to report them.
func IsRunFull(run *v1alpha1.Run) bool {
	n := int64(len(run.Rows))
	for _, c := range run.Counts {
		n += c.Count
	}
	return n >= maxRun
}

// BeginBatch is the run with the rows of a batch that is about to begin. Those of the batch before are counted. Of an earlier
// run that is finished, or of none, it makes a new one.
func BeginBatch(s *v1alpha1.CleanerStatus, l *Ledger, decides string, rows []Row, withheld []v1alpha1.Withheld, now time.Time) (*v1alpha1.Run, *Ledger) {
	run := &v1alpha1.Run{Lifecycle: v1alpha1.LifecycleRecurring, Number: s.Runs + 1, DecidedAt: metav1.NewTime(now)}
	if s.Run != nil && s.Run.Result == "" {
		run = SettleRun(s.Run, l)
	}
	run.Decides, run.Withheld = decides, addWithheld(run.Withheld, withheld)
	for _, row := range rows {
		run.Rows = append(run.Rows, row.String())
	}
	return run, newLedger(run, now)
}

// addWithheld is what was withheld at any time of a run, each once, as far as there is room.
func addWithheld(all, more []v1alpha1.Withheld) []v1alpha1.Withheld {
	known := make(map[v1alpha1.Withheld]bool, len(all))
	for _, w := range all {
		known[w] = true
	}
	for _, w := range more {
		if !known[w] && len(all) < maxWithheld {
			known[w] = true
			all = append(all, w)
		}
	}
	return all
}

// TargetsOf are the targets in which an object stands, as whichever resource.
func (s Snapshot) TargetsOf(o *Object) []int {
	var out []int
	for t := range s {
		if n, there := searchObject(s[t].Objects, o.Namespace, o.Name); there && s[t].Objects[n].objectID() == o.objectID() {
			out = append(out, t)
		}
	}
	return out
}

// CountObjects is how many objects a plan is about.
func (p *Plan) CountObjects() int {
	seen := make(map[types.UID]bool, len(p.Steps))
	for i := range p.Steps {
		seen[p.Steps[i].Object.UID] = true
	}
	return len(seen)
}

// FirstObjects is the plan with the steps on its first objects, at most so many. It has all that one of them comes after.
func (p Plan) FirstObjects(objects int) Plan {
	seen := map[types.UID]bool{}
	for i := range p.Steps {
		s := &p.Steps[i]
		if !s.IsDeed() {
			continue
		}
		if !seen[s.Object.UID] && len(seen) == objects {
			p.Steps = p.Steps[:i]
			break
		}
		seen[s.Object.UID] = true
	}
	return p
}

// WithoutItems is the plan without some items. A step that stands for others too is there, for those.
func (p Plan) WithoutItems(waits func(ItemKey) bool) Plan {
	p.Steps = slices.Clone(p.Steps)
	out := make([]bool, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		keys := slices.DeleteFunc(slices.Clone(s.Keys), func(key string) bool { return waits(ItemKey{Rule: s.Rule, Key: key}) })
		out[i] = len(keys) == 0 && len(s.Keys) > 0
		s.Keys = keys
	}
	p.keepSteps(func(n int) bool { return !out[n] })
	return p
}

// DecideAgain is what may be done at once by a plan that was made anew because objects of an earlier one have changed: deeds on
// objects of the earlier one, at the versions that they have now. Another object, that stands where one of them stood, was
// not recorded: it is for the next batch.
func DecideAgain(earlier, anew Plan) Plan {
	objects := map[types.UID]bool{}
	for i := range earlier.Steps {
		if s := &earlier.Steps[i]; s.IsDeed() {
			objects[s.Object.UID] = true
		}
	}
	wanted := anew
	wanted.Steps = slices.DeleteFunc(slices.Clone(anew.Steps), func(s Step) bool { return s.IsDeed() && !objects[s.Object.UID] })
	return IntersectPlans(wanted, anew)
}
