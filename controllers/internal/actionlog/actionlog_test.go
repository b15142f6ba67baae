// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actionlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/cachetrim"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/events"
	"github.com/vtex/cleaner/controllers/internal/metrics"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

var now = time.Date(2026, 1, 2, 15, 4, 5, 999, time.UTC)

// ear hears Events.
type ear struct{ heard []string }

// RecordEvent takes an Event.
func (e *ear) RecordEvent(event events.Event) {
	e.heard = append(e.heard, fmt.Sprintf("%s %s %s %s: %s", event.Regarding.Name, event.Type, event.Reason, event.Action, event.Note))
}

// newTestJournal is the journal of a Cleaner that stays, or of one that cleans once.
func newTestJournal(t *testing.T, lifecycle v1alpha1.Lifecycle) (*Journal, *ear, *prometheus.Registry) {
	t.Helper()
	registry, to := prometheus.NewRegistry(), &ear{}
	count, err := metrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	c := &v1alpha1.Cleaner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "uid"},
		Spec:       v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{Lifecycle: lifecycle, CloudEventSink: "https://sink.example"}},
	}
	clock := clocktesting.NewFakePassiveClock(now)
	of := cleanerstore.New(&cleanerstore.API{Clock: clock}, types.NamespacedName{Namespace: "shop", Name: "c"}, c, &cleanerstore.Memory{})
	return New(of, &Media{Recorder: to, Metrics: count, Clock: clock}, &Memory{}), to, registry
}

// deletePod is a step.
func deletePod(name string) plan.Step {
	return plan.Step{Rule: "done", Verb: plan.VerbDelete, Reason: "it is done", Object: observed.Object{Ref: observed.Ref{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Namespace: "shop", Name: name, UID: types.UID("uid-" + name),
	}}}
}

// series are the values of a counter, by its labels.
func series(t *testing.T, r *prometheus.Registry, metric string) []string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			out = append(out, fmt.Sprintf("%s %v", strings.Join(labels, " "), m.GetCounter().GetValue()))
		}
	}
	return out
}

// TestTellOutcome shows what the status and the metrics say of each answer of the API server.
func TestTellOutcome(t *testing.T) {
	for name, tc := range map[string]struct {
		answer        life.Answer
		action        string
		counted       string
		acted, failed int64
	}{
		"Deleted":  {life.Answer{Kind: life.AnswerDone}, "deleted: it is done", "done", 1, 0},
		"Gone":     {life.Answer{Kind: life.AnswerNotFound}, "was already gone", "gone", 0, 0},
		"Replaced": {life.Answer{Kind: life.AnswerReplaced}, "was replaced by another object with the same name", "gone", 0, 0},
		"Refused":  {life.Answer{Kind: life.AnswerRefused, Why: "you may not"}, "you may not", "refused", 0, 1},
		"Lost":     {life.Answer{Kind: life.AnswerLost, Why: "no answer"}, "no answer", "lost", 0, 1},
		"Unknown":  {life.Answer{Why: "nobody judged it"}, "nobody judged it", "lost", 0, 1},
		"Conflict": {life.Answer{Kind: life.AnswerConflict}, "", "conflict", 0, 0},
		"Unsent":   {life.Answer{Kind: life.AnswerUnsent}, "", "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			j, _, registry := newTestJournal(t, v1alpha1.LifecycleRecurring)
			s := deletePod("a")
			for range 2 { // the second time it is no news that it is refused
				j.TellOutcome(&s, tc.answer, Moments{Decided: now, Due: now})
			}
			var shown []string
			for _, a := range j.mem.Actions {
				shown = append(shown, a.Object+" "+a.Action+": "+a.Result)
			}
			want := slices.Repeat([]string{"Pod shop/a delete: " + tc.action}, 2)
			if tc.failed > 0 {
				want = want[:1]
			} else if tc.action == "" {
				want = nil
			}
			if !slices.Equal(shown, want) {
				t.Errorf("the status shows %q, want %q", shown, want)
			}
			if got := *j.currentCounters(); got != (v1alpha1.Counters{Acted: 2 * tc.acted, Failed: 2 * tc.failed}) {
				t.Errorf("it counts %+v", got)
			}
			counted := series(t, registry, "cleaner_actions_total")
			if tc.counted == "" && counted != nil || tc.counted != "" && !slices.Equal(counted, []string{"c shop " + tc.counted + " done delete 2"}) {
				t.Errorf("metrics: %q", counted)
			}
		})
	}
}

