// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

// time lets 10 s pass for all confirmations, or ends the grace of a deleted Cleaner.
func (x *steps) time() {
	s := x.s
	if s.P[0].Confirmed || s.P[1].Confirmed || s.P[0].Reviewed || s.P[1].Reviewed || s.Entitled && s.Barred || s.Recent && x.truth(s) != Yes || s.NotFalse && x.plainlyFalse(s) {
		n := *s
		if x.keeps(ConfirmationAges) {
			n.P[0].Confirmed, n.P[1].Confirmed = false, false
			n.P[0].Reviewed, n.P[1].Reviewed = false, false
		}
		n.Recent, n.NotFalse, n.Entitled = false, false, false
		x.add(&n, Label{Who: Time, What: TenSeconds}, true, Sound)
	}
	if s.C.Deleted && !s.Grace {
		n := *s
		n.Grace = true
		x.add(&n, Label{Who: Time, What: GraceEnds}, true, Sound)
	}
}

// environment is what is done to processes and what others do.
func (x *steps) environment() {
	x.repairs()
	x.processes()
	if x.s.Acts == 0 {
		return
	}
	for k := range x.Targets {
		x.objectActs(k)
	}
	if x.s.C.Exists {
		x.cleanerActs()
	}
	x.releaseActs()
	x.act(ChangeEvidence, 0, func(n *State) { n.Evidence = !n.Evidence })
	if x.s.SinkUp && x.Sink {
		n := *x.s
		n.Acts--
		n.SinkUp = false
		x.add(&n, Label{Who: Environment, What: SinkDown}, false, Sound)
	}
}

// repairs are what a fair environment does sooner or later.
func (x *steps) repairs() {
	repair := func(what What, k int, do func(n *State)) {
		n := *x.s
		do(&n)
		x.add(&n, Label{Who: Environment, What: what, Row: int8(k)}, true, Sound)
	}
	for k := range x.Targets {
		if x.s.T[k].Forbidden {
			repair(Permit, k, func(n *State) { n.T[k].Forbidden = false })
		}
	}
	if !x.s.SinkUp {
		repair(SinkUp, 0, func(n *State) { n.SinkUp = true })
	}
	if x.s.Rel.Locked && !x.s.stopped() { // an open run may wait for it, a stopped one must not
		repair(UnlockRelease, 0, func(n *State) { n.Rel.Locked = false })
	}
	if x.s.Barred {
		repair(GiveRights, 0, func(n *State) { n.Barred = false })
	}
	if x.s.Rel.Pending {
		repair(UpgradeEnds, 0, func(n *State) {
			now := Install{n.Rel.Era, n.Rel.Revision + 1}
			n.Rel = Release{Install: now, Status: Deployed, Object: now}
		})
	}
}

// processes crash and come back, lead and are overtaken.
func (x *steps) processes() {
	for i := range x.s.P {
		step := func(what What, fair bool, do func(n *State)) {
			n := *x.s
			do(&n)
			x.add(&n, Label{Who: Actor(i), What: what}, fair, Sound)
		}
		role := x.s.P[i].Role
		if role == Leader && x.s.Crashes > 0 {
			step(Crash, false, func(n *State) {
				n.Crashes--
				n.P[i] = Process{Role: Leader, Read: n.C, Current: true}
				orphan(n, i)
			})
		}
		if role == Leader && x.s.Changes > 0 {
			step(Pause, false, func(n *State) {
				n.Changes--
				n.P[i].Role = PausedLeader
				n.P[1-i] = Process{Role: Leader, Read: n.C, Current: true}
			})
		}
		if role == PausedLeader {
			step(Wake, true, func(n *State) { n.P[i].Role = OldLeader })
		}
		if role == OldLeader { // it sees that the lease is lost
			step(Exit, true, func(n *State) {
				n.P[i] = Process{}
				orphan(n, i)
			})
		}
	}
}

