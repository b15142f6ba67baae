// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package reuse

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vtex/cleaner/celenv/lookups"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// evaluate goes through items, some of which are false until a moment, and returns those that were evaluated, and until when the results are
// valid that were used again.
func evaluate(before *Results, now time.Time, joined Sum, items []uint64, until map[uint64]time.Time) (after *Results, evaluated []uint64, valid time.Time) {
	return evaluateLookups(before, now, Inputs{Joined: joined}, items, until, nil, fail)
}

// fail is for rules of which nothing that they look up has changed.
func fail() (*lookups.Changes, bool) { return nil, false }

// evaluateLookups is evaluate where each item looks something up.
func evaluateLookups(before *Results, now time.Time, inputs Inputs, items []uint64, until map[uint64]time.Time, keys map[uint64][]lookups.Key, changes func() (*lookups.Changes, bool)) (after *Results, evaluated []uint64, valid time.Time) {
	d := before.BeginDecision(now, time.Hour, math.MaxInt64)
	r := d.BeginRule("r", inputs, len(items), changes)
	for _, item := range items {
		if r.IsFalse(item) {
			continue
		}
		evaluated = append(evaluated, item)
		if at, isFalse := until[item]; isFalse {
			r.NoteFalse(item, at, keys[item])
		} else {
			r.NoteOther(item)
		}
	}
	valid = r.EndRule()
	return d.EndDecision(), evaluated, valid
}

// Whatever comes, goes and moves, an item is evaluated unless the decision before this one has found it false until later, with the same joined
// targets.
func TestAnyItems(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var results *Results
		known, last, knownOf := map[uint64]time.Time{}, uint64(0), Sum{}
		now, began, items := epoch, epoch, []uint64(nil)
		until, keys, lookedUpOf := map[uint64]time.Time{}, map[uint64][]lookups.Key{}, Sum{}
		for range rapid.IntRange(1, 12).Draw(rt, "decisions") {
			switch rapid.IntRange(0, 5).Draw(rt, "change") {
			case 0, 1:
				for range rapid.IntRange(1, 9).Draw(rt, "more") {
					last++
					keys[last] = make([]lookups.Key, rapid.IntRange(0, 2).Draw(rt, "keys"))
					for i := range keys[last] {
						keys[last][i] = lookups.Key(rapid.IntRange(0, 2).Draw(rt, "key"))
					}
					items = slices.Insert(items, rapid.IntRange(0, len(items)).Draw(rt, "at"), last)
					if kind := rapid.IntRange(0, 3).Draw(rt, "kind"); kind == 1 {
						until[last] = time.Time{}
					} else if kind > 1 {
						until[last] = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(rt, "until")) * time.Second)
					}
				}
			case 2:
				if len(items) > 0 {
					at := rapid.IntRange(0, len(items)-1).Draw(rt, "gone")
					items = slices.Delete(items, at, min(len(items), at+rapid.IntRange(1, 6).Draw(rt, "many")))
				}
			case 3:
				items = rapid.Permutation(items).Draw(rt, "moved")
			}
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 10, 30, 4000, -1}).Draw(rt, "seconds")) * time.Second)
			joined := Sum{rapid.SampledFrom([]byte{1, 1, 1, 2}).Draw(rt, "joined")}
			if results == nil || now.Before(results.last) || !now.Before(began.Add(time.Hour)) {
				known, began = map[uint64]time.Time{}, now
			}
			if joined != knownOf {
				known = map[uint64]time.Time{}
			}
			inputs := Inputs{Joined: joined, LookedUp: Sum{rapid.SampledFrom([]byte{1, 1, 2}).Draw(rt, "looked up")}}
			keysChanged, told := []lookups.Key(nil), rapid.IntRange(0, 5).Draw(rt, "told") > 0
			for key := range lookups.Key(3) {
				if rapid.Bool().Draw(rt, "changed") {
					keysChanged = append(keysChanged, key)
				}
			}
			changed := lookups.NewChanges(keysChanged...)
			if inputs.LookedUp != lookedUpOf {
				looksUp := false
				for item := range known {
					looksUp = looksUp || len(keys[item]) > 0
				}
				maps.DeleteFunc(known, func(item uint64, _ time.Time) bool { return looksUp && !told || changed.ConcernAny(keys[item]) })
			}
			var want []uint64
			var first time.Time
			next := map[uint64]time.Time{}
			for _, item := range items {
				at, isKnown := known[item]
				if isKnown && (at.IsZero() || now.Before(at)) {
					next[item] = at
					if !at.IsZero() && (first.IsZero() || at.Before(first)) {
						first = at
					}
					continue
				}
				want = append(want, item)
				if at, isFalse := until[item]; isFalse {
					next[item] = at
				}
			}
			var got []uint64
			var valid time.Time
			results, got, valid = evaluateLookups(results, now, inputs, items, until, keys, func() (*lookups.Changes, bool) { return changed, told })
			if !slices.Equal(got, want) {
				rt.Fatalf("%v are evaluated, and not %v", got, want)
			}
			if !valid.Equal(first) {
				rt.Fatalf("the results are valid until %s, and not %s", valid, first)
			}
			known, knownOf, lookedUpOf = next, joined, inputs.LookedUp
		}
	})
}

