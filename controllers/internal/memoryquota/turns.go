// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package memoryquota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// Small is how many bytes of memory each pass over a Cleaner may take without having its turn.
	Small = 8 << 20
	// Most is how many bytes of memory a pass may take for what it reads, also if it has its turn.
	Most = 256 << 20
	// longestTurn is how long a pass may have its turn while others wait.
	longestTurn = 20 * time.Second
	// missedTurn is how long a Cleaner that is called has to come.
	missedTurn = 15 * time.Second
	// quickTurn is how long a turn lasts at most that others need not be spared.
	quickTurn = 2 * time.Second
)

var (
	// errNoTurn refuses memory to a pass that has not its turn.
	errNoTurn = errors.New("the objects to read take a lot of memory, and only one such Cleaner runs at a time: this one is waiting for its turn")
	// errTooMuch refuses memory to any pass.
	errTooMuch = fmt.Errorf("the objects that the targets of this Cleaner select take more than %d MiB of memory; select fewer objects, "+
		"or set includeWhenEvaluating: false where no expression needs them", Most>>20)
)

// ErrTurnOver ends what a pass is about when it has had its turn for long, and others wait.
var ErrTurnOver = errors.New("other Cleaners that need a lot of memory are waiting for their turn")

// Turns shares out the memory that passes over Cleaners take while they evaluate and act. Each pass may take a little. Only one at a time
// may take more: another that wants more ends, waits in line, and starts again when it is called. No turn lasts while others wait,
// whatever the pass does with it.
//
// Namespaces take turns; all ClusterCleaners count as one. Within a namespace, every second turn is for the Cleaner that has waited
// longest. The others are for Cleaners whose last turn was quick, then for those without a turn so far, then for those whose last turn
// took long; among equals, the newest comes first. So a Cleaner that is quick or new does not wait for many that are slow. Turns is safe
// for concurrent use.
type Turns struct {
	clock clock.PassiveClock
	call  func(types.NamespacedName)

	mu     sync.Mutex
	holder *Share
	since  time.Time // of the holder
	line   []waiting
	// called is the Cleaner whose turn it is, and calledAt since when it knows. Until it comes, no other has a turn.
	called   types.NamespacedName
	calledAt time.Time
	// turn counts turns, and served says which was the last one of a namespace. It is empty with the line, but for the last turn.
	turn   int64
	served map[string]int64
	// calls counts for each namespace how often one of several was called. It is empty with the line too.
	calls map[string]int
	// took is how long the last turn took of each Cleaner there is that has had one.
	took map[types.NamespacedName]time.Duration
}

type waiting struct {
	key   types.NamespacedName
	since time.Time
}

// NewTurns makes an empty line. Call asks for a pass over a Cleaner whose turn it is.
func NewTurns(c clock.PassiveClock, call func(types.NamespacedName)) *Turns {
	return &Turns{clock: c, call: call, served: map[string]int64{}, calls: map[string]int{}, took: map[types.NamespacedName]time.Duration{}}
}

// Share is what one pass over a Cleaner takes. It is for one goroutine, but for TakeBytes.
type Share struct {
	turns *Turns
	key   types.NamespacedName
	stays bool
	// kept, read, refused and stop are guarded by the lock of turns. Read is what is read, and part of what is kept.
	kept, read int64
	refused    bool
	stop       context.CancelCauseFunc // nil: there is nothing to stop
}

// BeginPass begins a pass. The caller must end the Share by EndPass.
func (t *Turns) BeginPass(key types.NamespacedName) *Share { return &Share{turns: t, key: key} }

// BindContext gives a context for all that the pass does. It ends with the turn, with ErrTurnOver, or with the pass.
func (s *Share) BindContext(ctx context.Context) context.Context {
	ctx, stop := context.WithCancelCause(ctx)
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	s.stop = stop
	return ctx
}

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
	t.refuse(s, now)
	if h := t.holder; h != nil && h != s && now.Sub(t.since) >= longestTurn { // it may wait for something else, and ask for nothing
		t.refuse(h, now)
		if h.stop != nil {
			h.stop(ErrTurnOver)
		}
	}
	return false
}

