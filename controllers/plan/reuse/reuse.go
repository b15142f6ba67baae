// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reuse remembers for which items of rules `when` was false, so that the next decision evaluates only those that have changed. Pure: it
// reads no clock, and never decides what is false.
//
// An item is known by the number of its content, which is another one after each change that expressions can see. What is remembered of a rule
// is forgotten when something else changes that its `when` reads. Of an item for which `when` was not false only that is remembered: it is evaluated
// each time, and what is remembered is never the reason for an action.
package reuse

import (
	"crypto/sha256"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/vtex/cleaner/celenv/lookups"
)

// About how many bytes it takes to remember a result, the content of one that is not false besides, what one has looked up, each key of that, and
// a rule without its results.
const (
	resultBytes  = 16
	contentBytes = 8
	lookupBytes  = 8
	keyBytes     = 8
	ruleBytes    = 264
)

// Sum tells apart what a rule reads besides its items.
type Sum = [sha256.Size]byte

// Inputs tells apart what a rule reads besides its items: what it only looks up entries of, and the rest, which is Joined.
type Inputs struct{ Joined, LookedUp Sum }

// Results are the results that a decision hands on to the next one. They never change. Nil has none.
type Results struct {
	rules map[string]ruleResults
	// whole is when all items were evaluated last, and last when some were.
	whole, last time.Time
	// extended says that others have these and more, in the same memory.
	extended bool
}

type ruleResults struct {
	inputs  Inputs
	results []result // of the items, in their order
	// keys is what each of them has looked up, one after the other, and ends is where that of each ends; empty if none looks anything up.
	keys   []lookups.Key
	ends   []int
	newest uint64   // the largest number among them
	others []uint64 // the contents for which `when` was true, or unknown
}

// result is an item that was evaluated.
type result struct {
	content uint64
	// until is the moment at which `when` may no longer be false, in nanoseconds since 1970; never, or always where it was not false.
	until int64
}

const (
	always = math.MinInt64
	never  = math.MaxInt64
)

// CountBytes is about how much memory they take.
func (r *Results) CountBytes() int64 {
	if r == nil {
		return 0
	}
	n := int64(0)
	for name, of := range r.rules {
		n += ruleBytes + int64(len(name)) + resultBytes*int64(cap(of.results)) + contentBytes*int64(cap(of.others)) + lookupBytes*int64(cap(of.ends)) + keyBytes*int64(cap(of.keys))
	}
	return n
}

// CountResults returns how many results there are.
func (r *Results) CountResults() (n int) {
	if r == nil {
		return 0
	}
	for _, of := range r.rules {
		n += len(of.results)
	}
	return n
}

// CountOthers counts the items of a rule with these contents, each once, for which `when` was true or unknown.
func (r *Results) CountOthers(rule string, contents []uint64) (n int) {
	others := r.rules[rule].others
	for _, content := range contents {
		if slices.Contains(others, content) { // maybe several times: it went, and came back
			n++
		}
	}
	return n
}

// ServeAt says that they may be used at a moment: all items were evaluated in the period before it, and the clock did not go back.
func (r *Results) ServeAt(now time.Time, period time.Duration) bool {
	return r != nil && !now.Before(r.last) && now.Before(r.whole.Add(period))
}

// LooksUp says that a rule has looked up something for an item, now or before the item changed.
func (r *Results) LooksUp(rule string) bool { return len(r.rules[rule].keys) > 0 }

// AreConcerned says that what a rule has looked up for an item, now or before the item changed, is among changes.
func (r *Results) AreConcerned(rule string, changes *lookups.Changes) bool {
	return changes.ConcernAny(r.rules[rule].keys)
}

// ExtendWith returns the results with those of a later decision about other contents, which has used none of them. Of what else the rules read,
// nothing has changed that concerns these.
func (r *Results) ExtendWith(later *Results) *Results {
	out := &Results{rules: maps.Clone(r.rules), whole: r.whole, last: later.last}
	for name, more := range later.rules {
		of := out.rules[name]
		of.inputs = more.inputs
		if r.extended {
			of.results, of.keys, of.ends = slices.Clip(of.results), slices.Clip(of.keys), slices.Clip(of.ends)
		}
		of.addLookups(&more)
		of.results = append(of.results, more.results...)
		of.newest = max(of.newest, more.newest)
		if len(more.others) > 0 {
			of.others = slices.Concat(of.others, more.others) // those before may have others, too
		}
		out.rules[name] = of
	}
	r.extended = true
	return out
}

// addLookups adds what later results have looked up, before these are added.
func (r *ruleResults) addLookups(more *ruleResults) {
	if len(r.keys)+len(more.keys) == 0 {
		return
	}
	if len(r.ends) == 0 {
		r.ends = make([]int, len(r.results), cap(r.results))
	}
	for at := range more.results {
		r.keys = append(r.keys, more.listKeys(at)...)
		r.ends = append(r.ends, len(r.keys))
	}
}

// Decision is a decision that uses results and makes new ones.
type Decision struct {
	before *Results
	next   Results
	now    time.Time
	room   int64 // bytes
}

