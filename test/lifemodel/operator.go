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
		o.uninstall()
	case p.At != AtStart:
		o.request()
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

// rewrite adds a write of finalizer, runs, run or unsent. memory is what the process does when the answer arrives.
func (o *operator) rewrite(l Label, do func(n *State) Property, memory func(p *Process)) {
	if !o.write {
		return
	}
	n := *o.s
	p := &n.P[o.i]
	p.At, p.Result = AtStart, Open
	if !n.C.Exists || !p.Current && o.keeps(WritesFenced) {
		p.Read, p.Current = n.C, true
		l.Answer = Conflict
		o.add(&n, l, true, Sound)
		return
	}
	breaks := do(&n)
	changed(&n, o.i)
	if n.Losses > 0 {
		lost, ll := n, l
		lost.Losses--
		ll.Answer = Lost
		o.add(&lost, ll, false, breaks)
	}
	if memory != nil {
		memory(p)
	}
	o.add(&n, l, true, breaks)
}

// request sends what the process has made up its mind to send.
func (o *operator) request() {
	switch o.p.At {
	case AtAddFinalizer:
		o.rewrite(o.label(AddFinalizer, OK), func(n *State) Property { n.C.Finalizer = true; return Sound }, func(p *Process) { p.At = AtCommit })
	case AtCommit:
		o.commit()
	case AtDropRun:
		o.rewrite(o.label(DropRun, OK), func(n *State) Property { n.C.Run = Run{}; return RunsEnd }, nil)
	case AtWriteResult:
		o.writeResult()
	case AtMoveToUnsent:
		o.moveToUnsent()
	case AtClearUnsent:
		o.rewrite(o.label(ClearUnsent, OK), func(n *State) Property { n.C.Unsent = Report{}; return Sound }, func(p *Process) {
			if !o.keeps(FinalizerForBoth) && p.Read.Run.Number != 0 && p.Read.Finalizer {
				p.At = AtRemoveFinalizer
			}
		})
	case AtDeleteSelf:
		o.deleteSelf()
	case AtRemoveFinalizer:
		o.removeFinalizer(RemoveFinalizer)
	case AtGiveUp:
		o.removeFinalizer(GiveUp)
	}
}

func (o *operator) commit() {
	l := o.label(Commit, OK)
	l.Run = o.c.Runs + 1
	o.rewrite(l, func(n *State) Property {
		number := n.C.Runs + 1
		if !o.keeps(RunsCounted) {
			number = max(n.C.Run.Number, n.C.Unsent.Number) + 1
		}
		if number > maxRuns {
			return OutOfBounds
		}
		n.C.Runs = number
		n.C.Run = Run{Number: number, Decides: o.c.Decides, Rows: o.p.Plan, Release: o.p.PlanRelease}
		for k, v := range o.p.Plan {
			if v != (Version{}) {
				n.Committed[k] |= bit(v.UID)
			}
		}
		if n.C.Suspended || n.C.Deleted || n.C.Decides != o.c.Decides {
			return OrdersObeyed
		}
		return Sound
	}, func(p *Process) {
		*p = Process{
			Role: p.Role, Read: p.Read, Current: p.Current, Delivered: p.Delivered,
			Run: p.Read.Run.Number, Confirmed: p.Confirmed, Whole: true,
		}
	})
}

func (o *operator) writeResult() {
	result := o.p.Result
	l := o.label(WriteResult, OK)
	l.Result = result
	o.rewrite(l, func(n *State) Property {
		r := &n.C.Run
		switch {
		case r.Number == 0:
			return Sound
		case !o.keeps(ResultKept) && r.Result != Open:
			r.Result = result
			return Sound
		}
		breaks := o.judgeResult(n, o.p, result)
		*r = Run{
			Number: r.Number, Decides: r.Decides, Result: result,
			Done: o.p.Done, Replaced: o.p.Replaced, Left: r.rows() &^ (o.p.Done | o.p.Replaced),
		}
		return breaks
	}, nil)
}