// A Cleaner that cleans once has no series of its own: there may be one for each thing that is cleaned.
func TestCleanersThatCleanOnceHaveNoSeries(t *testing.T) {
	j, _, registry := newTestJournal(t, v1alpha1.LifecycleOnce)
	s := deletePod("a")
	j.TellOutcome(&s, life.Answer{Kind: life.AnswerDone}, Moments{Decided: now, Due: now})
	if got := series(t, registry, "cleaner_actions_total"); !slices.Equal(got, []string{"  done  delete 1"}) {
		t.Errorf("metrics: %q", got)
	}
}

// TestTellSteps shows what Events say of a batch, done and rehearsed.
func TestTellSteps(t *testing.T) {
	var steps []plan.Step
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		steps = append(steps, deletePod(name))
	}
	report := deletePod("g")
	report.Verb, report.Reason, report.Rule = plan.VerbReport, "", "old"
	steps = append(steps, report)
	j, to, _ := newTestJournal(t, v1alpha1.LifecycleRecurring)
	j.TellSteps(t.Context(), steps)
	j.TellDryRun(steps[:1])
	j.TellLoop(&steps[0])
	j.RecordEvents()
	j.RecordEvents() // they are recorded once
	want := []string{
		"c Normal Deleted Delete: done: deleted 6: Pod shop/a, Pod shop/b, Pod shop/c, Pod shop/d, Pod shop/e, … (it is done)",
		"c Normal Reported Report: old: reported 1: Pod shop/g",
		"c Normal DryRun Delete: done: would delete 1: Pod shop/a (it is done)",
		"c Warning RecreationLoop Delete: done: Pod shop/a is recreated every time it is deleted; the operator backs off",
	}
	if !slices.Equal(to.heard, want) {
		t.Errorf("it says %q", to.heard)
	}
}

// podKinds knows the kinds of Pods and Events.
type podKinds struct{}

// FindKind returns a kind.
func (podKinds) FindKind(_ context.Context, r schema.GroupVersionResource) string {
	return map[string]string{"pods": "Pod", "events": "Event"}[r.Resource]
}

// Each object says what was done to it, as long as a pass acts on few; and nothing is said of what was only reported, of what another has deleted, of
// Events, and of what has no known kind.
func TestObjectsHaveEvents(t *testing.T) {
	report, event, unknown, gone := deletePod("reported"), deletePod("event"), deletePod("unknown"), deletePod("gone")
	report.Verb, event.Object.Resource.Resource, unknown.Object.Resource.Resource = plan.VerbReport, "events", "gadgets"
	evicted := deletePod("b")
	evicted.Verb, evicted.Reason = plan.VerbEvict, ""
	j, to, _ := newTestJournal(t, v1alpha1.LifecycleRecurring)
	act := func(steps ...plan.Step) {
		for i := range steps {
			answer := life.Answer{Kind: life.AnswerDone}
			if steps[i].Object.Name == "gone" {
				answer.Kind = life.AnswerNotFound
			}
			j.TellOutcome(&steps[i], answer, Moments{Decided: now, Due: now})
		}
		j.TellSteps(t.Context(), steps)
	}
	tell := func(steps ...plan.Step) []string {
		to.heard = nil
		act(steps...)
		j.RecordEvents()
		return slices.DeleteFunc(to.heard, func(heard string) bool { return strings.HasPrefix(heard, "c ") })
	}
	if got := tell(deletePod("a")); len(got) > 0 {
		t.Errorf("although it is switched off, it says %q", got)
	}
	j.To.Kinds = podKinds{}
	want := []string{
		"a Normal Deleted Delete: deleted by Cleaner shop/c (done): it is done", "b Normal Evicted Evict: evicted by Cleaner shop/c (done)",
	}
	for range 2 { // in each pass
		if got := tell(report, event, unknown, gone, deletePod("a"), evicted); !slices.Equal(got, want) {
			t.Errorf("it says %q", got)
		}
	}
	many := make([]plan.Step, 0, objectEvents)
	for n := range objectEvents {
		many = append(many, deletePod(fmt.Sprint("p", n)))
	}
	if got := tell(many...); len(got) != objectEvents {
		t.Errorf("of %d it says %q", objectEvents, got)
	}
	act(many[0]) // in the same pass
	if got := tell(many...); len(got) > 0 {
		t.Errorf("of more it says %q", got)
	}
}