// BeginDecision begins a decision at a moment, which may remember so many bytes. All items are evaluated again if they last were so before a
// period, or if the clock went back.
func (r *Results) BeginDecision(now time.Time, period time.Duration, room int64) *Decision {
	d := &Decision{before: r, now: now, room: room, next: Results{rules: map[string]ruleResults{}, whole: now, last: now}}
	if !r.ServeAt(now, period) {
		d.before = &Results{}
		return d
	}
	d.next.whole = r.whole
	return d
}

// EndDecision returns the results for the next decision.
func (d *Decision) EndDecision() *Results { return &d.next }

// Rule goes through the items of one rule, in their order.
type Rule struct {
	of      *Decision
	name    string
	before  ruleResults
	at      int            // the place among those before at which the next item is looked for first
	places  map[uint64]int // of those before, once they are looked for in another order
	next    ruleResults
	changes *lookups.Changes // since the results before; nil: none
	until   int64            // of the results that were used again, the first
	nowNano int64
}

// BeginRule begins a rule with so many items. findChanges finds what has changed of what it looks up since the results before; it is not ok if
// that cannot be told.
func (d *Decision) BeginRule(name string, inputs Inputs, items int, findChanges func() (changes *lookups.Changes, ok bool)) *Rule {
	r := &Rule{of: d, name: name, next: ruleResults{inputs: inputs}, until: never, nowNano: d.now.UnixNano()}
	if before, known := d.before.rules[name]; known && before.inputs.Joined == inputs.Joined {
		if before.inputs.LookedUp != inputs.LookedUp && len(before.keys) > 0 {
			r.changes, known = findChanges()
		}
		if known {
			r.before = before
		}
	}
	if d.room -= ruleBytes + int64(len(name)); d.room >= resultBytes {
		r.next.results = make([]result, 0, min(int64(items), d.room/resultBytes))
	}
	return r
}

// IsFalse says that `when` is known to be false for the item of this content, and remembers it on.
func (r *Rule) IsFalse(content uint64) bool {
	if content == 0 || content > r.before.newest {
		return false
	}
	at, known := r.find(content)
	if !known {
		return false
	}
	r.at = at + 1
	found := r.before.results[at]
	if found.until <= r.nowNano {
		return false
	}
	keys := r.before.listKeys(at)
	if r.changes.ConcernAny(keys) {
		return false
	}
	r.until = min(r.until, found.until)
	r.note(found, keys)
	return true
}

// listKeys returns what a result has looked up.
func (r *ruleResults) listKeys(at int) []lookups.Key {
	if len(r.ends) == 0 {
		return nil
	}
	from := 0
	if at > 0 {
		from = r.ends[at-1]
	}
	return r.keys[from:r.ends[at]]
}

// find returns the place of an item among those before: mostly the next one.
func (r *Rule) find(content uint64) (at int, known bool) {
	const near = 4
	for at = r.at; at < min(r.at+near, len(r.before.results)); at++ {
		if r.before.results[at].content == content {
			return at, true
		}
	}
	if r.places == nil {
		r.places = make(map[uint64]int, len(r.before.results))
		for at, f := range r.before.results {
			r.places[f.content] = at
		}
	}
	at, known = r.places[content]
	return at, known
}

// NoteFalse remembers that `when` is false for an item until a moment, or until something changes that it has looked up. Zero: time does not
// change it.
func (r *Rule) NoteFalse(content uint64, until time.Time, keys []lookups.Key) {
	switch {
	case until.IsZero():
		r.note(result{content, never}, keys)
	default:
		r.note(result{content, until.UnixNano()}, keys)
	}
}

// NoteOther remembers that `when` is not false for an item, or that this is unknown: it is evaluated each time.
func (r *Rule) NoteOther(content uint64) { r.note(result{content, always}, nil) }

// note remembers a result, if there is room.
func (r *Rule) note(f result, keys []lookups.Key) {
	if f.content == 0 {
		return
	}
	bytes := resultBytes + keyBytes*int64(len(keys))
	if len(keys)+len(r.next.ends) > 0 {
		bytes += lookupBytes
	}
	if f.until == always {
		bytes += contentBytes
	}
	if r.of.room < bytes {
		return
	}
	r.of.room -= bytes
	if len(keys) > 0 && len(r.next.ends) == 0 { // those before have looked up nothing
		r.next.ends = make([]int, len(r.next.results), cap(r.next.results))
		r.of.room -= lookupBytes * int64(len(r.next.results))
	}
	r.next.results = append(r.next.results, f)
	if r.next.keys = append(r.next.keys, keys...); len(r.next.keys) > 0 {
		r.next.ends = append(r.next.ends, len(r.next.keys))
	}
	r.next.newest = max(r.next.newest, f.content)
	if f.until == always {
		r.next.others = append(r.next.others, f.content)
	}
}

// trimRoom returns a slice that has not much more room than it needs.
func trimRoom[T any](s []T) []T {
	if cap(s) <= len(s)+len(s)/4 {
		return s
	}
	return append(make([]T, 0, len(s)), s...)
}

// EndRule returns when the first result may change that was used again; zero: time does not change them.
func (r *Rule) EndRule() (until time.Time) {
	r.next.results, r.next.keys, r.next.ends = trimRoom(r.next.results), trimRoom(r.next.keys), trimRoom(r.next.ends)
	if r.of.room >= 0 || len(r.next.results) > 0 {
		r.of.next.rules[r.name] = r.next
	}
	if r.until == never {
		return time.Time{}
	}
	return time.Unix(0, r.until).UTC()
}
