// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package actionlog reports what is done for a Cleaner: Events, metrics, and the actions and counters of its status. All of it is bounded.
// It decides nothing.
package actionlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/cachetrim"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/events"
	"github.com/vtex/cleaner/controllers/internal/metrics"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
)

const (
	// namesInEvent is how many objects an Event names.
	namesInEvent = 5
	// EventsOfPass is how many Events a pass makes before those of one reason and action share one.
	EventsOfPass = 16
	// objectEvents is how many objects a pass may act on for each of them to have an Event of its own.
	objectEvents = 10
	// kindsTimeout is how long a pass waits for the kinds of these objects, which are known but for the first time.
	kindsTimeout = 2 * time.Second
	// actionBytes is about how much memory an action takes without its texts.
	actionBytes = 128
	// usualActions is the memory that the actions in a status take for most Cleaners. It is not counted.
	usualActions = 12 << 10
)

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

// words are the forms of a verb for Events and messages.
type words struct{ reason, action, would, did, result string }

// DescribeDryRun says what a verb would do to an object: "would be deleted".
func DescribeDryRun(v plan.Verb) string {
	switch v {
	case plan.VerbRemoveFinalizer:
		return "finalizer would be removed"
	case plan.VerbHelmUninstall:
		return "would be uninstalled"
	}
	return "would be " + wordsOf(v).result
}

func wordsOf(v plan.Verb) words {
	switch v {
	case plan.VerbDelete:
		return words{v1alpha1.EventReasonDeleted, "Delete", "delete", "deleted", "deleted"}
	case plan.VerbEvict:
		return words{v1alpha1.EventReasonEvicted, "Evict", "evict", "evicted", "evicted"}
	case plan.VerbPatch:
		return words{v1alpha1.EventReasonPatched, "Patch", "patch", "patched", "patched"}
	case plan.VerbRemoveFinalizer:
		return words{v1alpha1.EventReasonFinalizerRemoved, "RemoveFinalizer", "remove a finalizer from", "removed a finalizer from", "finalizer removed"}
	case plan.VerbHelmUninstall:
		return words{v1alpha1.EventReasonUninstallBegun, "HelmUninstall", "uninstall", "began to uninstall", "uninstall begun"}
	default:
		return words{v1alpha1.EventReasonReported, "Report", "report", "reported", "reported"}
	}
}

// maxCount is the highest number that a counter of the status may have.
const maxCount = 1<<53 - 1

// countUp adds one to a counter, up to its highest number.
func countUp(n *int64) { *n = min(*n, maxCount-1) + 1 }

// Media is where a Journal reports: Events, metrics and status.
type Media struct {
	Recorder interface{ RecordEvent(e events.Event) }
	Metrics  *metrics.Metrics
	Clock    clock.PassiveClock
	// Kinds knows the kinds of objects that are to have Events of their own; nil: none are.
	Kinds kindFinder
}

type kindFinder interface {
	FindKind(ctx context.Context, resource schema.GroupVersionResource) string
}

// Journal tells people what is done for a Cleaner: Events, counters, and what its status shows.
type Journal struct {
	of  *cleanerstore.Store
	To  *Media
	mem *Memory
	// notes are what Events are to say, in the order of their beginnings.
	notes []*note
	// objects are what Events about objects are to say.
	objects objectNotes
}

// New is about one Cleaner.
func New(of *cleanerstore.Store, to *Media, mem *Memory) *Journal {
	return &Journal{of: of, To: to, mem: mem}
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
	case n.more == 0 && len(n.event.Note)+len(between)+len(text)+len(rest) <= sanitize.MaxText:
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
		e.Note = sanitize.ShortenToBytes(e.Note, sanitize.MaxText-len(rest)) + rest
	}
	return e
}

// Memory is what the status is about to show of what this process has done.
type Memory struct {
	// Actions are the latest actions, newest first.
	Actions []v1alpha1.Action
	// own is how many of them are of this process.
	own int
	// Unwritable means that the API server refused the report, as it does if another client wrote something into the status that is not
	// valid.
	Unwritable bool
	// counters are what the status says was done so far; nil until something is.
	counters *v1alpha1.Counters
}

