// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

// evaluation is what the conditions of an open run say to a process that remembers what it has deleted.
type evaluation struct {
	m *Model
	s *State
	p *Process
	r *Run
}

// wants says that the object of an open row is to be deleted as it is now, if the conditions have given an answer.
func (e evaluation) wants(k int, a Answer) bool {
	t, v := &e.s.T[k], e.r.Rows[k]
	if e.p.Later[k] != (Version{}) {
		v = e.p.Later[k]
	}
	seen := k == 0 || e.m.RuleRow || e.m.Ordered
	switch {
	case !t.Exists, t.Terminating, t.UID != v.UID, a != Yes && seen && t.RV != v.RV:
		return false
	case e.m.Ordered:
		return a == Yes && (k == 0 || e.firstWanted())
	case e.m.RuleRow && k == 1:
		return t.Unused
	}
	return true
}

// firstWanted says that the first action of the item of which row 1 is the second is done, or may be.
func (e evaluation) firstWanted() bool {
	if !e.m.keeps(OrderKept) {
		return true
	}
	return !(e.p.Replaced | e.p.Kept).Has(0) && (e.stands(0) || e.s.T[0].UID == e.r.Rows[0].UID)
}

// conditions is what they say when what this process has deleted for the run stands as it was.
func (e evaluation) conditions() Answer {
	if e.m.Targets == 0 {
		return e.m.truth(e.s)
	}
	t := &e.s.T[0]
	switch {
	case e.stands(0):
		return e.unlessMissing(yes(e.s.Evidence)) // it stood for "clean" when it was deleted
	case t.Exists:
		return e.unlessMissing(yes(e.s.Evidence && t.Unused))
	case !e.s.Evidence && !e.m.Joint && e.m.keeps(OthersEvaluated):
		return No // says the condition that reads the evidence alone
	default:
		return Undecidable
	}
}

// stands says that a live read shows the object of a row as it was, because this process has deleted it.
func (e evaluation) stands(k int) bool {
	t, v := &e.s.T[k], e.r.Rows[k]
	return v != Version{} && e.p.Mine.Has(k) && e.m.keeps(OwnDeedsStand) && (!t.Exists || t.UID == v.UID || !e.m.keeps(NewShowsThrough))
}

// unlessMissing is an answer of conditions that read no more than target 0, where only the rule reads the other target.
func (e evaluation) unlessMissing(a Answer) Answer {
	if e.m.Ordered && a == Yes && !e.s.T[1].Exists && !e.stands(1) {
		return Undecidable
	}
	return a
}

func yes(b bool) Answer {
	if b {
		return Yes
	}
	return No
}
