// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// aging is a Cleaner with a condition that becomes true as time passes, without an event.
func aging(name, monotonic, condition string) string {
	return cleanerYAML(name, `
  retry: {period: 5h, monotonic: `+monotonic+`}
  targets:`+target+`
  conditions: ['`+condition+`']`)
}

const (
	// ofAge is true 20 seconds after the target was created, and so is inWords, of which that cannot be foreseen.
	ofAge   = `age(evidence) > duration("20s")`
	inWords = `string(time) > string(timestamp(evidence.metadata.creationTimestamp) + duration("20s"))`
)

// The moment at which time alone makes a condition true is known without an author's word.
func TestCleansAtItsMoment(t *testing.T) {
	l := parallel(t)
	born := l.configMap("evidence", nil, nil).CreationTimestamp
	l.apply(aging("c", "false", ofAge))
	isDue(l, "c", born.Time)
}

func TestMonotonicCleansAtItsMoment(t *testing.T) {
	l := parallel(t)
	born := l.configMap("evidence", nil, nil).CreationTimestamp
	l.apply(aging("c", "true", inWords))
	isDue(l, "c", born.Time)
}

// isDue waits for a Cleaner that says when it looks again, the target being 20 seconds old then, and cleans.
func isDue(l *lab, name string, born time.Time) {
	l.Helper()
	c := l.says(name, v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	if next, want := c.Status.NextScheduledEvaluation, born.Add(21*time.Second); next == nil || !next.Time.Equal(want) {
		l.Errorf("it looks again at %v, want %s", next, want)
	}
	l.gone(name)
	l.trail.deletedFrom("evidence", born.Add(20*time.Second))
	if l.exists(&corev1.ConfigMap{}, "evidence") {
		l.Error("the target is there")
	}
}

func TestWithoutMonotonicOnlyThePeriodCountsForWhatCannotBeForeseen(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	l.apply(aging("c", "false", inWords))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	if next := c.Status.NextScheduledEvaluation; next == nil || next.Sub(c.CreationTimestamp.Time) < 4*time.Hour {
		t.Errorf("it looks again at %v", next)
	}
	l.update(c, "c", func() { c.Spec.Retry.Monotonic = true })
	l.gone("c")
}

// A Cleaner that stays says when its conditions change, and not when an item will be due: that would be a write for each.
func TestAnItemIsTakenAtItsMoment(t *testing.T) {
	l := parallel(t)
	l.labelled(nil, "old")
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring
  retry: {period: 5h}`+shopMaps+`
  conditions: ['maps.items.all(m, age(m) > duration("10s"))']
  rules:
  - name: old
    forEach: maps.items
    when: age(item) > duration("20s")
    actions: [{delete: {}}]`))
	old := &corev1.ConfigMap{}
	if !l.exists(old, "old") {
		t.Fatal("it is not there any more")
	}
	born := old.CreationTimestamp
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	if next, want := c.Status.NextScheduledEvaluation, born.Add(11*time.Second); next == nil || !next.Time.Equal(want) {
		t.Errorf("it looks again at %v, want %s", next, want)
	}
	c = l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	if next := c.Status.NextScheduledEvaluation; next != nil {
		t.Errorf("it tells of %s", next)
	}
	l.leaves()
	l.trail.deletedFrom("old", born.Add(20*time.Second))
}

func TestEventCarriesTheDataOfTheDecision(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	cm := l.configMap("evidence", map[string]string{"app": "shop"}, map[string]string{"image": "registry.example.test/shop:1"})
	l.apply(cleanerYAML("c", `
  ttl: 0s
  cloudEventSink: "`+s.URL+`"
  cloudEventData: |
    {"image": evidence.data.image, "owner": evidence.metadata.labels["owner"], "keys": evidence.data.size()}
  targets:`+target))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonEvaluationFailed)
	got := message(c, v1alpha1.ConditionReady)
	for _, want := range []string{"spec.cloudEventData at 1:65", "owner", `[?"owner"].orValue("")`} {
		if !strings.Contains(got, want) {
			t.Errorf("the message does not name %s: %q", want, got)
		}
	}
	if c.Status.Run != nil || len(s.Events()) > 0 || !l.exists(cm, "evidence") {
		t.Fatalf("a run was begun: %+v", c.Status.Run)
	}
	// What the expression reads is put right, and that is an event.
	l.update(cm, "evidence", func() { cm.Labels["owner"] = "team-a" })
	l.gone("c")
	events, err := s.WaitFor(l.ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	var sent struct{ Data json.RawMessage }
	if err := json.Unmarshal(events[0].Data, &sent); err != nil {
		t.Fatal(err)
	}
	if want := `{"image":"registry.example.test/shop:1","keys":1,"owner":"team-a"}`; string(sent.Data) != want {
		t.Errorf("the event carries %s, want %s", sent.Data, want)
	}
}

func TestDryRunEvaluatesTheDataToo(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", `
  mode: DryRun
  ttl: 0s
  cloudEventData: evidence.data.image
  targets:`+target))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonEvaluationFailed)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "spec.cloudEventData") {
		t.Errorf("the message does not name the field: %q", got)
	}
	l.update(c, "c", func() { c.Spec.CloudEventData = `evidence.?data.?image.orValue("none")` })
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonDryRun)
}

// otherClock is a proxy in front of an API server that lets its clock seem to be another one.
type otherClock struct{ ahead atomic.Int64 }

// set is how far the API server's clock is ahead from now on.
func (o *otherClock) set(ahead time.Duration) { o.ahead.Store(int64(ahead)) }

// startWithOtherClock runs the operator behind such a proxy.
func startWithOtherClock(t *testing.T, e *env, ahead time.Duration) *otherClock {
	t.Helper()
	o := &otherClock{}
	o.set(ahead)
	through(t, e, untampered, func(r *http.Response) {
		if date, err := http.ParseTime(r.Header.Get("Date")); err == nil {
			r.Header.Set("Date", date.Add(time.Duration(o.ahead.Load())).UTC().Format(http.TimeFormat))
		}
	}, quick()...)
	return o
}

func TestClocksThatDifferTooMuchHold(t *testing.T) {
	e := alone(t)
	l := newLab(t, e)
	clock := startWithOtherClock(t, e, 10*365*24*time.Hour)
	says := func(name, want string) *v1alpha1.Cleaner {
		t.Helper()
		var c *v1alpha1.Cleaner
		l.eventually("the Cleaner says "+want, func() string {
			c = l.says(name, v1alpha1.ConditionReady, v1alpha1.ReasonClockSkewSuspected)
			if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, want) {
				return got
			}
			return ""
		})
		return c
	}

	// Nothing is begun.
	cm := l.configMap("evidence", nil, map[string]string{"n": "0"})
	l.apply(cleanerYAML("waiting", `
  ttl: 0s
  targets:`+target))
	c := says("waiting", "more than 1m0s behind")
	if c.Status.Run != nil || len(c.Finalizers) > 0 || c.Status.NextScheduledEvaluation != nil {
		t.Errorf("something was begun, or is announced: %s", describe(c))
	}
	l.update(cm, "evidence", func() { cm.Data["n"] = "1" })
	clock.set(-time.Hour)
	says("waiting", "more than 1m0s ahead of")
	if !l.exists(cm, "evidence") {
		t.Error("something was deleted")
	}
	clock.set(0)
	l.gone("waiting")
	if l.exists(cm, "evidence") {
		t.Error("the target is there although the clocks agree")
	}

	// A run that was begun is paused.
	group := refused(l, widgetSpec, "w")
	clock.set(10 * 365 * 24 * time.Hour)
	c = says("c", "Run 1 is paused")
	held := time.Now()
	grant(l, group, "get", "list", "watch", "delete")
	sent, version := widgetDeletes(l), c.ResourceVersion
	w := widgetKind(group)
	for _, state := range []string{"a", "stale"} { // what would wake it
		l.update(w, "w", func() { w.Object["spec"] = map[string]any{"state": state} })
	}
	l.eventually("time passes in which it is looked at twice", func() string {
		if time.Since(held) < 21*time.Second {
			return "too early"
		}
		return ""
	})
	c = l.cleaner("c")
	if n := widgetDeletes(l); n != sent || !l.exists(w, "w") || c.Status.Run == nil || c.Status.Run.Result != "" {
		t.Errorf("%d deletions were sent, and the Cleaner says %s", n-sent, describe(c))
	}
	if c.ResourceVersion != version {
		t.Errorf("while nothing changes the status is written again and again: %s", describe(c))
	}
	clock.set(-time.Hour)
	says("c", "ahead of")
	clock.set(0)
	l.gone("c")
	if l.exists(w, "w") {
		t.Error("the widget is there although the clocks agree")
	}
}

// A clock that is 10s ahead of the API server's is no reason to hold, and none to be early.
func TestTTLGoesByTheClockThatIsBehind(t *testing.T) {
	e := alone(t)
	l := newLab(t, e)
	startWithOtherClock(t, e, -10*time.Second)
	cm := l.configMap("evidence", nil, nil)
	c := l.apply(cleanerYAML("c", `
  ttl: 2s
  targets:`+target))
	l.gone("c")
	if l.exists(cm, "evidence") {
		t.Error("the target is there")
	}
	l.trail.deletedFrom("evidence", c.GetCreationTimestamp().Add(12*time.Second))
}
