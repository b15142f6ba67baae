// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ration

import (
	"fmt"
	"strings"
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
