// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package recurring

import "github.com/vtex/cleaner/test/lifemodel"

// time lets 10 s pass, or ends the grace of a deleted Cleaner.
func (x *steps) time() {
	n := *x.s
	if x.keeps(ConfirmationAges) {
		n.P[0].Confirmed, n.P[1].Confirmed = false, false
	}
	todo, _ := n.Wants()
	for k := range n.Recent {
		n.Recent[k] = todo[k].UID != 0
	}
	if n != *x.s {
		x.add(&n, lifemodel.Label{Who: lifemodel.Time, What: lifemodel.TenSeconds}, true, lifemodel.Sound)
	}
	if x.s.C.Deleted && !x.s.Grace {
		n := *x.s
		n.Grace = true
		x.add(&n, lifemodel.Label{Who: lifemodel.Time, What: lifemodel.GraceEnds}, true, lifemodel.Sound)
	}
}

// environment is what is done to processes and what others do.
func (x *steps) environment() {
	x.repairs()
	x.processes()
	if x.s.Acts == 0 {
		return
	}
	for k := range x.s.T {
		x.objectActs(k)
	}
	x.act(lifemodel.ChangeEvidence, 0, func(n *State) { n.Evidence = !n.Evidence })
	if x.s.SinkUp {
		x.act(lifemodel.SinkDown, 0, func(n *State) { n.SinkUp = false })
	}
	if x.s.C.Exists {
		x.cleanerActs()
	}
}

// repairs are what a fair environment does sooner or later.
func (x *steps) repairs() {
	for k := range x.s.T {
		if x.s.T[k].Forbidden {
			n := *x.s
			n.T[k].Forbidden = false
			x.add(&n, lifemodel.Label{Who: lifemodel.Environment, What: lifemodel.Permit, Row: int8(k)}, true, lifemodel.Sound)
		}
	}
	if !x.s.SinkUp {
		n := *x.s
		n.SinkUp = true
		x.add(&n, lifemodel.Label{Who: lifemodel.Environment, What: lifemodel.SinkUp}, true, lifemodel.Sound)
	}
}

// processes crash and come back, lead and are overtaken.
func (x *steps) processes() {
	for i := range x.s.P {
		step := func(what lifemodel.What, fair bool, do func(n *State)) {
			n := *x.s
			do(&n)
			x.add(&n, lifemodel.Label{Who: lifemodel.Actor(i), What: what}, fair, lifemodel.Sound)
		}
		leads := Process{Role: lifemodel.Leader, Read: x.s.C, Current: true}
		role := x.s.P[i].Role
		if role == lifemodel.Leader && x.s.Crashes > 0 {
			step(lifemodel.Crash, false, func(n *State) { n.Crashes--; n.P[i] = leads })
		}
		if role == lifemodel.Leader && x.s.Changes > 0 {
			step(lifemodel.Pause, false, func(n *State) { n.Changes--; n.P[i].Role = lifemodel.PausedLeader; n.P[1-i] = leads })
		}
		if role == lifemodel.PausedLeader {
			step(lifemodel.Wake, true, func(n *State) { n.P[i].Role = lifemodel.OldLeader })
		}
		if role == lifemodel.OldLeader {
			step(lifemodel.Exit, true, func(n *State) { n.P[i] = Process{} })
		}
	}
}

// act is something that others may do in this scenario.
func (x *steps) act(what lifemodel.What, k int, do func(n *State)) {
	if !x.May.Has(what) {
		return
	}
	n := *x.s
	n.Acts--
	do(&n)
	x.add(&n, lifemodel.Label{Who: lifemodel.Environment, What: what, Row: int8(k)}, false, lifemodel.Sound)
}

func (x *steps) objectActs(k int) {
	t := x.s.T[k]
	if t.Exists && t.RV < maxVersion {
		x.act(lifemodel.Touch, k, func(n *State) { n.T[k].RV++ })
		x.act(lifemodel.Use, k, func(n *State) { n.T[k].RV++; n.T[k].Wanted = !t.Wanted })
	}
	if t.UID < maxUID {
		x.act(lifemodel.Recreate, k, func(n *State) {
			n.T[k] = Object{Version: lifemodel.Version{UID: t.UID + 1, RV: 1}, Exists: true, Wanted: true, Forbidden: t.Forbidden}
		})
	}
	if !t.Forbidden {
		x.act(lifemodel.Forbid, k, func(n *State) { n.T[k].Forbidden = true })
	}
}

func (x *steps) cleanerActs() {
	x.act(lifemodel.Edit, 0, func(n *State) { n.C.Decides = 3 - n.C.Decides; changed(n, nobody) })
	x.act(lifemodel.Suspend, 0, func(n *State) { n.C.Suspended = !n.C.Suspended; changed(n, nobody) })
	x.act(lifemodel.SetSink, 0, func(n *State) { n.C.Sink = !n.C.Sink; changed(n, nobody) })
	if !x.May.Has(lifemodel.KubectlDelete) || x.s.C.Deleted {
		return
	}
	n := *x.s
	n.Acts--
	n.C.Deleted = true
	breaks := lifemodel.Sound
	if !n.C.Finalizer {
		breaks = remove(&n, false)
	}
	changed(&n, nobody)
	x.add(&n, lifemodel.Label{Who: lifemodel.Environment, What: lifemodel.KubectlDelete}, false, breaks)
}
