// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
)

const (
	// defaultPer is the time that a Recurring Cleaner's limits are about, unless the spec says otherwise.
	defaultPer = time.Hour
	// burst is how many requests may arrive at once at any actionsPerSecond: those that were let go one by one, and then
	// waited for others to be answered.
	burst = 33
	// begins is what a process logs when it begins to work. Of what was done before it knows nothing.
	begins = "Starting workers"
)

// limits is I7.
func (j *judge) limits() {
	for _, l := range j.history.lives {
		for _, s := range l.commits() {
			if limits := s.c.Common().Limits; !s.recurs() && limits != nil && limits.MaxActions > 0 && int64(len(s.open().Rows)) > limits.MaxActions {
				j.violated("I7", fmt.Sprintf("%s was committed with %d objects, and may act on %d", l, len(s.open().Rows), limits.MaxActions), quote(s.event))
			}
		}
		var deeds []*deed
		for _, d := range j.history.deeds {
			if d.life == l && !d.helm {
				deeds = append(deeds, d)
			}
		}
		slices.SortStableFunc(deeds, func(a, b *deed) int { return a.when().Compare(b.when()) })
		b := budget{judge: j, history: j.history, life: l, deeds: deeds}
		b.perTime()
		b.percent()
		b.perSecond()
	}
}

// budget is what a Cleaner may do in a time, and what it did, in its order.
type budget struct {
	judge   *judge
	history *history
	life    *life
	deeds   []*deed
}

// perTime holds the deeds of a Recurring Cleaner, in their order, against how many objects it may act on in a time.
func (b budget) perTime() {
	first, acted := 0, map[types.UID]int{} // how many deeds from the first on were about an object
	for i, d := range b.deeds {
		if !d.recurs() || d.touched() == "" {
			continue
		}
		acted[d.touched()]++
		maxActions, per := b.limitsAt(d.when())
		if maxActions == 0 {
			continue
		}
		since := b.history.counted(d.when(), per)
		for ; first < i && !b.deeds[first].when().After(since); first++ {
			if uid := b.deeds[first].touched(); b.deeds[first].recurs() && uid != "" {
				if acted[uid]--; acted[uid] == 0 {
					delete(acted, uid)
				}
			}
		}
		if int64(len(acted)) > maxActions {
			b.judge.violated("I7", fmt.Sprintf("%s has acted on %d objects in %s, and may act on %d", b.life, len(acted), per, maxActions), d.lines()...)
		}
	}
}

// limitsAt is the widest limit that was in force about a moment, and the shortest time that it was about; 0 is none.
func (b budget) limitsAt(at time.Time) (int64, time.Duration) {
	maxActions, per := int64(0), time.Duration(0)
	for _, s := range b.life.between(at.Add(-b.history.Latency), at) {
		limits := s.c.Common().Limits
		if limits == nil || limits.MaxActions == 0 {
			return 0, 0
		}
		maxActions = max(maxActions, limits.MaxActions)
		p, err := limits.Per.Parse(defaultPer)
		if err != nil {
			return 0, 0
		}
		if per == 0 || p < per {
			per = p
		}
	}
	return maxActions, per
}

// percent holds the deeds of a Recurring Cleaner, in their order, against how many of a target's objects it may act on in a
// time: of all that the record shows to have been there then. Other objects than those that were written may have been, so
// that what is found is too much by any count only where all were.
func (b budget) percent() {
	for i, d := range b.deeds {
		percent, per := b.percentAt(d.when())
		if !d.recurs() || d.touched() == "" || percent == 0 {
			continue
		}
		work := b.history.workAt(d.run, d.when())
		if work == nil {
			continue
		}
		since := b.history.counted(d.when(), per)
		for t := range work.Targets {
			target := &work.Targets[t]
			if target.Reference.FieldSelector != "" || !b.within(target, d.touched()) {
				continue
			}
			acted := map[types.UID]bool{}
			for _, earlier := range b.deeds[:i+1] {
				if uid := earlier.touched(); earlier.recurs() && uid != "" && earlier.when().After(since) && b.within(target, uid) {
					acted[uid] = true
				}
			}
			all := int64(0)
			for uid, states := range b.history.things {
				gone, went := b.history.gone[uid]
				if !states[0].at.After(d.when()) && (!went || gone.After(since)) && b.within(target, uid) {
					all++
				}
			}
			if int64(len(acted))*100 > percent*all {
				b.judge.violated("I7", fmt.Sprintf("%s has acted on %d of %d objects of target %q in %s, and may act on %d%%", b.life, len(acted), all, target.Name, per, percent), d.lines()...)
			}
		}
	}
}

// percentAt is the widest maxPercent that was in force about a moment, and the shortest time that it was about; 0 is none.
func (b budget) percentAt(at time.Time) (int64, time.Duration) {
	percent, per := int64(0), time.Duration(0)
	for _, s := range b.life.between(at.Add(-b.history.Latency), at) {
		limits := s.c.Common().Limits
		if limits == nil || limits.MaxPercent == 0 {
			return 0, 0
		}
		p, err := limits.Per.Parse(defaultPer)
		if err != nil {
			return 0, 0
		}
		percent = max(percent, limits.MaxPercent)
		if per == 0 || p < per {
			per = p
		}
	}
	return percent, per
}

// counted is since when deeds count at a moment: for a time, or since the process that does them began.
func (h *history) counted(at time.Time, per time.Duration) time.Time {
	since := at.Add(-per)
	for k := range h.Log {
		if b := &h.Log[k]; b.Message == begins && b.Time.After(since) && !b.Time.After(at) {
			since = b.Time
		}
	}
	return since
}

// within says that a target stands for an object, as it was written at some time.
func (b budget) within(t *v1alpha1.ClusterTarget, uid types.UID) bool {
	r := &t.Reference
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: r.MatchLabels, MatchExpressions: r.MatchExpressions})
	if err != nil {
		return false
	}
	return slices.ContainsFunc(b.history.things[uid], func(o thing) bool {
		return o.group == r.APIGroup && isKind(o.resource, r.Reference) && inScope(o.meta.Namespace, b.life.namespace, r) &&
			(r.Name == "" || r.Name == o.meta.Name) && selector.Matches(labels.Set(o.meta.Labels))
	})
}

// perSecond holds the requests of a Cleaner, in their order, against how many it may send in a second.
func (b budget) perSecond() {
	level, last := 0.0, time.Time{}
	for _, d := range b.deeds {
		fastest := int64(0)
		for _, s := range b.life.between(d.when().Add(-b.history.Latency), d.when()) {
			limits := s.c.Common().Limits
			if limits == nil || limits.ActionsPerSecond == 0 {
				fastest = 0
				break
			}
			fastest = max(fastest, limits.ActionsPerSecond)
		}
		if fastest == 0 {
			level = 0
			continue
		}
		level = max(0, level-d.when().Sub(last).Seconds()*float64(fastest)) + 1
		last = d.when()
		if level > burst {
			b.judge.violated("I7", fmt.Sprintf("%s has sent requests faster than %d in a second", b.life, fastest), d.lines()...)
			return
		}
	}
}
