// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/events"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/shown"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/trimmed"
)

const (
	// namesInEvent is how many objects an Event names.
	namesInEvent = 5
	// eventsOfPass is how many Events a pass makes before those of one reason and action share one.
	eventsOfPass = 16
)

// errNotNow says that a deletion was not sent because the Cleaner has changed, or because of a shutdown.
var errNotNow = errors.New("the Cleaner has changed")

// countOf is a number of things, in words.
func countOf(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// nameSome counts names, and gives the first of them.
func nameSome(names []string) string {
	n := len(names)
	text := strings.Join(names[:min(n, namesInEvent)], ", ")
	if n > namesInEvent {
		text += ", …"
	}
	return fmt.Sprintf("%d: %s", n, text)
}

// summarizeRun says in words what a finished run did.
func summarizeRun(run *v1alpha1.Run) string {
	var parts []string
	for _, c := range run.Counts {
		parts = append(parts, fmt.Sprintf("%d %s %s", c.Count, c.Resource, c.Outcome))
	}
	if run.Helm != nil {
		parts = append(parts, fmt.Sprintf("release %s %s", run.Helm.Name, run.Helm.Outcome))
	}
	if len(parts) == 0 {
		parts = append(parts, "there was nothing to delete")
	}
	text := strings.Join(parts, ", ")
	if run.Message != "" {
		text += " (" + run.Message + ")"
	}
	return text
}

// words are how a verb is spoken of.
type words struct{ reason, action, would, result string }

func wordsOf(v plan.Verb) words {
	switch v {
	case plan.VerbDelete:
		return words{"Deleted", "Delete", "delete", "deleted"}
	case plan.VerbEvict:
		return words{"Evicted", "Evict", "evict", "evicted"}
	case plan.VerbPatch:
		return words{"Patched", "Patch", "patch", "patched"}
	case plan.VerbRemoveFinalizer:
		return words{"FinalizerRemoved", "RemoveFinalizer", "take a finalizer off", "freed of a finalizer"}
	default:
		return words{"Reported", "Report", "report", "reported"}
	}
}

// maxCount is the highest number that a counter of the status may have.
const maxCount = 1<<53 - 1

// countUp adds one to a counter, up to its highest number.
func countUp(n *int64) { *n = min(*n, maxCount-1) + 1 }

// journal tells people what is done for a Cleaner: Events, counters, and what its status shows.
type journal struct {
	of  *stored
	mem *telling
	// notes are what Events are to say, in the order of their beginnings.
	notes []*note
}

// note is what one Event says of a pass.
type note struct {
	event events.Event
	// more is how many texts there was no room for.
	more int
}

// addText has the Event say a text, too.
func (n *note) addText(text string) {
	const between, rest = "; ", "; and 1000000 more"
	switch {
	case n.more == 0 && len(n.event.Note)+len(between)+len(text)+len(rest) <= shown.MaxText:
		n.event.Note += between + text
	default:
		n.more++
	}
}

// composeEvent makes the Event.
func (n *note) composeEvent() events.Event {
	e := n.event
	if n.more > 0 {
		rest := fmt.Sprintf("; and %d more", n.more)
		e.Note = shown.ShortenText(e.Note, shown.MaxText-len(rest)) + rest
	}
	return e
}

// telling is what the status is about to show of what this process has done.
type telling struct {
	// actions are the latest deeds, newest first.
	actions []v1alpha1.Action
	// own is how many of them are of this process.
	own int
	// unwritable says that the API server has refused the report, as it does where somebody else has written into the status what
	// is no more valid when it is written again.
	unwritable bool
	// counters are what the status says was done so far; nil until something is.
	counters *v1alpha1.Counters
}

// rememberActions remembers deeds, newest first.
func (m *telling) rememberActions(known []v1alpha1.Action, actions ...v1alpha1.Action) {
	if m.actions == nil {
		m.actions = trimmed.TrimActions(slices.Clone(known))
	}
	for _, a := range actions { // in place: a run may have thousands of deeds
		a.Object, a.UID = shown.CleanText(a.Object), shown.CleanText(a.UID)
		m.actions = slices.Insert(m.actions[:min(len(m.actions), trimmed.MaxActions-1)], 0, a)
		m.own = min(m.own+1, trimmed.MaxActions)
	}
}

// reportRefused has the next pass begin the report with what this process has done. The second time it says that this was of no
// use.
func (m *telling) reportRefused() (again bool) {
	again, m.unwritable = m.unwritable, true
	m.actions = append([]v1alpha1.Action{}, m.actions[:m.own]...) // not nil: nothing is taken over from the status
	return again
}

// sendEvent has an Event say something. Once a pass has made many, those of one reason and action share one.
func (p *journal) sendEvent(kind, reason, action, format string, args ...any) {
	text := shown.CleanText(fmt.Sprintf(format, args...))
	if len(p.notes) >= eventsOfPass {
		for _, n := range slices.Backward(p.notes) {
			if n.event.Reason == reason && n.event.Action == action && n.event.Type == kind {
				n.addText(text)
				return
			}
		}
	}
	p.notes = append(p.notes, &note{event: events.Event{Type: kind, Reason: reason, Action: action, Note: text}})
}

// recordEvents has the Events of a pass written.
func (p *journal) recordEvents() {
	c := p.of.read
	for _, n := range p.notes {
		e := n.composeEvent()
		e.Regarding = corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindOf(c), Namespace: c.GetNamespace(), Name: c.GetName(),
			UID: c.GetUID(), ResourceVersion: c.GetResourceVersion(),
		}
		p.of.r.recorder.RecordEvent(e)
	}
	p.notes = nil
}

