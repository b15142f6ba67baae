// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recurring is an explicit model of the life of a Cleaner that stays: batches, the rows of a run that counts what
// was done, what is known of them after a crash or a lost answer, and the delivery to a sink. It is explored, and held
// against the real state machine, like the model of a Cleaner that cleans once in the package above.
//
// What is left out: there are two objects that a rule deletes, and one piece of evidence that the rule's condition reads;
// the watches are never late; three objects fill a run; an answer is followed by what it leads to in the same breath;
// back-off may be over at any moment; and DryRun is a suspend.
package recurring

import "github.com/vtex/cleaner/test/lifemodel"

// Items is how many objects there are that the rule may act on.
const Items = 2

const (
	// fills is how many objects fill a run.
	fills = 3
	// maxRuns, maxVersion and maxUID bound what is explored.
	maxRuns, maxVersion, maxUID = 7, 6, 3
)

// Run is status.run. Counts stand for the rows that were counted.
type Run struct {
	Number        uint8
	Done, Unknown uint8
	Abandoned     bool                     // it has a result
	Rows          [Items]lifemodel.Version // of the batch that is not counted yet
}

// Full says that the run counts enough to be delivered.
func (r *Run) Full() bool {
	n := r.Done + r.Unknown
	for _, row := range r.Rows {
		if row.UID != 0 {
			n++
		}
	}
	return n >= fills
}

func (r *Run) open() bool { return r.Number != 0 && !r.Abandoned }

// Report is a finished run: status.unsent, and the content of an event.
type Report struct{ Number, Done, Unknown uint8 }

func (r *Run) report() Report { return Report{r.Number, r.Done, r.Unknown} }

// Cleaner is the API object.
type Cleaner struct {
	Exists, Finalizer, Deleted, Suspended, Sink bool
	Decides, Runs                               uint8
	Run                                         Run
	Unsent                                      Report
}

// Object is one that a rule wants to delete while Wanted holds. A missing one keeps its last UID.
type Object struct {
	lifemodel.Version
	Exists, Wanted, Forbidden bool
}

// Place is where a process stands.
type Place uint8

// The places of a process: at the start of a pass, before a write that it has made up its mind to send, before what a
// batch needs, and in the deeds of one.
const (
	AtStart Place = iota
	AtWrite
	AtRecord
	AtDeeds
)

// Knowledge is what a process knows of a row of the open run.
type Knowledge uint8

// What can be known of a row. After a crash, or a lost answer, nothing is.
const (
	Nothing Knowledge = iota
	NotDone
	Done
	Unclear // it was looked at, and may or may not have been acted on
)

// Process is one operator process, with its memory.
type Process struct {
	Role      lifemodel.Role
	At        Place
	Will      lifemodel.What // the write, at AtWrite
	Read      Cleaner
	Current   bool
	Batch     [Items]lifemodel.Version // what is still to be done
	Known     [Items]Knowledge
	Confirmed bool
	Delivered uint8 // the run of which the sink has taken the event
}

// State is one state of the world.
type State struct {
	C        Cleaner
	T        [Items]Object
	P        [2]Process
	Evidence bool
	SinkUp   bool
	Grace    bool // --finish-grace has passed since the deletionTimestamp

	// What may still happen.
	Acts, Crashes, Changes, Losses uint8

	// What properties remember. No process sees it.
	Owed   [Items]uint8 // UIDs that were deleted and are in no count yet, as bits
	Recent [Items]bool  // the rule wanted the object at some moment of the last 10 s
	Told   [maxRuns + 1]Report
}

// Step is one step from a state to another.
type Step = lifemodel.StepTo[State]

// Model is the world of a scenario with an operator that keeps all rules but some.
type Model struct {
	Scenario
	Without Rule
}

func (m *Model) keeps(r Rule) bool { return m.Without&r == 0 }

// Init is the state in which the rule wants everything.
func (m *Model) Init() State {
	s := State{
		C:        Cleaner{Exists: true, Sink: m.Sink, Decides: 1},
		Evidence: true, SinkUp: true,
		Acts: m.Acts, Crashes: m.Crashes, Changes: m.Changes, Losses: m.Losses,
	}
	for k := range s.T {
		s.T[k] = Object{Version: lifemodel.Version{UID: 1, RV: 1}, Exists: true, Wanted: true}
		s.Recent[k] = true
	}
	s.P[0] = Process{Role: lifemodel.Leader, Read: s.C, Current: true}
	return s
}

// Wants is what an evaluation wants to delete.
func (s *State) Wants() (todo [Items]lifemodel.Version, some bool) {
	for k, t := range s.T {
		if t.Exists && t.Wanted && s.Evidence {
			todo[k], some = t.Version, true
		}
	}
	return todo, some
}

// AtEnd says that nothing needs to happen any more, once others have stopped.
func (m *Model) AtEnd(s *State) bool {
	c := &s.C
	_, wants := s.Wants()
	switch {
	case !c.Exists:
		return true
	case c.Deleted, c.Unsent.Number != 0:
		return false
	default:
		return c.Suspended || !wants && c.Run.Number == 0
	}
}

// Succ lists what can happen next.
func (m *Model) Succ(s State) []Step { return m.Steps(&s, nil) }

// Steps appends what can happen next.
func (m *Model) Steps(s *State, out []Step) []Step {
	x := &steps{Model: m, s: s, out: out}
	x.environment()
	x.time()
	for i := range s.P {
		if role := s.P[i].Role; role == lifemodel.Leader || role == lifemodel.OldLeader {
			x.operator(i)
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
func (x *steps) add(n *State, l lifemodel.Label, fair bool, breaks lifemodel.Property) {
	todo, _ := n.Wants()
	for k := range n.Recent {
		n.Recent[k] = n.Recent[k] || todo[k].UID != 0
	}
	normal(n)
	x.out = append(x.out, Step{Label: l, To: *n, Fair: fair, Breaks: breaks})
}

// normal makes states equal that no step can tell apart.
func normal(s *State) {
	for i := range s.P {
		p := &s.P[i]
		if p.Role == lifemodel.NoProcess {
			*p = Process{}
		}
		if p.Role != lifemodel.Leader || p.At != AtStart {
			continue
		}
		p.Read, p.Current, p.Confirmed, p.Will = s.C, true, false, 0
		for k := range p.Known {
			if s.C.Run.Rows[k].UID == 0 {
				p.Known[k] = Nothing
			}
		}
		if p.Delivered != s.C.Unsent.Number && p.Delivered != s.C.Run.Number {
			p.Delivered = 0
		}
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
func remove(s *State, gaveUp bool) lifemodel.Property {
	breaks, c := lifemodel.Sound, &s.C
	told := func(number uint8) bool { return s.Told[number] != (Report{}) }
	switch {
	case !c.Sink:
	case c.Run.open():
		breaks = lifemodel.RunsEnd
	case gaveUp && s.Grace:
	case c.Unsent.Number != 0 && !told(c.Unsent.Number), c.Run.Number != 0 && !told(c.Run.Number), s.Owed != [Items]uint8{}:
		breaks = lifemodel.EventsDelivered
	}
	s.C, s.Grace, s.Owed = Cleaner{}, false, [Items]uint8{}
	return breaks
}
