// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/vtex/cleaner/celenv/meter"
)

const (
	// never is later than all moments.
	never = math.MaxInt64
	// horizon is how far it is looked ahead, in nanoseconds: what lies further away is looked at again then.
	horizon = int64(80 * 365 * 24 * time.Hour)
	// maxSlope bounds how much faster than time a value may go, so that no product is too large.
	maxSlope = 1000
	// farSeconds is how far from 1970 a timestamp may be to be counted in nanoseconds.
	farSeconds = 9_000_000_000
)

// lookout notes when what is evaluated may become another, if nothing but the time changes.
type lookout struct {
	until   int64 // nanoseconds from now, at least 1: before that nothing does
	unknown bool  // nobody can say
}

// noteChange takes that something may become another when so many nanoseconds have passed.
func (l *lookout) noteChange(after int64) {
	if after != never {
		after = min(after, horizon)
	}
	l.until = min(l.until, max(after, 1))
}

// noteUnknown takes that something may become another at any time.
func (l *lookout) noteUnknown() { l.unknown = true }

// mergeLookout takes all that another one has noted.
func (l *lookout) mergeLookout(other lookout) {
	l.until = min(l.until, other.until)
	l.unknown = l.unknown || other.unknown
}

// movingValue is a timestamp, a duration or an int that changes as time passes. When k nanoseconds have passed, the first two
// are base+slope*k of them, and an int is what step makes of that; step never falls.
//
// cel-go's functions do not know it. A follower gives them what it is now, and notes until when their answer holds.
// Whoever looks at the value in any other way has seen something of which nobody can say when it changes.
type movingValue struct {
	now         ref.Val
	base, slope int64
	step        func(int64) int64 // nil for what is no int
	l           *lookout
}

// ConvertToNative gives what it is now.
func (m *movingValue) ConvertToNative(t reflect.Type) (any, error) {
	m.l.noteUnknown()
	return m.now.ConvertToNative(t)
}

// ConvertToType converts what it is now.
func (m *movingValue) ConvertToType(t ref.Type) ref.Val {
	m.l.noteUnknown()
	return m.now.ConvertToType(t)
}

// Equal compares what it is now.
func (m *movingValue) Equal(other ref.Val) ref.Val {
	m.l.noteUnknown()
	if o, ok := other.(*movingValue); ok {
		other = o.now
	}
	return m.now.Equal(other)
}

// Type is always the same.
func (m *movingValue) Type() ref.Type { return m.now.Type() }

// Value gives what it is now.
func (m *movingValue) Value() any {
	m.l.noteUnknown()
	return m.now.Value()
}

// newMoving makes a timestamp or a duration move. When it would become too large it may become an error.
func (l *lookout) newMoving(now ref.Val, base, slope int64) ref.Val {
	if slope == 0 {
		return now
	}
	m := &movingValue{now: now, base: base, slope: slope, l: l}
	if last := m.computeSpan(); last < horizon {
		l.noteChange(last)
	}
	return m
}

// computeSpan says for how long, up to the horizon, base+slope*k is no larger than a number can be.
func (m *movingValue) computeSpan() int64 {
	if m.slope > 0 {
		return min(horizon, (math.MaxInt64-max(m.base, 0))/m.slope)
	}
	return min(horizon, (math.MaxInt64+min(m.base, 0))/-m.slope)
}

// nowOf is what a value is now. Of a list or a map it is not what is in it.
func nowOf(v ref.Val) ref.Val {
	if m, ok := v.(*movingValue); ok {
		return m.now
	}
	return v
}

// line is how a timestamp or a duration goes on.
type line struct {
	base, slope int64
	kind        types.Kind
}