// What is remembered of one rule is nothing for another one, and a rule that is gone is forgotten.
func TestRulesAreApart(t *testing.T) {
	d := (*Results)(nil).BeginDecision(epoch, time.Hour, math.MaxInt64)
	for _, name := range []string{"a", "b"} {
		r := d.BeginRule(name, Inputs{}, 1, fail)
		r.NoteFalse(1, time.Time{}, nil)
		r.EndRule()
	}
	both := d.EndDecision()
	d = both.BeginDecision(epoch, time.Hour, math.MaxInt64)
	if r := d.BeginRule("c", Inputs{}, 1, fail); r.IsFalse(1) {
		t.Error("a rule has the results of another one")
	}
	r := d.BeginRule("a", Inputs{}, 1, fail)
	if !r.IsFalse(1) {
		t.Error("the rule has lost its result")
	}
	r.EndRule()
	if one := d.EndDecision(); one.CountBytes() >= both.CountBytes() {
		t.Errorf("without a rule %d bytes are taken, and with it %d", one.CountBytes(), both.CountBytes())
	}
}

// Results take no more memory than there is room for, and nothing is wrong with those that have none.
func TestRoom(t *testing.T) {
	const items = 1000
	for _, room := range []int64{-1, 0, resultBytes, 100 * resultBytes, 1 << 20} {
		d := (&Results{}).BeginDecision(epoch, time.Hour, room)
		r := d.BeginRule("r", Inputs{}, items, fail)
		for item := range uint64(items) {
			r.NoteFalse(item+1, time.Time{}, nil)
		}
		r.EndRule()
		results := d.EndDecision()
		if n := results.CountBytes(); n > max(2*room, 0) {
			t.Errorf("%d bytes are taken of %d", n, room)
		}
		r = results.BeginDecision(epoch, time.Hour, 1<<20).BeginRule("r", Inputs{}, items, fail)
		known := 0
		for item := range uint64(items) {
			if r.IsFalse(item + 1) {
				known++
			}
		}
		if want := min(items, max(0, (room-ruleBytes-1)/resultBytes)); int64(known) != want {
			t.Errorf("in %d bytes %d results are known, and %d have room", room, known, want)
		}
		d = (&Results{}).BeginDecision(epoch, time.Hour, room)
		r = d.BeginRule("r", Inputs{}, items, fail)
		for item := range uint64(items) {
			r.NoteOther(item + 1)
		}
		r.EndRule()
		if got, want := int64(d.EndDecision().CountResults()), min(items, max(0, (room-ruleBytes-1)/(resultBytes+contentBytes))); got != want {
			t.Errorf("in %d bytes %d are remembered as not false, and %d have room", room, got, want)
		}
	}
}

// What items look up takes room, too.
func TestRoomForLookups(t *testing.T) {
	keys := make([]lookups.Key, lookups.MaxKeys)
	for _, room := range []int64{1 << 10, 10_000, 100_000, 1 << 20} {
		d := (&Results{}).BeginDecision(epoch, time.Hour, room)
		r := d.BeginRule("r", Inputs{}, 5000, fail)
		for item := range uint64(5000) {
			r.NoteFalse(item+1, time.Time{}, keys[:item%uint64(len(keys)+1)])
		}
		r.EndRule()
		if results := d.EndDecision(); results.CountBytes() > room+room/3 || results.CountResults() == 0 {
			t.Errorf("in %d bytes, %d results take %d", room, results.CountResults(), results.CountBytes())
		}
	}
}

