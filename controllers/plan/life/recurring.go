// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
)

const (
	// MaxBatch is how many objects one batch of a Cleaner with a sink acts on: their rows are written before.
	MaxBatch = 500
	// MaxBatchBytes bounds what these rows take in JSON, so that the status can be stored with the rest of what it says.
	MaxBatchBytes = 400 << 10
	// maxRun is how many objects a run of a Recurring Cleaner counts before it is finished.
	maxRun = 500
)

// BeforeBatch returns what a batch of a Cleaner with a sink needs before its first action: the Cleaner must be held, the outcome of the
// batch before must be known, a full run must have made room, and then the rows of the batch must be recorded.
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

// AtRest returns the request for the run of a Recurring Cleaner with a sink while there is nothing else to do: to finish it, if there is
// room.
func AtRest(c v1alpha1.Owner, l *Ledger) Request {
	s := c.State()
	if s.Run == nil || s.Run.Result != "" || IsPaused(c.Common()) {
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
func BeginBatch(s *v1alpha1.CleanerStatus, l *Ledger, fingerprint string, rows []plan.Row, withheld []v1alpha1.Withheld, now time.Time) (*v1alpha1.Run, *Ledger) {
	run := &v1alpha1.Run{Lifecycle: v1alpha1.LifecycleRecurring, Number: s.Runs + 1, DecidedAt: metav1.NewTime(now)}
	if s.Run != nil && s.Run.Result == "" {
		run = SettleRun(s.Run, l)
	}
	run.Decides, run.Withheld = fingerprint, addWithheld(run.Withheld, withheld)
	for _, row := range rows {
		run.Rows = append(run.Rows, row.String())
	}
	return run, newLedger(run, now)
}

// addWithheld is what was withheld at any time of a run, each once, as far as there is room.
func addWithheld(all, more []v1alpha1.Withheld) []v1alpha1.Withheld {
	known, room := make(map[v1alpha1.Withheld]bool, len(all)), plan.MaxWithheldBytes
	for _, w := range all {
		known[w] = true
		room -= withheldBytes(w)
	}
	for _, w := range more {
		if known[w] || len(all) == plan.MaxWithheld {
			continue
		}
		if room -= withheldBytes(w); room > 0 {
			known[w] = true
			all = append(all, w)
		}
	}
	return all
}

// withheldBytes is how many bytes an entry takes where it is stored.
func withheldBytes(w v1alpha1.Withheld) int {
	return len(`{"object":,"because":},`) + plan.StoredBytes(w.Object) + plan.StoredBytes(w.Because)
}

// KeepEarlierObjects returns what may be done at once by a new plan, made because objects of an earlier plan have changed: the actions on
// objects of the earlier plan, at their current versions. An object that has the name of one of them, but another UID, was not recorded:
// it is for the next batch.
func KeepEarlierObjects(earlier, anew plan.Plan) plan.Plan {
	objects := map[types.UID]bool{}
	for i := range earlier.Steps {
		if s := &earlier.Steps[i]; s.IsChange() {
			objects[s.Object.UID] = true
		}
	}
	wanted := anew
	wanted.Steps = slices.DeleteFunc(slices.Clone(anew.Steps), func(s plan.Step) bool { return s.IsChange() && !objects[s.Object.UID] })
	return plan.IntersectPlans(wanted, anew)
}

// FirstObjects is the plan with the steps on its first objects, at most so many, whose rows take at most so many bytes; one in any case.
// It has all that one of them comes after.
func FirstObjects(p plan.Plan, objects, bytes int) plan.Plan {
	seen := map[types.UID]bool{}
	for i := range p.Steps {
		s := &p.Steps[i]
		if !s.IsChange() {
			continue
		}
		if seen[s.Object.UID] {
			continue
		}
		if bytes -= s.RowBytes(); len(seen) == objects || bytes < 0 && len(seen) > 0 {
			p.Steps = p.Steps[:i]
			break
		}
		seen[s.Object.UID] = true
	}
	return p
}

// ChooseItems chooses at most so many items of a plan for a batch, with equal parts for namespaces: otherwise objects of one namespace
// whose requests fail could fill each batch. It begins with the namespace that follows after. An item belongs to the namespace of its
// first object. It returns nil if all items have room.
func ChooseItems(p plan.Plan, items int, after string) map[plan.ItemKey]bool {
	type place struct {
		item      plan.ItemKey
		nth       int // of its namespace
		namespace string
	}
	var all []place
	known, of := map[plan.ItemKey]bool{}, map[string]int{}
	for i := range p.Steps {
		namespace := p.Steps[i].Object.Namespace
		for _, item := range p.Steps[i].ListItems() {
			if !known[item] {
				known[item] = true
				all = append(all, place{item, of[namespace], namespace})
				of[namespace]++
			}
		}
	}
	if len(all) <= items {
		return nil
	}
	isBehind := func(namespace string) int { // those that come after come first
		if namespace > after {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.nth, b.nth), cmp.Compare(isBehind(a.namespace), isBehind(b.namespace)), cmp.Compare(a.namespace, b.namespace))
	})
	chosen := make(map[plan.ItemKey]bool, items)
	for _, a := range all[:items] {
		chosen[a.item] = true
	}
	return chosen
}

// WithoutItems is the plan without some items. A step that stands for others too is there, for those.
func WithoutItems(p plan.Plan, waits func(plan.ItemKey) bool) plan.Plan {
	p.Steps = slices.Clone(p.Steps)
	out := make([]bool, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		keys := slices.DeleteFunc(slices.Clone(s.Keys), func(key string) bool { return waits(plan.ItemKey{Rule: s.Rule, Key: key}) })
		out[i] = len(keys) == 0 && len(s.Keys) > 0
		s.Keys = keys
	}
	p.Steps = plan.KeepSteps(p.Steps, func(n int) bool { return !out[n] })
	return p
}
