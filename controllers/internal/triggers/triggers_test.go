// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package triggers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/signing"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// asker is who asks for evaluations.
var asker = author.Author{Username: "bob"}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// leads says that this process leads.
type leads struct{}

func (leads) Fresh() bool { return true }

// yearly is a Cleaner that is due once a year, and not soon.
func yearly() *v1alpha1.Cleaner {
	c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "uid", CreationTimestamp: metav1.NewTime(epoch)}}
	c.Spec.Lifecycle, c.Spec.Schedule, c.Spec.StartingDeadline = v1alpha1.LifecycleRecurring, "0 12 1 7 *", "10m"
	return c
}

// of are the triggers of a Cleaner at a time, with a memory that is empty, in a cluster with these templates.
func of(t *testing.T, c *v1alpha1.Cleaner, now time.Time, policy Policy, templates ...client.Object) *Triggers {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(templates, c)...).WithStatusSubresource(c).Build()
	stored := &v1alpha1.Cleaner{}
	must(t, api.Get(t.Context(), client.ObjectKeyFromObject(c), stored))
	s := cleanerstore.New(&cleanerstore.API{Client: api, Live: api, Lease: leads{}, Clock: clocktesting.NewFakePassiveClock(now)}, client.ObjectKeyFromObject(c), stored, &cleanerstore.Memory{})
	s.Ring = newRing(t)
	if policy.Ahead == nil {
		policy.Ahead = func() time.Duration { return 0 }
	}
	return New(s, stored.Work(), policy, &Memory{})
}

func newRing(t *testing.T) signing.Ring {
	t.Helper()
	ring, err := signing.NewRing([]signing.Key{signing.NewKey(epoch)}, signing.RotationPolicy{}, epoch)
	must(t, err)
	return ring
}

// ask has somebody ask for an evaluation, as the webhook signs it.
func ask(t *testing.T, ring signing.Ring, c v1alpha1.Owner, request string, who author.Author) {
	t.Helper()
	c.SetAnnotations(map[string]string{v1alpha1.AnnotationRequestedAt: request})
	signed, err := author.SignRequest(ring, c, who, "", epoch)
	must(t, err)
	c.GetAnnotations()[v1alpha1.AnnotationRequest] = signed
}

// asked says that a request asks for an evaluation now.
func asked(t *testing.T, p *Triggers, version string) bool {
	t.Helper()
	must(t, p.SeeRequest(version))
	p.JudgeRequest(t.Context())
	return !p.mem.asking.IsZero()
}

// A schedule by a clock that goes on, stands still while no process runs, and is asked out of turn.
func TestASchedule(t *testing.T) {
	at := func(text string) time.Time {
		out, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	cases := map[string]struct {
		reason  string
		change  func(c *v1alpha1.Cleaner)
		last    string
		now     string
		waits   bool
		tick    string
		comesTo string
	}{
		"NotYet":        {reason: "the first time after the creation has not come", now: "2026-03-27T23:59:59Z", waits: true, comesTo: "2026-03-28T01:30:00Z"},
		"Due":           {reason: "it has", now: "2026-03-28T01:30:00Z", tick: "2026-03-28T01:30:00Z", comesTo: "2026-03-30T00:30:00Z"},
		"Over":          {reason: "it is over", last: "2026-03-28T01:30:00Z", now: "2026-03-28T01:30:01Z", waits: true, comesTo: "2026-03-30T00:30:00Z"},
		"SummerTime":    {reason: "half past two does not come on the day on which the clocks change", last: "2026-03-28T01:30:00Z", now: "2026-03-29T01:30:00Z", waits: true, comesTo: "2026-03-30T00:30:00Z"},
		"DownForMinute": {reason: "no process ran when it was due", now: "2026-03-28T02:00:00Z", tick: "2026-03-28T01:30:00Z", comesTo: "2026-03-30T00:30:00Z"},
		"DownForDays":   {reason: "no process ran for so long that it is too late", now: "2026-04-02T12:00:00Z", waits: true, comesTo: "2026-04-03T00:30:00Z"},
		"Patient": {reason: "unless the author has more patience", now: "2026-04-02T12:00:00Z", tick: "2026-04-02T00:30:00Z", comesTo: "2026-04-03T00:30:00Z",
			change: func(c *v1alpha1.Cleaner) { c.Spec.StartingDeadline = "1d" }},
		"Asked": {reason: "the author asks", now: "2026-03-27T23:59:59Z", comesTo: "2026-03-28T01:30:00Z",
			change: func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "now"} }},
		"Suspended": {reason: "its evaluation says so", now: "2026-03-27T23:59:59Z", change: func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", CreationTimestamp: metav1.NewTime(at("2026-03-27T12:00:00Z"))}}
			c.Spec.Lifecycle, c.Spec.Schedule, c.Spec.TimeZone = v1alpha1.LifecycleRecurring, "30 2 * * *", "Europe/Berlin"
			if tc.last != "" {
				c.Status.LastScheduleTime = &metav1.Time{Time: at(tc.last)}
			}
			if tc.change != nil {
				tc.change(c)
			}
			p := of(t, c, at(tc.now), Policy{ActWithoutAuthor: true})
			asked(t, p, "")
			if got := p.WaitsForSchedule(); got != tc.waits {
				t.Errorf("%s: it waits: %t", tc.reason, got)
			}
			want := time.Time{}
			if tc.tick != "" {
				want = at(tc.tick)
			}
			if !p.tick.Equal(want) {
				t.Errorf("%s: what is due is that of %s, want %s", tc.reason, p.tick, want)
			}
			if tc.comesTo != "" && !p.NextTick().Equal(at(tc.comesTo)) {
				t.Errorf("%s: the next one is %s, want %s", tc.reason, p.NextTick(), tc.comesTo)
			}
		})
	}
}