// BenchmarkReuse goes through items of which one has changed.
func BenchmarkReuse(b *testing.B) {
	const count = 20_000
	items, until := make([]uint64, count), map[uint64]time.Time{}
	for i := range items {
		items[i] = uint64(i) + 1
		until[items[i]] = time.Time{}
	}
	results, _, _ := evaluate(nil, epoch, Sum{}, items, until)
	last := uint64(count)
	for b.Loop() {
		last++
		items[count/2] = last
		var evaluated []uint64
		if results, evaluated, _ = evaluate(results, epoch, Sum{}, items, until); len(evaluated) != 1 {
			b.Fatalf("%d items are evaluated", len(evaluated))
		}
	}
}

// Results that are extended are of what the later decision has read, also where it has evaluated nothing.
func TestInputsOfExtendedResults(t *testing.T) {
	items, later := []uint64{1, 2}, Inputs{LookedUp: Sum{1}}
	first, _, _ := evaluateLookups(nil, epoch, Inputs{}, items, map[uint64]time.Time{1: {}, 2: {}}, map[uint64][]lookups.Key{1: {1}, 2: {1}}, fail)
	moved, _, _ := evaluateLookups(nil, epoch, later, nil, nil, nil, fail)
	both := first.ExtendWith(moved)
	if _, got, _ := evaluateLookups(both, epoch, later, items, nil, nil, fail); len(got) > 0 {
		t.Errorf("%v are evaluated again, and nothing has changed since", got)
	}
	if _, got, _ := evaluateLookups(both, epoch, Inputs{}, items, nil, nil, fail); !slices.Equal(got, items) || !both.LooksUp("r") {
		t.Errorf("only %v are evaluated again after another change", got)
	}
	nothing, _, _ := evaluate(nil, epoch, Sum{}, items, map[uint64]time.Time{1: {}, 2: {}})
	if _, got, _ := evaluateLookups(nothing, epoch, later, items, nil, nil, fail); len(got) > 0 || nothing.LooksUp("r") {
		t.Errorf("%v are evaluated again, and nothing was looked up", got)
	}
}

// Of results that are extended, each has what it has looked up itself, also where those before or after have looked up nothing.
func TestLookupsOfExtendedResults(t *testing.T) {
	for _, keys := range []map[uint64][]lookups.Key{
		{1: {1}, 2: {2}, 3: {3}, 4: {1, 3}}, {3: {1}}, {1: {1}}, {2: {2, 1}, 4: {3}},
	} {
		isFalse := map[uint64]time.Time{1: {}, 2: {}, 3: {}, 4: {}}
		first, _, _ := evaluateLookups(nil, epoch, Inputs{}, []uint64{1, 2}, isFalse, keys, fail)
		later, _, _ := evaluateLookups(nil, epoch, Inputs{}, []uint64{3, 4}, isFalse, keys, fail)
		both := first.ExtendWith(later)
		again := first.ExtendWith(later) // in other memory
		for changed := range lookups.Key(4) {
			changes := lookups.NewChanges(changed)
			var want []uint64
			for item := range uint64(5) {
				if slices.Contains(keys[item], changed) {
					want = append(want, item)
				}
			}
			if both.AreConcerned("r", changes) != (want != nil) || both.AreConcerned("other", changes) {
				t.Errorf("it is wrong whether a change of %d concerns the rule, where %v look up %v", changed, want, keys)
			}
			for name, results := range map[string]*Results{"both": both, "again": again} {
				_, got, _ := evaluateLookups(results, epoch, Inputs{LookedUp: Sum{1}}, []uint64{1, 2, 3, 4}, isFalse, keys, func() (*lookups.Changes, bool) { return changes, true })
				if !slices.Equal(got, want) {
					t.Errorf("%s: after a change of %d, %v are evaluated, and not %v of %v", name, changed, got, want, keys)
				}
			}
		}
	}
}

// addResult returns results with one of a later decision about another content.
func addResult(r *Results, now time.Time, content uint64, until time.Time) *Results {
	d := (&Results{}).BeginDecision(now, time.Hour, 1<<20)
	rule := d.BeginRule("r", Inputs{}, 1, fail)
	rule.NoteFalse(content, until, nil)
	rule.EndRule()
	return r.ExtendWith(d.EndDecision())
}