// What a ClusterCleaner says of its reason may be of other namespaces.
func TestTheReasonOfAClusterCleanerIsNotTold(t *testing.T) {
	n, s := &objectNotes{}, deletePod("a")
	n.noteStep(&s)
	n.composeEvents(t.Context(), podKinds{}, corev1.ObjectReference{Kind: "ClusterCleaner", Name: "c"})
	if len(n.events) != 1 || n.events[0].Note != "deleted by ClusterCleaner c (done)" {
		t.Errorf("it says %+v", n.events)
	}
}

// Of a finalizer it is said what is removed from which objects, and of an object what has become of it.
func TestTellFinalizers(t *testing.T) {
	step := deletePod("a")
	step.Verb, step.Reason = plan.VerbRemoveFinalizer, ""
	j, to, _ := newTestJournal(t, v1alpha1.LifecycleRecurring)
	j.TellSteps(t.Context(), []plan.Step{step})
	j.TellDryRun([]plan.Step{step})
	j.RecordEvents()
	want := []string{
		"c Normal FinalizerRemoved RemoveFinalizer: done: removed a finalizer from 1: Pod shop/a",
		"c Normal DryRun RemoveFinalizer: done: would remove a finalizer from 1: Pod shop/a",
	}
	if !slices.Equal(to.heard, want) {
		t.Errorf("it says %q", to.heard)
	}
	j.TellOutcome(&step, life.Answer{Kind: life.AnswerDone}, Moments{Decided: now, Due: now})
	if got := j.mem.Actions[len(j.mem.Actions)-1].Result; got != "finalizer removed" {
		t.Errorf("the action says %q", got)
	}
}

// Once a pass has made many Events, those of one reason and action share one.
func TestEventsAreShared(t *testing.T) {
	j, to, _ := newTestJournal(t, v1alpha1.LifecycleRecurring)
	for n := range EventsOfPass + 2 {
		j.NoteEvent(corev1.EventTypeNormal, "Deleted", "Delete", "rule %d", n)
	}
	j.NoteEvent(corev1.EventTypeWarning, "Failed", "Delete", "another one")
	j.RecordEvents()
	if n := len(to.heard); n != EventsOfPass+1 || !strings.HasSuffix(to.heard[EventsOfPass-1], ": rule 15; rule 16; rule 17") {
		t.Errorf("%d Events, of which the last but one says %q", n, to.heard[n-2])
	}
}

