// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

// Model is the world of a scenario with an operator that keeps all rules but some.
type Model struct {
	Scenario
	Without Rule
}

// Step is one step from a state to another.
type Step = StepTo[State]

func (m *Model) keeps(r Rule) bool { return m.Without&r == 0 }

// Init is the state in which all that the scenario has is there, and the conditions hold.
func (m *Model) Init() State {
	s := State{
		C:        Cleaner{Exists: true, Sink: m.Sink, Decides: 1},
		Evidence: true, SinkUp: true, Recent: true, NotFalse: true, Entitled: true,
		Acts: m.Acts, Crashes: m.Crashes, Changes: m.Changes, Losses: m.Losses,
	}
	for k := range m.Targets {
		s.T[k] = Object{Version: Version{1, 1}, Exists: true, Unused: true}
	}
	if m.Release {
		s.Rel = Release{Install: Install{1, 1}, Status: Deployed, Object: Install{1, 1}}
	}
	s.P[0] = Process{Role: Leader, Read: s.C, Current: true}
	return s
}

// Succ lists what can happen next.
func (m *Model) Succ(s State) []Step { return m.Steps(&s, nil) }

// Explore visits all states that are reachable, unless there are more than limit, or until is broken.
func (m *Model) Explore(limit int, until Property) Exploration { return Explore(m, limit, until) }

// Steps appends what can happen next.
func (m *Model) Steps(s *State, out []Step) []Step {
	x := &steps{Model: m, s: s, out: out}
	x.environment()
	x.time()
	for i := range s.P {
		if role := s.P[i].Role; role == Leader || role == OldLeader {
			x.operator(i)
		}
	}
	for k := range s.Flights {
		if s.Flights[k] != (Flight{}) {
			x.serve(s, k, Label{Who: Server, What: Serve, Row: int8(k)}, Sound)
		}
	}
	return x.out
}

// steps collects the steps from one state.
type steps struct {
	*Model
	s   *State
	out []Step
}

// add adds a step to a state, which it brings into its normal form.
func (x *steps) add(n *State, l Label, fair bool, breaks Property) {
	if x.truth(n) == Yes {
		n.Recent = true
	}
	if !x.plainlyFalse(n) {
		n.NotFalse = true
	}
	if !n.Barred {
		n.Entitled = true
	}
	x.normal(n)
	x.out = append(x.out, Step{Label: l, To: *n, Fair: fair, Breaks: breaks})
}

// truth is what an evaluation on live reads says. It is not decidable while a named target that it reads is missing.
func (m *Model) truth(s *State) Answer {
	switch {
	case m.Targets > 0 && !s.T[0].Exists, m.Ordered && !s.T[1].Exists:
		return Undecidable
	case s.Evidence && (m.Targets == 0 || s.T[0].Unused):
		return Yes
	default:
		return No
	}
}

// plainlyFalse says that what is left to read says no. A terminating object says nothing.
func (m *Model) plainlyFalse(s *State) bool {
	t := &s.T[0]
	return !s.Evidence && (m.Targets == 0 || t.Exists || !m.Joint) || m.Targets > 0 && t.Exists && !t.Terminating && !t.Unused
}

// normal makes states equal that no step can tell apart.
func (m *Model) normal(s *State) {
	for i := range s.P {
		p := &s.P[i]
		if p.Role == NoProcess {
			*p = Process{}
		}
		if p.Role != Leader || p.At != AtStart {
			continue
		}
		if !m.LateWatch {
			p.Read, p.Current = s.C, true
		}
		if r := &p.Read.Run; !s.C.Exists || p.Current && (r.Number == 0 || r.Result != Open) {
			*p = Process{Role: Leader, Read: s.C, Current: true, Delivered: p.Delivered}
		}
		if p.Delivered != p.Read.Unsent.Number && p.Delivered != p.Read.Run.Number {
			p.Delivered = 0
		}
	}
}

// AtEnd says that nothing needs to happen any more, once others have stopped.
func (m *Model) AtEnd(s *State) bool {
	c := &s.C
	switch {
	case !c.Exists:
		return true
	case c.Deleted:
		return false
	case c.Run.Number != 0:
		return c.Suspended && c.Run.Result == Open
	default:
		return c.Unsent.Number == 0 && !c.Finalizer && (c.Suspended || m.truth(s) != Yes)
	}
}

// changed gives the Cleaner another resourceVersion. The writer, if it is a process, has read it.
func changed(s *State, writer int) {
	for i := range s.P {
		s.P[i].Current = i == writer
	}
	if writer >= 0 {
		s.P[writer].Read = s.C
	}
}

// nobody writes the Cleaner, but somebody who is no operator process.
const nobody = -1

// remove takes the Cleaner away.
func (m *Model) remove(s *State, gaveUp bool) Property {
	breaks := m.judgeEnd(s, gaveUp)
	s.C = Cleaner{}
	s.Grace = false
	return breaks
}
