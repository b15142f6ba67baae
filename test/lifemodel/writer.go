// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

// writer writes what the operator remembers of a Cleaner, and the Cleaner's end.
type writer struct{ o *operator }

// rewrite adds a write of finalizer, runs, run or unsent. memory is what the process does when the answer arrives.
func (w writer) rewrite(l Label, do func(n *State) Property, memory func(p *Process)) {
	if !w.o.write {
		return
	}
	n := *w.o.s
	p := &n.P[w.o.i]
	p.At, p.Result = AtStart, Open
	if !n.C.Exists || !p.Current && w.o.keeps(WritesFenced) {
		p.Read, p.Current = n.C, true
		l.Answer = Conflict
		w.o.add(&n, l, true, Sound)
		return
	}
	breaks := do(&n)
	changed(&n, w.o.i)
	if n.Losses > 0 {
		lost, ll := n, l
		lost.Losses--
		ll.Answer = Lost
		w.o.add(&lost, ll, false, breaks)
	}
	if memory != nil {
		memory(p)
	}
	w.o.add(&n, l, true, breaks)
}

// request sends what the process has made up its mind to send.
func (w writer) request() {
	switch w.o.p.At {
	case AtAddFinalizer:
		w.rewrite(w.o.label(AddFinalizer, OK), func(n *State) Property { n.C.Finalizer = true; return Sound }, func(p *Process) { p.At = AtCommit })
	case AtCommit:
		w.commit()
	case AtDropRun:
		w.rewrite(w.o.label(DropRun, OK), func(n *State) Property { n.C.Run = Run{}; return RunsEnd }, nil)
	case AtWriteResult:
		w.writeResult()
	case AtMoveToUnsent:
		w.moveToUnsent()
	case AtClearUnsent:
		w.rewrite(w.o.label(ClearUnsent, OK), func(n *State) Property { n.C.Unsent = Report{}; return Sound }, func(p *Process) {
			if !w.o.keeps(FinalizerForBoth) && p.Read.Run.Number != 0 && p.Read.Finalizer {
				p.At = AtRemoveFinalizer
			}
		})
	case AtDeleteSelf:
		w.deleteSelf()
	case AtRemoveFinalizer:
		w.removeFinalizer(RemoveFinalizer)
	case AtGiveUp:
		w.removeFinalizer(GiveUp)
	}
}

func (w writer) commit() {
	l := w.o.label(Commit, OK)
	l.Run = w.o.c.Runs + 1
	w.rewrite(l, func(n *State) Property {
		number := n.C.Runs + 1
		if !w.o.keeps(RunsCounted) {
			number = max(n.C.Run.Number, n.C.Unsent.Number) + 1
		}
		if number > maxRuns {
			return OutOfBounds
		}
		n.C.Runs = number
		n.C.Run = Run{Number: number, Decides: w.o.c.Decides, Rows: w.o.p.Plan, Release: w.o.p.PlanRelease}
		for k, v := range w.o.p.Plan {
			if v != (Version{}) {
				n.Committed[k] |= bit(v.UID)
			}
		}
		if n.C.Suspended || n.C.Deleted || n.C.Decides != w.o.c.Decides {
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

func (w writer) writeResult() {
	result := w.o.p.Result
	l := w.o.label(WriteResult, OK)
	l.Result = result
	w.rewrite(l, func(n *State) Property {
		r := &n.C.Run
		switch {
		case r.Number == 0:
			return Sound
		case !w.o.keeps(ResultKept) && r.Result != Open:
			r.Result = result
			return Sound
		}
		breaks := w.o.judgeResult(n, w.o.p, result)
		*r = Run{
			Number: r.Number, Decides: r.Decides, Result: result,
			Done: w.o.p.Done, Replaced: w.o.p.Replaced, Left: r.rows() &^ (w.o.p.Done | w.o.p.Replaced),
		}
		return breaks
	}, nil)
}

func (w writer) moveToUnsent() {
	w.rewrite(w.o.label(MoveToUnsent, OK), func(n *State) Property {
		breaks := Sound
		if u := n.C.Unsent.Number; u != 0 && n.Told[u] == (Report{}) && n.C.Sink {
			breaks = EventsDelivered
		}
		if n.C.Sink {
			n.C.Unsent = w.o.r.report()
		}
		n.C.Run = Run{}
		return breaks
	}, nil)
}

func (w writer) deleteSelf() {
	if !w.o.write {
		return
	}
	l := w.o.label(DeleteSelf, OK)
	n := *w.o.s
	p := &n.P[w.o.i]
	p.At = AtStart
	switch {
	case !n.C.Exists || !p.Current && w.o.keeps(SelfFenced):
		p.Read, p.Current = n.C, true
		l.Answer = Conflict
		w.o.add(&n, l, true, Sound)
	case n.C.Finalizer:
		breaks := w.o.judgeEnd(&n, false)
		n.C.Deleted = true
		changed(&n, w.o.i)
		w.o.add(&n, l, true, breaks)
	default:
		breaks := w.o.remove(&n, false)
		changed(&n, w.o.i)
		w.o.add(&n, l, true, breaks)
	}
}

func (w writer) removeFinalizer(what What) {
	w.rewrite(w.o.label(what, OK), func(n *State) Property {
		n.C.Finalizer = false
		if n.C.Deleted {
			return w.o.remove(n, what == GiveUp)
		}
		return Sound
	}, nil)
}