// TestTellRuns shows what Events say of runs that are finished.
func TestTellRuns(t *testing.T) {
	done := &v1alpha1.Run{Number: 3, FinishedAt: new(metav1.NewTime(now)), Result: v1alpha1.ResultCompleted, Counts: []v1alpha1.Count{{Count: 2, Resource: "pods", Outcome: v1alpha1.OutcomeDeleted}}}
	left := &v1alpha1.Run{
		Number: 4, Result: v1alpha1.ResultPartial, Message: "the rest stays", Helm: &v1alpha1.HelmRelease{Name: "r", Outcome: v1alpha1.OutcomeUnknown},
		Outcomes: []v1alpha1.RowOutcome{{Row: "targets.pods pods/v1 shop/a uid-a 1", Outcome: v1alpha1.OutcomeTerminating}},
	}
	j, to, _ := newTestJournal(t, v1alpha1.LifecycleOnce)
	j.TellRun(t.Context(), done)
	j.TellTerminating(left, []life.Entry{{Kind: "Pod", Finalizers: []string{"example.com/x"}}})
	j.TellFinished(left)
	j.TellFinished(&v1alpha1.Run{Number: 5, Result: v1alpha1.ResultCompleted})
	j.of.Draft.State().Run = done
	j.GiveUp(t.Context())
	j.RecordEvents()
	want := []string{
		"c Normal Completed Finish: run 3: 2 pods deleted",
		"c Warning StillTerminating Settle: Pod shop/a still has finalizers: example.com/x",
		"c Warning Partial Finish: run 4: release r unknown (the rest stays)",
		"c Normal Completed Finish: run 5: there was nothing to delete",
		"c Warning NotDelivered Deliver: the event of run 3 was not delivered before the Cleaner was deleted: 2 pods deleted",
	}
	if !slices.Equal(to.heard, want) {
		t.Errorf("it says %q", to.heard)
	}
}

// The API server refuses a report for what somebody else has written into the status: then it is written once more without that.
func TestARefusedReport(t *testing.T) {
	j, _, _ := newTestJournal(t, v1alpha1.LifecycleRecurring)
	j.mem.rememberActions([]v1alpha1.Action{{Object: "foreign"}}, v1alpha1.Action{Object: "own"})
	if j.mem.reportRefused() || !j.mem.Unwritable {
		t.Error("it is not tried again")
	}
	if len(j.mem.Actions) != 1 || j.mem.Actions[0].Object != "own" {
		t.Errorf("it shows %v", j.mem.Actions)
	}
	if !j.mem.reportRefused() {
		t.Error("it is tried again and again")
	}
}

// A status has whole seconds.
func TestAtSecond(t *testing.T) {
	if at := AtSecond(clocktesting.NewFakePassiveClock(now)); at.Nanosecond() != 0 || at.Second() != now.Second() {
		t.Errorf("got %s", at)
	}
}

// A counter stays at its highest number.
func TestCountUp(t *testing.T) {
	for from, want := range map[int64]int64{0: 1, maxCount - 1: maxCount, maxCount: maxCount} {
		if n := from; true {
			if countUp(&n); n != want {
				t.Errorf("after %d: %d", from, n)
			}
		}
	}
}

// What an Event says is bounded, and of what comes later nothing is kept.
func TestANoteIsBounded(t *testing.T) {
	for texts := range 200 {
		n := &note{event: events.Event{Note: "first"}}
		for i := range texts {
			n.addText(fmt.Sprintf("%d%s", i, strings.Repeat("ä", i)))
		}
		said := n.composeEvent().Note
		if len(said) > events.MaxNote || len(n.event.Note) > events.MaxNote || strings.Count(said, ";") == 0 && texts > 1 {
			t.Fatalf("%d texts make %d bytes: %q", texts, len(said), said)
		}
	}
}

// The status shows the latest deeds, newest first, and few.
func TestActionsAreNewestFirstAndFew(t *testing.T) {
	m := &Memory{}
	known := []v1alpha1.Action{{Object: "old"}}
	for range cachetrim.MaxActions {
		m.rememberActions(known, v1alpha1.Action{Object: "newer"}, v1alpha1.Action{Object: "newest"})
	}
	if len(m.Actions) != cachetrim.MaxActions || m.Actions[0].Object != "newest" || m.Actions[1].Object != "newer" || len(known) != 1 {
		t.Errorf("got %v", m.Actions)
	}
	m = &Memory{}
	m.rememberActions(known, v1alpha1.Action{Object: "new"})
	if len(m.Actions) != 2 || m.Actions[1].Object != "old" {
		t.Errorf("what the status has already is lost: %v", m.Actions)
	}
}

