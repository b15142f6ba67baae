// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package memoryquota

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// line is a Turns, and the passes under way by the key of their Cleaner.
type line struct {
	*Turns
	clock  *clocktesting.FakeClock
	called []string
	shares map[string]*Share
}

func newLine() *line {
	l := &line{clock: clocktesting.NewFakeClock(time.Unix(0, 0)), shares: map[string]*Share{}}
	l.Turns = NewTurns(l.clock, func(key types.NamespacedName) { l.called = append(l.called, key.String()) })
	return l
}

// do carries out what is said of a pass in a word, and gives what came of it: "a/1+9" begins one if there is none, and holds so many
// MiB; "a/1=9" keeps them; "a/1." ends it; "a/1!" has it stay in line; "a/1x" takes that the Cleaner is gone; "20s" is time that passes.
func (l *line) do(t *testing.T, word string) string {
	t.Helper()
	if d, err := time.ParseDuration(word); err == nil {
		l.clock.Step(d)
		return ""
	}
	at := strings.IndexAny(word, "+=.x!")
	key, what, rest := word[:at], word[at], word[at+1:]
	s := l.shares[key]
	if s == nil {
		s = l.BeginPass(keyOf(key))
		l.shares[key] = s
	}
	var mib int64
	if rest != "" {
		if _, err := fmt.Sscan(rest, &mib); err != nil {
			t.Fatal(err)
		}
	}
	switch what {
	case '+':
		if s.HoldBytes(mib << 20) {
			return "yes"
		}
		if _, refused := s.FindWait(); !refused {
			t.Errorf("%s: it is not said to wait", word)
		}
		return "no"
	case '=':
		s.KeepBytes(mib << 20)
	case '.':
		s.EndPass()
		delete(l.shares, key)
	case 'x':
		l.LeaveLine(keyOf(key))
	case '!':
		s.KeepPlace()
	}
	return ""
}

func TestTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		words  string
		want   string // the answers
		called string
	}{
		"Small":       {"a little is free for everybody", "a/1+8 a/2+8 b/1+8", "yes yes yes", ""},
		"Large":       {"one takes more, and others wait until it ends", "a/1+9 b/1+9 a/1. b/1. b/1+9", "yes no yes", "b/1"},
		"Kept":        {"what is kept counts", "a/1+9 b/1+5 b/1=5 b/1+4", "yes yes no", ""},
		"Refused":     {"who was refused begins anew: nothing of it counts", "a/1+9 b/1+9 b/1+0", "yes no no", ""},
		"WaitsAtOnce": {"who is in line does not begin before its turn", "a/1+9 b/1+9 b/1. b/1+0", "yes no no", ""},
		"LittleFree":  {"a little is free for others meanwhile", "a/1+9 b/1+9 c/1+8", "yes no yes", ""},
		"Newest":      {"and every second time who has come last", "a/1+9 b/1+9 b/2+9 b/3+9 b/4+9 a/1. b/1. b/2. b/3. b/4. b/1+9 b/1. b/4+9 b/4. b/2+9", "yes no no no no yes yes yes", "b/1 b/4 b/2"},
		"Quick":       {"or whose last turn was quick", "b/2+9 1s b/2. b/3+9 3s b/3. a/1+9 b/1+9 b/2+9 b/3+9 b/4+9 a/1. b/1. b/2. b/3. b/4. b/1+9 b/1. b/2+9 b/2. b/3+9", "yes yes yes no no no no yes yes yes", "b/1 b/2 b/3"},
		"Long":        {"and not one whose last turn took long", "b/4+9 3s b/4. a/1+9 b/1+9 b/2+9 b/3+9 b/4+9 a/1. b/1. b/2. b/3. b/4. b/1+9 b/1. b/3+9", "yes yes no no no no yes yes", "b/1 b/3"},
		"Order":       {"of a namespace who waits longest is called", "a/1+9 b/1+9 b/2+9 a/1. b/1. b/2. b/1+9 b/1. b/2+9", "yes no no yes yes", "b/1 b/2"},
		"Namespaces":  {"namespaces take turns, however many Cleaners one has", "a/1+9 a/2+9 a/3+9 a/4+9 1s b/1+9 a/1. a/2. b/1. b/1+9 b/1. a/2+9", "yes no no no no yes yes", "b/1 a/2"},
		"Reserved":    {"nobody overtakes who is called", "a/1+9 b/1+9 a/1. c/1+9 b/1. b/1+9", "yes no no yes", "b/1"},
		"Missed":      {"who does not come is out", "a/1+9 b/1+9 a/1. 15s c/1+9", "yes no yes", "b/1"},
		"Gone":        {"who is gone is not waited for", "a/1+9 b/1+9 c/1+9 b/1x a/1. c/1. c/1+9", "yes no no yes", "c/1"},
		"GoneCalled":  {"nor when it was called", "a/1+9 b/1+9 1s c/1+9 a/1. b/1x c/1. c/1+9", "yes no no yes", "b/1 c/1"},
		"NoMore":      {"who asks for nothing any more is out", "a/1+9 b/1+9 b/1. c/1+9 c/1. b/1. a/1. c/1+9", "yes no no yes", "c/1"},
		"CalledAway":  {"and so at once, when it was called: its namespace has had its turn", "a/1+9 b/1+9 b/2+9 1s c/1+9 b/1. b/2. c/1. a/1. b/1. c/1+9", "yes no no no yes", "b/1 c/1"},
		"MissedTurn":  {"a turn that is missed is one of the namespace", "a/1+9 b/1+9 b/2+9 1s c/1+9 b/1. b/2. c/1. a/1. 15s c/1+9", "yes no no no yes", "b/1 c/1"},
		"TooEarly":    {"who comes too early keeps its place", "a/1+9 b/1+9 b/1. b/1! b/1. a/1. c/1+9 b/1! b/1. b/1+9", "yes no no yes", "b/1"},
		"TooLong":     {"a turn ends while others wait", "a/1+9 19s a/1+50 b/1+9 1s a/1+60 a/1. b/1. b/1+9", "yes yes no no yes", "b/1"},
		"Alone":       {"and not while nobody does", "a/1+9 60s a/1+90", "yes yes", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLine()
			var got []string
			for _, word := range strings.Fields(tc.words) {
				if answer := l.do(t, word); answer != "" {
					got = append(got, answer)
				}
			}
			if is := strings.Join(got, " "); is != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, is, tc.want)
			}
			if is := strings.Join(l.called, " "); is != tc.called {
				t.Errorf("%s: %q was called, want %q", tc.reason, is, tc.called)
			}
		})
	}
}

// A pass that asks for nothing while it has its turn, such as one that waits for an answer, is stopped when others have waited for long.
func TestATurnEnds(t *testing.T) {
	l := newLine()
	holder, other := l.BeginPass(keyOf("a/1")), l.BeginPass(keyOf("b/1"))
	ctx, free := holder.BindContext(t.Context()), other.BindContext(t.Context())
	if !holder.HoldBytes(2 * Small) {
		t.Fatal("nobody has a turn")
	}
	for range 3 {
		l.clock.Step(longestTurn)
	}
	if ctx.Err() != nil {
		t.Fatal("it is stopped although nobody waits")
	}
	if other.HoldBytes(2 * Small) {
		t.Error("two have their turn")
	}
	if _, refused := holder.FindWait(); !refused || !errors.Is(context.Cause(ctx), ErrTurnOver) || holder.HoldBytes(0) {
		t.Errorf("it goes on: it is refused %t, and its context says %v", refused, context.Cause(ctx))
	}
	other.EndPass()
	if errors.Is(context.Cause(free), ErrTurnOver) || free.Err() == nil {
		t.Errorf("the context of a pass that has ended says %v", context.Cause(free))
	}
	if again := l.BeginPass(keyOf("b/1")); again.HoldBytes(2 * Small) {
		t.Error("two have their turn before the first has ended")
	}
	holder.EndPass()
	if is := strings.Join(l.called, " "); is != "b/1" {
		t.Errorf("%q was called", is)
	}
	if again := l.BeginPass(keyOf("b/1")); !again.HoldBytes(2 * Small) {
		t.Error("who waited has no turn")
	}
}

