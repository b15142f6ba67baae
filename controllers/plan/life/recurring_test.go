// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// ruleRow is the row of a Pod that a rule wants something of, as recorded.
func ruleRow(name string) string {
	o := pod(name)
	return runrow.Row{Rule: "orphans", Ref: o.Ref}.String()
}

// counting is an open run of a Cleaner that stays, with rows of these Pods.
func counting(names ...string) *v1alpha1.Run {
	run := &v1alpha1.Run{Lifecycle: v1alpha1.LifecycleRecurring, Number: 1, Decides: "v1:x"}
	for _, n := range names {
		run.Rows = append(run.Rows, ruleRow(n))
	}
	return run
}

// ledgerOf is what the process knows that has recorded the rows of a run and did this with them; lost is an answer that
// did not arrive.
func ledgerOf(run *v1alpha1.Run, outcomes ...v1alpha1.Outcome) *Memory {
	l := &Memory{Ledger: Ledger{Number: run.Number, recorded: run.Rows}}
	for _, o := range outcomes {
		e := Entry{Blind: o == lost, Doubt: o == v1alpha1.OutcomeUnknown}
		if !e.Blind && !e.Doubt {
			e.Did = o
		}
		l.Rows = append(l.Rows, e)
	}
	return l
}

const (
	lost    = v1alpha1.Outcome("lost")
	nothing = v1alpha1.Outcome("")
)

