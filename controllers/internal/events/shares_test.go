// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// counted are the Events that were dropped, by why.
type counted map[string]int

func (c counted) CountDroppedEvents(why string, n int) { c[why] += n }

// world are shares whose time a test sets.
type world struct {
	*shares
	now     time.Time
	dropped counted
}

func newWorld() *world {
	w := &world{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), dropped: counted{}}
	w.shares = newShares(w.dropped)
	return w
}

// record takes an Event, as a Recorder does, and says whether it has a place.
func (w *world) record(namespace, note string) bool {
	id := Event{Regarding: corev1.ObjectReference{Namespace: namespace}, Note: note}
	s := w.known[id]
	if s == nil {
		if s = w.addSeries(id); s == nil {
			return false
		}
	}
	s.count, s.last = countUp(s.count), w.now
	w.settleSeries(s, w.now)
	return true
}

// write writes what has its turn now, and says what that is; empty if there is none.
func (w *world) write(err error) string {
	s, _ := w.nextSeries(w.now)
	if s == nil {
		return ""
	}
	said := fmt.Sprintf("%s %s %d", s.id.Regarding.Namespace, s.id.Note, s.count)
	w.recordWritten(s, s.count, err, w.now)
	return said
}

// all are all that have their turns now.
func (w *world) all() (out []string) {
	for said := w.write(nil); said != ""; said = w.write(nil) {
		out = append(out, said)
	}
	return out
}

func expect(t *testing.T, what string, want, got any) {
	t.Helper()
	if fmt.Sprint(want) != fmt.Sprint(got) {
		t.Errorf("%s: want %v, got %v", what, want, got)
	}
}

// What one namespace has waiting is bounded, and what is beyond it is dropped; what was written makes room.
func TestAShareIsBounded(t *testing.T) {
	w := newWorld()
	taken := 0
	for i := range 10 * maxSeriesOfNamespace {
		if w.record("flood", fmt.Sprint(i)) {
			taken++
		}
	}
	expect(t, "taken", maxSeriesOfNamespace, taken)
	expect(t, "known", maxSeriesOfNamespace, len(w.known))
	w.write(nil)
	if !w.record("flood", "late") {
		t.Error("what was written makes no room")
	}
	expect(t, "known", maxSeriesOfNamespace, len(w.known))
}

// However many namespaces flood, there are so many series in all, and one that has none gets a place: of who has most, the newest goes.
func TestAllSharesAreBounded(t *testing.T) {
	w := newWorld()
	const floods = 50
	for i := range maxSeries {
		for n := range floods {
			w.record(fmt.Sprint("flood-", n), fmt.Sprint(i))
		}
	}
	expect(t, "known", maxSeries, len(w.known))
	for n := range 20 {
		if !w.record("modest", fmt.Sprint(n)) {
			t.Fatalf("there is no place for Event %d of a namespace with few", n)
		}
	}
	expect(t, "known", maxSeries, len(w.known))
	if w.dropped[DroppedFull] < 20 {
		t.Errorf("what made room is not counted: %v", w.dropped)
	}
	for _, h := range w.of {
		if n := h.countSeries(); h.namespace != "modest" && n > maxSeries/floods+1 {
			t.Errorf("%s has %d", h.namespace, n)
		}
	}
	for i := 1; ; i++ {
		said := w.write(nil)
		if said == "modest 0 1" {
			break
		}
		if i > floods || said == "" {
			t.Fatalf("its first Event has not had its turn after %d others", i)
		}
	}
}

// A namespace has one request under way, so one where they hang takes one of those who write.
func TestANamespaceHasOneRequestUnderWay(t *testing.T) {
	w := newWorld()
	for _, note := range []string{"a", "b"} {
		w.record("hangs", note)
		w.record("shop", note)
	}
	hanging, _ := w.nextSeries(w.now)
	expect(t, "the first", "hangs", hanging.id.Regarding.Namespace)
	expect(t, "others", []string{"shop a 1", "shop b 1"}, w.all())
	w.recordWritten(hanging, 1, nil, w.now)
	expect(t, "then", []string{"hangs b 1"}, w.all())
}

