// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

// teller tells the sink of finished runs.
type teller struct{ o *operator }

// told says that nobody has to be told of a run any more.
func (t teller) told(number uint8) bool {
	return !t.o.c.Sink && t.o.keeps(NoSinkIsDelivered) || t.o.p.Delivered == number
}

// goOn goes on with what is unsent, whatever the run does.
func (t teller) goOn() {
	switch u := t.o.c.Unsent; {
	case u.Number == 0:
	case t.told(u.Number):
		t.o.choose(ClearUnsent, AtClearUnsent)
	case t.o.c.Sink:
		t.send(u)
	}
}

func (t teller) send(u Report) {
	if !t.o.s.SinkUp {
		return
	}
	if !t.o.keeps(EventFromResult) {
		u.Replaced = 0
		for k := range t.o.s.T {
			if t.o.s.T[k].Exists && u.Done.Has(k) {
				u.Replaced |= row(k)
			}
		}
	}
	breaks := Sound
	if old := t.o.s.Told[u.Number]; old != (Report{}) && old != u {
		breaks = OneEvent
	} else if u.Result == Completed && u.Left|u.Replaced != 0 && t.o.keeps(EventFromResult) {
		breaks = ResultTrue
	}
	l := t.o.label(Send, OK)
	l.Run, l.Result = u.Number, u.Result
	n := *t.o.s
	n.Told[u.Number] = u
	if n.Losses > 0 {
		lost, ll := n, l
		lost.Losses--
		ll.Answer = Lost
		t.o.add(&lost, ll, false, breaks)
	}
	n.P[t.o.i].Delivered = u.Number
	t.o.add(&n, l, true, breaks)
}