func TestNextRecurring(t *testing.T) {
	del := func(c *v1alpha1.Cleaner) { c.DeletionTimestamp = &metav1.Time{Time: born} }
	noSink := func(c *v1alpha1.Cleaner) { c.Spec.CloudEventSink = "" }
	free := func(c *v1alpha1.Cleaner) { c.Finalizers = nil }
	suspended := func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }
	once := func(c *v1alpha1.Cleaner) { c.Spec.Lifecycle = v1alpha1.LifecycleOnce }
	unsent := func(c *v1alpha1.Cleaner) { c.Status.Unsent = finishedRun(v1alpha1.ResultCompleted) }
	open := func(c *v1alpha1.Cleaner) { c.Status.Run = counting("a", "b") }
	ended := func(c *v1alpha1.Cleaner) {
		c.Status.Run = finishedRun(v1alpha1.ResultAbandoned)
		c.Status.Run.Lifecycle = v1alpha1.LifecycleRecurring
	}
	known := ledgerOf(counting("a", "b"), v1alpha1.OutcomeDeleted, nothing)
	abandons := Request{Kind: WriteResult, Result: v1alpha1.ResultAbandoned, Message: "the Cleaner was deleted"}
	type changes = []func(*v1alpha1.Cleaner)
	cases := map[string]struct {
		reason    string
		cleaner   changes
		ledger    *Memory
		after     time.Duration // since the deletion
		delivered bool
		want      Request
	}{
		"Evaluates":       {reason: "nothing is recorded: evaluate", want: Request{Kind: Evaluate}},
		"KeepsFinalizer":  {reason: "the finalizer stays for the next batch", cleaner: changes{}, want: Request{Kind: Evaluate}},
		"NoFinalizer":     {reason: "without a sink none is needed", cleaner: changes{noSink, free}, want: Request{Kind: Evaluate}},
		"Counts":          {reason: "an open run goes on counting", cleaner: changes{open}, ledger: known, want: Request{Kind: Evaluate}},
		"CountsAfterLoss": {reason: "what is not known of it is read before the next batch, and no sooner", cleaner: changes{open}, want: Request{Kind: Evaluate}},
		"Owes":            {reason: "what the sink has not taken does not stop the next batch", cleaner: changes{unsent, open}, want: Request{Kind: Evaluate}},
		"Suspended":       {reason: "a suspended one is told so by its evaluation", cleaner: changes{open, suspended}, ledger: known, want: Request{Kind: Evaluate}},
		"Delivered":       {reason: "what was delivered is dropped", cleaner: changes{unsent, open}, delivered: true, want: Request{Kind: ClearUnsent}},
		"DeliveredHeld":   {reason: "while suspended, too", cleaner: changes{unsent, suspended}, delivered: true, want: Request{Kind: ClearUnsent}},

		"SinkRemoved":       {reason: "nobody wants to be told any more", cleaner: changes{noSink, open}, ledger: known, want: Request{Kind: ClearRecord}},
		"SinkRemovedOwes":   {reason: "not of what is owed either", cleaner: changes{noSink, unsent}, want: Request{Kind: ClearRecord}},
		"SinkRemovedThen":   {reason: "then the finalizer goes", cleaner: changes{noSink}, want: Request{Kind: RemoveFinalizer}},
		"SinkRemovedLeaves": {reason: "with the Cleaner, when it was deleted", cleaner: changes{noSink, del}, want: Request{Kind: RemoveFinalizer}},

		"Terminating":     {reason: "somebody else holds a deleted Cleaner", cleaner: changes{del, free}, want: Request{Kind: Idle, Reason: v1alpha1.ReasonTerminating}},
		"Leaves":          {reason: "nothing is owed: it goes", cleaner: changes{del}, want: Request{Kind: RemoveFinalizer}},
		"LooksFirst":      {reason: "what nobody knows is read before the result", cleaner: changes{del, open}, want: Request{Kind: LookRows, Rows: []int{0, 1}}},
		"LooksAtTheRest":  {reason: "and only that", cleaner: changes{del, open}, ledger: ledgerOf(counting("a", "b"), v1alpha1.OutcomeDeleted, lost), want: Request{Kind: LookRows, Rows: []int{1}}},
		"LooksNoMore":     {reason: "not when the grace is over", cleaner: changes{del, open}, after: 30 * time.Second, want: abandons},
		"Abandons":        {reason: "then the run is abandoned", cleaner: changes{del, open}, ledger: known, want: abandons},
		"AbandonsBehind":  {reason: "whatever is owed before it", cleaner: changes{del, open, unsent}, ledger: known, want: abandons},
		"AbandonsHeld":    {reason: "and suspended or not", cleaner: changes{del, open, suspended}, ledger: known, want: abandons},
		"SendsUnsent":     {reason: "what is owed first is sent first", cleaner: changes{del, ended, unsent}, want: Request{Kind: Idle, Until: born.Add(30 * time.Second), Reason: v1alpha1.ReasonDelivering}},
		"SentUnsent":      {reason: "then dropped", cleaner: changes{del, ended, unsent}, delivered: true, want: Request{Kind: ClearUnsent}},
		"SendsRun":        {reason: "then what was abandoned is", cleaner: changes{del, ended}, want: Request{Kind: Idle, Until: born.Add(30 * time.Second), Reason: v1alpha1.ReasonDelivering}},
		"SentRun":         {reason: "and dropped likewise", cleaner: changes{del, ended}, delivered: true, want: Request{Kind: ClearRecord}},
		"WaitsForUnsent":  {reason: "what is owed holds a Cleaner without a run, too", cleaner: changes{del, unsent}, want: Request{Kind: Idle, Until: born.Add(30 * time.Second), Reason: v1alpha1.ReasonDelivering}},
		"AlmostGivesUp":   {reason: "for the whole grace", cleaner: changes{del, ended}, after: 30*time.Second - 1, want: Request{Kind: Idle, Until: born.Add(30 * time.Second), Reason: v1alpha1.ReasonDelivering}},
		"GivesUp":         {reason: "and no longer", cleaner: changes{del, ended}, after: 30 * time.Second, want: Request{Kind: GiveUp}},
		"GivesUpUnsent":   {reason: "nor for what is owed", cleaner: changes{del, unsent}, after: 30 * time.Second, want: Request{Kind: GiveUp}},
		"NotBeforeResult": {reason: "a run that is open gets its result even then", cleaner: changes{del, open, unsent}, ledger: known, after: time.Hour, want: abandons},

		"OnceNow":        {reason: "a run that a Cleaner leaves behind is finished", cleaner: changes{once, open}, ledger: known, want: Request{Kind: MoveToUnsent}},
		"OnceNowLooks":   {reason: "when all of it is known", cleaner: changes{once, open}, want: Request{Kind: LookRows, Rows: []int{0, 1}}},
		"OnceNowWaits":   {reason: "and there is room for it", cleaner: changes{once, open, unsent}, ledger: known, want: Request{Kind: Idle, Reason: v1alpha1.ReasonDelivering}},
		"OnceNowDeleted": {reason: "a deletion abandons it as well", cleaner: changes{once, open, del}, ledger: known, want: abandons},

		"Restored":      {reason: "a result in the place of an open run is sent as it is", cleaner: changes{ended}, want: Request{Kind: MoveToUnsent}},
		"RestoredWaits": {reason: "when there is room for it", cleaner: changes{ended, unsent}, want: Request{Kind: Idle, Reason: v1alpha1.ReasonDelivering}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "shop", Finalizers: []string{v1alpha1.Finalizer}}}
			c.Spec.Lifecycle, c.Spec.CloudEventSink = v1alpha1.LifecycleRecurring, "http://sink"
			for _, change := range tc.cleaner {
				change(c)
			}
			if tc.ledger == nil {
				tc.ledger = &Memory{}
			}
			v := View{Cleaner: c, Decides: "v1:x", Delivered: tc.delivered, Now: born.Add(tc.after), FinishGrace: 30 * time.Second}
			if diff := cmp.Diff(tc.want, Next(v, tc.ledger)); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestBeforeBatch(t *testing.T) {
	full := counting("a")
	full.Counts = []v1alpha1.Count{{Resource: "pods/v1", Outcome: v1alpha1.OutcomeDeleted, Count: maxRun - 1}}
	run, unsent := counting("a", "b"), finishedRun(v1alpha1.ResultCompleted)
	held := []string{v1alpha1.Finalizer}
	cases := map[string]struct {
		reason     string
		finalizers []string
		status     v1alpha1.CleanerStatus
		ledger     *Memory
		want       Request
	}{
		"Finalizer":  {"before anything else the Cleaner is held", []string{"example.test/other"}, v1alpha1.CleanerStatus{Run: full}, &Memory{}, Request{Kind: AddFinalizer}},
		"First":      {"then the rows are recorded", held, v1alpha1.CleanerStatus{}, &Memory{}, Request{Kind: Record}},
		"Next":       {"those of the next batch when those before are known", held, v1alpha1.CleanerStatus{Run: run}, ledgerOf(run, nothing, nothing), Request{Kind: Record}},
		"Crashed":    {"and are looked at when they are not", held, v1alpha1.CleanerStatus{Run: run}, &Memory{}, Request{Kind: LookRows, Rows: []int{0, 1}}},
		"Full":       {"a full run makes room", held, v1alpha1.CleanerStatus{Run: full}, ledgerOf(full, nothing), Request{Kind: MoveToUnsent}},
		"FullLooks":  {"once it is known", held, v1alpha1.CleanerStatus{Run: full}, &Memory{}, Request{Kind: LookRows, Rows: []int{0}}},
		"FullBehind": {"unless a dead sink leaves none", held, v1alpha1.CleanerStatus{Run: full, Unsent: unsent}, ledgerOf(full, nothing), Request{Kind: Record}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Finalizers: tc.finalizers}, Status: tc.status}
			if diff := cmp.Diff(tc.want, BeforeBatch(c, &tc.ledger.Ledger)); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAtRest(t *testing.T) {
	run, unsent := counting("a"), finishedRun(v1alpha1.ResultCompleted)
	cases := map[string]struct {
		reason string
		spec   v1alpha1.CommonSpec
		status v1alpha1.CleanerStatus
		ledger *Memory
		want   Request
	}{
		"Nothing":   {"there is no run", v1alpha1.CommonSpec{}, v1alpha1.CleanerStatus{Unsent: unsent}, &Memory{}, Request{Kind: Idle}},
		"Finishes":  {"it is finished", v1alpha1.CommonSpec{}, v1alpha1.CleanerStatus{Run: run}, ledgerOf(run, nothing), Request{Kind: MoveToUnsent}},
		"Looks":     {"when all of it is known", v1alpha1.CommonSpec{}, v1alpha1.CleanerStatus{Run: run}, &Memory{}, Request{Kind: LookRows, Rows: []int{0}}},
		"Waits":     {"and there is room for it", v1alpha1.CommonSpec{}, v1alpha1.CleanerStatus{Run: run, Unsent: unsent}, ledgerOf(run, nothing), Request{Kind: Idle, Reason: v1alpha1.ReasonDelivering}},
		"Suspended": {"a suspended Cleaner keeps it", v1alpha1.CommonSpec{Suspend: true}, v1alpha1.CleanerStatus{Run: run}, ledgerOf(run, nothing), Request{Kind: Idle}},
		"DryRun":    {"and so does one in DryRun", v1alpha1.CommonSpec{Mode: v1alpha1.ModeDryRun}, v1alpha1.CleanerStatus{Run: run}, ledgerOf(run, nothing), Request{Kind: Idle}},
		"Over":      {"a result is not written again", v1alpha1.CommonSpec{}, v1alpha1.CleanerStatus{Run: unsent}, &Memory{}, Request{Kind: Idle}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Cleaner{Status: tc.status}
			c.Spec.CommonSpec = tc.spec
			if diff := cmp.Diff(tc.want, AtRest(c, &tc.ledger.Ledger)); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// What a run of a Cleaner that stays counts of a row is what the last answer that says something says.
func TestCounted(t *testing.T) {
	gone, patched, deleted, unknown := v1alpha1.OutcomeGone, v1alpha1.OutcomePatched, v1alpha1.OutcomeDeleted, v1alpha1.OutcomeUnknown
	for name, tc := range map[string]struct {
		reason  string
		answers []RowAnswer
		want    v1alpha1.Outcome
	}{
		"Nothing":  {"nothing was sent", nil, nothing},
		"Deleted":  {"it was done", []RowAnswer{{Did: deleted}}, deleted},
		"Gone":     {"somebody else was faster", []RowAnswer{{Did: gone}}, gone},
		"ThenGone": {"but what was done was done", []RowAnswer{{Did: patched, Failed: "forbidden"}, {Did: gone}}, patched},
		"Replaced": {"what was made anew is gone", []RowAnswer{{Replaced: true}}, gone},
		"Refused":  {"nothing was done", []RowAnswer{{Failed: "forbidden"}}, nothing},
		"HalfDone": {"a part was", []RowAnswer{{Did: patched, Failed: "forbidden"}}, patched},
		"Unsent":   {"nothing was sent", []RowAnswer{{Cut: true}}, nothing},
		"Lost":     {"nobody knows, not even if something was done before", []RowAnswer{{Did: patched, Failed: "timeout", Lost: true}}, unknown},
		"LostGone": {"that it is gone tells", []RowAnswer{{Failed: "timeout", Lost: true}, {Did: gone}}, gone},
	} {
		t.Run(name, func(t *testing.T) {
			run := counting("a")
			l := newLedger(run, born)
			for _, a := range tc.answers {
				l.RecordAnswer(0, a, born)
			}
			if got := l.Rows[0].recurringOutcome(); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
			if blind := len(l.UnknownRows(run)) > 0; blind != (tc.want == unknown) {
				t.Errorf("%s: it is to be looked at: %t", tc.reason, blind)
			}
		})
	}
}

func TestLedger(t *testing.T) {
	run := counting("a", "b", "c")
	cases := map[string]struct {
		reason string
		ledger *Memory
		want   []int
	}{
		"Crashed":      {"after a crash nothing is known", &Memory{}, []int{0, 1, 2}},
		"Recorded":     {"the process that has recorded them knows that nothing was sent", ledgerOf(run, nothing, nothing, nothing), nil},
		"Lost":         {"a lost answer makes a row unknown", ledgerOf(run, v1alpha1.OutcomeDeleted, lost, nothing), []int{1}},
		"AnotherRun":   {"what is known of another run says nothing", ledgerOf(&v1alpha1.Run{Number: 2, Rows: run.Rows}, nothing, nothing, nothing), []int{0, 1, 2}},
		"AnotherBatch": {"nor does what is known of as many other rows", ledgerOf(counting("d", "e", "f"), v1alpha1.OutcomeDeleted, nothing, nothing), []int{0, 1, 2}},
		"FewerRows":    {"nor of fewer", ledgerOf(counting("a", "b"), nothing, nothing), []int{0, 1, 2}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.ledger.UnknownRows(run)); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// After a crash a look says of each row whether its object is gone, and nothing more.
func TestLedgerSawAfterACrash(t *testing.T) {
	run := counting("missing", "terminating", "anew", "changed", "unread", "there")
	run.Rows = append(run.Rows, "made up")
	l := ledgerOf(counting("x"), v1alpha1.OutcomeDeleted)
	sights := map[int]Sight{
		0: {Missing: true}, 1: {UID: "uid-terminating", Terminating: true}, 2: {UID: "another"}, 3: {UID: "uid-changed", ResourceVersion: "8"},
		4: {Failed: "timeout"}, 5: {UID: "uid-there", ResourceVersion: "7"}, 6: {Missing: true},
	}
	for range maxLooks - 1 {
		l.RecordSights(run, sights, born)
		if left := l.UnknownRows(run); !slices.Equal(left, []int{4}) {
			t.Fatalf("rows %v would be read again, want the one that could not be read", left)
		}
	}
	l.RecordSights(run, sights, born)
	unknown, gone := v1alpha1.OutcomeUnknown, v1alpha1.OutcomeGone
	want := []v1alpha1.Outcome{gone, gone, gone, unknown, unknown, nothing, unknown}
	if diff := cmp.Diff(want, countedBy(l)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if left := l.UnknownRows(run); len(left) > 0 {
		t.Errorf("rows %v would be read again, and again", left)
	}
}

// A look at one row does not forget the others.
func TestLedgerSawAfterALostAnswer(t *testing.T) {
	run := counting("patched", "lost", "left")
	l := ledgerOf(run, v1alpha1.OutcomePatched, lost, nothing)
	l.RecordSights(run, map[int]Sight{1: {Missing: true}}, born)
	want := []v1alpha1.Outcome{v1alpha1.OutcomePatched, v1alpha1.OutcomeGone, nothing}
	if diff := cmp.Diff(want, countedBy(l)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// countedBy is what a ledger counts of each row.
func countedBy(l *Memory) []v1alpha1.Outcome {
	var out []v1alpha1.Outcome
	for i := range l.Rows {
		out = append(out, l.Rows[i].recurringOutcome())
	}
	return out
}

func TestBatch(t *testing.T) {
	withheld := []v1alpha1.Withheld{{Object: "pods/p", Because: "it is protected"}}
	a, b := pod("a"), pod("b")
	rows := []runrow.Row{{Rule: "orphans", Ref: a.Ref}, {Rule: "orphans", Ref: b.Ref}}
	later := born.Add(time.Hour)
	fresh := func(number int64) *v1alpha1.Run {
		out := counting("a", "b")
		out.Number, out.DecidedAt, out.Withheld, out.Decides = number, metav1.NewTime(later), withheld, "v1:y"
		return out
	}
	counted := counting("a", "b")
	counted.Withheld, counted.Decides = withheld, "v1:y"
	counted.Counts = []v1alpha1.Count{{Resource: "pods/v1", Outcome: v1alpha1.OutcomeEvicted, Count: 1}}
	counted.Outcomes = []v1alpha1.RowOutcome{{Row: ruleRow("c"), Outcome: v1alpha1.OutcomeEvicted}}
	unknown := counting("a", "b")
	unknown.Withheld, unknown.Decides = withheld, "v1:y"
	unknown.Counts = []v1alpha1.Count{{Resource: "pods/v1", Outcome: v1alpha1.OutcomeUnknown, Count: 2}}
	unknown.Outcomes = []v1alpha1.RowOutcome{{Row: ruleRow("c"), Outcome: v1alpha1.OutcomeUnknown}, {Row: ruleRow("d"), Outcome: v1alpha1.OutcomeUnknown}}
	before := counting("c", "d")
	earlier := counting("c", "d")
	earlier.Withheld = []v1alpha1.Withheld{{Object: "pods/q", Because: "it was protected"}, withheld[0]}
	both := counting("a", "b")
	both.Withheld, both.Decides = earlier.Withheld, "v1:y"
	cases := map[string]struct {
		reason string
		status v1alpha1.CleanerStatus
		ledger *Memory
		want   *v1alpha1.Run
	}{
		"First":    {"the first run has number 1", v1alpha1.CleanerStatus{}, &Memory{}, fresh(1)},
		"Next":     {"the next one has the next number, though nothing else tells of the one before", v1alpha1.CleanerStatus{Runs: 3}, &Memory{}, fresh(4)},
		"GoesOn":   {"an open run counts what is known of the batch before", v1alpha1.CleanerStatus{Runs: 1, Run: before}, ledgerOf(before, v1alpha1.OutcomeEvicted, nothing), counted},
		"Withheld": {"what was withheld before is not forgotten, nor said twice", v1alpha1.CleanerStatus{Runs: 1, Run: earlier}, ledgerOf(earlier, nothing, nothing), both},
		"Crashed":  {"what nobody knows is unknown", v1alpha1.CleanerStatus{Runs: 1, Run: before}, &Memory{}, unknown},
		"Finished": {"a run with a result is over", v1alpha1.CleanerStatus{Runs: 1, Run: finishedRun(v1alpha1.ResultAbandoned)}, &Memory{}, fresh(2)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			was := tc.status.DeepCopy()
			run, ledger := BeginBatch(&tc.status, &tc.ledger.Ledger, "v1:y", rows, withheld, later)
			if diff := cmp.Diff(tc.want, run); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
			if left := ledger.UnknownRows(run); len(left) > 0 || len(ledger.Rows) != 2 {
				t.Errorf("before the first request nothing is unknown: %+v", ledger)
			}
			if !ledger.AllAnswered || !ledger.LastRequest.Equal(later) || ledger.Number != run.Number {
				t.Errorf("before the first request all is known, and since when: %+v", ledger)
			}
			others := run.DeepCopy()
			others.Rows[1] = ruleRow("e")
			if left := ledger.UnknownRows(others); len(left) != 2 {
				t.Errorf("what is known of these rows is taken for what is known of as many others: only %v are unknown", left)
			}
			if diff := cmp.Diff(was, &tc.status); diff != "" {
				t.Errorf("the status that was read was changed:\n%s", diff)
			}
		})
	}
}

func TestSettled(t *testing.T) {
	run := counting("a", "b", "c", "d")
	run.Rows = append(run.Rows, "made up")
	run.Counts = []v1alpha1.Count{{Resource: "pods/v1", Outcome: v1alpha1.OutcomeDeleted, Count: 2}}
	l := ledgerOf(run, v1alpha1.OutcomeDeleted, v1alpha1.OutcomePatched, nothing, lost, v1alpha1.OutcomeGone)
	got := CountRows(run, &l.Ledger)
	want := []v1alpha1.Count{
		{Resource: "pods/v1", Outcome: v1alpha1.OutcomeDeleted, Count: 3}, {Resource: "pods/v1", Outcome: v1alpha1.OutcomePatched, Count: 1},
		{Resource: "pods/v1", Outcome: v1alpha1.OutcomeUnknown, Count: 1}, {Resource: "unreadable", Outcome: v1alpha1.OutcomeGone, Count: 1},
	}
	if diff := cmp.Diff(want, got.Counts); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got.Rows != nil || len(got.Outcomes) != 4 || got.Outcomes[2] != (v1alpha1.RowOutcome{Row: ruleRow("d"), Outcome: v1alpha1.OutcomeUnknown}) {
		t.Errorf("got %+v", got)
	}
	if len(run.Rows) != 5 || len(run.Counts) != 1 || run.Counts[0].Count != 2 {
		t.Errorf("the run that was read was changed: %+v", run)
	}
	if again := CountRows(got, &l.Ledger); !cmp.Equal(again, got) {
		t.Errorf("what is settled is counted twice: %+v", again.Counts)
	}
}

// However much is done, a run names a bounded number of objects, and counts all of them.
func TestSettledNamesTheFirstObjects(t *testing.T) {
	run := counting()
	for range 3 {
		var names []string
		var outcomes []v1alpha1.Outcome
		for i := range 150 {
			names, outcomes = append(names, fmt.Sprint("p", i)), append(outcomes, v1alpha1.OutcomeDeleted)
		}
		run.Rows = counting(names...).Rows
		run = CountRows(run, &ledgerOf(run, outcomes...).Ledger)
	}
	if len(run.Outcomes) != maxOutcomes || run.Counts[0].Count != 450 {
		t.Errorf("%d objects are named, %d counted", len(run.Outcomes), run.Counts[0].Count)
	}
}

func TestFinished(t *testing.T) {
	run := counting("a", "b")
	over := finishedRun(v1alpha1.ResultAbandoned)
	finished := metav1.NewTime(born)
	over.FinishedAt = &finished
	cases := map[string]struct {
		reason  string
		run     *v1alpha1.Run
		ledger  *Memory
		result  v1alpha1.Result
		message string
		want    v1alpha1.Result
		says    string
		at      time.Time
	}{
		"Completed": {"all of it is known", run, ledgerOf(run, v1alpha1.OutcomeDeleted, nothing), "", "", v1alpha1.ResultCompleted, "", born.Add(time.Hour)},
		"Partial":   {"some of it is not", run, ledgerOf(run, v1alpha1.OutcomeDeleted, lost), "", "", v1alpha1.ResultPartial, "the outcome of some objects is unknown", born.Add(time.Hour)},
		"Abandoned": {"it was deleted, whatever is known", run, &Memory{}, v1alpha1.ResultAbandoned, "why", v1alpha1.ResultAbandoned, "why", born.Add(time.Hour)},
		"Over":      {"a result never changes", over, &Memory{}, "", "", v1alpha1.ResultAbandoned, "", born},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := FinishRun(tc.run, tc.ledger, tc.result, tc.message, born.Add(time.Hour))
			if got.Result != tc.want || got.Message != tc.says || !got.FinishedAt.Time.Equal(tc.at) || got.Rows != nil || got.Number != 1 {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
		})
	}
}

func TestFull(t *testing.T) {
	rows := func(n int) []string { return slices.Repeat([]string{ruleRow("a")}, n) }
	counts := func(n int64) []v1alpha1.Count {
		return []v1alpha1.Count{{Resource: "pods/v1", Outcome: v1alpha1.OutcomeDeleted, Count: n - 1}, {Resource: "nodes/v1", Outcome: v1alpha1.OutcomePatched, Count: 1}}
	}
	cases := map[string]struct {
		reason string
		run    v1alpha1.Run
		want   bool
	}{
		"Empty":      {"nothing was done", v1alpha1.Run{}, false},
		"AlmostFull": {"there is room for more", v1alpha1.Run{Rows: rows(99), Counts: counts(400)}, false},
		"Full":       {"rows and counts are added", v1alpha1.Run{Rows: rows(100), Counts: counts(400)}, true},
		"OneBatch":   {"a whole batch fills it", v1alpha1.Run{Rows: rows(MaxBatch)}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := IsRunFull(&tc.run); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// What comes of the steps on the object of a row is what the run knows of it: a row is done when the last of them is.
func TestActed(t *testing.T) {
	now := born.Add(time.Minute)
	patched, later := v1alpha1.OutcomePatched, now.Add(time.Second)
	cases := map[string]struct {
		reason string
		answer RowAnswer
		want   Entry
	}{
		"Deleted":  {"it is waited for", RowAnswer{Did: v1alpha1.OutcomeDeleted, Left: "9"}, Entry{State: RowDeleted, Did: v1alpha1.OutcomeDeleted}},
		"Proven":   {"unless the answer proves that it is gone", RowAnswer{Did: v1alpha1.OutcomeDeleted, Gone: true}, Entry{State: RowDeleted, Did: v1alpha1.OutcomeDeleted, Settled: true}},
		"Gone":     {"what somebody else has deleted is done", RowAnswer{Did: v1alpha1.OutcomeGone}, Entry{State: RowGone, Did: v1alpha1.OutcomeGone, Settled: true}},
		"Replaced": {"another one of its name is no deed", RowAnswer{Replaced: true}, Entry{State: RowReplaced}},
		"Evicted":  {"what was evicted is done", RowAnswer{Did: v1alpha1.OutcomeEvicted}, Entry{State: RowDeleted, Did: v1alpha1.OutcomeEvicted, Settled: true}},
		"Patched":  {"what was patched stays, as it was left", RowAnswer{Did: patched, Left: "9"}, Entry{State: RowDeleted, Did: patched, Left: "9", Settled: true}},
		"Failed":   {"it is tried again", RowAnswer{Failed: "forbidden", FailedReason: "Refused"}, Entry{Failed: "forbidden", FailedReason: "Refused", Due: later, backoff: time.Second}},
		"Lost":     {"and so is what nobody knows of", RowAnswer{Failed: "timeout", Lost: true}, Entry{Blind: true, Failed: "timeout", Due: later, backoff: time.Second}},
		"Unstable": {"or what has changed each time", RowAnswer{Failed: "it changed", Unstable: true}, Entry{Failed: "it changed", Unstable: true, Due: later, backoff: time.Second}},
		"HalfDone": {"a part that was done is not all", RowAnswer{Did: patched, Left: "9", Failed: "forbidden"}, Entry{Did: patched, Left: "9", Failed: "forbidden", Due: later, backoff: time.Second}},
		"Cut":      {"what was not tried goes on at once", RowAnswer{Did: patched, Left: "9", Cut: true}, Entry{Did: patched, Left: "9"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, m := committed("a")
			m.RowsRead, tc.want.Checked = true, true
			m.RecordAnswer(0, tc.answer, now)
			if diff := cmp.Diff(tc.want, m.Rows[0], cmp.AllowUnexported(Entry{})); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
			if !m.LastRequest.Equal(now) || m.RowsRead {
				t.Errorf("it was sent at %s, and what was read before still counts: %t", m.LastRequest, m.RowsRead)
			}
			if m.AllAnswered == tc.answer.Lost {
				t.Errorf("the memory is whole: %t", m.AllAnswered)
			}
		})
	}
}

// Rows of rules go before the others, on the rules' own evaluation.
func TestNextActsByRules(t *testing.T) {
	minute := born.Add(time.Minute)
	due := func(i int) func(*Memory) {
		return func(m *Memory) { m.Rows[i].Due, m.Rows[i].FailedReason = minute, v1alpha1.ReasonDeletionRefused }
	}
	done := func(i int) func(*Memory) {
		return func(m *Memory) { m.Rows[i].State, m.Rows[i].Settled = RowDeleted, true }
	}
	refused := func(i, times int) func(*Memory) {
		return func(m *Memory) {
			for range times {
				m.RecordAnswer(i, RowAnswer{Failed: "forbidden", FailedReason: v1alpha1.ReasonDeletionRefused}, born)
			}
		}
	}
	cases := map[string]struct {
		reason string
		memory []func(*Memory)
		change func(*v1alpha1.Cleaner)
		after  time.Duration
		want   Request
	}{
		"RulesFirst": {reason: "what targets delete waits", want: Request{Kind: Act, Rows: []int{0, 2}}},
		"Old":        {reason: "not on an old confirmation", after: time.Minute, want: Request{Kind: Recheck}},
		"OneWaits":   {reason: "one that waits holds up no other of a rule", memory: []func(*Memory){due(0)}, want: Request{Kind: Act, Rows: []int{2}}},
		"AllWait":    {reason: "and all that wait hold up the rest", memory: []func(*Memory){due(0), due(2)}, want: Request{Kind: Idle, Until: minute, Reason: v1alpha1.ReasonDeletionRefused}},
		"Failed":     {reason: "one that failed is tried again later", memory: []func(*Memory){func(m *Memory) { m.VoidConfirmation(); m.Due = minute }}, want: Request{Kind: Idle, Until: minute, Reason: v1alpha1.ReasonUnconfirmed}},
		"Refused": {
			reason: "but what is refused again and again does not", memory: []func(*Memory){refused(0, 4), refused(2, 4)},
			want: Request{Kind: Act, Rows: []int{1}},
		},
		"RefusedOnce":        {reason: "a refusal or two may pass", memory: []func(*Memory){refused(0, 4), refused(2, 3)}, want: Request{Kind: Idle, Until: born.Add(4 * time.Second), Reason: v1alpha1.ReasonDeletionRefused}},
		"RefusedAndDue":      {reason: "it is tried again when it is due, whatever else is", memory: []func(*Memory){refused(0, 4), done(2)}, after: 8 * time.Second, want: Request{Kind: Act, Rows: []int{0}}},
		"RefusedAndNotTried": {reason: "one that was not tried yet goes before", memory: []func(*Memory){refused(0, 4)}, want: Request{Kind: Act, Rows: []int{2}}},
		"OnlyRefused":        {reason: "and when nothing else is left, it is waited for", memory: []func(*Memory){refused(0, 4), done(1), done(2)}, want: Request{Kind: Idle, Until: born.Add(8 * time.Second), Reason: v1alpha1.ReasonDeletionRefused}},
		"TargetsThen":        {reason: "then it is the turn of the others", memory: []func(*Memory){done(0), done(2)}, want: Request{Kind: Act, Rows: []int{1}}},
		"Unchecked":          {reason: "a process that finds the run looks first", memory: []func(*Memory){func(m *Memory) { m.Rows[2].Checked = false }}, want: Request{Kind: LookRows, Rows: []int{2}}},
		"Suspended":          {reason: "nothing is done while it is suspended", change: func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }, want: Request{Kind: Idle, Reason: v1alpha1.ReasonSuspended}},
		"Kept":               {reason: "a row that no rule wants makes it Partial", memory: []func(*Memory){done(0), done(1), func(m *Memory) { m.Rows[2].State, m.RowsRead = RowKept, true }}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: "1 of 3 objects were not deleted"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, m := committed("a", "b", "c")
			c.Status.Run.Rows[0], c.Status.Run.Rows[2] = ruleRow("a"), ruleRow("c")
			for _, change := range tc.memory {
				change(m)
			}
			if tc.change != nil {
				tc.change(c)
			}
			v := View{Cleaner: c, Decides: "v1:x", Now: born.Add(tc.after), SettleFor: time.Minute, FinishGrace: time.Minute}
			if diff := cmp.Diff(tc.want, Next(v, m)); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// What is done at once after a conflict is about the objects that were recorded, whatever an item is made of by then.
func TestAgain(t *testing.T) {
	one := func(o observed.Object, verb plan.Verb, after ...int) plan.Step {
		return plan.Step{Rule: "orphans", Action: len(after), Keys: []string{"k"}, Object: o, Verb: verb, After: after, Confirmed: true}
	}
	newer := func(o *observed.Object) { o.ResourceVersion = "8" }
	anew := func(o *observed.Object) { o.UID = "another" }
	earlier := plan.Plan{Verdict: v1alpha1.VerdictAct, Steps: []plan.Step{one(pod("a"), plan.VerbPatch), one(pod("a"), plan.VerbReport, 0), one(pod("c"), plan.VerbReport)}}
	cases := map[string]struct {
		reason string
		anew   []plan.Step
		want   []string
	}{
		"Newer":      {"it goes on at the new version, with what comes after", []plan.Step{one(pod("a", newer), plan.VerbPatch), one(pod("a", newer), plan.VerbReport, 0)}, []string{"patch a[]", "report a[0]"}},
		"MadeAnew":   {"another object of its name is left, with what comes after", []plan.Step{one(pod("a", anew), plan.VerbPatch), one(pod("a", anew), plan.VerbReport, 0)}, nil},
		"Another":    {"so is one that the item did not stand for", []plan.Step{one(pod("b"), plan.VerbPatch)}, nil},
		"OnlyTold":   {"and one that was only reported, and has no row", []plan.Step{one(pod("c"), plan.VerbPatch)}, nil},
		"Unanswered": {"what could not be read is left", []plan.Step{{Rule: "orphans", Keys: []string{"k"}, Object: pod("a"), Verb: plan.VerbPatch}}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := KeepEarlierObjects(earlier, plan.Plan{Verdict: v1alpha1.VerdictAct, Steps: tc.anew})
			if diff := cmp.Diff(tc.want, stepsOf(got)); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
			if len(got.Steps) > 0 && got.Steps[0].Object.ResourceVersion != "8" {
				t.Errorf("it names version %s", got.Steps[0].Object.ResourceVersion)
			}
		})
	}
}

func TestFirst(t *testing.T) {
	says := plan.Step{Rule: "orphans", Object: pod("x"), Verb: plan.VerbReport}
	steps := []plan.Step{onPod("a"), onPod("a", 0), says, onPod("b", 2), onPod("a", 1), onPod("c"), onPod("a", 4)}
	cases := map[string]struct {
		reason  string
		objects int
		want    int // steps
	}{
		"None":  {"before the first deed", 0, 0},
		"One":   {"all in a row on one object, and reports, which change none", 1, 3},
		"Two":   {"until a third object", 2, 5},
		"All":   {"as many as there are", 3, 7},
		"Fewer": {"fewer than may be", 4, 7},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := FirstObjects(plan.Plan{Steps: slices.Clone(steps)}, tc.objects, 1<<20)
			if diff := cmp.Diff(stepsOf(plan.Plan{Steps: steps[:tc.want]}), stepsOf(got)); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// A batch has as many objects as fit where their rows are stored, in which JSON has six bytes for some characters, and one in any case.
func TestABatchFitsWhereItIsStored(t *testing.T) {
	var all plan.Plan
	for i := range 10 {
		all.Steps = append(all.Steps, onPod(fmt.Sprint(i, strings.Repeat("<", 100))))
	}
	one := all.Steps[0].RowBytes()
	if one < 600 {
		t.Errorf("a row takes %d bytes", one)
	}
	for bytes, want := range map[int]int{0: 1, one: 1, 3 * one: 3, 4*one - 1: 3, 20 * one: 10} {
		if got := len(FirstObjects(all, 10, bytes).Steps); got != want {
			t.Errorf("in %d bytes there are %d objects, want %d", bytes, got, want)
		}
	}
}

// Whatever the names are, a run names as much as there is room for: of rows, of outcomes, of what was withheld. It counts all of them.
func TestARunFitsWhereItIsStored(t *testing.T) {
	for name, part := range map[string]string{"Letters": "a", "Brackets": "<", "Quotes": `"`, "Controls": "\x01"} {
		t.Run(name, func(t *testing.T) {
			long := strings.Repeat(part, 1000)
			var all plan.Plan
			var withheld []v1alpha1.Withheld
			for i := range 2 * MaxBatch {
				all.Steps = append(all.Steps, onPod(fmt.Sprint(long, i)))
				withheld = append(withheld, v1alpha1.Withheld{Object: fmt.Sprint(long, i), Because: long})
			}
			s, ledger := &v1alpha1.CleanerStatus{}, &Ledger{}
			most, done := 0, 0
			for len(all.Steps) > 0 {
				batch := FirstObjects(all, MaxBatch, MaxBatchBytes)
				all.Steps = all.Steps[len(batch.Steps):]
				var rows []runrow.Row
				for i := range batch.Steps {
					rows = append(rows, batch.Steps[i].MakeRow())
				}
				s.Run, ledger = BeginBatch(s, ledger, "v1:x", rows, withheld[done:], born)
				done += len(rows)
				text, err := json.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				most = max(most, len(text))
				for i := range rows {
					ledger.RecordAnswer(i, RowAnswer{Did: v1alpha1.OutcomeDeleted, Gone: true}, born)
				}
			}
			last := CountRows(s.Run, ledger)
			if n := last.Counts[0].Count; done != 2*MaxBatch || n != 2*MaxBatch {
				t.Errorf("%d objects are done, and %d are counted", done, n)
			}
			if len(last.Outcomes) == 0 || len(last.Withheld) == 0 || most > 700<<10 {
				t.Errorf("%d outcomes and %d withheld are named, and the status has %d bytes", len(last.Outcomes), len(last.Withheld), most)
			}
		})
	}
}

// What was withheld is named once, as much of it as there is room for.
func TestWhatWasWithheldIsNamedOnce(t *testing.T) {
	of := func(name string) v1alpha1.Withheld {
		return v1alpha1.Withheld{Object: name, Because: "it is protected"}
	}
	numbered := func(from, to int) (out []v1alpha1.Withheld) {
		for i := from; i < to; i++ {
			out = append(out, of(fmt.Sprint(i)))
		}
		return out
	}
	long := func(bytes int) v1alpha1.Withheld { return of(strings.Repeat("x", bytes-withheldBytes(of("")))) }
	const half = plan.MaxWithheldBytes / 2
	another := long(half)
	another.Object = "y" + another.Object[1:]
	for name, tc := range map[string]struct{ all, more, want []v1alpha1.Withheld }{
		"New":         {numbered(0, 1), numbered(1, 3), numbered(0, 3)},
		"Known":       {numbered(0, 2), numbered(0, 3), numbered(0, 3)},
		"Twice":       {nil, append(numbered(0, 2), numbered(0, 2)...), numbered(0, 2)},
		"AnotherWhy":  {numbered(0, 1), []v1alpha1.Withheld{{Object: "0", Because: "it is of Helm"}}, []v1alpha1.Withheld{of("0"), {Object: "0", Because: "it is of Helm"}}},
		"TooMany":     {numbered(0, plan.MaxWithheld-1), numbered(plan.MaxWithheld-1, plan.MaxWithheld+1), numbered(0, plan.MaxWithheld)},
		"TooLong":     {[]v1alpha1.Withheld{long(half)}, []v1alpha1.Withheld{another}, []v1alpha1.Withheld{long(half)}},
		"LongEnough":  {[]v1alpha1.Withheld{long(half)}, []v1alpha1.Withheld{long(half - 1)}, []v1alpha1.Withheld{long(half), long(half - 1)}},
		"BehindALong": {[]v1alpha1.Withheld{long(half)}, []v1alpha1.Withheld{long(half + 1), of("a")}, []v1alpha1.Withheld{long(half)}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, addWithheld(tc.all, tc.more)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A batch has items of each namespace, however many of one come first; and of those that have as many the one that comes after another.
func TestNamespacesShareABatch(t *testing.T) {
	var all plan.Plan
	add := func(namespace string, n int) {
		for i := range n {
			s := onPod(fmt.Sprint(namespace, i))
			s.Object.Namespace, s.Keys = namespace, []string{fmt.Sprint(namespace, i)}
			all.Steps = append(all.Steps, s)
		}
	}
	add("many", 1000)
	add("few", 2)
	add("some", 30)
	for _, tc := range []struct {
		items int
		after string
		want  map[string]int
	}{
		{items: 1032, want: nil}, {items: 1, want: map[string]int{"few": 1}}, {items: 1, after: "few", want: map[string]int{"many": 1}},
		{items: 1, after: "some", want: map[string]int{"few": 1}}, {items: 20, want: map[string]int{"few": 2, "many": 9, "some": 9}},
		{items: 500, after: "many", want: map[string]int{"few": 2, "many": 468, "some": 30}},
	} {
		chosen, got := ChooseItems(all, tc.items, tc.after), map[string]int{}
		for i := range all.Steps {
			if s := &all.Steps[i]; chosen[s.ListItems()[0]] {
				got[s.Object.Namespace]++
			}
		}
		if (chosen == nil) != (tc.want == nil) || len(chosen) > 0 && !maps.Equal(got, tc.want) {
			t.Errorf("of %d items after %q there are %v, want %v", tc.items, tc.after, got, tc.want)
		}
	}
}

func TestWithout(t *testing.T) {
	fold := onPod("pool", 0, 1)
	fold.Keys = []string{"a", "b"}
	a, b, last := onPod("a"), onPod("b"), onPod("b", 1, 2)
	a.Keys, b.Keys, last.Keys = []string{"a"}, []string{"b"}, []string{"b"}
	all := plan.Plan{Steps: []plan.Step{a, b, fold, last}}
	got := WithoutItems(all, func(item plan.ItemKey) bool { return item == plan.ItemKey{Rule: a.Rule, Key: "a"} })
	if want := []string{"delete b[]", "delete pool[0]", "delete b[0 1]"}; !slices.Equal(stepsOf(got), want) {
		t.Errorf("left is %q, want %q", stepsOf(got), want)
	}
	if keys := got.Steps[1].Keys; !slices.Equal(keys, []string{"b"}) || len(all.Steps[2].Keys) != 2 {
		t.Errorf("the fold stands for %v, and that of the plan before for %v", keys, all.Steps[2].Keys)
	}
}

// A batch grows while batches are quick, and shrinks when one is slow.
func TestBatchesAreResized(t *testing.T) {
	for name, tc := range map[string]struct {
		size, steps int
		took        time.Duration
		quick       bool
		want        int
	}{
		"Quick":         {MaxBatch, MaxBatch, time.Millisecond, false, 2000},
		"Quicker":       {MaxBatch, MaxBatch, batchTime / 3, false, 3 * MaxBatch},
		"Same":          {1000, 1000, batchTime, false, 1000},
		"Slow":          {2000, 2000, 2 * batchTime, false, 1000},
		"CutShort":      {2000, 1500, 2 * batchTime, false, 750},
		"ClockSet":      {MaxBatch, MaxBatch, -time.Second, false, 2000},
		"SlowSmallest":  {MaxBatch, MaxBatch, time.Minute, false, MaxBatch},
		"QuickLargest":  {2000, 2000, 0, false, 2000},
		"UpToLargest":   {1999, 1999, 0, false, 2000},
		"SeveralSteps":  {1000, 3000, batchTime, false, 1000},
		"MoreThanAsked": {MaxBatch, 1800, batchTime, true, 1800},
		"AlsoPatches":   {MaxBatch, -800, batchTime, true, 800},
		"Nothing":       {1000, 0, batchTime, true, 1000},
	} {
		size := BatchSize{Next: tc.size, Most: 2000, IsQuick: tc.quick}
		var did []plan.Step
		if tc.steps < 0 { // as many patches
			tc.steps = -tc.steps
			did = slices.Repeat([]plan.Step{{Verb: plan.VerbPatch}}, tc.steps)
		}
		got := size.Resize(append(did, slices.Repeat([]plan.Step{{Verb: plan.VerbDelete}}, tc.steps)...), tc.took)
		if size.Next = tc.want; got != size {
			t.Errorf("%s: after %s, %d items and %d steps the next batch is %v, want %v", name, tc.took, tc.size, tc.steps, got, size)
		}
	}
}

// A batch is small if rows are written before it, and begins small if its items take more than their deletion, or if nothing is known.
func TestSizeFirstBatch(t *testing.T) {
	deletes := v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}}
	rare := v1alpha1.RuleAction{When: "item.metadata.name == 'a'", Patch: &v1alpha1.PatchAction{}}
	rule := v1alpha1.Rule{Keep: new(intstr.FromInt32(3)), Confirm: []v1alpha1.Confirm{{Target: v1alpha1.ConfirmAll}}, Actions: []v1alpha1.RuleAction{deletes}}
	quick := func(next int) BatchSize { return BatchSize{next, 5000, true} }
	small, recorded := BatchSize{500, 2000, false}, BatchSize{500, 500, false}
	for name, tc := range map[string]struct {
		change          func(w *v1alpha1.Work)
		hasSink, dryRun bool
		known           int
		want            BatchSize
	}{
		"NothingKnown":   {want: quick(500)},
		"Known":          {known: 3000, want: quick(3000)},
		"KnownAsSlow":    {known: 20, want: quick(500)},
		"KnownAsLarge":   {known: 6000, want: quick(5000)},
		"Limited":        {known: 3000, change: func(w *v1alpha1.Work) { w.Limits = &v1alpha1.Limits{MaxActions: 3} }, want: quick(3000)},
		"Paced":          {known: 3000, change: func(w *v1alpha1.Work) { w.Limits = &v1alpha1.Limits{ActionsPerSecond: 3} }, want: small},
		"Named":          {known: 3000, change: func(w *v1alpha1.Work) { w.Rules[1].Confirm[0].Name = "item.spec.nodeName" }, want: small},
		"AnotherObject":  {known: 3000, change: func(w *v1alpha1.Work) { w.Rules[1].Actions[0].Object = "variables.pod" }, want: small},
		"SeveralActions": {known: 3000, change: func(w *v1alpha1.Work) { w.Rules[1].Actions = append(w.Rules[1].Actions, deletes) }, want: small},
		"RarePatch":      {known: 3000, change: func(w *v1alpha1.Work) { w.Rules[1].Actions = []v1alpha1.RuleAction{rare, deletes} }, want: quick(3000)},
		"RarePatches":    {known: 3000, change: func(w *v1alpha1.Work) { w.Rules[1].Actions = []v1alpha1.RuleAction{rare, rare, deletes} }, want: small},
		"RareAnother": {known: 3000, change: func(w *v1alpha1.Work) {
			another := rare
			another.Object = "variables.pod"
			w.Rules[1].Actions = []v1alpha1.RuleAction{another, deletes}
		}, want: small},
		"TwoDeletions": {known: 3000, change: func(w *v1alpha1.Work) {
			w.Rules[1].Actions = []v1alpha1.RuleAction{{When: "true", Delete: &v1alpha1.DeleteAction{}}, deletes}
		}, want: small},
		"RareDeletion":  {known: 3000, change: func(w *v1alpha1.Work) { w.Rules[1].Actions = []v1alpha1.RuleAction{rare} }, want: small},
		"Patch":         {known: 3000, change: func(w *v1alpha1.Work) { w.Rules[1].Actions[0] = v1alpha1.RuleAction{Patch: &v1alpha1.PatchAction{}} }, want: small},
		"Conditions":    {known: 3000, change: func(w *v1alpha1.Work) { w.Conditions = []string{"size(pods.items) > 3"} }, want: small},
		"DeletedTarget": {known: 3000, change: func(w *v1alpha1.Work) { w.Targets = []v1alpha1.ClusterTarget{{Delete: true}} }, want: small},
		"DryRun":        {known: 3000, dryRun: true, want: small},
		"Sink":          {known: 3000, hasSink: true, want: recorded},
	} {
		work := &v1alpha1.Work{}
		work.Rules = []v1alpha1.Rule{rule, *rule.DeepCopy()}
		if tc.change != nil {
			tc.change(work)
		}
		if got := SizeFirstBatch(work, tc.hasSink, tc.dryRun, tc.known); got != tc.want {
			t.Errorf("%s: it is %v, want %v", name, got, tc.want)
		}
	}
}