// Of deeds that somebody has written into a status, memory keeps as much as a status shows, and counts it.
func TestDeedsOfAStatusAreBounded(t *testing.T) {
	const most = 64 << 10
	long := strings.Repeat("x", 100<<10)
	var known []v1alpha1.Action
	for range 100 {
		known = append(known, v1alpha1.Action{Object: long, UID: long, Rule: long, Action: long, Result: long})
	}
	m := &Memory{}
	m.rememberActions(known, v1alpha1.Action{Object: "pod"})
	if weighActions(m.Actions) > 2*most {
		t.Errorf("%d bytes of deeds are remembered", weighActions(m.Actions))
	}
	if m.CountBytes() < weighActions(m.Actions)-usualActions {
		t.Error("deeds are not counted")
	}
	if m.ForgetActions(); m.CountBytes() > 0 || m.Actions != nil {
		t.Errorf("%d bytes are left", m.CountBytes())
	}
}

// Of a release it is said that its uninstall has begun, and then that it is gone.
func TestTellUninstalled(t *testing.T) {
	step := deletePod("a")
	step.Verb, step.Reason, step.Object.Name = plan.VerbHelmUninstall, "", "sh.helm.release.v1.web.v3"
	j, to, _ := newTestJournal(t, v1alpha1.LifecycleRecurring)
	j.TellSteps(t.Context(), []plan.Step{step})
	j.TellDryRun([]plan.Step{step})
	TellUninstalled(j, step.Rule, "release shop/web", 0)
	TellUninstalled(j, step.Rule, "release shop/api", 2)
	j.RecordEvents()
	want := []string{
		"c Normal UninstallBegun HelmUninstall: done: began to uninstall 1: release shop/web",
		"c Normal DryRun HelmUninstall: done: would uninstall 1: release shop/web",
		"c Normal Uninstalled HelmUninstall: done: uninstalled release shop/web",
		"c Normal Uninstalled HelmUninstall: done: uninstalled release shop/api; 2 objects of it left on purpose",
	}
	if !slices.Equal(to.heard, want) {
		t.Errorf("it says %q", to.heard)
	}
	j.TellOutcome(&step, life.Answer{Kind: life.AnswerDone}, Moments{Decided: now, Due: now})
	if got := j.mem.Actions[0]; got.Result != "uninstall begun" || got.Object != "release shop/web" || got.Action != "helmUninstall" {
		t.Errorf("the status shows %+v", got)
	}
}

// TestDescribeDryRun shows what each verb would do.
func TestDescribeDryRun(t *testing.T) {
	for verb, want := range map[plan.Verb]string{
		plan.VerbDelete: "would be deleted", plan.VerbEvict: "would be evicted", plan.VerbPatch: "would be patched",
		plan.VerbRemoveFinalizer: "finalizer would be removed", plan.VerbReport: "would be reported", plan.VerbHelmUninstall: "would be uninstalled",
	} {
		if got := DescribeDryRun(verb); got != want {
			t.Errorf("%s: %q, want %q", verb, got, want)
		}
	}
}

// refusing is an API server that refuses the first reports.
type refusing struct {
	client.Client
	times int
}

// Status refuses, or writes.
func (r *refusing) Status() client.SubResourceWriter { return refusingWriter{r.Client.Status(), r} }

type refusingWriter struct {
	client.SubResourceWriter
	r *refusing
}

// Patch refuses, or writes.
func (w refusingWriter) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if w.r.times--; w.r.times >= 0 {
		return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Cleaner").GroupKind(), obj.GetName(), nil)
	}
	return w.SubResourceWriter.Patch(ctx, obj, patch, opts...)
}