// A request counts from when it was signed, and for the spec that it was signed for: whoever keeps it from being seen does not
// prolong it.
func TestARequestCountsFromWhenItWasSigned(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(c *v1alpha1.Cleaner)
		after  time.Duration
		waits  bool
	}{
		"At once":              {nil, time.Second, false},
		"At the deadline":      {nil, 10 * time.Minute, false},
		"After it":             {nil, 10*time.Minute + time.Second, true},
		"Not signed":           {func(c *v1alpha1.Cleaner) { delete(c.Annotations, v1alpha1.AnnotationRequest) }, 0, true},
		"For another spec":     {func(c *v1alpha1.Cleaner) { c.Spec.TTL = "2d" }, 0, true},
		"Answered":             {func(c *v1alpha1.Cleaner) { c.Status.LastRequestedAt = "1" }, 0, true},
		"By a clock far ahead": {nil, -6 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := yearly()
			ring := newRing(t)
			ask(t, ring, c, "1", asker)
			if tc.change != nil {
				tc.change(c)
			}
			p := of(t, c, epoch.Add(tc.after), Policy{})
			p.of.Ring = ring
			for range 2 {
				asked(t, p, "")
				if got := p.WaitsForSchedule(); got != tc.waits {
					t.Errorf("it waits: %t", got)
				}
			}
		})
	}
}

// What was answered is not asked again.
func TestAnAnswerIsOfOneTime(t *testing.T) {
	p := of(t, yearly(), epoch, Policy{ActWithoutAuthor: true})
	request := func(text string) {
		p.of.Draft.SetAnnotations(map[string]string{v1alpha1.AnnotationRequestedAt: text})
	}
	request("now\n")
	if p.of.Stored.State().LastRequestedAt = "now "; asked(t, p, "") {
		t.Error("what was answered is asked again, because a line break is no part of the answer")
	}
	if request("later"); !asked(t, p, "") {
		t.Error("what is asked anew is not")
	}
	if p.AnswerRequest(); p.of.Draft.State().LastRequestedAt != "later" {
		t.Error("an answer is not said")
	}
	if p.EndTicks(); asked(t, p, "") {
		t.Error("what was answered asks again")
	}
	if p.of.Draft.State().LastRequestedAt = ""; p.of.RequestedAt() != "later" {
		t.Fatal("this shows nothing")
	}
	if p.RepeatAnswer(); p.of.Draft.State().LastRequestedAt != "later" {
		t.Error("an answer that could not be recorded is not said again")
	}
	request("another")
	p.of.Draft.State().LastRequestedAt = ""
	if p.RepeatAnswer(); p.of.Draft.State().LastRequestedAt != "" {
		t.Error("a request is answered by the answer to another one")
	}
	if p.PassOverRequest(); p.mem.answered == "another" {
		t.Error("a request of a Cleaner with a schedule is passed over")
	}
	p.of.Draft.Common().Schedule = ""
	if p.PassOverRequest(); p.mem.answered != "another" {
		t.Error("a request of a Cleaner without a schedule is kept")
	}
}