func (o *operator) moveToUnsent() {
	o.rewrite(o.label(MoveToUnsent, OK), func(n *State) Property {
		breaks := Sound
		if u := n.C.Unsent.Number; u != 0 && n.Told[u] == (Report{}) && n.C.Sink {
			breaks = EventsDelivered
		}
		if n.C.Sink {
			n.C.Unsent = o.r.report()
		}
		n.C.Run = Run{}
		return breaks
	}, nil)
}

func (o *operator) deleteSelf() {
	if !o.write {
		return
	}
	l := o.label(DeleteSelf, OK)
	n := *o.s
	p := &n.P[o.i]
	p.At = AtStart
	switch {
	case !n.C.Exists || !p.Current && o.keeps(SelfFenced):
		p.Read, p.Current = n.C, true
		l.Answer = Conflict
		o.add(&n, l, true, Sound)
	case n.C.Finalizer:
		breaks := o.judgeEnd(&n, false)
		n.C.Deleted = true
		changed(&n, o.i)
		o.add(&n, l, true, breaks)
	default:
		breaks := o.remove(&n, false)
		changed(&n, o.i)
		o.add(&n, l, true, breaks)
	}
}

func (o *operator) removeFinalizer(w What) {
	o.rewrite(o.label(w, OK), func(n *State) Property {
		n.C.Finalizer = false
		if n.C.Deleted {
			return o.remove(n, w == GiveUp)
		}
		return Sound
	}, nil)
}

// pass is the start of a Reconcile. What is recorded comes first.
func (o *operator) pass() {
	o.deliver()
	switch {
	case o.r.Number == 0:
		o.waiting()
	case o.r.Result != Open:
		o.finished()
	default:
		o.carryOn()
	}
}

// told says that nobody has to be told of a run any more.
func (o *operator) told(number uint8) bool {
	return !o.c.Sink && o.keeps(NoSinkIsDelivered) || o.p.Delivered == number
}

// deliver goes on with what is unsent, whatever the run does.
func (o *operator) deliver() {
	switch u := o.c.Unsent; {
	case u.Number == 0:
	case o.told(u.Number):
		o.choose(ClearUnsent, AtClearUnsent)
	case o.c.Sink:
		o.send(u)
	}
}

func (o *operator) send(u Report) {
	if !o.s.SinkUp {
		return
	}
	if !o.keeps(EventFromResult) {
		u.Replaced = 0
		for k := range o.s.T {
			if o.s.T[k].Exists && u.Done.Has(k) {
				u.Replaced |= row(k)
			}
		}
	}
	breaks := Sound
	if old := o.s.Told[u.Number]; old != (Report{}) && old != u {
		breaks = OneEvent
	} else if u.Result == Completed && u.Left|u.Replaced != 0 && o.keeps(EventFromResult) {
		breaks = ResultTrue
	}
	l := o.label(Send, OK)
	l.Run, l.Result = u.Number, u.Result
	n := *o.s
	n.Told[u.Number] = u
	if n.Losses > 0 {
		lost, ll := n, l
		lost.Losses--
		ll.Answer = Lost
		o.add(&lost, ll, false, breaks)
	}
	n.P[o.i].Delivered = u.Number
	o.add(&n, l, true, breaks)
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
	told := o.told(o.r.Number) || !o.keeps(DeliveredFirst)
	switch {
	case o.c.Unsent.Number != 0 && o.keeps(UnsentAwaited):
	case o.r.Result == Partial:
		o.choose(MoveToUnsent, AtMoveToUnsent)
	case !told && o.c.Sink:
		o.send(o.r.report())
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
			o.lookBlindly()
		} else {
			o.lookRelease()
		}
		switch o.p.Seen {
		case NotSeen:
			return
		case SeenBegun:
			o.finishUninstall()
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
	a := o.conditions()
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
			case !o.wants(k, a):
				p.Unwanted |= row(k)
			case t.RV != v.RV:
				p.Later[k] = t.Version
			}
		}
	})
}