// rememberActions adds actions, newest first.
func (m *Memory) rememberActions(known []v1alpha1.Action, actions ...v1alpha1.Action) {
	if m.Actions == nil {
		m.Actions = cachetrim.TrimActions(slices.Clone(known))
	}
	for _, a := range actions { // in place: a run may have thousands of actions
		a.Object, a.UID = sanitize.CleanText(a.Object), sanitize.CleanText(a.UID)
		m.Actions = slices.Insert(m.Actions[:min(len(m.Actions), cachetrim.MaxActions-1)], 0, a)
		m.own = min(m.own+1, cachetrim.MaxActions)
	}
}

// CountBytes returns about how much memory the actions take beyond the usual.
func (m *Memory) CountBytes() int64 { return max(0, weighActions(m.Actions)-usualActions) }

// ForgetActions drops the actions if they take much memory: the status has them.
func (m *Memory) ForgetActions() {
	if m.CountBytes() > 0 {
		m.Actions, m.own = nil, 0
	}
}

// reportRefused has the next pass begin the report with what this process has done. The second time it says that this was of no
// use.
func (m *Memory) reportRefused() (again bool) {
	again, m.Unwritable = m.Unwritable, true
	m.Actions = append([]v1alpha1.Action{}, m.Actions[:m.own]...) // not nil: nothing is taken over from the status
	return again
}

// RememberActions adds actions to those that the status shows.
func (p *Journal) RememberActions(actions ...v1alpha1.Action) {
	p.mem.rememberActions(p.of.Stored.State().LastActions, actions...)
}

// WriteStatus writes the record together with an action that the status shows, so that a crash does not part them. If the API server does not take back
// the actions that the status has, no more than those of this process are left. The action is remembered also if it is unknown whether it was written;
// written again, it stands there once.
func (p *Journal) WriteStatus(ctx context.Context, a v1alpha1.Action, change func(s *v1alpha1.CleanerStatus)) error {
	next := *p.mem
	next.Actions = slices.Clone(p.mem.Actions)
	if len(next.Actions) > 0 && next.own > 0 && isSameAction(next.Actions[0], a) {
		next.Actions, next.own = next.Actions[1:], next.own-1
	}
	next.rememberActions(p.of.Stored.State().LastActions, a)
	write := func() error {
		return p.of.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) {
			change(s)
			s.LastActions = slices.Clone(next.Actions)
		})
	}
	err := write()
	if apierrors.IsInvalid(err) {
		next.reportRefused()
		next.Unwritable = false // the report was not tried
		err = write()
	}
	if err == nil || cleanerstore.MayBeWritten(err) {
		*p.mem = next
	}
	return err
}

// isSameAction says that two actions differ in no more than their time.
func isSameAction(a, b v1alpha1.Action) bool {
	a.Time = b.Time
	return a == b
}

// NoteEvent has an Event say something. Once a pass has made many, those of one reason and action share one.
func (p *Journal) NoteEvent(kind, reason, action, format string, args ...any) {
	text := sanitize.CleanText(fmt.Sprintf(format, args...))
	if len(p.notes) >= EventsOfPass {
		for _, n := range slices.Backward(p.notes) {
			if n.event.Reason == reason && n.event.Action == action && n.event.Type == kind {
				n.addText(text)
				return
			}
		}
	}
	p.notes = append(p.notes, &note{event: events.Event{Type: kind, Reason: reason, Action: action, Note: text}})
}

// RecordEvents has the Events of a pass written.
func (p *Journal) RecordEvents() {
	for _, n := range p.notes {
		e := n.composeEvent()
		e.Regarding = referTo(p.of.Stored)
		p.To.Recorder.RecordEvent(e)
	}
	for _, e := range p.objects.events {
		p.To.Recorder.RecordEvent(e)
	}
	p.notes, p.objects = nil, objectNotes{}
}