// A request is about what is to be done when it is made, and for one template.
func TestARequestIsForOneVersion(t *testing.T) {
	template := &v1alpha1.CleanerTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", UID: "t"}}
	signedFor := author.FingerprintTemplate(template)
	for name, tc := range map[string]struct {
		version string
		change  func(p *Triggers)
		asks    bool
		dropped string
	}{
		"Same":       {"1/" + signedFor, nil, true, ""},
		"NotYetSeen": {"1/old", nil, false, ""}, // it waits for the watch to show the template
		"Another":    {"1/old", func(p *Triggers) { must(t, p.of.API.Client.Delete(t.Context(), template.DeepCopy())) }, false, v1alpha1.ReasonRequestOutlived},
		"NoTemplate": {"1/old", func(p *Triggers) { p.of.Draft.Common().TemplateRef = nil }, false, v1alpha1.ReasonRequestNotSigned},
		"Edited":     {"2/" + signedFor, func(p *Triggers) { asked(t, p, "1/"+signedFor); p.of.Draft.Common().TTL = "2d" }, false, v1alpha1.ReasonRequestOutlived},
		"Suspended":  {"2/" + signedFor, func(p *Triggers) { asked(t, p, "1/"+signedFor); p.of.Draft.Common().Suspend = true }, true, ""},
		"WithoutHook": {"1/x", func(p *Triggers) {
			delete(p.of.Draft.GetAnnotations(), v1alpha1.AnnotationRequest)
			p.policy.ActWithoutAuthor = true
		}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, ring := yearly(), newRing(t)
			c.Spec.TemplateRef = &v1alpha1.TemplateRef{Name: "t"}
			c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"}
			signed, err := author.SignRequest(ring, c, asker, signedFor, epoch)
			must(t, err)
			c.Annotations[v1alpha1.AnnotationRequest] = signed
			p := of(t, c, epoch, Policy{}, template.DeepCopy())
			if p.of.Ring = ring; tc.change != nil {
				tc.change(p)
			}
			if got := asked(t, p, tc.version); got != tc.asks || p.mem.dropped.reason != tc.dropped {
				t.Errorf("it asks: %t, and is dropped because of %q", got, p.mem.dropped.reason)
			}
		})
	}
}

func TestRefuseAsker(t *testing.T) {
	busy := errors.New("the API server is busy")
	lack := []rights.Right{{Verb: "delete", Resource: "pods", Namespace: "shop"}}
	for name, tc := range map[string]struct {
		change  func(p *Triggers)
		lacks   []rights.Right
		err     error
		refused bool
		dropped string
		next    time.Duration // when the request wants to be looked at
	}{
		"All":      {next: 10*time.Minute + time.Millisecond},
		"Lacks":    {lacks: lack, refused: true, dropped: v1alpha1.ReasonRequestNotAllowed},
		"Unknown":  {err: busy, refused: true, next: rights.RetryAfter},
		"Unsigned": {change: func(p *Triggers) { delete(p.of.Draft.GetAnnotations(), v1alpha1.AnnotationRequest) }, refused: true, dropped: v1alpha1.ReasonRequestNotSigned},
		"Author": {lacks: lack, next: 10*time.Minute + time.Millisecond, change: func(p *Triggers) {
			signed, err := author.Sign(p.of.Ring, p.of.Draft, asker, epoch)
			must(t, err)
			p.of.Draft.GetAnnotations()[v1alpha1.AnnotationAuthor] = signed
		}},
		"Nobody":     {lacks: lack, change: func(p *Triggers) { p.mem.asking = time.Time{} }},
		"NoQuestion": {lacks: lack, change: func(p *Triggers) { p.policy.ActWithoutAuthor = true }, next: 10*time.Minute + time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			c, ring := yearly(), newRing(t)
			ask(t, ring, c, "1", asker)
			p := of(t, c, epoch, Policy{})
			if p.of.Ring = ring; !asked(t, p, "") {
				t.Fatal("nobody asks")
			}
			if tc.change != nil {
				tc.change(p)
			}
			got := p.RefuseAsker(t.Context(), func(_ context.Context, who author.Author) ([]rights.Right, error) {
				if who.Username != asker.Username {
					t.Errorf("it is asked what %s may do", who)
				}
				return tc.lacks, tc.err
			})
			if got != tc.refused || p.mem.dropped.reason != tc.dropped || p.IsTicking() != (name == "All" || name == "Author" || name == "NoQuestion") {
				t.Errorf("it is refused: %t, because of %q; it is due: %t", got, p.mem.dropped.reason, p.IsTicking())
			}
			want := time.Time{}
			if tc.next > 0 {
				want = epoch.Add(tc.next)
			}
			if next := p.NextCheck(epoch); !next.Equal(want) {
				t.Errorf("it is looked at next at %s, want %s", next, want)
			}
		})
	}
}