// wants says that the object of an open row is to be deleted as it is now, if the conditions have given an answer.
func (o *operator) wants(k int, a Answer) bool {
	t, v := &o.s.T[k], o.r.Rows[k]
	if o.p.Later[k] != (Version{}) {
		v = o.p.Later[k]
	}
	seen := k == 0 || o.RuleRow || o.Ordered
	switch {
	case !t.Exists, t.Terminating, t.UID != v.UID, a != Yes && seen && t.RV != v.RV:
		return false
	case o.Ordered:
		return a == Yes && (k == 0 || o.firstWanted())
	case o.RuleRow && k == 1:
		return t.Unused
	}
	return true
}

// firstWanted says that the first action of the item of which row 1 is the second is done, or may be.
func (o *operator) firstWanted() bool {
	if !o.keeps(OrderKept) {
		return true
	}
	return !(o.p.Replaced | o.p.Kept).Has(0) && (o.stands(0) || o.s.T[0].UID == o.r.Rows[0].UID)
}

// conditions is what they say when what this process has deleted for the run stands as it was.
func (o *operator) conditions() Answer {
	if o.Targets == 0 {
		return o.truth(o.s)
	}
	t := &o.s.T[0]
	switch {
	case o.stands(0):
		return o.unlessMissing(yes(o.s.Evidence)) // it stood for "clean" when it was deleted
	case t.Exists:
		return o.unlessMissing(yes(o.s.Evidence && t.Unused))
	case !o.s.Evidence && !o.Joint && o.keeps(OthersEvaluated):
		return No // says the condition that reads the evidence alone
	default:
		return Undecidable
	}
}

// stands says that a live read shows the object of a row as it was, because this process has deleted it.
func (o *operator) stands(k int) bool {
	t, v := &o.s.T[k], o.r.Rows[k]
	return v != Version{} && o.p.Mine.Has(k) && o.keeps(OwnDeedsStand) && (!t.Exists || t.UID == v.UID || !o.keeps(NewShowsThrough))
}

