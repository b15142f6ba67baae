// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// RecheckOutcome is what the conditions of an open run say on live reads.
type RecheckOutcome int

const (
	// RecheckFailed means that nothing can be said: a read or a condition failed.
	RecheckFailed RecheckOutcome = iota
	// RecheckTrue means that the conditions still hold.
	RecheckTrue
	// RecheckFalse means that one does not.
	RecheckFalse
	// RecheckUndecidable means that no condition is false, and that some read what is missing only because it is, or was,
	// a row of this run.
	RecheckUndecidable
)

// Rechecked is the answer to a Recheck.
type Rechecked struct {
	Outcome RecheckOutcome
	// Why says it in words, unless the conditions hold.
	Why string
	// Seen are the objects, by row, that conditions see and that are still those of their row.
	Seen map[int]Seen
	// Protected says, by row, why such an object must not be touched.
	Protected map[int]string
}

// Reevaluate asks the conditions of an open run again, on live reads. What this process has deleted for the run stands
// as it was, unless another object has its name now.
func Reevaluate(ctx context.Context, in Input, run *v1alpha1.Run, m *Memory) Rechecked {
	rows := make([]Row, len(run.Rows))
	for i, text := range run.Rows {
		if row, err := ParseRow(text); err == nil { // one that cannot be read was left alone when it was looked at
			rows[i] = row
		}
	}
	out := in.lookAgain(rows)
	in.Snapshot = in.restored(rows, m)

	missing := map[string]bool{}
	for i := range in.Spec.Targets {
		t, seen := &in.Spec.Targets[i], &in.Snapshot[i]
		if !t.Included() {
			continue
		}
		reason, problem := Problem(t, seen)
		switch {
		case reason == "":
		case reason == v1alpha1.ReasonTargetMissing && slices.ContainsFunc(rows, func(r Row) bool { return r.Target(in.Spec) == i }):
			missing[t.Name] = true
		default:
			out.Why = problem
			return out
		}
	}
	see, err := in.see()
	if err != nil {
		out.Why = err.Error()
		return out
	}
	results := in.Programs.EvaluateConditions(ctx, see)
	out.Outcome = RecheckTrue
	if len(missing) > 0 {
		out.Outcome = RecheckUndecidable
		out.Why = "objects of this run that the conditions read are gone"
	}
	for i, r := range results {
		switch {
		case slices.ContainsFunc(in.Programs.ListConditionTargets(i), func(name string) bool { return missing[name] }):
		case r.Err != nil:
			if out.Outcome != RecheckFalse {
				out.Outcome, out.Why = RecheckFailed, "spec."+r.Err.Error()
			}
		case !r.Value:
			out.Outcome, out.Why = RecheckFalse, fmt.Sprintf("spec.conditions[%d] is not true any more: %s", i, shorten(in.Spec.Conditions[i]))
		}
	}
	return out
}

// lookAgain finds the rows' objects among what conditions see, as far as the row's own target still stands for them, and
// says which of them are protected.
func (in *Input) lookAgain(rows []Row) Rechecked {
	out := Rechecked{Seen: map[int]Seen{}, Protected: map[int]string{}}
	protection, seen := in.Protection.Of(in.Spec), in.seen()
	for i, row := range rows {
		s, is := seen[row.UID]
		own, stands := in.objectOf(row)
		if !is || !stands || s[0].Object.Terminating {
			continue
		}
		out.Seen[i] = s
		o := s.of(own)
		if because := protection.Because(&o); because != "" {
			out.Protected[i] = because
		}
	}
	return out
}

// objectOf is the object of a row as the row's own target shows it, and says whether it does.
func (in *Input) objectOf(row Row) (Object, bool) {
	t := row.Target(in.Spec)
	if t < 0 {
		return Object{}, false
	}
	objects := in.Snapshot[t].Objects
	i, there := search(objects, row.Namespace, row.Name)
	if !there || objects[i].UID != row.UID {
		return Object{}, false
	}
	return objects[i], true
}

// restored is the snapshot in which what this process has deleted stands as it was.
func (in *Input) restored(rows []Row, m *Memory) Snapshot {
	out, were := slices.Clone(in.Snapshot), make([][]Object, len(in.Snapshot))
	for i, row := range rows {
		r := &m.Rows[i]
		if r.State != RowDeleted || len(r.Was) == 0 || r.Was[0].Object.UID != row.UID {
			continue
		}
		for _, was := range r.Was {
			if t := was.Target; t < len(out) && out[t].State == Complete {
				were[t] = append(were[t], was.Object)
			}
		}
	}
	for t := range out {
		if len(were[t]) > 0 {
			out[t].Objects = withObjects(out[t].Objects, were[t])
		}
	}
	return out
}

// withObjects is a list in which objects stand as they were, unless others have their names. Each of them is looked at
// once, however many there are; were is sorted for that.
func withObjects(objects, were []Object) []Object {
	slices.SortFunc(were, byName)
	out := make([]Object, 0, len(objects)+len(were))
	for _, was := range were {
		for len(objects) > 0 && byName(objects[0], was) < 0 {
			out, objects = append(out, objects[0]), objects[1:]
		}
		if len(objects) > 0 && byName(objects[0], was) == 0 {
			if objects[0].UID != was.UID {
				continue
			}
			objects = objects[1:]
		}
		out = append(out, was)
	}
	return append(out, objects...)
}

// byName is the order of the objects of a target.
func byName(a, b Object) int { return CompareNames(&a.Ref, &b.Ref) }

// Rechecked takes the answer to a Recheck.
func (m *Memory) Rechecked(run *v1alpha1.Run, r Rechecked, now time.Time) {
	switch {
	case r.Outcome == RecheckFailed:
		m.Fail(r.Why, now)
		return
	case r.Outcome == RecheckFalse, r.Outcome == RecheckUndecidable && m.Whole:
		m.Stop = r.Why
		return
	}
	m.calm()
	m.ConfirmedAt = now
	for i, s := range r.Seen {
		row, err := ParseRow(run.Rows[i])
		if m.Rows[i].State != RowOpen || err != nil {
			continue
		}
		m.Rows[i].Was = s
		version := s.of(Object{Ref: row.Ref}).ResourceVersion
		switch because, protected := r.Protected[i]; {
		case protected:
			m.Rows[i].State, m.Rows[i].Failed = RowKept, because
		case version == m.Version(i, row):
		case r.Outcome == RecheckTrue:
			m.Rows[i].Now = version
		default:
			m.Rows[i].State, m.Rows[i].Failed = RowKept, "it changed, and the conditions can no longer be evaluated"
		}
	}
}