// referTo refers to a Cleaner.
func referTo(c v1alpha1.Owner) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindOf(c), Namespace: c.GetNamespace(), Name: c.GetName(),
		UID: c.GetUID(), ResourceVersion: c.GetResourceVersion(),
	}
}

// TellSteps tells of each rule and verb of a batch.
func (p *Journal) TellSteps(ctx context.Context, steps []plan.Step) {
	p.tellAs(steps, false)
	if p.To.Kinds != nil {
		ctx, cancel := context.WithTimeout(ctx, kindsTimeout)
		defer cancel()
		p.objects.composeEvents(ctx, p.To.Kinds, referTo(p.of.Stored))
	}
}

// objectNotes are what Events about objects say of a pass: none, if it acts on many.
type objectNotes struct {
	// done are steps that changed an object, and acted is how many there are.
	done   []plan.Step
	acted  int
	events []events.Event
}

// noteStep notes a step that was carried out. Events get none: a rule that deletes Events would never end.
func (n *objectNotes) noteStep(s *plan.Step) {
	if !s.IsChange() || s.Object.Resource.Resource == "events" {
		return
	}
	if n.acted++; n.acted > objectEvents {
		n.done, n.events = nil, nil
		return
	}
	n.done = append(n.done, *s)
}

// composeEvents makes Events for those who look at an object. The reason of a ClusterCleaner is left out: it may tell of other namespaces.
func (n *objectNotes) composeEvents(ctx context.Context, kinds kindFinder, owner corev1.ObjectReference) {
	for i := range n.done {
		s := &n.done[i]
		kind, w := kinds.FindKind(ctx, s.Object.Resource), wordsOf(s.Verb)
		if kind == "" {
			continue
		}
		text := fmt.Sprintf("%s by %s %s (%s)", w.result, owner.Kind, strings.TrimPrefix(owner.Namespace+"/"+owner.Name, "/"), s.Rule)
		if s.Reason != "" && owner.Namespace != "" {
			text += ": " + s.Reason
		}
		n.events = append(n.events, events.Event{
			Regarding: corev1.ObjectReference{
				APIVersion: s.Object.Resource.GroupVersion().String(), Kind: kind, Namespace: s.Object.Namespace, Name: s.Object.Name, UID: s.Object.UID,
			},
			Related: owner, Type: corev1.EventTypeNormal, Reason: w.reason, Action: w.action, Note: sanitize.CleanText(text),
		})
	}
	n.done = nil
}

// TellDryRun tells what would be done.
func (p *Journal) TellDryRun(steps []plan.Step) { p.tellAs(steps, true) }

func (p *Journal) tellAs(steps []plan.Step, dryRun bool) {
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
		names[k] = append(names[k], s.DescribeObject())
	}
	for _, k := range kinds {
		w := wordsOf(k.verb)
		reason, did := w.reason, w.did
		if dryRun {
			reason, did = v1alpha1.ReasonDryRun, "would "+w.would
		}
		text := fmt.Sprintf("%s: %s %s", k.rule, did, nameSome(names[k]))
		if first[k] != "" {
			text += " (" + first[k] + ")"
		}
		p.NoteEvent(corev1.EventTypeNormal, reason, w.action, "%s", text)
	}
}

// TellLoop warns that what a rule deletes is recreated each time.
func (p *Journal) TellLoop(s *plan.Step) {
	w := wordsOf(s.Verb)
	p.NoteEvent(corev1.EventTypeWarning, v1alpha1.ReasonRecreationLoop, w.action, "%s: %s is recreated every time it is %s; the operator backs off",
		s.Rule, s.Object.String(), w.result)
}

// NewAction says what came of a step.
func (p *Journal) NewAction(s *plan.Step, result string) v1alpha1.Action {
	return v1alpha1.Action{
		Object: s.DescribeObject(), UID: string(s.Object.UID), Rule: s.Rule, Action: string(s.Verb),
		Time: AtSecond(p.To.Clock), Result: sanitize.CleanText(result),
	}
}

