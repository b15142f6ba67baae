// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/sink"
)

// finished are the runs of a Cleaner that have a result, each as it was recorded first.
func (l *life) finished() map[int64]*v1alpha1.Run {
	out := map[int64]*v1alpha1.Run{}
	for i := range l.states {
		if l.states[i].forged {
			continue
		}
		for _, run := range []*v1alpha1.Run{l.states[i].c.State().Run, l.states[i].c.State().Unsent} {
			if run != nil && run.Result != "" && out[run.Number] == nil {
				out[run.Number] = run
			}
		}
	}
	return out
}

// byOthers says that somebody else took our finalizer off, or that nobody saw the Cleaner go.
func (j *judge) byOthers(l *life) bool {
	switch {
	case l.letGo != nil:
		return !l.letGo.By(j.history.Operator)
	default: // it had none when it went, or nobody knows
		return l.gone == nil || held(l.states[len(l.states)-1].c)
	}
}

// delivery is I8.
func (j *judge) delivery() {
	attempts := map[string][]sink.Event{}
	var urls []string
	for _, s := range j.history.Sinks {
		urls = append(urls, s.URL)
		for _, e := range s.Events() {
			attempts[e.ID] = append(attempts[e.ID], e)
		}
	}
	for id, all := range attempts {
		for _, e := range all[1:] {
			if first := all[0]; e.Source != first.Source || e.Type != first.Type || e.Time != first.Time || !bytes.Equal(e.Data, first.Data) {
				j.violated("I8", fmt.Sprintf("two attempts of the event %s differ", id), show(first), show(e))
			}
		}
	}
	for _, l := range j.history.lives {
		for number, run := range l.finished() {
			last := l.states[len(l.states)-1].c
			known := slices.ContainsFunc(urls, func(u string) bool { return strings.HasPrefix(last.Common().CloudEventSink, u) })
			id := fmt.Sprintf("%s-%d", l.uid, number)
			delivered := slices.ContainsFunc(attempts[id], func(e sink.Event) bool { return e.Status/100 == 2 })
			switch {
			case !known, delivered:
			case l.there != nil:
				if !keeps(l.there, number) {
					j.violated("I8", fmt.Sprintf("run %d of %s was not delivered, and its payload is not kept, or Delivered does not say so", number, l), jsonOf(run), jsonOf(l.there.State()))
				}
			case j.byOthers(l), j.saidInTheLog(l, number):
			default:
				j.violated("I8", fmt.Sprintf("%s is gone, and its run %d was neither delivered nor written to the log", l, number), append([]string{jsonOf(run)}, shows(attempts[id])...)...)
			}
		}
	}
}

// keeps says that a Cleaner still has what is to be delivered of a run, and says so.
func keeps(c v1alpha1.Owner, number int64) bool {
	for _, run := range []*v1alpha1.Run{c.State().Run, c.State().Unsent} {
		if run != nil && run.Number == number && run.Result != "" {
			return meta.IsStatusConditionFalse(c.State().Conditions, v1alpha1.ConditionDelivered)
		}
	}
	return false
}

// saidInTheLog says that the event of a Cleaner that somebody deleted was written to the log.
func (j *judge) saidInTheLog(l *life, number int64) bool {
	return slices.ContainsFunc(j.history.Log, func(line Line) bool {
		return strings.HasPrefix(line.Message, "The event of a run was not delivered") && line.Namespace == l.namespace && line.Name == l.name && line.Run == number
	})
}

// ends is I9.
func (j *judge) ends() {
	for _, l := range j.history.lives {
		var before *state
		for i := range l.states {
			s := &l.states[i]
			if before != nil {
				j.follows(l, before, s)
			}
			before = s
		}
		if run := before.open(); run != nil && l.there == nil && !j.byOthers(l) {
			shown := quote(before.event) // and nothing that the audit log shows has ended it
			if l.gone != nil {
				shown = quote(*l.gone)
			}
			j.violated("I9", fmt.Sprintf("%s is gone, and its run %d has no result", l, run.Number), shown)
		}
	}
}

// follows holds two states of a Cleaner, one after the other, against each other. A Recurring one adds to an open run
// whatever it is about to do, finishes it while it moves it to unsent, and drops it when there is no sink any more.
func (j *judge) follows(l *life, before, after *state) {
	if before.forged || after.forged { // the operator drops what somebody else wrote
		return
	}
	a, b := before.c.State(), after.c.State()
	was, is := a.Run, b.Run
	recurs := was != nil && was.Lifecycle == v1alpha1.LifecycleRecurring
	lines := []string{quote(before.event), quote(after.event)}
	if b.Runs < a.Runs || b.Runs > a.Runs+1 {
		j.violated("I9", fmt.Sprintf("%s went from %d runs to %d", l, a.Runs, b.Runs), lines...)
	}
	switch {
	case was == nil:
	case recurs && was.Result == "" && (is == nil || is.Number != was.Number) && (unsent(b, was.Number) || after.c.Common().CloudEventSink == ""):
	case is == nil && was.Result == "", is != nil && is.Number != was.Number && was.Result == "":
		j.violated("I9", fmt.Sprintf("run %d of %s was dropped without a result", was.Number, l), lines...)
	case is == nil || is.Number != was.Number:
	case was.Result == "" && is.Result == "" && !recurs && !slices.Equal(was.Rows, is.Rows):
		j.violated("I9", fmt.Sprintf("the rows of run %d of %s have changed", was.Number, l), lines...)
	case was.Result != "" && jsonOf(was) != jsonOf(is):
		j.violated("I9", fmt.Sprintf("the result of run %d of %s has changed", was.Number, l), append(lines, jsonOf(was), jsonOf(is))...)
	}
	if a.Unsent != nil && b.Unsent != nil && a.Unsent.Number == b.Unsent.Number && jsonOf(a.Unsent) != jsonOf(b.Unsent) {
		j.violated("I9", fmt.Sprintf("what is unsent of run %d of %s has changed", a.Unsent.Number, l), append(lines, jsonOf(a.Unsent), jsonOf(b.Unsent))...)
	}
}

// unsent says that a finished run waits for its sink.
func unsent(s *v1alpha1.CleanerStatus, number int64) bool {
	return s.Unsent != nil && s.Unsent.Number == number && s.Unsent.Result != ""
}

// reasons is I12.
func (j *judge) reasons() {
	for _, c := range j.history.Cleaners {
		if c.GetDeletionTimestamp() != nil && !held(c) {
			continue // others hold it
		}
		name := strings.TrimPrefix(c.GetNamespace()+"/"+c.GetName(), "/")
		ready := meta.FindStatusCondition(c.State().Conditions, v1alpha1.ConditionReady)
		switch {
		case ready == nil || ready.Reason == "" || ready.Message == "":
			j.violated("I12", fmt.Sprintf("Cleaner %s does not say why it is there", name), jsonOf(c.State()))
		case ready.ObservedGeneration != c.GetGeneration():
			j.violated("I12", fmt.Sprintf("Cleaner %s says why generation %d was there, and is at %d", name, ready.ObservedGeneration, c.GetGeneration()), jsonOf(c.State()))
		}
	}
}

func show(e sink.Event) string {
	return fmt.Sprintf("event %s %s %s, answered %d: %s", e.ID, e.Source, e.Type, e.Status, e.Data)
}

func shows(events []sink.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, show(e))
	}
	return out
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
