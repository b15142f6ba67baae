// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

// operator is one process that is about to take a step: how it sees the world, and which orders it knows.
type operator struct {
	*steps
	i int
	p *Process
	c *Cleaner // as it was read
	r *Run     // c.Run
	// deed says that a deed may be sent now, finish that a deed may be sent which finishes an uninstall, write that
	// finalizer, runs, run and unsent may be written.
	deed, finish, write bool
}

// operator adds every next step of a process: one request, with the computation around it.
func (x *steps) operator(i int) {
	p := &x.s.P[i]
	o := &operator{steps: x, i: i, p: p, c: &p.Read, r: &p.Read.Run}
	late := x.LateWatch || p.Role == OldLeader
	if late && p.Role == Leader && p.At == AtStart && !p.Current {
		n := *x.s
		n.P[i].Read, n.P[i].Current = n.C, true
		o.add(&n, o.label(Read, OK), true, Sound)
	}
	if !o.c.Exists {
		return
	}
	cached := o.c
	if !late {
		cached = &x.s.C
	}
	fenced := p.Role == OldLeader // the lease was not renewed in the last 10 s
	o.write = !fenced || !x.keeps(LeaseBeforeWrites)
	leased := !fenced || !x.keeps(LeaseBeforeDeeds)
	o.deed, o.finish = leased, leased
	if x.keeps(GuardedDeeds) {
		edited := cached.Decides != o.r.Decides
		up := leased && cached.Exists && !cached.Suspended
		o.deed = up && !edited && (!cached.Deleted || !x.keeps(PanicButton))
		o.finish = up && (!edited || x.keeps(UninstallFinished)) && (!cached.Deleted || !x.s.Grace)
	}
	switch {
	case p.At.Uninstalling():
		uninstaller{o}.step()
	case p.At != AtStart:
		writer{o}.request()
	case x.keeps(AnswersFirst) && o.waits():
		if o.mayDelete() {
			o.deleteRows(o.open())
		}
	default:
		o.pass()
	}
}

// waits says that an answer to a request of this process has not come.
func (o *operator) waits() bool {
	for k := range o.s.Flights {
		if o.s.Flights[k].By == int8(o.i+1) {
			return true
		}
	}
	return false
}

func (o *operator) label(w What, a Answer) Label {
	return Label{Who: Actor(o.i), What: w, Run: o.r.Number, Answer: a}
}

// move adds a step that changes nothing but this process.
func (o *operator) move(to Place, l Label, memory func(p *Process)) {
	n := *o.s
	p := &n.P[o.i]
	p.At = to
	if memory != nil {
		memory(p)
	}
	o.add(&n, l, true, Sound)
}

// choose makes up the process's mind to send a request.
func (o *operator) choose(w What, at Place) { o.move(at, o.label(w, Chosen), nil) }

// pass is the start of a Reconcile. What is recorded comes first.
func (o *operator) pass() {
	teller{o}.goOn()
	switch {
	case o.r.Number == 0:
		o.waiting()
	case o.r.Result != Open:
		o.finished()
	default:
		o.carryOn()
	}
}

// giveUp lets a deleted Cleaner go when its grace is over: the rest goes to the log.
func (o *operator) giveUp() {
	if o.c.Deleted && o.c.Finalizer && (o.s.Grace || !o.keeps(GraceAwaited)) {
		o.choose(GiveUp, AtGiveUp)
	}
}

// waiting is the life without a run.
func (o *operator) waiting() {
	if o.c.Unsent.Number == 0 && o.c.Finalizer {
		o.choose(RemoveFinalizer, AtRemoveFinalizer)
		return
	}
	o.giveUp()
	if o.c.Deleted || o.c.Suspended || o.truth(o.s) != Yes || o.s.Rel.Pending {
		return
	}
	what, at := AddFinalizer, AtAddFinalizer
	if o.c.Finalizer || !o.keeps(FinalizerFirst) {
		what, at = Commit, AtCommit
	}
	o.move(at, o.label(what, Chosen), func(p *Process) {
		*p = Process{Role: p.Role, At: at, Read: p.Read, Current: p.Current, Delivered: p.Delivered, Confirmed: true}
		for k := range o.Targets {
			if t := &o.s.T[k]; t.Exists && !(o.RuleRow && k == 1 && !t.Unused) {
				p.Plan[k] = t.Version
			}
		}
		if o.s.Rel.Status != Absent {
			p.PlanRelease = o.s.Rel.Install
		}
	})
}

