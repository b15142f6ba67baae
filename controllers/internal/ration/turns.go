// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ration

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// Small is how many bytes of memory each pass over a Cleaner may take without having its turn.
	Small = 8 << 20
	// longestTurn is how long a pass may go on to take more while others wait.
	longestTurn = 20 * time.Second
	// missedTurn is how long a Cleaner that is called has to come.
	missedTurn = 15 * time.Second
)

// Turns shares out the memory that passes over Cleaners take while they evaluate and act. Each may take a little. More than that only
// one may take at a time: who wants it meanwhile ends, waits in line, and begins anew when it is called. The namespaces take turns,
// and so do the Cleaners of one; all ClusterCleaners count as one namespace. It is safe for concurrent use.
type Turns struct {
	clock clock.PassiveClock
	call  func(types.NamespacedName)

	mu     sync.Mutex
	holder *Share
	since  time.Time // of the holder
	line   []waiting
	// called is who is first, and since when it knows; until it comes nobody else has a turn.
	called   types.NamespacedName
	calledAt time.Time
	// turn counts turns, and served says which was the last one of a namespace that is in line.
	turn   int64
	served map[string]int64
}

type waiting struct {
	key   types.NamespacedName
	since time.Time
}

// NewTurns makes an empty line. Call asks for a pass over a Cleaner whose turn it is.
func NewTurns(c clock.PassiveClock, call func(types.NamespacedName)) *Turns {
	return &Turns{clock: c, call: call, served: map[string]int64{}}
}

// Share is what one pass over a Cleaner takes. It is for one goroutine.
type Share struct {
	turns   *Turns
	key     types.NamespacedName
	kept    int64
	refused bool
	stays   bool
}

// BeginPass begins a pass. Whoever gets a Share must end it by EndPass.
func (t *Turns) BeginPass(key types.NamespacedName) *Share { return &Share{turns: t, key: key} }

// HoldBytes says whether an evaluation of the pass may hold so many bytes now, with what is kept of those before it. Once it may not, nothing
// that the pass decides counts: the Cleaner is in line.
func (s *Share) HoldBytes(bytes int64) bool {
	t := s.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	at := t.findInLine(s.key)
	switch {
	case s.refused:
		return false
	case t.holder == s && (now.Sub(t.since) < longestTurn || len(t.line) == 0):
		return true
	case t.holder != s && at < 0 && s.kept+bytes <= Small:
		return true
	case t.holder == nil && t.isNext(s.key, now):
		t.takeTurn(s, now)
		return true
	}
	s.refused = true
	if at < 0 {
		t.line = append(t.line, waiting{key: s.key, since: now})
	}
	return false
}

// KeepBytes takes that an evaluation has ended, and that so many bytes of it are kept until the pass ends.
func (s *Share) KeepBytes(bytes int64) { s.kept += bytes }

// FindWait says for how long the Cleaner has been in line, if the pass was refused what it wanted.
func (s *Share) FindWait() (since time.Duration, refused bool) {
	if !s.refused {
		return 0, false
	}
	t := s.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := t.findInLine(s.key); at >= 0 {
		return t.clock.Now().Sub(t.line[at].since), true
	}
	return 0, true
}

// KeepPlace has the Cleaner stay in line although the pass asks for nothing: it has come too early.
func (s *Share) KeepPlace() { s.stays = true }

// EndPass ends a pass: it takes nothing any more. A Cleaner whose pass was not refused wants no turn now, such as one that was suspended:
// it is out of the line. If it was called, that was the turn of its namespace, or one that calls and hangs up would keep all others.
func (s *Share) EndPass() {
	t := s.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if t.holder == s {
		t.holder = nil
	} else if at := t.findInLine(s.key); at >= 0 && !s.refused && !s.stays {
		t.passOver(at)
	}
	t.callNext(now)
}

// LeaveLine takes that a Cleaner is gone, or wants nothing any more.
func (t *Turns) LeaveLine(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := t.findInLine(key); at >= 0 {
		t.passOver(at)
		t.callNext(t.clock.Now())
	}
}

// passOver takes a Cleaner out of the line that takes no turn.
func (t *Turns) passOver(at int) {
	key := t.line[at].key
	if t.called == key {
		t.turn++
		t.served[key.Namespace], t.called = t.turn, types.NamespacedName{}
	}
	t.dropFromLine(at)
}

func (t *Turns) findInLine(key types.NamespacedName) int {
	return slices.IndexFunc(t.line, func(w waiting) bool { return w.key == key })
}

// takeTurn begins a turn.
func (t *Turns) takeTurn(s *Share, now time.Time) {
	if at := t.findInLine(s.key); at >= 0 {
		t.dropFromLine(at)
	}
	t.turn++
	t.holder, t.since, t.called = s, now, types.NamespacedName{}
	t.served[s.key.Namespace] = t.turn
}

// dropFromLine takes a Cleaner out of the line.
func (t *Turns) dropFromLine(at int) {
	t.line = slices.Delete(t.line, at, at+1)
	if len(t.line) == 0 {
		clear(t.served)
	}
}

// isNext says whether it is the turn of a Cleaner, which need not be in line. Who was called and has not come is out.
func (t *Turns) isNext(key types.NamespacedName, now time.Time) bool {
	for {
		t.callNext(now)
		if t.called == (types.NamespacedName{}) || t.called == key {
			return true
		}
		if now.Sub(t.calledAt) < missedTurn {
			return false
		}
		if at := t.findInLine(t.called); at >= 0 {
			t.passOver(at)
		}
		t.called = types.NamespacedName{}
	}
}

// callNext calls whoever is first, if nobody has a turn: of the namespace whose last turn is the longest ago, who waits longest.
func (t *Turns) callNext(now time.Time) {
	if t.holder != nil || len(t.line) == 0 {
		if len(t.line) == 0 {
			t.called = types.NamespacedName{}
		}
		return
	}
	if t.called != (types.NamespacedName{}) && t.findInLine(t.called) >= 0 {
		return
	}
	first := slices.MinFunc(t.line, func(a, b waiting) int { // of equal ones the first
		if n := t.served[a.key.Namespace] - t.served[b.key.Namespace]; n != 0 {
			return int(n)
		}
		return a.since.Compare(b.since)
	})
	t.called, t.calledAt = first.key, now
	t.call(first.key)
}