// tellSteps tells of each rule and verb of a batch.
func (p *journal) tellSteps(steps []plan.Step) { p.tellAs(steps, false) }

// tellDryRun tells what would be done.
func (p *journal) tellDryRun(steps []plan.Step) { p.tellAs(steps, true) }

func (p *journal) tellAs(steps []plan.Step, dryRun bool) {
	type kind struct {
		rule string
		verb plan.Verb
	}
	names, first := map[kind][]string{}, map[kind]string{}
	var kinds []kind
	for i := range steps {
		s := &steps[i]
		k := kind{s.Rule, s.Verb}
		if names[k] == nil {
			kinds = append(kinds, k)
			first[k] = s.Reason
		}
		names[k] = append(names[k], s.Shown(p.of.c.GetNamespace()))
	}
	for _, k := range kinds {
		w := wordsOf(k.verb)
		reason, did := w.reason, w.result
		if dryRun {
			reason, did = v1alpha1.ReasonDryRun, "would "+w.would
		}
		text := fmt.Sprintf("%s: %s %s", k.rule, did, nameSome(names[k]))
		if first[k] != "" {
			text += " (" + first[k] + ")"
		}
		p.sendEvent(corev1.EventTypeNormal, reason, w.action, "%s", text)
	}
}

// tellLoop warns that somebody makes anew what a rule deletes.
func (p *journal) tellLoop(s *plan.Step) {
	w := wordsOf(s.Verb)
	p.sendEvent(corev1.EventTypeWarning, v1alpha1.ReasonRecreationLoop, w.action, "%s: %s is recreated each time it is %s: the operator waits longer from now on",
		s.Rule, s.Object.Ref.NameFor(p.of.c.GetNamespace()), w.result)
}

// tellOutcome counts what came of a step that was decided at a moment, and remembers it for the status.
func (p *journal) tellOutcome(s *plan.Step, a plan.Answer, decided time.Time) {
	action := func(result string) {
		p.mem.rememberActions(p.of.read.State().LastActions, v1alpha1.Action{
			Object: s.Shown(p.of.c.GetNamespace()), UID: string(s.Object.UID), Rule: s.Rule, Action: string(s.Verb),
			Time: atSecond(p.of.r.clock), Result: shown.CleanText(result),
		})
	}
	did := wordsOf(s.Verb).result
	if s.Reason != "" {
		did += ": " + s.Reason
	}
	again := func() { // a refusal that is said already is no news
		if !slices.ContainsFunc(p.latestActions(), func(l v1alpha1.Action) bool {
			return l.UID == string(s.Object.UID) && l.Action == string(s.Verb) && l.Result == shown.CleanText(a.Why)
		}) {
			action(a.Why)
		}
	}
	result := "unsent"
	switch a.Kind {
	case plan.AnswerDeleted:
		result = "deleted"
		action(did)
		countUp(&p.currentCounters().Acted)
	case plan.AnswerNotFound:
		result = "gone"
		action("was gone")
	case plan.AnswerReplaced:
		result = "gone"
		action("was replaced by another object of its name")
	case plan.AnswerRefused:
		result = "refused"
		again()
		countUp(&p.currentCounters().Failed)
	case plan.AnswerLost:
		result = "lost"
		again()
		countUp(&p.currentCounters().Failed)
	case plan.AnswerConflict:
		result = "conflict"
	case plan.AnswerUnsent:
		return
	}
	if s.Verb == plan.VerbDelete {
		p.of.r.metrics.CountDeletion(s.Object.Resource.Group, s.Object.Resource.Resource, result)
	}
	p.countAnswer(s.Rule, s.Verb, a, decided)
}