// finished is the life of a run with a result.
func (o *operator) finished() {
	o.giveUp()
	if !o.keeps(ResultKept) && o.c.Deleted && o.r.Result != Abandoned {
		o.end(Abandoned)
	}
	told := teller{o}.told(o.r.Number) || !o.keeps(DeliveredFirst)
	switch {
	case o.c.Unsent.Number != 0 && o.keeps(UnsentAwaited):
	case o.r.Result == Partial:
		o.choose(MoveToUnsent, AtMoveToUnsent)
	case !told && o.c.Sink:
		teller{o}.send(o.r.report())
	case !told:
	case o.c.Finalizer && (o.c.Deleted || !o.keeps(SelfBeforeFinalizer)):
		o.choose(RemoveFinalizer, AtRemoveFinalizer)
	case o.r.Result == Completed:
		o.choose(DeleteSelf, AtDeleteSelf)
	}
}

// carryOn is the life of an open run.
func (o *operator) carryOn() {
	if o.p.Run != o.r.Number {
		o.firstLook()
		return
	}
	stopped := o.c.Decides != o.r.Decides || o.p.Stop
	switch {
	case o.c.Deleted:
		o.ending(Abandoned)
		if o.keeps(PanicButton) {
			return
		}
	case stopped:
		o.ending(Partial)
		return
	}
	if o.c.Suspended {
		return
	}
	if open := o.open(); open != 0 {
		if !o.p.Confirmed {
			o.recheck()
		}
		o.deleteRows(open)
		return
	}
	left := o.p.Kept | o.p.Replaced
	if !o.keeps(ReplacedIsLeft) {
		left = o.p.Kept
	}
	if left != 0 {
		o.ending(Partial)
		return
	}
	o.afterRows()
}

// open is the set of the rows that are to be deleted.
func (o *operator) open() Rows { return o.r.rows() &^ (o.p.Done | o.p.Replaced | o.p.Kept) }

// mayDelete says that an open run has rows which could be deleted now, as far as orders go.
func (o *operator) mayDelete() bool {
	return o.r.Number != 0 && o.r.Result == Open && o.p.Run == o.r.Number && !o.p.Stop &&
		o.c.Decides == o.r.Decides && !o.c.Suspended && (!o.c.Deleted || !o.keeps(PanicButton))
}

// firstLook is what a process does that finds a run which it does not know.
func (o *operator) firstLook() {
	done, replaced := o.look(0)
	rel := &o.s.Rel
	swept := o.r.Release != Install{} && (rel.Era != o.r.Release.Era || rel.Status != Deployed)
	if !o.keeps(RunsKept) && done|replaced == 0 && !swept {
		o.choose(DropRun, AtDropRun)
		return
	}
	o.move(AtStart, o.label(LookRows, OK), func(p *Process) {
		*p = Process{
			Role: p.Role, Read: p.Read, Current: p.Current, Delivered: p.Delivered,
			Run: o.r.Number, Done: done, Replaced: replaced, Looked: true,
		}
	})
}

// look reads the rows live that are not known yet.
func (o *operator) look(known Rows) (done, replaced Rows) {
	for k, v := range o.r.Rows {
		t := &o.s.T[k]
		switch {
		case v == Version{}, known.Has(k):
		case t.Exists && t.UID != v.UID:
			replaced |= row(k)
		case !t.Exists, t.Terminating:
			done |= row(k)
		}
	}
	return done, replaced
}

