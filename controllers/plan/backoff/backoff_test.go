// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// born is when tests begin.
var born = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func TestFailures(t *testing.T) {
	b, uid, now := Failures{}, types.UID("u"), born
	if _, waits := b.FindWait(uid, now); waits {
		t.Error("what has not failed does not wait")
	}
	var waited []time.Duration
	for range 11 {
		b.RecordFailure(uid, "Refused", "no", now)
		e, waits := b.FindWait(uid, now)
		if !waits || e.IsUnstable() {
			t.Fatalf("got %+v", e)
		}
		waited = append(waited, e.Until.Sub(now))
		now = e.Until
		if _, waits := b.FindWait(uid, now); waits {
			t.Error("it is tried again at the very moment")
		}
	}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for i := range want {
		want[i] *= time.Second
	}
	if diff := cmp.Diff(want, waited); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	b.DropExpired(now.Add(9 * time.Minute))
	if len(b) != 1 {
		t.Error("it was forgotten too early")
	}
	b.DropExpired(now.Add(11 * time.Minute))
	if len(b) != 0 {
		t.Error("it was not forgotten")
	}

	for i := range unstableAfter {
		if b[uid].IsUnstable() {
			t.Errorf("it is unstable after %d conflicts", i)
		}
		b.RecordConflict(uid, "Refused", 1, now)
	}
	if !b[uid].IsUnstable() {
		t.Error("it is not unstable")
	}
	b.RecordFailure(uid, "Refused", "no", now)
	if b[uid].IsUnstable() {
		t.Error("another failure is no conflict")
	}
	b.ForgetObject(uid)
	if len(b) != 0 {
		t.Error("a success ends it")
	}
}

// The first failure in a row is remembered.
func TestFirstFailure(t *testing.T) {
	f := Failures{}
	f.RecordFailure("u", "Refused", "no", born)
	f.RecordConflict("u", "Refused", 1, born.Add(time.Minute))
	f.RecordFailure("u", "Refused", "no", born.Add(time.Hour))
	if got := f["u"].First; !got.Equal(born) {
		t.Errorf("the first failure was at %s", got)
	}
	f.ForgetObject("u")
	f.RecordFailure("u", "Refused", "no", born.Add(3*time.Hour))
	if got := f["u"].First; !got.Equal(born.Add(3 * time.Hour)) {
		t.Errorf("the first failure after it was at %s", got)
	}
}

func TestRecreations(t *testing.T) {
	now, r := born, Recreations{}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	at := Place{Resource: pods, Namespace: "shop", Name: "a"}
	for i, uid := range []string{"1", "2", "2", "3"} {
		if _, waits := r.FindWait(at, types.UID(uid), now); waits || r.RecordDeletion(at, types.UID(uid), now) {
			t.Errorf("deletion %d is called a loop", i+1)
		}
	}
	if !r.RecordDeletion(at, "4", now) {
		t.Error("three that were made anew are no loop")
	}
	if e, waits := r.FindWait(at, "5", now); !waits || e.Until.Sub(now) != shortestWait {
		t.Errorf("the next one waits %t, until %s", waits, e.Until)
	}
	if _, waits := r.FindWait(at, "4", now); waits {
		t.Error("what was deleted waits for itself")
	}
	for _, other := range []Place{{pods, "shop", "b"}, {pods, "spa", "a"}, {pods.GroupResource().WithVersion("v2"), "shop", "a"}} {
		if _, waits := r.FindWait(other, "5", now); waits {
			t.Errorf("%v waits too", other)
		}
	}
	now = now.Add(shortestWait)
	if _, waits := r.FindWait(at, "5", now); waits || r.RecordDeletion(at, "5", now) {
		t.Error("it waits on, or is said twice")
	}
	if e, waits := r.FindWait(at, "6", now); !waits || e.Until.Sub(now) != 2*shortestWait {
		t.Errorf("the one after it waits %t, until %s", waits, e.Until)
	}
	r.DropExpired(now.Add(loopWithin))
	if len(r) != 1 {
		t.Error("it is forgotten too early")
	}
	r.DropExpired(now.Add(loopWithin + 1))
	if len(r) != 0 {
		t.Error("it is remembered for ever")
	}
	for i := range 10 {
		if now = now.Add(loopWithin + 1); r.RecordDeletion(at, types.UID(fmt.Sprint("slow-", i)), now) {
			t.Error("what comes back slowly is called a loop")
		}
	}
}

// What the API server asks for is heard, but nobody can ask for more than the longest wait.
func TestPostpone(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: time.Second, time.Minute: time.Minute, 24 * time.Hour: LongestWait} {
		f := Failures{}
		f.RecordFailure("uid", "Refused", "why", born)
		f.Postpone("uid", asked, born)
		if got := f["uid"].Until.Sub(born); got != want || f["uid"].Wait != time.Second {
			t.Errorf("asked to wait for %s, it waits for %s, want %s, and the next time for twice %s", asked, got, want, f["uid"].Wait)
		}
	}
}

func TestDoubleWait(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{0: shortestWait, shortestWait: 2 * shortestWait, 200 * time.Second: LongestWait, LongestWait: LongestWait} {
		if got := DoubleWait(wait); got != want {
			t.Errorf("after %s it waits for %s, want %s", wait, got, want)
		}
	}
}
