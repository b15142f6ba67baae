// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

// Property is something that must hold in every world.
type Property uint8

// The properties. A step breaks at most one of them. A deed is judged when it is sent, since only then a process can know
// better.
const (
	// Sound is no property: the step breaks none.
	Sound Property = iota
	// CommittedOnly: a DELETE hits only an object whose UID was in a row of a committed run.
	CommittedOnly
	// DecidedVersion: it hits the version that was decided on, or read live since.
	DecidedVersion
	// DeedsOfOpenRun: a deed belongs to the run that is open, before its result.
	DeedsOfOpenRun
	// OrdersObeyed: no commit and no deed after suspend, an edit or a deletion, but for finishing an uninstall.
	OrdersObeyed
	// TrueLately: at the first deeds of a run its condition was true within the last 10 s.
	TrueLately
	// NotFalseLately: at each later deed it was not plainly false during the last 10 s: what the run itself deleted, and
	// what is terminating, says nothing.
	NotFalseLately
	// ResultTrue: Completed means that all is gone, and done means that the object is.
	ResultTrue
	// KeptIsUntouched: nothing that we deleted is called kept.
	KeptIsUntouched
	// DisturbedOnly: a run that only crashes and lost answers disturb is Completed, unless a rule reads what it has deleted.
	DisturbedOnly
	// RunsEnd: no committed run goes without a result.
	RunsEnd
	// EventsDelivered: no Cleaner goes before its finished runs are delivered, but by hand and after the grace.
	EventsDelivered
	// OneEvent: all events of one run have one content.
	OneEvent
	// NotReinstalled: nothing of a release that was installed anew is deleted.
	NotReinstalled
	// NotUpgraded: nothing of a release that was upgraded, or is being so, is deleted.
	NotUpgraded
	// NotHalfUninstalled: no run ends with a release that we left half-uninstalled, but when the grace is over, the
	// release cannot be read, or somebody else has gone on with it.
	NotHalfUninstalled
	// OwnUninstall: nothing of a release is deleted but in an uninstall that the run has begun, which was a deed like any other.
	OwnUninstall
	// AuthorMay: an uninstall is begun and gone on with only if the author was allowed to do that within the last 10 s.
	AuthorMay
	// InOrder: the object of a later action is deleted only when that of an earlier action of the item is.
	InOrder
	// DeedsCounted: each deed of a Cleaner that stays, with a sink, is in the count of a run.
	DeedsCounted
	// DeedsFoundOut: none is counted as unknown when a look shows that the object is gone, but when the grace is over.
	DeedsFoundOut
	// EndReachable: from everywhere an end stays reachable by the operator, time and repairs alone. It is broken by
	// states, not by steps.
	EndReachable
	// LateRequest is a documented limit and not a fault: a request is served after its sender died.
	LateRequest
	// OutOfBounds is no fault either: more runs than the model counts. Nothing is explored behind it.
	OutOfBounds
)

// String is the name of the property.
func (p Property) String() string {
	return [...]string{"Sound", "CommittedOnly", "DecidedVersion", "DeedsOfOpenRun", "OrdersObeyed", "TrueLately", "NotFalseLately", "ResultTrue",
		"KeptIsUntouched", "DisturbedOnly", "RunsEnd", "EventsDelivered", "OneEvent", "NotReinstalled", "NotUpgraded", "NotHalfUninstalled", "OwnUninstall", "AuthorMay",
		"InOrder", "DeedsCounted", "DeedsFoundOut", "EndReachable", "LateRequest", "OutOfBounds"}[p]
}

// Fault says that a step that breaks the property is one.
func (p Property) Fault() bool { return p != Sound && p != LateRequest && p != OutOfBounds }

func bit(n uint8) uint8 { return 1 << n }

// judgeDeed judges a deed of a run; finishing says that it finishes an uninstall.
func (m *Model) judgeDeed(s *State, p *Process, number uint8, finishing bool) Property {
	r := &s.C.Run
	blind := p == nil || !p.Whole // what was taken by somebody cannot be told from a deed of ours
	switch {
	case !s.C.Exists:
		return OrdersObeyed
	case r.Number != number, r.Result != Open:
		return DeedsOfOpenRun
	case !m.LateWatch && (s.C.Suspended || s.C.Deleted && !(finishing && !s.Grace) || s.C.Decides != r.Decides && !finishing):
		return OrdersObeyed
	case finishing && s.Swept&bit(number) == 0:
		return OwnUninstall
	case finishing:
		return Sound
	case s.Touched&bit(number) == 0 && !(blind && m.someGone(s)) && !s.Recent:
		return TrueLately
	case !s.NotFalse:
		return NotFalseLately
	}
	return Sound
}

// judgeOrder judges that a DELETE is sent before the one that it comes after is done.
func (x *steps) judgeOrder(k int) Property {
	first, v := &x.s.T[0], x.s.C.Run.Rows[0]
	if x.Ordered && k == 1 && first.Exists && !first.Terminating && first.UID == v.UID {
		return InOrder
	}
	return Sound
}

// someGone says that the object of a row was taken by somebody.
func (m *Model) someGone(s *State) bool {
	for k, v := range s.C.Run.Rows {
		if t := &s.T[k]; v != (Version{}) && (!t.Exists || t.Terminating || t.UID != v.UID) {
			return true
		}
	}
	return false
}

// judgeResult judges a result against the world at the moment at which it is written.
func (m *Model) judgeResult(s *State, p *Process, result Result) Property {
	r := &s.C.Run
	for k, v := range r.Rows {
		if v == (Version{}) {
			continue
		}
		t := &s.T[k]
		lives := t.Exists && !t.Terminating && t.UID == v.UID
		if lives && (p.Done.Has(k) || result == Completed) {
			return ResultTrue
		}
		if !(p.Done | p.Replaced).Has(k) && s.Took[k]&bit(v.UID) != 0 {
			return KeptIsUntouched
		}
	}
	switch rel := &s.Rel; {
	case result == Partial && s.Acts == m.Acts && !(m.Ordered && !p.Whole): // what a rule reads of its own deeds is lost with the memory
		return DisturbedOnly
	case result == Completed && p.Replaced != 0:
		return ResultTrue
	case r.Release == Install{}, rel.Era != r.Release.Era, rel.Status == Absent:
		return Sound
	case result == Completed:
		return ResultTrue
	case rel.Locked: // whoever ends it says that nobody knows
		return Sound
	case rel.Install == r.Release && rel.Status == Uninstalling && rel.Mark != 0 && !rel.Pending && s.Swept&bit(r.Number) != 0 && !(result == Abandoned && s.Grace):
		return NotHalfUninstalled
	}
	return Sound
}

// judgeEnd judges that the Cleaner goes.
func (m *Model) judgeEnd(s *State, gaveUp bool) Property {
	told := func(number uint8) bool { return s.Told[number] != (Report{}) }
	c := &s.C
	switch {
	case c.Run.Number != 0 && c.Run.Result == Open:
		return RunsEnd
	case !c.Sink, gaveUp && s.Grace:
		return Sound
	case c.Unsent.Number != 0 && !told(c.Unsent.Number), c.Run.Number != 0 && !told(c.Run.Number):
		return EventsDelivered
	}
	return Sound
}