// unlessMissing is an answer of conditions that read no more than target 0, where only the rule reads the other target.
func (o *operator) unlessMissing(a Answer) Answer {
	if o.Ordered && a == Yes && !o.s.T[1].Exists && !o.stands(1) {
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

// lookBlindly tries to read a release that cannot be read, as often as is tried.
func (o *operator) lookBlindly() {
	if o.keeps(BlindEnds) {
		o.move(AtStart, o.label(LookRelease, Refused), func(p *Process) { p.Seen = SeenBlind })
	}
}

// lookRelease reads the release.
func (o *operator) lookRelease() {
	rel, was := &o.s.Rel, o.r.Release
	sight := SeenAsCommitted
	switch {
	case rel.Status == Absent, rel.Era != was.Era && o.keeps(EraCompared):
		sight = SeenGone
	case rel.Pending:
		sight = SeenPending
	case rel.Revision != was.Revision && o.keeps(RevisionCompared):
		sight = SeenUpgraded
	case o.begun(rel):
		sight = SeenBegun
	case rel.Status == Uninstalling:
		sight = SeenUninstalling
	}
	o.move(AtStart, o.label(LookRelease, OK), func(p *Process) { p.Seen, p.Reviewed = sight, false })
}

// begun says that a release is uninstalling, and that the run has begun that.
func (o *operator) begun(rel *Release) bool {
	return rel.Status == Uninstalling && (rel.Mark == o.r.Number || !o.keeps(OnlyOwnFinished))
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
	o.lookRelease()
	switch o.p.Seen {
	case SeenGone:
		o.end(Completed)
	case SeenUpgraded:
		o.end(Partial)
	case SeenBegun:
		o.finishUninstall()
	case SeenUninstalling, SeenAsCommitted:
		if !o.p.Confirmed {
			o.recheck()
		} else if o.deed {
			o.beginUninstall(AtMarkRelease, StartUninstall)
		}
	}
}

// finishUninstall goes on with an uninstall that the run has begun.
func (o *operator) finishUninstall() {
	if o.finish {
		o.beginUninstall(AtGetReleaseObject, FinishUninstall)
	}
}

// beginUninstall makes up the process's mind to uninstall the release, or to go on with that, once the author is reviewed.
func (o *operator) beginUninstall(at Place, what What) {
	if !o.p.Reviewed && o.keeps(AuthorAsked) {
		if o.s.Barred {
			o.move(AtStart, o.label(ReviewAuthor, Refused), nil)
		} else {
			o.move(AtStart, o.label(ReviewAuthor, OK), func(p *Process) { p.Reviewed = true })
		}
		return
	}
	n := *o.s
	p := &n.P[o.i]
	p.At, p.Seen, p.Reviewed = at, NotSeen, false
	breaks := Sound
	if !o.s.Entitled {
		breaks = AuthorMay
	}
	o.add(&n, o.label(what, Chosen), true, breaks)
}

// uninstall is one request of an uninstall.
func (o *operator) uninstall() {
	n := *o.s
	p, rel, was := &n.P[o.i], &n.Rel, o.r.Release
	same := (rel.Era == was.Era || !o.keeps(EraCompared)) && (rel.Revision == was.Revision || !o.keeps(RevisionCompared))
	ours := o.begun(rel) && same && !rel.Pending && !rel.Locked
	step := func(at Place, w What, a Answer, breaks Property) {
		p.At = at
		o.add(&n, o.label(w, a), true, breaks)
	}
	switch p.At {
	case AtMarkRelease:
		switch {
		case !o.deed || !p.Confirmed || rel.Locked:
			step(AtStart, StartUninstall, Withheld, Sound)
		case !same, rel.Status == Absent, o.begun(rel):
			step(AtStart, StartUninstall, Conflict, Sound)
		default:
			breaks := o.judgeDeed(o.s, o.p, o.r.Number, false)
			if breaks == Sound {
				breaks = o.judgeInstall(rel.Install, was, false)
			}
			n.Touched |= bit(o.r.Number)
			n.Swept |= bit(o.r.Number)
			rel.Status, rel.Mark = Uninstalling, o.r.Number
			step(AtGetReleaseObject, StartUninstall, OK, breaks)
		}
	case AtGetReleaseObject:
		p.Found = rel.Object
		switch {
		case rel.Object == Install{}:
			step(AtDeleteRelease, GetReleaseObject, NotFound, Sound)
		case o.keeps(ReleaseListed):
			step(AtListRelease, GetReleaseObject, OK, Sound)
		default:
			step(AtDeleteReleaseObject, GetReleaseObject, OK, Sound)
		}
	case AtListRelease:
		if ours {
			step(AtDeleteReleaseObject, ListRelease, OK, Sound)
		} else {
			p.Found = Install{}
			step(AtStart, ListRelease, Withheld, Sound)
		}
	case AtDeleteReleaseObject:
		found := p.Found
		p.Found = Install{}
		switch {
		case !o.finish:
			step(AtStart, DeleteReleaseObject, Withheld, Sound)
		case rel.Object != found:
			step(AtGetReleaseObject, DeleteReleaseObject, Conflict, Sound)
		default:
			breaks := o.judgeInstall(found, was, rel.Pending)
			if breaks == Sound {
				breaks = o.judgeDeed(o.s, o.p, o.r.Number, true)
			}
			n.Touched |= bit(o.r.Number)
			rel.Object = Install{}
			step(AtGetReleaseObject, DeleteReleaseObject, OK, breaks)
		}
	case AtDeleteRelease:
		if !o.finish || !ours {
			step(AtStart, DeleteRelease, Withheld, Sound)
			return
		}
		n.Touched |= bit(o.r.Number)
		*rel = Release{Install: Install{Era: rel.Era}, Object: rel.Object}
		step(AtStart, DeleteRelease, OK, o.judgeDeed(o.s, o.p, o.r.Number, true))
	}
}

// judgeInstall judges that something of an installation is deleted for a run that was committed for another one.
func (m *Model) judgeInstall(hit, committed Install, pending bool) Property {
	switch {
	case hit.Era != committed.Era:
		return NotReinstalled
	case hit.Revision != committed.Revision || pending:
		return NotUpgraded
	}
	return Sound
}
