// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/reuse"
)

// contentSum is a sum of the contents of a target, unless some of its objects have no number.
type contentSum struct {
	sum   reuse.Sum
	known bool
}

// beginResults begins to use the results of earlier plans, if the input has them.
func (d *decider) beginResults() {
	period, err := EvaluationPeriod(d.in.Spec)
	if d.in.Results == nil || err != nil {
		return
	}
	room := int64(math.MaxInt64)
	if d.in.Room != nil {
		room = d.in.Room.ResultBytes
	}
	d.results, d.sums = d.in.Results.BeginDecision(d.in.dueTime(), period, room), map[string]contentSum{}
}

// known are the results of a rule that are known from earlier plans. Nil knows none.
type known struct {
	rule    *deciding
	objects []observed.Object // the items, in their order
	results *reuse.Rule
}

// findKnown returns what is known of the items of the rule; nil if that cannot be told.
func findKnown(r *deciding, items int) *known {
	if r.results == nil {
		return nil
	}
	depends := r.in.Programs.FindReuse(r.index)
	own := findTarget(r.in.Spec, depends.Own)
	if depends.Impossible != "" || own < 0 || len(r.in.Snapshot[own].Objects) != items {
		return nil
	}
	joined := sha256.New()
	for _, target := range depends.Joined {
		s := r.sumContents(target)
		if !s.known {
			return nil
		}
		joined.Write(s.sum[:])
	}
	return &known{rule: r, objects: r.in.Snapshot[own].Objects, results: r.results.BeginRule(r.rule.Name, reuse.Sum(joined.Sum(nil)), items)}
}

// findTarget returns the place of a target in a spec; -1 if there is none.
func findTarget(spec *v1alpha1.Work, name string) int {
	return slices.IndexFunc(spec.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Name == name })
}

// sumContents sums up what expressions see of a target.
func (d *decider) sumContents(target string) contentSum {
	if s, done := d.sums[target]; done {
		return s
	}
	s, at := contentSum{}, findTarget(d.in.Spec, target)
	if at >= 0 {
		seen, sum := &d.in.Snapshot[at], sha256.New()
		sum.Write([]byte(seen.State.String()))
		var number [8]byte
		s.known = true
		for i := range seen.Objects {
			s.known = s.known && seen.Objects[i].Content != 0
			binary.LittleEndian.PutUint64(number[:], seen.Objects[i].Content)
			sum.Write(number[:])
		}
		s.sum = reuse.Sum(sum.Sum(nil))
	}
	d.sums[target] = s
	return s
}

// isFalse says that `when` is known to be false for an item.
func (k *known) isFalse(place int) bool {
	if k == nil || !k.results.IsFalse(k.objects[place].Content) {
		return false
	}
	k.rule.p.Reused++
	return true
}

// noteResult remembers whether `when` was false for an item that was evaluated.
func (k *known) noteResult(place int, isFalse bool) {
	if k == nil {
		return
	}
	valid := k.rule.eval.LastForesight()
	if content := k.objects[place].Content; isFalse && !valid.Unknown {
		k.results.NoteFalse(content, valid.Until)
	} else {
		k.results.NoteOther(content)
	}
}

// end hands the results on, and has the plan be made again when one of those that were known may change.
func (k *known) end() {
	if k != nil {
		k.rule.eval.AssumeForesight(k.results.EndRule())
	}
}