// A request is recorded as answered before anything is done on it, and once.
func TestRecordRequest(t *testing.T) {
	p := of(t, yearly(), epoch, Policy{ActWithoutAuthor: true})
	if err := p.RecordRequest(t.Context()); err != nil || p.of.Stored.State().LastRequestedAt != "" {
		t.Errorf("without a request: %v", err)
	}
	p.of.Draft.SetAnnotations(map[string]string{v1alpha1.AnnotationRequestedAt: "1"})
	if !asked(t, p, "") {
		t.Fatal("nobody asks")
	}
	must(t, p.RecordRequest(t.Context()))
	written := p.of.Stored.GetResourceVersion()
	if p.of.Stored.State().LastRequestedAt != "1" || p.of.Draft.State().LastRequestedAt != "1" {
		t.Error("it is not recorded")
	}
	if must(t, p.RecordRequest(t.Context())); p.of.Stored.GetResourceVersion() != written {
		t.Error("it is recorded again")
	}
	p.of.API.Clock.(*clocktesting.FakePassiveClock).SetTime(epoch.Add(11 * time.Minute))
	if p.JudgeRequest(t.Context()); p.IsTicking() || p.mem.dropped.reason != v1alpha1.ReasonRequestExpired {
		t.Errorf("after the deadline it is due: %t, %+v", p.IsTicking(), p.mem.dropped)
	}
}

// A run that a request has begun goes on after the deadline. No other one is begun on the request then.
func TestTheRunOfARequestGoesOn(t *testing.T) {
	for name, tc := range map[string]struct {
		run      *v1alpha1.Run
		recorded string
		dropped  string
	}{
		"Open":      {&v1alpha1.Run{Number: 1, Lifecycle: v1alpha1.LifecycleOnce}, "1", ""},
		"Finished":  {&v1alpha1.Run{Number: 1, Lifecycle: v1alpha1.LifecycleOnce, Result: v1alpha1.ResultPartial}, "1", v1alpha1.ReasonRequestExpired},
		"Recurring": {&v1alpha1.Run{Number: 1, Lifecycle: v1alpha1.LifecycleRecurring}, "1", v1alpha1.ReasonRequestExpired},
		"Another":   {&v1alpha1.Run{Number: 1, Lifecycle: v1alpha1.LifecycleOnce}, "0", v1alpha1.ReasonRequestExpired},
		"None":      {nil, "1", v1alpha1.ReasonRequestExpired},
	} {
		t.Run(name, func(t *testing.T) {
			p := of(t, yearly(), epoch, Policy{ActWithoutAuthor: true})
			p.of.Draft.SetAnnotations(map[string]string{v1alpha1.AnnotationRequestedAt: "1"})
			if !asked(t, p, "") {
				t.Fatal("nobody asks")
			}
			p.of.Stored.State().Run, p.of.Stored.State().LastRequestedAt = tc.run, tc.recorded
			p.of.API.Clock.(*clocktesting.FakePassiveClock).SetTime(epoch.Add(11 * time.Minute))
			if p.JudgeRequest(t.Context()); p.IsTicking() || p.mem.dropped.reason != tc.dropped {
				t.Errorf("it is due: %t; the request is dropped because of %q", p.IsTicking(), p.mem.dropped.reason)
			}
		})
	}
}

// conditions are those that are drafted.
type conditions map[string]string

func (c conditions) SetCondition(kind string, _ metav1.ConditionStatus, reason, message string) {
	c[kind] = reason + ": " + message
}

func (c conditions) RemoveConditions(kinds ...string) {
	for _, kind := range kinds {
		delete(c, kind)
	}
}

