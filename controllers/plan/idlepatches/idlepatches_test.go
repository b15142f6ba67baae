// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package idlepatches

import (
	"fmt"
	"testing"
	"time"

	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

var epoch = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// A patch is idle while its object and itself are what they were. Others are sent, less and less often.
func TestIsIdle(t *testing.T) {
	id, anotherID := ID{"uid", "r", 0}, ID{"uid", "r", 1}
	label, other := stringhash.SumOf("label"), stringhash.SumOf("other")
	for name, tc := range map[string]struct {
		version string
		patch   stringhash.Sum
		after   time.Duration
		idle    bool
		wait    time.Duration
	}{
		"Same":         {"7", label, 0, true, 0},
		"SameLater":    {"7", label, 24 * time.Hour, true, 0},
		"Changed":      {"8", label, 0, false, time.Second},
		"ChangedLater": {"8", label, time.Second, false, 0},
		"Other":        {"7", other, 0, false, time.Second},
		"OtherLater":   {"7", other, time.Second, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := Patches{}
			if idle, wait := p.IsIdle(id, tc.version, tc.patch, epoch); idle || !wait.IsZero() {
				t.Errorf("what was never sent is idle: %t, or waits until %s", idle, wait)
			}
			p.NoteIdle(id, "7", label, epoch)
			idle, wait := p.IsIdle(id, tc.version, tc.patch, epoch.Add(tc.after))
			if idle != tc.idle || wait.IsZero() != (tc.wait == 0) || tc.wait > 0 && !wait.Equal(epoch.Add(tc.wait)) {
				t.Errorf("it is idle: %t, and waits until %s", idle, wait)
			}
			if idle, wait := p.IsIdle(anotherID, tc.version, tc.patch, epoch); idle || !wait.IsZero() {
				t.Errorf("another action: idle %t, waits until %s", idle, wait)
			}
			p.NoteChange(id)
			if idle, wait := p.IsIdle(id, "7", label, epoch); idle || !wait.IsZero() || len(p) > 0 {
				t.Errorf("after a change it is idle: %t, or waits until %s", idle, wait)
			}
		})
	}
}

// The wait doubles each time that a patch was sent in vain, up to a longest wait.
func TestTheWaitDoubles(t *testing.T) {
	p, now, patch, id := Patches{}, epoch, stringhash.SumOf("label"), ID{"uid", "r", 0}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		p.NoteIdle(id, fmt.Sprint(i), patch, now)
		_, until := p.IsIdle(id, "new", patch, now)
		if got := until.Sub(now); got != want*time.Second {
			t.Errorf("after %d times it waits for %s, want %s", i+1, got, want*time.Second)
		}
		now = until
	}
}

// Idle patches are counted, and remembered for as long as plans leave something out for it.
func TestWhatIsRemembered(t *testing.T) {
	p, used, unused := Patches{}, ID{"uid", "r", 0}, ID{"unused", "r", 0}
	if p.CountBytes() != 0 {
		t.Errorf("nothing takes %d bytes", p.CountBytes())
	}
	for _, id := range []ID{used, unused} {
		p.NoteIdle(id, "7", stringhash.SumOf("label"), epoch)
		p.NoteIdle(id, "8", stringhash.SumOf("label"), epoch)
	}
	if p.CountBytes() != 2*patchBytes {
		t.Errorf("%d bytes are taken, want %d", p.CountBytes(), 2*patchBytes)
	}
	p.KeepUsed([]ID{used, {"unknown", "r", 0}}, epoch.Add(time.Second))
	for _, tc := range []struct {
		after time.Duration
		want  int
	}{{0, 2}, {time.Second, 1}, {2 * time.Second, 0}} {
		if p.DropExpired(epoch.Add(forgetAfter + tc.after)); len(p) != tc.want {
			t.Errorf("%s after the time %d are remembered, want %d", tc.after, len(p), tc.want)
		}
	}
}
