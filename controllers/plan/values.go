// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// Values are what evaluations find out in variables of the spec, for the next one of the same decision: to confirm it, it is made again
// with each live read, and most of these find what was known. They are for one goroutine.
//
// A value serves as long as all targets that its variable reads have the same objects at the same versions.
type Values struct {
	atLeast int64
	kept    *celenv.Kept
	of      *celenv.Programs
	seen    observed.Snapshot
}

// FewValueBytes is how much memory values may take that are not worth being kept.
const FewValueBytes = 8 << 20

// NewValues returns empty Values. They keep nothing that takes less than so many bytes.
func NewValues(atLeast int64) *Values { return &Values{atLeast: atLeast} }

// DropValues returns the input without its values: the memory that they take is counted no longer than the pass lasts.
func DropValues(in Input) Input {
	in.Values, in.Earlier = nil, nil
	return in
}

// findFor returns the values that serve an input, and drops the others; nil if none do.
func (v *Values) findFor(in *Input) *celenv.Kept {
	if v.kept == nil || v.of != in.Programs || len(v.seen) != len(in.Snapshot) {
		return nil
	}
	var changed []string
	for t := range in.Snapshot {
		if !v.seen[t].HasSameObjects(&in.Snapshot[t]) {
			changed = append(changed, in.Spec.Targets[t].Name)
		}
	}
	v.kept = in.Programs.KeepWithout(v.kept, changed)
	return v.kept
}

// keep keeps what an evaluation of an input has found out. v may be nil.
func (v *Values) keep(in *Input, e *celenv.Evaluation) {
	if v == nil || e.AbortReason() != nil {
		return
	}
	kept, bytes := e.KeepValues()
	if v.kept == nil && bytes < v.atLeast {
		return
	}
	v.kept, v.of, v.seen = kept, in.Programs, in.Snapshot
	if in.Memory != nil {
		in.Memory.KeepBytes(bytes)
	}
}