// orphan leaves the requests of a process in flight, with nobody who waits for the answers.
func orphan(n *State, i int) {
	for k := range n.Flights {
		if n.Flights[k].By == int8(i+1) {
			n.Flights[k].By = 0
		}
	}
}

// act is something that others may do in this scenario.
func (x *steps) act(what What, k int, do func(n *State)) {
	if !x.May.Has(what) {
		return
	}
	n := *x.s
	n.Acts--
	do(&n)
	x.add(&n, Label{Who: Environment, What: what, Row: int8(k)}, false, Sound)
}

// maxVersion bounds what others do to one object.
const maxVersion, maxUID, maxInstall = 6, 3, 3

func (x *steps) objectActs(k int) {
	t := x.s.T[k]
	another := Object{Version: Version{t.UID + 1, 1}, Exists: true, Unused: true, Forbidden: t.Forbidden}
	if t.Exists && t.RV < maxVersion {
		x.act(Touch, k, func(n *State) { n.T[k].RV++ })
		if k == 0 || x.RuleRow {
			x.act(Use, k, func(n *State) { n.T[k].RV++; n.T[k].Unused = !t.Unused })
		}
		if t.Terminating {
			if x.May.Has(Hold) {
				n := *x.s
				n.Acts--
				n.T[k] = Object{Version: Version{UID: t.UID}, Forbidden: t.Forbidden}
				x.add(&n, Label{Who: Environment, What: LetGo, Row: int8(k)}, false, Sound)
			}
		} else {
			x.act(Hold, k, func(n *State) { n.T[k].RV++; n.T[k].Held = !t.Held })
		}
		if !t.Held {
			x.act(DeleteByOther, k, func(n *State) { n.T[k] = Object{Version: Version{UID: t.UID}, Forbidden: t.Forbidden} })
		}
	}
	if t.UID < maxUID {
		x.act(Recreate, k, func(n *State) { n.T[k] = another })
		if k == 0 && x.May.Has(Use) && x.May.Has(Recreate) {
			n := *x.s
			n.Acts--
			n.T[k] = another
			n.T[k].Unused = false
			x.add(&n, Label{Who: Environment, What: RecreateInUse, Row: int8(k)}, false, Sound)
		}
	}
	if !t.Forbidden {
		x.act(Forbid, k, func(n *State) { n.T[k].Forbidden = true })
	}
}

func (x *steps) cleanerActs() {
	x.act(Edit, 0, func(n *State) { n.C.Decides = 3 - n.C.Decides; changed(n, nobody) })
	x.act(Suspend, 0, func(n *State) { n.C.Suspended = !n.C.Suspended; changed(n, nobody) })
	x.act(SetSink, 0, func(n *State) { n.C.Sink = !n.C.Sink; changed(n, nobody) })
	if !x.May.Has(KubectlDelete) || x.s.C.Deleted {
		return
	}
	n := *x.s
	n.Acts--
	n.C.Deleted = true
	breaks := Sound
	if !n.C.Finalizer {
		breaks = x.remove(&n, false)
	}
	changed(&n, nobody)
	x.add(&n, Label{Who: Environment, What: KubectlDelete}, false, breaks)
}

// stopped says that an order has stopped the open run.
func (s *State) stopped() bool {
	return s.C.Run.Number != 0 && s.C.Run.Result == Open && (s.C.Deleted || s.C.Decides != s.C.Run.Decides)
}

