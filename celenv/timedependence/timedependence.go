// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package timedependence

import (
	"math"
	"reflect"
	"time"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/vtex/cleaner/celenv/budget"
)

const (
	// Never is later than all moments.
	Never = math.MaxInt64
	// horizon is how far it is looked ahead, in nanoseconds: what lies further away is looked at again then.
	horizon = int64(80 * 365 * 24 * time.Hour)
	// maxSlope bounds how much faster than time a value may go, so that no product is too large.
	maxSlope = 1_000_000
	// farSeconds is how far from 1970 a timestamp may be to be counted in nanoseconds.
	farSeconds = 9_000_000_000
)

// Lookout notes when what is evaluated may become another, if nothing but the time changes.
type Lookout struct {
	Until   int64 // nanoseconds from now, at least 1: before that nothing does
	Unknown bool  // cannot be predicted
}

// noteChange records that the result may change after so many nanoseconds.
func (l *Lookout) noteChange(after int64) {
	if after != Never {
		after = min(after, horizon)
	}
	l.Until = min(l.Until, max(after, 1))
}

// NoteUnknown records that the result may change at any time.
func (l *Lookout) NoteUnknown() { l.Unknown = true }

// Merge takes all that another one has noted.
func (l *Lookout) Merge(other Lookout) {
	l.Until = min(l.Until, other.Until)
	l.Unknown = l.Unknown || other.Unknown
}

// Value is a timestamp, a duration or a number that changes as time passes. When k nanoseconds have passed, the first two are base+slope*k of
// them.
//
// cel-go's functions do not know it. A follower passes them the current value, and records until when their result is valid. If code
// looks at the value in any other way, it cannot be predicted when its result changes.
type Value struct {
	now         ref.Val
	base, Slope int64
	steps       *steps // nil for what is no number
	l           *Lookout
}

// NewTime makes the time itself move. It is false for a time that is too far away.
func NewTime(at time.Time, l *Lookout) (*Value, bool) {
	now := types.Timestamp{Time: at}
	start, ok := lineOf(now)
	return &Value{now: now, base: start.base, Slope: 1, l: l}, ok
}

// IsStepwise says that the value changes in steps, as a number does.
func (m *Value) IsStepwise() bool { return m.steps != nil }

// Freeze gives what it is now. That is noted: a number for when it is another one, and what is always another one as unknown.
func (m *Value) Freeze() ref.Val {
	if m.steps == nil {
		m.l.NoteUnknown()
	} else {
		m.NoteNextStep()
	}
	return m.now
}

// ConvertToNative gives what it is now.
func (m *Value) ConvertToNative(t reflect.Type) (any, error) {
	m.l.NoteUnknown()
	return m.now.ConvertToNative(t)
}

// ConvertToType converts what it is now.
func (m *Value) ConvertToType(t ref.Type) ref.Val {
	m.l.NoteUnknown()
	return m.now.ConvertToType(t)
}

// Equal compares what it is now.
func (m *Value) Equal(other ref.Val) ref.Val {
	m.l.NoteUnknown()
	if o, ok := other.(*Value); ok {
		other = o.now
	}
	return m.now.Equal(other)
}

// Type is always the same.
func (m *Value) Type() ref.Type { return m.now.Type() }

// Value gives what it is now.
func (m *Value) Value() any {
	m.l.NoteUnknown()
	return m.now.Value()
}

// newMoving makes a timestamp or a duration move. When it would become too large it may become an error.
func (l *Lookout) newMoving(now ref.Val, base, slope int64) ref.Val {
	if slope == 0 {
		return now
	}
	m := &Value{now: now, base: base, Slope: slope, l: l}
	if last := m.computeSpan(); last < horizon {
		l.noteChange(last)
	}
	return m
}

// computeSpan says for how long, up to the horizon, base+slope*k is no larger than a number can be.
func (m *Value) computeSpan() int64 {
	if m.Slope > 0 {
		return min(horizon, (math.MaxInt64-max(m.base, 0))/m.Slope)
	}
	return min(horizon, (math.MaxInt64+min(m.base, 0))/-m.Slope)
}

// NowOf is what a value is now. Of a list or a map it is not what is in it.
func NowOf(v ref.Val) ref.Val {
	if m, ok := v.(*Value); ok {
		return m.now
	}
	return v
}

// line is how a timestamp or a duration changes.
type line struct {
	base, slope int64
	kind        types.Kind
}

// lineOf is not ok for what is neither, and for timestamps that are too far away.
func lineOf(v ref.Val) (line, bool) {
	switch v := v.(type) {
	case *Value:
		return line{v.base, v.Slope, budget.TypeOf(v.now).Kind()}, v.steps == nil
	case types.Timestamp:
		s := v.Unix()
		return line{v.UnixNano(), 0, types.TimestampKind}, -farSeconds < s && s < farSeconds
	case types.Duration:
		return line{int64(v.Duration), 0, types.DurationKind}, v.Duration != math.MinInt64
	default:
		return line{}, false
	}
}

// isTime says that a value is a timestamp or a duration.
func isTime(v ref.Val) bool {
	switch NowOf(v).(type) {
	case types.Timestamp, types.Duration:
		return true
	default:
		return false
	}
}

// noteCrossing notes when two lines of one kind compare in another way than now.
func (l *Lookout) noteCrossing(operator string, a, b line) {
	distance := a.base - b.base
	if (a.base < 0) != (b.base < 0) && (distance < 0) != (a.base < 0) || distance == math.MinInt64 {
		l.NoteUnknown() // they are further apart than a number can say
		return
	}
	l.noteChange(findCrossing(operator, distance, a.slope-b.slope))
}

// findCrossing finds the first k from 1 on at which distance+slope*k compares with 0 in another way than distance does.
func findCrossing(operator string, distance, slope int64) int64 {
	if slope < 0 {
		operator, distance, slope = mirrorOperator(operator), -distance, -slope
	}
	if slope == 0 || distance > 0 {
		return Never // it stays as far away, or goes away
	}
	left := -distance
	switch operator {
	case operators.Less, operators.GreaterEquals: // when it is there
		if left == 0 {
			return Never
		}
		return (left-1)/slope + 1
	case operators.LessEquals, operators.Greater: // when it is past
		return left/slope + 1
	default: // when it begins to be there, and when it ceases
		switch {
		case left == 0:
			return 1
		case left%slope != 0:
			return Never
		}
		return left / slope
	}
}

// mirrorOperator gives the operator that says of -a and -b what this one says of a and b.
func mirrorOperator(operator string) string {
	switch operator {
	case operators.Less:
		return operators.Greater
	case operators.LessEquals:
		return operators.GreaterEquals
	case operators.Greater:
		return operators.Less
	case operators.GreaterEquals:
		return operators.LessEquals
	default:
		return operator
	}
}