// knows lists the contents up to 9 for which results say at a moment that `when` is false.
func knows(r *Results, now time.Time) (contents []uint64) {
	rule := r.BeginDecision(now, time.Hour, 1<<20).BeginRule("r", Inputs{}, 9, fail)
	for content := range uint64(10) {
		if rule.IsFalse(content) {
			contents = append(contents, content)
		}
	}
	return contents
}

// Results that are extended have all of both, and those that they were made of do not change, also if they are extended twice. All items are
// evaluated again when those of the first decision are.
func TestExtendedResults(t *testing.T) {
	at := epoch.Add(time.Minute)
	first, _, _ := evaluate(nil, epoch, Sum{}, []uint64{1, 2}, map[uint64]time.Time{1: {}, 2: {}})
	second := addResult(first, at, 3, time.Time{})
	third := addResult(second, at, 4, at.Add(time.Minute))
	other := addResult(second, at, 5, time.Time{})
	for name, tc := range map[string]struct {
		results *Results
		now     time.Time
		want    []uint64
	}{
		"First":   {first, at, []uint64{1, 2}},
		"Second":  {second, at, []uint64{1, 2, 3}},
		"Third":   {third, at, []uint64{1, 2, 3, 4}},
		"Other":   {other, at, []uint64{1, 2, 3, 5}},
		"Later":   {third, at.Add(time.Minute), []uint64{1, 2, 3}},
		"Period":  {third, epoch.Add(time.Hour), nil},
		"Earlier": {third, at.Add(-time.Second), nil},
	} {
		if got := knows(tc.results, tc.now); !slices.Equal(got, tc.want) {
			t.Errorf("%s: of %v it is known that they are false, want %v", name, got, tc.want)
		}
		if tc.results.ServeAt(tc.now, time.Hour) != (tc.want != nil) {
			t.Errorf("%s: it is wrong whether they serve", name)
		}
	}
	if third.CountResults() != 4 || (*Results)(nil).CountResults() != 0 || (*Results)(nil).ServeAt(at, time.Hour) || (&Results{}).ServeAt(at, time.Hour) {
		t.Errorf("there are %d results", third.CountResults())
	}
}

// Items for which `when` was not false are counted by their contents, however many decisions ago they were evaluated.
func TestCountOthers(t *testing.T) {
	first, _, _ := evaluate(nil, epoch, Sum{}, []uint64{1, 2, 3, 4}, map[uint64]time.Time{2: {}, 4: epoch.Add(time.Minute)})
	later, _, _ := evaluate(nil, epoch, Sum{}, []uint64{5, 6}, map[uint64]time.Time{6: {}})
	all := first.ExtendWith(later)
	for _, tc := range []struct {
		of       *Results
		rule     string
		contents []uint64
		want     int
	}{
		{first, "r", []uint64{1, 2, 3, 4}, 2}, {first, "r", []uint64{2, 3, 9}, 1}, {first, "r", []uint64{2, 4}, 0}, {first, "r", nil, 0}, {first, "other", []uint64{1}, 0},
		{first, "r", []uint64{5}, 0}, {all, "r", []uint64{1, 5, 6}, 2}, {all, "r", []uint64{6}, 0}, {later, "r", []uint64{5}, 1},
	} {
		if got := tc.of.CountOthers(tc.rule, tc.contents); got != tc.want {
			t.Errorf("of %v, %d are not false, want %d", tc.contents, got, tc.want)
		}
	}
	falses, _, _ := evaluate(nil, epoch, Sum{}, []uint64{1}, map[uint64]time.Time{1: {}})
	if got := falses.ExtendWith(later).CountOthers("r", []uint64{1, 5}); got != 1 {
		t.Errorf("of those that came later, %d are not false", got)
	}
	again, _, _ := evaluate(nil, epoch, Sum{}, []uint64{1, 7}, nil)
	if got := all.ExtendWith(again).CountOthers("r", []uint64{1}); got != 1 {
		t.Errorf("one that came back counts as %d", got)
	}
	if got := all.CountOthers("r", []uint64{7}); got != 0 {
		t.Errorf("what others have besides counts as %d", got)
	}
}
