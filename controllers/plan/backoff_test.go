// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// looping is that others of the object's name were deleted until there was a loop.
func looping(r Remade, o Object, now time.Time) {
	for i := range loopAfter + 1 {
		o.UID = types.UID(fmt.Sprint("earlier-", i))
		r.RecordDeletion(&o, now)
	}
}

func TestRemade(t *testing.T) {
	now, r := born, Remade{}
	made := func(uid string) *Object {
		o := p("a")
		o.UID = types.UID(uid)
		return &o
	}
	for i, uid := range []string{"1", "2", "2", "3"} {
		if _, waits := r.FindWait(made(uid), now); waits || r.RecordDeletion(made(uid), now) {
			t.Errorf("deletion %d is called a loop", i+1)
		}
	}
	if !r.RecordDeletion(made("4"), now) {
		t.Error("three that were made anew are no loop")
	}
	if e, waits := r.FindWait(made("5"), now); !waits || e.Until.Sub(now) != firstRetry {
		t.Errorf("the next one waits %t, until %s", waits, e.Until)
	}
	if _, waits := r.FindWait(made("4"), now); waits {
		t.Error("what was deleted waits for itself")
	}
	other := p("b")
	if _, waits := r.FindWait(&other, now); waits {
		t.Error("another one waits too")
	}
	now = now.Add(firstRetry)
	if _, waits := r.FindWait(made("5"), now); waits || r.RecordDeletion(made("5"), now) {
		t.Error("it waits on, or is said twice")
	}
	if e, waits := r.FindWait(made("6"), now); !waits || e.Until.Sub(now) != 2*firstRetry {
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
		if now = now.Add(loopWithin + 1); r.RecordDeletion(made(fmt.Sprint("slow-", i)), now) {
			t.Error("what comes back slowly is called a loop")
		}
	}
}
