// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/planjson"
)

// Why something cannot be predicted.
const (
	becauseRule       = "Time alone may change what the rule wants at a moment that cannot be predicted. Its steps are those that it wants when it is evaluated after each retry.period; it may want others in between."
	becauseConditions = "Time alone may change the conditions at a moment that cannot be predicted. They are evaluated after each retry.period; they may change in between."
	becauseChange     = "A change whose moment is not exact may change what the rules want, and when."
	becauseEviction   = "The API server refuses evictions that a PodDisruptionBudget does not allow, and the operator tries again later. It cannot be predicted when an eviction is allowed."
	becauseRate       = "limits.actionsPerSecond delays requests: they are sent after the moment at which they are wanted, and what the rules want may have changed by then."
	becauseRelease    = "The uninstall deletes the objects of the Helm release, runs its hooks, and takes as long as they take. None of that is predicted."
)

// blur is what is no longer exact. What is blurred once stays so: timers may have begun at another moment.
type blur struct {
	rules map[string]bool
	// all says that no rule is exact.
	all bool
}

// isExact reports whether the moment of a rule's step is exact.
func (b *blur) isExact(rule string) bool { return !b.all && !b.rules[rule] }

// noteUnpredictable notes what may change before the next moment that is looked at. Between the times of a schedule nothing does.
func (b *blur) noteUnpredictable(s *simulation, p *plan.Plan) {
	if !s.isWatched() {
		return
	}
	if p.Unpredictable.Conditions && !s.isMonotonic(p) && !b.all {
		b.all = true
		s.listUnpredictable("", becauseConditions)
	}
	for _, rule := range p.Unpredictable.Rules {
		if b.isExact(rule) {
			if b.rules == nil {
				b.rules = map[string]bool{}
			}
			b.rules[rule] = true
			s.listUnpredictable(rule, becauseRule)
		}
	}
}

// isMonotonic reports whether the author says that conditions that are true stay true: then the moment at which they become true is found.
func (s *simulation) isMonotonic(p *plan.Plan) bool {
	return p.Reason == v1alpha1.ReasonConditionsNotMet && s.work.Retry.Monotonic
}

// noteChange notes that a change comes at a moment that is not exact, and why; the rule is empty if that is because of the whole Cleaner.
func (b *blur) noteChange(s *simulation, rule, because string) {
	if !b.all {
		b.all = true
		s.listUnpredictable(rule, because)
	}
}

func (s *simulation) listUnpredictable(rule, because string) {
	s.out.Unpredictable = append(s.out.Unpredictable, Unpredictable{From: planjson.Moment{Time: s.now}, Rule: rule, Because: because})
}