// RememberNews adds an action to those that the status shows, unless it shows that already.
func (p *Journal) RememberNews(a v1alpha1.Action) {
	if !slices.ContainsFunc(p.latestActions(), func(l v1alpha1.Action) bool {
		return l.UID == a.UID && l.Rule == a.Rule && l.Action == a.Action && l.Result == a.Result
	}) {
		p.RememberActions(a)
	}
}

// TellUninstalled says that the release whose uninstall a rule has begun is gone.
func TellUninstalled(p *Journal, rule, release string, kept int) {
	text := fmt.Sprintf("%s: uninstalled %s", rule, release)
	if kept > 0 {
		text += fmt.Sprintf("; %s of it left on purpose", sanitize.CountOf(kept, "object"))
	}
	p.NoteEvent(corev1.EventTypeNormal, v1alpha1.EventReasonUninstalled, "HelmUninstall", "%s", text)
}

// TellIdle says once that a patch changes nothing. It counts for nothing.
func (p *Journal) TellIdle(s *plan.Step) {
	p.RememberNews(p.NewAction(s, "changes nothing, and is not sent again until the object or the rule changes"))
}

// Moments are when a step was decided on, and since when it is due.
type Moments struct{ Decided, Due time.Time }

// TellOutcome counts the outcome of a step in the metrics, and adds it to status.lastActions.
func (p *Journal) TellOutcome(s *plan.Step, a life.Answer, at Moments) {
	action := func(result string) { p.RememberActions(p.NewAction(s, result)) }
	did := wordsOf(s.Verb).result
	if s.Reason != "" {
		did += ": " + s.Reason
	}
	again := func() { p.RememberNews(p.NewAction(s, a.Why)) } // a refusal that is said already is no news
	result := "unsent"
	switch a.Kind {
	case life.AnswerDone:
		result = "deleted"
		action(did)
		if p.To.Kinds != nil {
			p.objects.noteStep(s)
		}
		countUp(&p.currentCounters().Acted)
	case life.AnswerNotFound:
		result = "gone"
		action("was already gone")
	case life.AnswerReplaced:
		result = "gone"
		action("was replaced by another object with the same name")
	case life.AnswerRefused:
		result = "refused"
		again()
		countUp(&p.currentCounters().Failed)
	case life.AnswerLost, life.AnswerUnknown:
		result = "lost"
		again()
		countUp(&p.currentCounters().Failed)
	case life.AnswerConflict:
		result = "conflict"
	case life.AnswerUnsent:
		return
	}
	if s.Verb == plan.VerbDelete {
		p.To.Metrics.CountDeletion(s.Object.Resource.Group, s.Object.Resource.Resource, result)
	}
	p.countAnswer(s, a, at)
}

// TellTerminating warns of what is deleted and held by finalizers when a run ends.
func (p *Journal) TellTerminating(run *v1alpha1.Run, rows []life.Entry) {
	for i, o := range run.Outcomes {
		if o.Outcome == v1alpha1.OutcomeTerminating && i < len(rows) {
			p.NoteEvent(corev1.EventTypeWarning, v1alpha1.EventReasonStillTerminating, "Settle", "%s still has finalizers: %s", rows[i].NameObject(o.Row), strings.Join(rows[i].Finalizers, ", "))
		}
	}
}

// TellFinished tells of a finished run.
func (p *Journal) TellFinished(run *v1alpha1.Run) {
	kind := corev1.EventTypeNormal
	if run.Result != v1alpha1.ResultCompleted {
		kind = corev1.EventTypeWarning
	}
	p.NoteEvent(kind, string(run.Result), "Finish", "run %d: %s", run.Number, summarizeRun(run))
}

// TellRun says that a run is finished.
func (p *Journal) TellRun(ctx context.Context, run *v1alpha1.Run) {
	logf.FromContext(ctx).Info("Finished", "run", run.Number, "result", run.Result, "message", run.Message)
	p.To.Metrics.CountRun(string(run.Result))
	p.TellFinished(run)
}