// A turn is not cut short for others.
func TestATurnLasts(t *testing.T) {
	l := newLine()
	holder, other := l.BeginPass(keyOf("a/1")), l.BeginPass(keyOf("b/1"))
	ctx := holder.BindContext(t.Context())
	if !holder.HoldBytes(2 * Small) {
		t.Fatal("nobody has a turn")
	}
	l.clock.Step(longestTurn - time.Second)
	if other.HoldBytes(2*Small) || ctx.Err() != nil || !holder.HoldBytes(3*Small) {
		t.Errorf("it is over too early: %v", context.Cause(ctx))
	}
}

// Very many of a namespace that take long, and come again at once, do not keep one of it back that is new, or whose turns are quick.
func TestManyLongTurnsDelayNoOther(t *testing.T) {
	const many, turn = 100, 10 * time.Second
	l := newLine()
	ask := func(key string) (has bool) {
		s := l.BeginPass(keyOf(key))
		if s.HoldBytes(2 * Small) {
			l.shares[key] = s
			return true
		}
		s.EndPass()
		return false
	}
	end := func(key string, took time.Duration) {
		l.clock.Step(took)
		l.shares[key].EndPass()
	}
	holder := "a/0"
	for n := range many {
		ask(fmt.Sprint("a/", n))
	}
	for round := range 20 {
		ask("a/guard")
		for turns := 1; holder != "a/guard"; turns++ {
			if turns > 3 {
				t.Fatalf("round %d: it waits for %d turns", round, turns)
			}
			before := holder
			end(before, turn)
			if holder = l.called[len(l.called)-1]; !ask(holder) {
				t.Fatalf("%s was called, and has no turn", holder)
			}
			ask(before)
		}
		end(holder, time.Second)
		if holder = l.called[len(l.called)-1]; !ask(holder) {
			t.Fatalf("%s was called, and has no turn", holder)
		}
	}
	for n := range many {
		l.LeaveLine(keyOf(fmt.Sprint("a/", n)))
	}
	if l.LeaveLine(keyOf("a/guard")); len(l.took) != 0 {
		t.Errorf("of %d it is remembered how long they took", len(l.took))
	}
}

// Reads of a pass take memory together, and count with what its evaluations keep. Who needs more than a little has a turn, and nobody
// has more than the most; what is given back may be taken again.
func TestReadsTakeTheMemoryOfTheirPass(t *testing.T) {
	l := newLine()
	one, other := l.BeginPass(keyOf("a/1")), l.BeginPass(keyOf("b/1"))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := one.TakeBytes(Small / 8); err != nil {
				t.Errorf("a little is refused: %v", err)
			}
		})
	}
	all.Wait()
	one.TakeBytes(-Small)
	if one.CountRead() != 0 || one.TakeBytes(Small) != nil || !other.HoldBytes(2*Small) {
		t.Fatal("what is given back is held")
	}
	if err := one.TakeBytes(1); !errors.Is(err, errNoTurn) {
		t.Errorf("it has more than a little beside one that has its turn: %v", err)
	}
	if _, refused := one.FindWait(); !refused {
		t.Error("it does not wait for its turn")
	}
	if err := other.TakeBytes(Most); err != nil {
		t.Errorf("a turn is not for the most: %v", err)
	}
	if err := other.TakeBytes(1); !errors.Is(err, errTooMuch) {
		t.Errorf("a turn is for more than the most: %v", err)
	}
	if other.TakeBytes(-1); other.TakeBytes(1) == nil {
		t.Error("there is more room than was given back")
	}
}
