// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package recurring

import "github.com/vtex/cleaner/test/lifemodel"

// operator is one process that is about to take a step.
type operator struct {
	*steps
	i int
	p *Process
	c *Cleaner // as it was read
	// fenced says that the lease was not renewed in the last 10 s.
	fenced bool
}

// operator adds every next step of a process: one request, with the computation around it.
func (x *steps) operator(i int) {
	p := &x.s.P[i]
	o := &operator{steps: x, i: i, p: p, c: &p.Read, fenced: p.Role == lifemodel.OldLeader}
	if !o.c.Exists {
		return
	}
	switch p.At {
	case AtStart:
		o.pass()
	case AtWrite:
		o.write(p.Will)
	case AtRecord:
		o.record()
	case AtDeeds:
		o.deeds()
	}
}

func (o *operator) label(w lifemodel.What, a lifemodel.Answer) lifemodel.Label {
	return lifemodel.Label{Who: lifemodel.Actor(o.i), What: w, Run: o.c.Run.Number, Answer: a}
}

// choose makes up the process's mind to send a write.
func (o *operator) choose(w lifemodel.What) {
	n := *o.s
	n.P[o.i].At, n.P[o.i].Will = AtWrite, w
	o.add(&n, o.label(w, lifemodel.Chosen), true, lifemodel.Sound)
}

// pass is the start of a Reconcile. What is recorded comes first.
func (o *operator) pass() {
	c := o.c
	if !c.Sink && o.keeps(NoSinkIsDelivered) && (c.Finalizer || c.Run.Number != 0 || c.Unsent.Number != 0) {
		if c.Run.Number != 0 || c.Unsent.Number != 0 {
			o.choose(lifemodel.ClearRecord)
		} else {
			o.choose(lifemodel.RemoveFinalizer)
		}
		return
	}
	o.deliver()
	if c.Deleted {
		o.leaving()
		if o.keeps(PanicButton) {
			return
		}
	}
	if c.Suspended {
		return
	}
	_, wants := o.s.Wants()
	if !wants || !c.Sink && c.Run.Number != 0 {
		if c.Sink && c.Run.open() && o.room() && o.looked() {
			o.choose(lifemodel.MoveToUnsent)
		}
		return
	}
	o.confirm()
}

// deliver sends what is owed to the sink: what is unsent first.
func (o *operator) deliver() {
	owed, result := o.c.Unsent, lifemodel.Completed
	switch {
	case owed.Number != 0 && owed.Unknown > 0:
		result = lifemodel.Partial
	case owed.Number == 0 && o.c.Run.Abandoned:
		owed, result = o.c.Run.report(), lifemodel.Abandoned
	}
	if owed.Number == 0 || !o.c.Sink {
		return
	}
	if o.p.Delivered == owed.Number {
		if o.c.Unsent.Number != 0 {
			o.choose(lifemodel.ClearUnsent)
		}
		return
	}
	if !o.s.SinkUp {
		return
	}
	n := *o.s
	breaks := lifemodel.Sound
	if old := n.Told[owed.Number]; old != (Report{}) && old != owed {
		breaks = lifemodel.OneEvent
	}
	n.Told[owed.Number] = owed
	l := o.label(lifemodel.Send, lifemodel.OK)
	l.Run, l.Result = owed.Number, result
	if n.Losses > 0 {
		lost, ll := n, l
		lost.Losses--
		ll.Answer = lifemodel.Lost
		o.add(&lost, ll, false, breaks)
	}
	n.P[o.i].Delivered = owed.Number
	o.add(&n, l, true, breaks)
}

// room says that a run may become unsent.
func (o *operator) room() bool { return o.c.Unsent.Number == 0 || !o.keeps(UnsentAwaited) }

// looked says that something is known of each row of the run. If not, the rest is looked at.
func (o *operator) looked() bool {
	n := *o.s
	known := &n.P[o.i].Known
	unknown := false
	for k, row := range o.c.Run.Rows {
		if row.UID == 0 || known[k] != Nothing {
			continue
		}
		unknown = true
		switch t := &o.s.T[k]; {
		case !t.Exists || t.UID != row.UID:
			known[k] = Done
		case t.RV == row.RV:
			known[k] = NotDone
		default:
			known[k] = Unclear
		}
	}
	if !unknown || !o.keeps(RowsLookedAt) {
		return true
	}
	o.add(&n, o.label(lifemodel.LookRows, lifemodel.OK), true, lifemodel.Sound)
	return false
}

