// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "testing"

// An item has another mark when something else is to be done for it, or to another version of an object.
func TestMarks(t *testing.T) {
	step := func(change ...func(*Step)) Step {
		s := Step{Rule: "r", Keys: []string{"k"}, Object: pod("a"), Verb: VerbPatch, Patch: &Patch{Body: []byte(`{"a":1}`)}}
		for _, c := range change {
			c(&s)
		}
		return s
	}
	mark := func(steps ...Step) uint64 {
		return (&Plan{Steps: steps}).MarkItems()[ItemKey{Rule: "r", Key: "k"}.Sum()]
	}
	same := mark(step())
	for name, tc := range map[string]struct {
		steps []Step
		same  bool
	}{
		"Same":    {[]Step{step()}, true},
		"Reason":  {[]Step{step(func(s *Step) { s.Reason = "why" })}, true},
		"Version": {[]Step{step(func(s *Step) { s.Object.ResourceVersion = "8" })}, false},
		"Object":  {[]Step{step(func(s *Step) { s.Object = pod("b") })}, false},
		"Verb":    {[]Step{step(func(s *Step) { s.Verb = VerbDelete })}, false},
		"Patch":   {[]Step{step(func(s *Step) { s.Patch = &Patch{Body: []byte(`{"a":2}`)} })}, false},
		"More":    {[]Step{step(), step(func(s *Step) { s.Verb = VerbDelete })}, false},
		"None":    {nil, false},
	} {
		if got := mark(tc.steps...); (got == same) != tc.same {
			t.Errorf("%s: it has the same mark: %t", name, got == same)
		}
	}
	report := func(reason string, after ...int) Step {
		return step(func(s *Step) { s.Verb, s.Patch, s.Reason, s.After = VerbReport, nil, reason, after })
	}
	if mark(report("one")) == mark(report("another")) {
		t.Error("a report has the mark of one with another reason")
	}
	if mark(step(), report("one", 0)) != mark(step(), report("another", 0)) {
		t.Error("a report that comes after a deed has another mark for its reason")
	}
	both := func(body string) Step {
		return step(func(s *Step) { s.Keys, s.Patch = []string{"k", "l"}, &Patch{Body: []byte(body)} })
	}
	if mark(both("1")) != mark(both("2")) {
		t.Error("another item changes the mark of one that shares a patch with it")
	}
}