// A namespace has its pace, and so have all together; nobody is delayed by a namespace that has used up its own.
func TestPace(t *testing.T) {
	w := newWorld()
	for i := range maxSeriesOfNamespace {
		w.record("flood", fmt.Sprint(i))
	}
	expect(t, "at once", burstOfNamespace, len(w.all()))
	w.record("shop", "a")
	expect(t, "of another namespace", []string{"shop a 1"}, w.all())
	_, wait := w.nextSeries(w.now)
	if want := time.Second / requestsOfNamespace; wait < want || wait > want+time.Millisecond {
		t.Errorf("the next is in %s", wait)
	}
	for range 10 {
		w.now = w.now.Add(time.Second)
		if n := len(w.all()); n < requestsOfNamespace-1 || n > requestsOfNamespace+1 {
			t.Errorf("%d go in a second", n)
		}
	}
	for n := range 3 {
		for i := range maxSeriesOfNamespace {
			w.record(fmt.Sprint("flood-", n), fmt.Sprint(i))
		}
	}
	if n := len(w.all()); n > burst {
		t.Errorf("%d go at once in all", n)
	}
	for range 10 {
		w.now = w.now.Add(time.Second)
		if n := len(w.all()); n < 3*requestsOfNamespace || n > requests+1 {
			t.Errorf("%d go in a second in all", n)
		}
	}
}

// What happens again is counted: at once when it is the second time, then once a minute.
func TestSeries(t *testing.T) {
	w := newWorld()
	w.record("shop", "a")
	expect(t, "first", []string{"shop a 1"}, w.all())
	w.record("shop", "a")
	expect(t, "again", []string{"shop a 2"}, w.all())
	for range 59 {
		w.now = w.now.Add(time.Second)
		w.record("shop", "a")
		w.sweepSeries(w.now)
	}
	expect(t, "within a minute", []string(nil), w.all())
	w.now = w.now.Add(time.Second)
	w.sweepSeries(w.now)
	expect(t, "after a minute", []string{"shop a 61"}, w.all())
	w.now = w.now.Add(forgetAfter)
	w.sweepSeries(w.now)
	expect(t, "known when it is over", 0, len(w.known))
	w.record("shop", "a")
	expect(t, "then", []string{"shop a 1"}, w.all())
	w.now = w.now.Add(time.Hour)
	w.sweepSeries(w.now)
	expect(t, "namespaces that are known in the end", 0, len(w.of))
}

// What is recorded again before it is written is one Event.
func TestRepeatedBeforeItIsWritten(t *testing.T) {
	w := newWorld()
	for range 3 {
		w.record("shop", "a")
		w.record("shop", "b")
	}
	expect(t, "written", []string{"shop a 3", "shop b 3"}, w.all())
}

// Room is made by series that wait for nothing, the one that was over first.
func TestTheOldestSeriesGoesFirst(t *testing.T) {
	w := newWorld()
	for i := range maxSeriesOfNamespace {
		w.now = w.now.Add(time.Second)
		w.record("shop", fmt.Sprint(i))
		w.all()
	}
	w.record("shop", "0") // it goes on
	w.all()
	w.record("shop", "new")
	w.record("shop", "0")
	expect(t, "known", maxSeriesOfNamespace, len(w.known))
	if s := w.known[Event{Regarding: corev1.ObjectReference{Namespace: "shop"}, Note: "0"}]; s == nil || s.count != 3 {
		t.Error("the series that went on last was forgotten")
	}
}

// A namespace in which requests fail waits, and nobody else; after some tries it goes on without that one.
func TestFailing(t *testing.T) {
	w := newWorld()
	w.record("fails", "a")
	for range maxTries - 1 {
		expect(t, "tried", "fails a 1", w.write(errors.New("no answer")))
		w.record("shop", fmt.Sprint(w.now))
		if said := w.write(nil); said == "" {
			t.Error("another namespace waits")
		}
		expect(t, "at once", "", w.write(nil))
		w.now = w.now.Add(retryAfter)
	}
	expect(t, "dropped before", counted{}, w.dropped)
	expect(t, "tried", "fails a 1", w.write(errors.New("no answer")))
	expect(t, "dropped", counted{DroppedUnanswered: 1}, w.dropped)
	expect(t, "why", "no answer", w.failure)
	w.now = w.now.Add(retryAfter)
	w.record("fails", "b")
	w.write(apierrors.NewForbidden(corev1.Resource("events"), "b", errors.New("the namespace is terminating")))
	expect(t, "refused", counted{DroppedUnanswered: 1, DroppedRefused: 1}, w.dropped)
	w.record("fails", "b")
	expect(t, "and again", "fails b 1", w.write(nil))
}

// A namespace whose last Event has made room for others has no turn.
func TestWhatWasDroppedHasNoTurn(t *testing.T) {
	w := newWorld()
	w.record("shop", "a")
	w.record("other", "b")
	w.forgetSeries(w.known[Event{Regarding: corev1.ObjectReference{Namespace: "shop"}, Note: "a"}], DroppedFull)
	expect(t, "written", []string{"other b 1"}, w.all())
	expect(t, "dropped", counted{DroppedFull: 1}, w.dropped)
}