// leaving is the end of a Cleaner that somebody deleted.
func (o *operator) leaving() {
	c := o.c
	over := o.s.Grace || !o.keeps(GraceAwaited)
	switch {
	case !c.Sink:
	case c.Run.open():
		if o.s.Grace || o.looked() {
			o.choose(lifemodel.WriteResult)
		}
		return
	case c.Run.Abandoned && c.Unsent.Number == 0 && o.p.Delivered == c.Run.Number:
		o.choose(lifemodel.ClearRecord)
	case c.Run.Number == 0 && c.Unsent.Number == 0 && c.Finalizer:
		o.choose(lifemodel.RemoveFinalizer)
	}
	if c.Finalizer && over {
		o.choose(lifemodel.GiveUp)
	}
}

// confirm decides on live reads what the next batch does.
func (o *operator) confirm() {
	n := *o.s
	p := &n.P[o.i]
	p.Batch, _ = o.s.Wants()
	if !o.keeps(Confirmed) {
		for k := range p.Batch {
			p.Batch[k] = o.s.T[k].Version
		}
	}
	p.Confirmed, p.At = true, AtDeeds
	if o.c.Sink && o.keeps(RowsFirst) {
		p.At = AtRecord
	}
	o.add(&n, o.label(lifemodel.Confirm, lifemodel.OK), true, lifemodel.Sound)
}

// record is what a batch needs before its first deed.
func (o *operator) record() {
	c := o.c
	switch {
	case !c.Finalizer && o.keeps(FinalizerFirst):
		o.write(lifemodel.AddFinalizer)
	case c.Run.open() && !o.looked():
	case c.Run.open() && c.Run.Full() && o.room():
		o.write(lifemodel.MoveToUnsent)
	default:
		o.write(lifemodel.Record)
	}
}

// write sends a write of finalizer, runs, run and unsent.
func (o *operator) write(w lifemodel.What) {
	if o.fenced && o.keeps(LeaseBeforeWrites) {
		return
	}
	n, l := *o.s, o.label(w, lifemodel.OK)
	p := &n.P[o.i]
	if !n.C.Exists || !p.Current {
		p.At, p.Read, p.Current, p.Batch = AtStart, n.C, true, [Items]lifemodel.Version{}
		l.Answer = lifemodel.Conflict
		o.add(&n, l, true, lifemodel.Sound)
		return
	}
	breaks := o.served(&n, w)
	changed(&n, o.i)
	if o.s.Losses > 0 {
		lost, ll := n, l
		lost.Losses--
		q := &lost.P[o.i]
		q.At, q.Batch = AtStart, [Items]lifemodel.Version{}
		if w == lifemodel.Record {
			q.Known = [Items]Knowledge{}
		}
		ll.Answer = lifemodel.Lost
		o.add(&lost, ll, false, breaks)
	}
	switch w {
	case lifemodel.Record:
		p.At, p.Known = AtDeeds, [Items]Knowledge{}
		for k, v := range p.Batch {
			if v.UID != 0 {
				p.Known[k] = NotDone
			}
		}
	default:
		if p.At != AtRecord {
			p.At = AtStart
		}
	}
	o.add(&n, l, true, breaks)
}

// served is what a write changes.
func (o *operator) served(n *State, w lifemodel.What) lifemodel.Property {
	c := &n.C
	switch w {
	case lifemodel.AddFinalizer:
		c.Finalizer = true
	case lifemodel.Record:
		return o.recorded(n)
	case lifemodel.MoveToUnsent:
		breaks := o.settle(n)
		if u := c.Unsent.Number; u != 0 && n.Told[u] == (Report{}) {
			breaks = lifemodel.EventsDelivered
		}
		c.Unsent, c.Run = c.Run.report(), Run{}
		return breaks
	case lifemodel.WriteResult:
		breaks := o.settle(n)
		c.Run.Abandoned = true
		return breaks
	case lifemodel.ClearUnsent:
		c.Unsent = Report{}
	case lifemodel.ClearRecord:
		c.Run, c.Unsent, n.Owed = Run{}, Report{}, [Items]uint8{}
	case lifemodel.RemoveFinalizer, lifemodel.GiveUp:
		c.Finalizer = false
		if c.Deleted {
			return remove(n, w == lifemodel.GiveUp)
		}
	}
	return lifemodel.Sound
}