// GiveUp says what could not be delivered before a deleted Cleaner goes.
func (p *Journal) GiveUp(ctx context.Context) {
	for _, run := range []*v1alpha1.Run{p.of.Draft.State().Unsent, p.of.Draft.State().Run} {
		if run == nil || run.Result == "" || !p.of.Draft.Common().HasSink() {
			continue
		}
		log := logf.FromContext(ctx).WithValues("run", run.Number)
		event, err := outbox.NewEvent(outbox.RefOf(p.of.Draft), run)
		if err != nil {
			log.Error(err, "The event of a run was not delivered before the Cleaner was deleted, and cannot be written")
			continue
		}
		log.Info("The event of a run was not delivered before the Cleaner was deleted", "event", event.String())
		p.NoteEvent(corev1.EventTypeWarning, v1alpha1.EventReasonNotDelivered, "Deliver", "the event of run %d was not delivered before the Cleaner was deleted: %s", run.Number, summarizeRun(run))
	}
}

// countAnswer counts what was answered to an action, and how long it took until it was done.
func (p *Journal) countAnswer(s *plan.Step, a life.Answer, at Moments) {
	results := map[life.AnswerKind]string{
		life.AnswerDone: "done", life.AnswerNotFound: "gone", life.AnswerReplaced: "gone", life.AnswerRefused: "refused", life.AnswerLost: "lost", life.AnswerUnknown: "lost", life.AnswerConflict: "conflict",
	}
	key, rule := p.of.Key, s.Rule
	if !p.of.Draft.Common().IsRecurring() { // there may be one for each thing that is cleaned
		key, rule = types.NamespacedName{}, ""
	}
	p.To.Metrics.CountAction(key, rule, string(s.Verb), results[a.Kind])
	if a.Kind == life.AnswerDone && s.IsChange() {
		ends := s.Verb == plan.VerbDelete || s.Verb == plan.VerbEvict // which are at their end when they are answered
		p.To.Metrics.ObserveDelay(metrics.Delay{Due: p.To.Clock.Since(at.Due), Decided: p.To.Clock.Since(at.Decided), Ends: ends})
	}
}

// latestActions returns the actions that the status shows, with those that the next report adds.
func (p *Journal) latestActions() []v1alpha1.Action {
	if p.mem.Actions != nil {
		return p.mem.Actions
	}
	return p.of.Stored.State().LastActions
}

// currentCounters are those of the status, with what this process has done since.
func (p *Journal) currentCounters() *v1alpha1.Counters {
	if p.mem.counters == nil {
		p.mem.counters = &v1alpha1.Counters{}
		if before := p.of.Stored.State().Counters; before != nil {
			*p.mem.counters = *before
		}
	}
	return p.mem.counters
}

// weighActions returns about how much memory the actions of a status take.
func weighActions(all []v1alpha1.Action) (bytes int64) {
	for i := range all {
		a := &all[i]
		bytes += actionBytes + int64(len(a.Object)+len(a.UID)+len(a.Rule)+len(a.Action)+len(a.Result))
	}
	return bytes
}

// AtSecond returns the current time in whole seconds, as a status stores it.
func AtSecond(c clock.PassiveClock) metav1.Time { return metav1.NewTime(c.Now().Truncate(time.Second)) }

// SendReport writes the drafted status with actions and counters, if it has changed, at most once a second. Otherwise it returns when it may.
func (p *Journal) SendReport(ctx context.Context, now time.Time) (due time.Time, err error) {
	if p.mem.Actions != nil {
		p.of.Draft.State().LastActions = slices.Clone(p.mem.Actions)
	}
	sent, due, err := p.of.WriteReport(ctx, now, p.mem.counters)
	if apierrors.IsInvalid(err) && !p.mem.reportRefused() {
		return time.Time{}, cleanerstore.ErrOutdated
	}
	if sent {
		p.mem.Unwritable = false
	}
	return due, err
}