// tellTerminating warns of what is deleted and held by finalizers when a run ends.
func (p *journal) tellTerminating(run *v1alpha1.Run, rows []plan.Entry) {
	for i, o := range run.Outcomes {
		if o.Outcome == v1alpha1.OutcomeTerminating && i < len(rows) {
			p.sendEvent(corev1.EventTypeWarning, "StillTerminating", "Settle", "%s is held by finalizers: %s", o.Row, strings.Join(rows[i].Finalizers, ", "))
		}
	}
}

// tellFinished tells of a finished run.
func (p *journal) tellFinished(run *v1alpha1.Run) {
	kind := corev1.EventTypeNormal
	if run.Result != v1alpha1.ResultCompleted {
		kind = corev1.EventTypeWarning
	}
	p.sendEvent(kind, string(run.Result), "Finish", "run %d: %s", run.Number, summarizeRun(run))
}

// tellRun says that a run is finished.
func (p *journal) tellRun(ctx context.Context, run *v1alpha1.Run) {
	logf.FromContext(ctx).Info("Finished", "run", run.Number, "result", run.Result, "message", run.Message)
	p.of.r.metrics.CountRun(string(run.Result))
	p.tellFinished(run)
}

// giveUp says what could not be delivered before a deleted Cleaner goes.
func (p *journal) giveUp(ctx context.Context) {
	for _, run := range []*v1alpha1.Run{p.of.c.State().Unsent, p.of.c.State().Run} {
		if run == nil || run.Result == "" || p.of.c.Common().CloudEventSink == "" {
			continue
		}
		log := logf.FromContext(ctx).WithValues("run", run.Number)
		event, err := outbox.NewEvent(p.of.cleanerRef(), run)
		if err != nil {
			log.Error(err, "The event of a run was not delivered before the Cleaner was deleted, and cannot be written")
			continue
		}
		log.Info("The event of a run was not delivered before the Cleaner was deleted", "event", event.String())
		p.sendEvent(corev1.EventTypeWarning, "NotDelivered", "Deliver", "the event of run %d was not delivered before the Cleaner was deleted: %s", run.Number, summarizeRun(run))
	}
}

// countAnswer counts what was answered to an action that was decided at a moment.
func (p *journal) countAnswer(rule string, verb plan.Verb, a plan.Answer, decided time.Time) {
	results := map[plan.AnswerKind]string{
		plan.AnswerDeleted: "done", plan.AnswerNotFound: "gone", plan.AnswerReplaced: "gone", plan.AnswerRefused: "refused", plan.AnswerLost: "lost", plan.AnswerConflict: "conflict",
	}
	key := p.of.key
	if !p.of.c.Common().Recurs() { // there may be one for each thing that is cleaned
		key, rule = types.NamespacedName{}, ""
	}
	p.of.r.metrics.CountAction(key, rule, string(verb), results[a.Kind])
	if a.Kind == plan.AnswerDeleted && (verb == plan.VerbDelete || verb == plan.VerbEvict) {
		p.of.r.metrics.ObserveDelay(p.of.r.clock.Since(decided))
	}
}

// latestActions are the deeds that the status shows, with those that it is about to.
func (p *journal) latestActions() []v1alpha1.Action {
	if p.mem.actions != nil {
		return p.mem.actions
	}
	return p.of.read.State().LastActions
}

// currentCounters are those of the status, with what this process has done since.
func (p *journal) currentCounters() *v1alpha1.Counters {
	if p.mem.counters == nil {
		p.mem.counters = &v1alpha1.Counters{}
		if before := p.of.read.State().Counters; before != nil {
			*p.mem.counters = *before
		}
	}
	return p.mem.counters
}