func (x *steps) releaseActs() {
	r := x.s.Rel
	if x.Release && !x.s.Barred {
		x.act(TakeRights, 0, func(n *State) { n.Barred = true })
	}
	if r.Pending {
		return
	}
	if r.Status == Deployed && r.Revision < maxInstall {
		x.act(UpgradeStarts, 0, func(n *State) { n.Rel.Pending = true })
	}
	if r.Era > 0 && r.Era < maxInstall {
		x.act(Reinstall, 0, func(n *State) {
			now := Install{r.Era + 1, 1}
			n.Rel = Release{Install: now, Status: Deployed, Object: now}
		})
	}
	if r.Status != Absent {
		x.act(UninstallByHand, 0, func(n *State) { n.Rel = Release{Install: Install{Era: r.Era}} })
	}
	if r.Status == Deployed || r.Mark != 0 { // Helm writes the record without what it does not know
		x.act(UninstallHalf, 0, func(n *State) { n.Rel.Status, n.Rel.Mark = Uninstalling, 0 })
	}
	if r.Status != Absent && !r.Locked && x.s.stopped() { // the account that began the run, for one that names another now
		x.act(LockRelease, 0, func(n *State) { n.Rel.Locked = true })
	}
}

// serve lets the API server serve a DELETE that was sent, and the process that waits for the answer take it.
func (x *steps) serve(s *State, k int, l Label, sent Property) {
	f := s.Flights[k]
	n := *s
	n.Flights[k] = Flight{}
	var breaks Property
	l.Answer, breaks = x.delete(&n, k, f)
	l.Run = f.Run
	if breaks = x.whenServed(s, f, breaks); sent != Sound {
		breaks = sent
	}
	if f.By > 0 && s.Losses > 0 {
		lost, ll := n, l
		lost.Losses--
		p := &lost.P[f.By-1]
		p.Whole = p.Whole && !x.keeps(LostIsNotWhole)
		ll.Answer = Lost
		x.add(&lost, ll, false, breaks)
	}
	if f.By > 0 {
		answered(&n, int(f.By-1), k, l.Answer)
	}
	x.add(&n, l, true, breaks)
}

// whenServed judges a DELETE once more when it is served: what was right when it was sent is no fault now.
func (m *Model) whenServed(s *State, f Flight, breaks Property) Property {
	if !m.LateServe || breaks == CommittedOnly || breaks == DecidedVersion {
		return breaks
	}
	if breaks == DeedsOfOpenRun {
		if f.By == 0 || s.P[f.By-1].Role != Leader {
			return LateRequest
		}
		return breaks
	}
	return Sound
}

// delete is the API server's part of a DELETE.
func (m *Model) delete(n *State, k int, f Flight) (Answer, Property) {
	t := &n.T[k]
	switch {
	case t.Forbidden:
		return Refused, Sound
	case !t.Exists:
		return NotFound, Sound
	case t.Terminating,
		m.keeps(DeedUID) && t.UID != f.UID,
		m.keeps(DeedUID) && m.keeps(DeedVersion) && t.RV != f.RV:
		return Conflict, Sound
	}
	var breaks Property
	switch {
	case n.Committed[k]&bit(t.UID) == 0:
		breaks = CommittedOnly
	case t.RV != f.RV:
		breaks = DecidedVersion
	default:
		var sender *Process
		if f.By > 0 {
			sender = &n.P[f.By-1]
		}
		breaks = m.judgeDeed(n, sender, f.Run, false)
	}
	n.Touched |= bit(f.Run)
	if f.By > 0 {
		n.Took[k] |= bit(t.UID)
	}
	if t.Held {
		t.Terminating = true
		t.RV++
	} else {
		*t = Object{Version: Version{UID: t.UID}}
	}
	return OK, breaks
}

// answered is what a process does with the answer to a DELETE. A 409 is followed by a live GET in the same breath.
func answered(n *State, i, k int, a Answer) {
	p, t := &n.P[i], &n.T[k]
	switch a {
	case OK:
		p.Done |= row(k)
		p.Mine |= row(k)
	case NotFound:
		p.Done |= row(k)
	case Conflict:
		switch {
		case t.Exists && t.UID != p.Read.Run.Rows[k].UID:
			p.Replaced |= row(k)
		case !t.Exists || t.Terminating:
			p.Done |= row(k)
		default: // it is decided on anew
			p.Confirmed = false
		}
	}
}