// leading is a Lease that is fresh.
type leading struct{}

// Fresh says that this process leads.
func (leading) Fresh() bool { return true }

// newRefused is a Journal whose first writes the API server refuses.
func newRefused(t *testing.T, times int) (*Journal, client.Client) {
	t.Helper()
	j, _, _ := newTestJournal(t, v1alpha1.LifecycleRecurring)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(j.of.Stored.DeepCopyOwner()).WithStatusSubresource(j.of.Stored).Build()
	j.of.API.Client, j.of.API.Lease = &refusing{api, times}, leading{}
	if err := api.Get(t.Context(), j.of.Key, j.of.Stored); err != nil {
		t.Fatal(err)
	}
	return j, api
}

// A record is written with its action. What the API server does not take back is left out, and the same action again stands there once.
func TestWriteStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		refuses int
		want    []string
		refused bool
	}{
		"Written":      {0, []string{"record", "earlier"}, false},
		"Refused":      {1, []string{"record"}, false},
		"RefusedAgain": {2, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			j, api := newRefused(t, tc.refuses)
			j.of.Stored.State().LastActions = []v1alpha1.Action{{Object: "earlier"}}
			for range 2 {
				if err := j.WriteStatus(t.Context(), v1alpha1.Action{Object: "record"}, func(*v1alpha1.CleanerStatus) {}); apierrors.IsInvalid(err) != tc.refused || !tc.refused && err != nil {
					t.Fatal(err)
				}
				if tc.refused {
					break
				}
			}
			stored := &v1alpha1.Cleaner{}
			if err := api.Get(t.Context(), j.of.Key, stored); err != nil {
				t.Fatal(err)
			}
			for _, shown := range [][]v1alpha1.Action{stored.Status.LastActions, j.mem.Actions} {
				var got []string
				for _, a := range shown {
					got = append(got, a.Object)
				}
				if !slices.Equal(got, tc.want) || j.mem.Unwritable {
					t.Errorf("it shows %q, and %t", got, j.mem.Unwritable)
				}
			}
		})
	}
}

// TestSendReport shows what is written with a report, and what becomes of one that the API server refuses.
func TestSendReport(t *testing.T) {
	for name, tc := range map[string]struct {
		refuses int
		err     func(error) bool
		shown   int
	}{
		"Written":      {0, func(err error) bool { return err == nil }, 2},
		"Refused":      {1, func(err error) bool { return errors.Is(err, cleanerstore.ErrOutdated) }, 1},
		"RefusedAgain": {2, apierrors.IsInvalid, 1},
	} {
		t.Run(name, func(t *testing.T) {
			j, api := newRefused(t, tc.refuses)
			j.of.Stored.State().LastActions = []v1alpha1.Action{{Object: "earlier"}}
			s := deletePod("a")
			j.TellOutcome(&s, life.Answer{Kind: life.AnswerDone}, Moments{Decided: now, Due: now})
			var err error
			for range max(1, tc.refuses) {
				_, err = j.SendReport(t.Context(), now)
			}
			if !tc.err(err) || j.mem.Unwritable != (tc.refuses > 0) {
				t.Errorf("got %v", err)
			}
			if got := j.latestActions(); len(got) != tc.shown || got[0].Object != "Pod shop/a" {
				t.Errorf("the status is to show %v", got)
			}
			stored := &v1alpha1.Cleaner{}
			if err := api.Get(t.Context(), j.of.Key, stored); err != nil {
				t.Fatal(err)
			}
			if got := stored.Status.LastActions; tc.refuses == 0 && (len(got) != 2 || got[1].Object != "earlier") {
				t.Errorf("the status shows %v", got)
			}
			if written := stored.Status.Counters != nil && stored.Status.Counters.Acted == 1; written != (tc.refuses == 0) {
				t.Errorf("the status is %+v", stored.Status)
			}
		})
	}
}
