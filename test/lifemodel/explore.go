// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// Finding is the shortest way to break a property.
type Finding struct {
	Breaks Property
	Trace  []Label
	// Stuck shows the state from which no end is reachable, when Breaks is EndReachable.
	Stuck string
}

// String is the finding as a numbered trace.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v is broken:", f.Breaks)
	for i, l := range f.Trace {
		fmt.Fprintf(&b, "\n%3d. %v", i+1, l)
	}
	if f.Breaks == EndReachable {
		fmt.Fprintf(&b, "\n     no end is reachable from %s", f.Stuck)
	}
	return b.String()
}

// Exploration is what was found in a world.
type Exploration struct {
	States, Steps int
	// Whole says that all was seen that is reachable. If not, nothing is said about EndReachable.
	Whole    bool
	Findings map[Property]Finding
}

// Faults lists what was found, without documented limits.
func (e *Exploration) Faults() []Finding {
	var out []Finding
	for p, f := range e.Findings {
		if p.Fault() {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b Finding) int { return cmp.Compare(a.Breaks, b.Breaks) })
	return out
}

// origin is how a state was reached first.
type origin struct {
	from  int32
	label Label
}

// World is what can be explored.
type World[S comparable] interface {
	// Init is the first state.
	Init() S
	// Steps appends what can happen next.
	Steps(s *S, out []StepTo[S]) []StepTo[S]
	// AtEnd says that nothing needs to happen any more, once others have stopped.
	AtEnd(s *S) bool
}

// StepTo is one step from a state to another.
type StepTo[S any] struct {
	Label Label
	To    S
	// Fair says that the step is the operator's, time's or a repair: what happens even if nobody else does anything.
	Fair bool
	// Breaks is the property that the step breaks, or Sound.
	Breaks Property
}

// explorer goes through the states breadth first, so that the way by which a state was reached first is a shortest one.
type explorer[S comparable] struct {
	Exploration
	seed    maphash.Seed
	index   map[uint64]int32 // by a hash: among a million states two have the same one with a probability of 3e-8
	states  []S
	origins []origin
	// fair holds the fair steps as pairs of states; bounded are states from which not all steps were followed.
	fair    [][2]int32
	bounded map[int32]bool
}

// Explore visits all states that are reachable, unless there are more than limit, or until is broken.
func Explore[S comparable](m World[S], limit int, until Property) Exploration {
	x := &explorer[S]{
		seed: maphash.MakeSeed(), index: map[uint64]int32{}, bounded: map[int32]bool{},
		Exploration: Exploration{Whole: true, Findings: map[Property]Finding{}},
	}
	x.put(m.Init(), origin{from: -1})
	var buf []StepTo[S]
	for k := int32(0); int(k) < len(x.states); k++ {
		_, found := x.Findings[until]
		if len(x.states) > limit || found {
			x.Whole = false
			break
		}
		s := x.states[k]
		buf = m.Steps(&s, buf[:0])
		for i := range buf {
			x.follow(k, &buf[i])
		}
	}
	x.States = len(x.states)
	if x.Whole {
		x.judgeEnds(m)
	}
	return x.Exploration
}

// put numbers a state.
func (x *explorer[S]) put(s S, o origin) int32 {
	hash := maphash.Comparable(x.seed, s)
	if k, ok := x.index[hash]; ok {
		return k
	}
	k := int32(len(x.states))
	x.index[hash] = k
	x.states = append(x.states, s)
	x.origins = append(x.origins, o)
	return k
}

func (x *explorer[S]) follow(k int32, step *StepTo[S]) {
	x.Steps++
	if _, known := x.Findings[step.Breaks]; step.Breaks != Sound && !known {
		x.Findings[step.Breaks] = Finding{Breaks: step.Breaks, Trace: append(x.trace(k), step.Label)}
	}
	if step.Breaks == OutOfBounds {
		x.bounded[k] = true
		return
	}
	if to := x.put(step.To, origin{k, step.Label}); step.Fair && to != k {
		x.fair = append(x.fair, [2]int32{k, to})
	}
}

// trace is a shortest way to a state.
func (x *explorer[S]) trace(k int32) []Label {
	var out []Label
	for ; x.origins[k].from >= 0; k = x.origins[k].from {
		out = append(out, x.origins[k].label)
	}
	slices.Reverse(out)
	return out
}

// judgeEnds goes back from the ends along fair steps. What it does not come to can reach no end.
func (x *explorer[S]) judgeEnds(m World[S]) {
	into := make([][]int32, len(x.states))
	for _, step := range x.fair {
		into[step[1]] = append(into[step[1]], step[0])
	}
	ends := make([]bool, len(x.states))
	var todo []int32
	mark := func(k int32) {
		if !ends[k] {
			ends[k] = true
			todo = append(todo, k)
		}
	}
	for k := range x.states {
		if x.bounded[int32(k)] || m.AtEnd(&x.states[k]) {
			mark(int32(k))
		}
	}
	for len(todo) > 0 {
		k := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range into[k] {
			mark(from)
		}
	}
	if stuck := slices.Index(ends, false); stuck >= 0 {
		x.Findings[EndReachable] = Finding{Breaks: EndReachable, Trace: x.trace(int32(stuck)), Stuck: fmt.Sprintf("%+v", x.states[stuck])}
	}
}