func TestReportRequest(t *testing.T) {
	p, said := of(t, yearly(), epoch, Policy{}), conditions{}
	p.of.Draft.SetAnnotations(map[string]string{v1alpha1.AnnotationRequestedAt: "1"})
	asked(t, p, "")
	p.ReportRequest(said)
	if got := said[v1alpha1.ConditionRequestDropped]; !strings.HasPrefix(got, v1alpha1.ReasonRequestNotSigned+": ") || p.of.Draft.State().LastRequestedAt != "1" {
		t.Errorf("it is said that %q", got)
	}
	p.of.Draft.SetAnnotations(nil)
	asked(t, p, "")
	if p.ReportRequest(said); len(said) != 0 {
		t.Errorf("when the request is taken back it is still said that %v", said)
	}
}

// A time of the schedule is over when it is passed, whether or not that is recorded; and a request with it.
func TestEndTicks(t *testing.T) {
	due := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	p := of(t, yearly(), due.Add(time.Minute), Policy{ActWithoutAuthor: true})
	if p.WaitsForSchedule() || !p.IsTicking() || !p.NextTick().Equal(due.AddDate(1, 0, 0)) {
		t.Fatalf("it is due: %t, and next at %s", p.IsTicking(), p.NextTick())
	}
	if p.PassTick(); !p.LastTick().Equal(due) || !p.IsTicking() {
		t.Errorf("the last one is %s", p.LastTick())
	}
	p.mem.asking = due
	if p.EndTicks(); p.IsTicking() || !p.WaitsForSchedule() {
		t.Error("what is over is due")
	}
	recorded := metav1.NewTime(due.Add(time.Hour))
	if p.of.Draft.State().LastScheduleTime = &recorded; !p.LastTick().Equal(recorded.Time) {
		t.Errorf("of what is recorded and what is remembered the last one is %s", p.LastTick())
	}
}

// By the clock that is behind, nothing is due before it is.
func TestTheClockThatIsBehindCounts(t *testing.T) {
	due := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	p := of(t, yearly(), due, Policy{Ahead: func() time.Duration { return time.Second }})
	if !p.WaitsForSchedule() || !p.LaggingNow().Equal(due.Add(-time.Second)) {
		t.Errorf("it is due at %s", p.LaggingNow())
	}
}

func TestOverWith(t *testing.T) {
	for name, tc := range map[string]struct {
		decision plan.Plan
		idle     bool // nothing is due
		want     bool
	}{
		"Nothing":  {decision: plan.Plan{Reason: v1alpha1.ReasonNothingToDo}, want: true},
		"Idle":     {decision: plan.Plan{Reason: v1alpha1.ReasonNothingToDo}, idle: true},
		"Pending":  {decision: plan.Plan{Pending: []plan.Pending{{}}}},
		"Deferred": {decision: plan.Plan{Deferred: []plan.ItemKey{{}}}},
		"Unread":   {decision: plan.Plan{Reason: v1alpha1.ReasonReadFailed}},
		"Unsynced": {decision: plan.Plan{Reason: v1alpha1.ReasonNotSynced}},
		"TooLarge": {decision: plan.Plan{Reason: v1alpha1.ReasonTooLarge}},
	} {
		p := of(t, yearly(), epoch, Policy{})
		if !tc.idle {
			p.tick = epoch
		}
		if got := p.OverWith(tc.decision); got != tc.want {
			t.Errorf("%s: it is over: %t", name, got)
		}
	}
}

// Between the times of a schedule a Cleaner is looked at if one of its rules has to see that something holds.
func TestIgnoresChanges(t *testing.T) {
	unscheduled, untimed, timed := yearly(), yearly(), yearly()
	untimed.Spec.Rules = []v1alpha1.Rule{{Name: "a"}}
	unscheduled.Spec.Schedule = ""
	timed.Spec.Rules = []v1alpha1.Rule{{Name: "a"}, {Name: "b", For: "5m"}}
	for name, tc := range map[string]struct {
		of   *v1alpha1.Cleaner
		due  bool
		want bool
	}{
		"Unscheduled":    {of: unscheduled},
		"UnscheduledDue": {of: unscheduled, due: true},
		"Scheduled":      {of: yearly(), want: true},
		"Due":            {of: yearly(), due: true},
		"Untimed":        {of: untimed, want: true},
		"Timed":          {of: timed},
		"TimedDue":       {of: timed, due: true},
	} {
		p := of(t, tc.of, epoch, Policy{})
		if tc.due {
			p.tick = epoch
		}
		if got := p.IgnoresChanges(); got != tc.want {
			t.Errorf("%s: changes are ignored: %t", name, got)
		}
	}
}