// ending brings an open run to a result without another deletion, but for an uninstall that the run has begun.
func (o *operator) ending(result Result) {
	over := o.s.Grace || !o.keeps(GraceFinishes)
	if finish := o.keeps(UninstallFinished) && !(result == Abandoned && over); finish && o.r.Release != (Install{}) {
		if o.s.Rel.Locked {
			uninstaller{o}.lookBlindly()
		} else {
			uninstaller{o}.lookRelease()
		}
		switch o.p.Seen {
		case NotSeen:
			return
		case SeenBegun:
			uninstaller{o}.finish()
			return
		}
	}
	if left := o.r.rows() &^ (o.p.Done | o.p.Replaced); left != 0 && o.keeps(LookBeforeResult) {
		done, replaced := o.look(^left)
		o.move(AtStart, o.label(LookRows, OK), func(p *Process) {
			p.Done |= done
			p.Replaced |= replaced
			p.Kept &^= done | replaced
			p.Looked = true
		})
		if !o.p.Looked {
			return
		}
	}
	o.end(result)
}

// end makes up the process's mind to write a result.
func (o *operator) end(result Result) {
	l := o.label(WriteResult, Chosen)
	l.Result = result
	o.move(AtWriteResult, l, func(p *Process) {
		p.Result = result
		if !o.keeps(ReplacedIsLeft) {
			p.Done |= p.Replaced
		}
	})
}

// recheck asks the conditions once more, on live reads.
func (o *operator) recheck() {
	e := evaluation{o.Model, o.s, o.p, o.r}
	a := e.conditions()
	stop := a == No || a == Undecidable && o.p.Whole && o.keeps(UndecidableStops)
	o.move(AtStart, o.label(Recheck, a), func(p *Process) {
		if stop {
			p.Stop = true
			return
		}
		p.Confirmed, p.Unwanted = true, 0
		for k, v := range o.r.Rows {
			switch t := &o.s.T[k]; {
			case !o.open().Has(k):
			case !e.wants(k, a):
				p.Unwanted |= row(k)
			case t.RV != v.RV:
				p.Later[k] = t.Version
			}
		}
	})
}

// deleteRows sends the DELETEs of open rows, and reads those of which nothing is wanted any more.
func (o *operator) deleteRows(open Rows) {
	for k, v := range o.r.Rows {
		if open.Has(k) && o.p.Unwanted.Has(k) && o.keeps(UnwantedKept) && !o.waits() {
			o.keepRow(k)
		}
		if !open.Has(k) || o.p.Unwanted.Has(k) || o.s.Flights[k] != (Flight{}) {
			continue
		}
		if !o.deed || !o.p.Confirmed || o.Ordered && k == 1 && !o.p.Done.Has(0) && o.keeps(OrderKept) {
			continue
		}
		if o.p.Later[k] != (Version{}) {
			v = o.p.Later[k]
		}
		l := o.label(DeleteRow, Sent)
		l.Row = int8(k)
		n := *o.s
		n.P[o.i].Looked = false
		breaks := o.judgeOrder(k)
		n.Flights[k] = Flight{Version: v, By: int8(o.i + 1), Run: o.r.Number}
		if o.LateServe {
			if breaks == Sound {
				breaks = o.judgeDeed(o.s, o.p, o.r.Number, false)
			}
			o.add(&n, l, true, breaks)
		} else {
			o.serve(&n, k, l, breaks)
		}
	}
}

// keepRow is for a row of which nothing is wanted any more.
func (o *operator) keepRow(k int) {
	done, replaced := o.look(^row(k))
	l := o.label(KeepRow, OK)
	l.Row = int8(k)
	o.move(AtStart, l, func(p *Process) {
		p.Done |= done
		p.Replaced |= replaced
		p.Kept |= row(k) &^ (done | replaced)
	})
}

// afterRows is what remains when every row is done: the objects are gone or the settle time is over, then the release.
func (o *operator) afterRows() {
	if o.r.rows() != 0 {
		o.move(AtStart, o.label(Settle, OK), nil)
	}
	if o.r.Release == (Install{}) {
		o.end(Completed)
		return
	}
	if o.s.Rel.Locked { // an open run waits until it can be read
		return
	}
	uninstaller{o}.lookRelease()
	switch o.p.Seen {
	case SeenGone:
		o.end(Completed)
	case SeenUpgraded:
		o.end(Partial)
	case SeenBegun:
		uninstaller{o}.finish()
	case SeenUninstalling, SeenAsCommitted:
		if !o.p.Confirmed {
			o.recheck()
		} else if o.deed {
			uninstaller{o}.begin(AtMarkRelease, StartUninstall)
		}
	}
}
