// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package news

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestNews(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	var pending time.Time
	n := New(clock, func(o types.NamespacedName) time.Time {
		if o.Namespace == "ns" {
			return pending
		}
		return time.Time{}
	})
	a, b := types.NamespacedName{Namespace: "ns", Name: "a"}, types.NamespacedName{Name: "b"}
	if !n.TakeChange(a).IsZero() {
		t.Error("there are news before anything has changed")
	}
	first := clock.Now()
	n.NoteChange(a)
	clock.Step(time.Second)
	n.NoteChange(a)
	if !n.TakeChange(b).IsZero() {
		t.Error("the news of one are those of another")
	}
	if got := n.TakeChange(a); !got.Equal(first) {
		t.Errorf("the first change was at %s, not at %s", first, got)
	}
	if !n.TakeChange(a).IsZero() {
		t.Error("news are taken twice")
	}
	n.NoteChange(a)
	if got := n.TakeChange(a); !got.Equal(clock.Now()) {
		t.Errorf("what changes later is of %s", got)
	}
	pending = clock.Now().Add(-time.Minute)
	n.NoteChange(b)
	if got := n.TakeChange(a); !got.Equal(pending) || !n.TakeChange(b).Equal(clock.Now()) {
		t.Errorf("what may concern it is of %s", got)
	}
	n.NoteChange(a)
	if got := n.TakeChange(a); !got.Equal(pending) {
		t.Errorf("what may concern it, and was before, is of %s", got)
	}
}