// lineOf is not ok for what is neither, and for timestamps that are too far away.
func lineOf(v ref.Val) (line, bool) {
	switch v := v.(type) {
	case *movingValue:
		return line{v.base, v.slope, meter.TypeOf(v.now).Kind()}, v.step == nil
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
	switch nowOf(v).(type) {
	case types.Timestamp, types.Duration:
		return true
	default:
		return false
	}
}

// noteCrossing notes when two lines of one kind compare in another way than now.
func (l *lookout) noteCrossing(operator string, a, b line) {
	distance := a.base - b.base
	if (a.base < 0) != (b.base < 0) && (distance < 0) != (a.base < 0) || distance == math.MinInt64 {
		l.noteUnknown() // they are further apart than a number can say
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
		return never // it stays as far away, or goes away
	}
	left := -distance
	switch operator {
	case operators.Less, operators.GreaterEquals: // when it is there
		if left == 0 {
			return never
		}
		return (left-1)/slope + 1
	case operators.LessEquals, operators.Greater: // when it is past
		return left/slope + 1
	default: // when it is there, and when it is not any more
		switch {
		case left == 0:
			return 1
		case left%slope != 0:
			return never
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

// makeRising gives an int that never falls, of one that never rises.
func (m *movingValue) makeRising() (up *movingValue, turned bool) {
	if m.slope > 0 {
		return m, false
	}
	return &movingValue{base: -m.base, slope: -m.slope, step: func(x int64) int64 { return -m.step(-x) }, l: m.l}, true
}

// valueAt gives a moving int when k nanoseconds have passed.
func (m *movingValue) valueAt(k int64) int64 { return m.step(m.base + m.slope*k) }

// findReach finds the first k from 1 on at which an int that never falls is n or more, but no later than the last one.
func (m *movingValue) findReach(n int64) int64 {
	last := m.computeSpan()
	low, high := int64(0), int64(1)
	for high < last && m.valueAt(high) < n {
		low, high = high, min(2*high, last)
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; m.valueAt(middle) < n {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// noteNextStep notes when a moving int is another one.
func (m *movingValue) noteNextStep() {
	up, _ := m.makeRising()
	if now := up.valueAt(0); now < math.MaxInt64 {
		m.l.noteChange(up.findReach(now + 1))
	}
}

// notePassing notes when a moving int compares with n in another way than now.
func (m *movingValue) notePassing(operator string, n int64) {
	if n == math.MinInt64 || n == math.MaxInt64 {
		m.noteNextStep()
		return
	}
	up, turned := m.makeRising()
	if turned {
		operator, n = mirrorOperator(operator), -n
	}
	now, past := up.valueAt(0), n
	switch operator {
	case operators.Less, operators.GreaterEquals:
	case operators.LessEquals, operators.Greater:
		past = n + 1
	default:
		if now == n {
			past = n + 1
		}
	}
	if now < past {
		m.l.noteChange(up.findReach(past))
	}
}

// findNextTurn finds when a part of a time, as a getter of CEL gives it, may become another: where the time's own zone has that part
// begin anew, or where the zone's offset changes.
func findNextTurn(getter string, at time.Time) (next time.Time, ok bool) {
	_, offset := at.Zone()
	fixed := time.FixedZone("", offset)
	year, month, day := at.Date()
	switch getter {
	case "getMilliseconds":
		next = at.Truncate(time.Millisecond).Add(time.Millisecond)
	case "getSeconds":
		next = at.Truncate(time.Second).Add(time.Second)
	case "getMinutes":
		next = time.Date(year, month, day, at.Hour(), at.Minute()+1, 0, 0, fixed)
	case "getHours":
		next = time.Date(year, month, day, at.Hour()+1, 0, 0, 0, fixed)
	case "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear":
		next = time.Date(year, month, day+1, 0, 0, 0, 0, fixed)
	case "getMonth":
		next = time.Date(year, month+1, 1, 0, 0, 0, 0, fixed)
	case "getFullYear":
		next = time.Date(year+1, 1, 1, 0, 0, 0, 0, fixed)
	default:
		return time.Time{}, false
	}
	if _, end := at.ZoneBounds(); !end.IsZero() && end.Before(next) {
		next = end
	}
	return next, true
}

// parseZone reads a time zone as CEL's getters do: the name of one, or an offset such as -03:30.
func parseZone(text string) (*time.Location, bool) {
	hours, minutes, isOffset := strings.Cut(text, ":")
	if !isOffset {
		location, err := time.LoadLocation(text)
		return location, err == nil
	}
	h, err := strconv.Atoi(hours)
	m, minutesErr := strconv.Atoi(minutes)
	if err != nil || minutesErr != nil {
		return nil, false
	}
	if text[0] == '-' {
		m = -m
	}
	return time.FixedZone("", (h*60+m)*60), true
}