// refuse has a Cleaner wait in line: nothing that its pass decides counts.
func (t *Turns) refuse(s *Share, now time.Time) {
	s.refused = true
	if t.findInLine(s.key) < 0 {
		t.line = append(t.line, waiting{key: s.key, since: now})
	}
}

// KeepBytes records that an evaluation has ended, and how many of its bytes are kept until the pass ends.
func (s *Share) KeepBytes(bytes int64) {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	s.kept += bytes
}

// TakeBytes takes memory for what is read, until the pass ends or gives it back, which is to take less than nothing. An error says why it
// may not be held. Several goroutines may do so.
func (s *Share) TakeBytes(bytes int64) error {
	s.KeepBytes(bytes)
	if total := s.addRead(bytes); total > Most {
		return errTooMuch
	}
	if bytes >= 0 && !s.HoldBytes(0) {
		return errNoTurn
	}
	return nil
}

func (s *Share) addRead(bytes int64) (total int64) {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	s.read += bytes
	return s.read
}

// CountRead is how many bytes are held of what was read.
func (s *Share) CountRead() int64 { return s.addRead(0) }

// FindWait says for how long the Cleaner has been in line, if the pass was refused what it wanted.
func (s *Share) FindWait() (since time.Duration, refused bool) {
	t := s.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	if !s.refused {
		return 0, false
	}
	if at := t.findInLine(s.key); at >= 0 {
		return t.clock.Now().Sub(t.line[at].since), true
	}
	return 0, true
}

// KeepPlace has the Cleaner stay in line although the pass asks for nothing: it has come too early.
func (s *Share) KeepPlace() { s.stays = true }

// EndPass ends a pass and releases what it took. A Cleaner whose pass was not refused, such as one that was suspended, wants no turn now,
// and leaves the line. If it was called, that counts as the turn of its namespace: otherwise a Cleaner that is called and leaves would
// keep all others waiting.
func (s *Share) EndPass() {
	t := s.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if s.stop != nil {
		s.stop(nil)
	}
	if t.holder == s {
		t.holder, t.took[s.key] = nil, now.Sub(t.since)
	} else if at := t.findInLine(s.key); at >= 0 && !s.refused && !s.stays {
		t.passOver(at)
	}
	t.callNext(now)
}

// LeaveLine removes a Cleaner that is gone, or wants no turn.
func (t *Turns) LeaveLine(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.took, key)
	if at := t.findInLine(key); at >= 0 {
		t.passOver(at)
		t.callNext(t.clock.Now())
	}
}

// passOver removes a Cleaner from the line that does not use its turn.
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
	t.forgetLine()
	t.turn++
	t.holder, t.since, t.called = s, now, types.NamespacedName{}
	t.served[s.key.Namespace] = t.turn
}

// dropFromLine removes a Cleaner from the line.
func (t *Turns) dropFromLine(at int) {
	t.line = slices.Delete(t.line, at, at+1)
	t.forgetLine()
}

// forgetLine forgets what is only to be known while there is a line.
func (t *Turns) forgetLine() {
	if len(t.line) == 0 {
		clear(t.served)
		clear(t.calls)
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

// callNext calls the first Cleaner in line, if none has a turn.
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
	first := t.findFirst()
	t.called, t.calledAt = first, now
	t.call(first)
}

// findFirst is who has the next turn: one of the namespace whose last turn is the longest ago.
func (t *Turns) findFirst() types.NamespacedName {
	oldest := slices.MinFunc(t.line, func(a, b waiting) int { // of equal ones the first
		if n := t.served[a.key.Namespace] - t.served[b.key.Namespace]; n != 0 {
			return int(n)
		}
		return a.since.Compare(b.since)
	}).key
	t.calls[oldest.Namespace]++
	if t.calls[oldest.Namespace]%2 == 1 {
		return oldest
	}
	first := oldest
	for _, w := range t.line { // they stand as they have come
		if w.key.Namespace == oldest.Namespace && t.rankTurn(w.key) <= t.rankTurn(first) {
			first = w.key
		}
	}
	return first
}

// rankTurn says by its last turn where a Cleaner stands among those of its namespace.
func (t *Turns) rankTurn(key types.NamespacedName) int {
	switch took, had := t.took[key]; {
	case !had:
		return 1
	case took > quickTurn:
		return 2
	}
	return 0
}