// recorded adds the rows of a batch, and counts those of the batch before.
func (o *operator) recorded(n *State) lifemodel.Property {
	c := &n.C
	breaks := o.settle(n)
	if c.Run.Number == 0 {
		number := c.Runs + 1
		if !o.keeps(RunsCounted) {
			number = c.Unsent.Number + 1
		}
		if number > maxRuns {
			return lifemodel.OutOfBounds
		}
		c.Runs, c.Run.Number = number, number
	}
	c.Run.Rows = o.p.Batch
	return breaks
}

// settle counts the rows of the run by what the process knows of them.
func (o *operator) settle(n *State) lifemodel.Property {
	breaks, r := lifemodel.Sound, &n.C.Run
	for k, row := range r.Rows {
		uid := row.UID
		if uid == 0 {
			continue
		}
		r.Rows[k] = lifemodel.Version{}
		owed := n.Owed[k]&(1<<uid) != 0
		switch o.p.Known[k] {
		case Done:
			r.Done++
		case NotDone:
			continue
		default:
			r.Unknown++
			if owed && !n.Grace {
				breaks = lifemodel.DeedsFoundOut
			}
		}
		n.Owed[k] &^= 1 << uid
	}
	if n.Owed != [Items]uint8{} {
		breaks = lifemodel.DeedsCounted
	}
	return breaks
}

// may says that deeds may be sent now.
func (o *operator) may() bool {
	cached := &o.s.C
	if o.fenced {
		if o.keeps(LeaseBeforeDeeds) {
			return false
		}
		cached = o.c
	}
	switch {
	case !o.p.Confirmed:
		return false
	case !o.keeps(GuardedDeeds):
		return true
	default:
		return cached.Exists && !cached.Suspended && cached.Decides == o.c.Decides && (!cached.Deleted || !o.keeps(PanicButton))
	}
}

// deeds sends the deeds of a batch.
func (o *operator) deeds() {
	may, left := o.may(), false
	for k, v := range o.p.Batch {
		if v.UID != 0 {
			left = true
			if may {
				o.deed(k, v)
			}
		}
	}
	if left && may {
		return
	}
	n := *o.s
	n.P[o.i].At, n.P[o.i].Batch = AtStart, [Items]lifemodel.Version{}
	o.add(&n, o.label(lifemodel.EndBatch, lifemodel.OK), true, lifemodel.Sound)
}

// deed sends one DELETE. After a 409 the object is read live, and decided on anew.
func (o *operator) deed(k int, v lifemodel.Version) {
	l := o.label(lifemodel.DeleteRow, lifemodel.OK)
	l.Row = int8(k)
	n := *o.s
	p, t := &n.P[o.i], &n.T[k]
	p.Batch[k] = lifemodel.Version{}
	breaks := lifemodel.Sound
	switch {
	case t.Forbidden:
		l.Answer = lifemodel.Refused
	case !t.Exists:
		l.Answer = lifemodel.NotFound
		p.Known[k] = Done
	case t.UID != v.UID && o.keeps(DeedUID):
		l.Answer = lifemodel.Conflict
	case t.RV != v.RV && o.keeps(DeedUID|DeedVersion):
		l.Answer = lifemodel.Conflict
		if t.Wanted {
			p.Batch[k] = t.Version
		}
	default:
		breaks = o.judge(k, v)
		if o.c.Sink {
			n.Owed[k] |= 1 << t.UID
		}
		*t = Object{Version: lifemodel.Version{UID: t.UID}}
		p.Known[k] = Done
		if n.Losses > 0 {
			lost, ll := n, l
			lost.Losses--
			lost.P[o.i].Known[k] = Nothing
			if !o.keeps(LostIsUnknown) {
				lost.P[o.i].Known[k] = NotDone
			}
			ll.Answer = lifemodel.Lost
			o.add(&lost, ll, false, breaks)
		}
	}
	o.add(&n, l, true, breaks)
}

// judge judges a deed.
func (o *operator) judge(k int, v lifemodel.Version) lifemodel.Property {
	c, t := &o.s.C, &o.s.T[k]
	switch {
	case t.UID != v.UID, o.c.Sink && c.Exists && c.Run.Rows[k].UID != t.UID:
		return lifemodel.CommittedOnly
	case t.RV != v.RV:
		return lifemodel.DecidedVersion
	case !c.Exists, c.Deleted, c.Suspended, c.Decides != o.c.Decides:
		return lifemodel.OrdersObeyed
	case !o.s.Recent[k]:
		return lifemodel.TrueLately
	}
	return lifemodel.Sound
}
