// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"sync"
	"testing"
	"time"
)

// The time of a batch begins with its first request, whenever that is.
func TestSending(t *testing.T) {
	start := time.Now()
	s := NewSending(4 * time.Second)
	for _, tc := range []struct {
		after time.Duration
		over  bool
	}{{time.Hour, false}, {time.Hour + 4*time.Second - 1, false}, {time.Hour + 4*time.Second, true}, {2 * time.Hour, true}} {
		if got := s.IsOver(start.Add(tc.after)); got != tc.over {
			t.Errorf("after %s it is over: %t", tc.after, got)
		}
	}
	var unbounded *Sending
	if unbounded.IsOver(start) || unbounded.IsOver(start.Add(time.Hour)) {
		t.Error("what has no end ends")
	}
}

// Requests of one batch are sent at the same time.
func TestSendingBeginsOnce(t *testing.T) {
	s, start := NewSending(time.Second), time.Now()
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			if s.IsOver(start.Add(time.Duration(n) * time.Millisecond)) {
				t.Error("it is over at its beginning")
			}
		})
	}
	all.Wait()
	if !s.IsOver(start.Add(1100 * time.Millisecond)) {
		t.Error("it does not end")
	}
}
