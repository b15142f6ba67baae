// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package timedependence

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// steps is how a number changes as time passes. Until end it only rises, or only falls; there it may become anything. It changes only after
// first nanoseconds, and after each unit from then on.
type steps struct {
	at               func(k int64) ref.Val // after so many nanoseconds
	falls            bool
	end, first, unit int64
}

// newSteps makes a number move that may change at any time.
func newSteps(at func(int64) ref.Val, falls bool, end int64) *steps {
	return &steps{at: at, falls: falls, end: min(end, horizon), first: 1, unit: 1}
}

// moment gives the moment of a possible change, counted from 0: the end at the latest.
func (s *steps) moment(n int64) int64 {
	if s.first >= s.end || n > (s.end-s.first)/s.unit {
		return s.end
	}
	return s.first + n*s.unit
}

// findFirst finds the first moment at which something is true that does not become false again before the end. It gives the end if nothing is known from there on,
// and Never if there is no end.
func (s *steps) findFirst(isTrue func(k int64) bool) int64 {
	low, high := int64(-1), int64(0)
	for s.moment(high) < s.end && !isTrue(s.moment(high)) {
		low, high = high, 2*high+1
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; s.moment(middle) == s.end || isTrue(s.moment(middle)) {
			high = middle
		} else {
			low = middle
		}
	}
	if found := s.moment(high); found < horizon {
		return found
	}
	return Never
}

// isFine says that the number is one all the time.
func (s *steps) isFine() bool { return isNumber(s.at(0)) && isNumber(s.at(max(s.end-1, 0))) }

// mergeGrid has a number change also when another one does: it is the sum of both.
func (s *steps) mergeGrid(other *steps) {
	s.end = min(s.end, other.end)
	small, large := s, other
	if small.unit > large.unit {
		small, large = large, small
	}
	if large.unit%small.unit == 0 && (large.first-small.first)%small.unit == 0 {
		s.first, s.unit = min(small.first, large.first), small.unit
	} else {
		s.first, s.unit = 1, 1
	}
}

// isNumber says that a value is an int, or a double that can be compared.
func isNumber(v ref.Val) bool {
	switch v := v.(type) {
	case types.Int:
		return true
	case types.Double:
		return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0)
	default:
		return false
	}
}

// signOf gives the sign of a number; 0 for what is none.
func signOf(v ref.Val) types.Int {
	sign, _ := compareNumbers(v, types.IntZero)
	return sign
}

// compareNumbers gives the sign of a-b. It is not ok if one of them is no number.
func compareNumbers(a, b ref.Val) (sign types.Int, ok bool) {
	if !isNumber(a) || !isNumber(b) {
		return 0, false
	}
	sign, ok = a.(traits.Comparer).Compare(b).(types.Int)
	return sign, ok
}

// NoteNextStep notes when a moving number is another one.
func (m *Value) NoteNextStep() {
	m.l.noteChange(m.steps.findFirst(func(k int64) bool {
		sign, ok := compareNumbers(m.steps.at(k), m.now)
		return !ok || sign != 0
	}))
}

// notePassing notes when a moving number compares with n in another way than now. It is not ok if they cannot be compared.
func (m *Value) notePassing(operator string, n ref.Val) bool {
	now, ok := compareNumbers(m.now, n)
	if !ok {
		return false
	}
	if operator != operators.Equals && operator != operators.NotEquals {
		m.l.noteChange(m.steps.findFirst(func(k int64) bool {
			sign, ok := compareNumbers(m.steps.at(k), n)
			return !ok || holds(operator, sign) != holds(operator, now)
		}))
		return true
	}
	passes := m.steps.findFirst(func(k int64) bool {
		sign, ok := compareNumbers(m.steps.at(k), n)
		return !ok || sign != now
	})
	if passes < m.steps.end {
		if sign, ok := compareNumbers(m.steps.at(passes), n); ok && sign == -now && now != 0 { // it was never equal, and goes away
			passes = m.steps.end
		}
	}
	if passes < horizon {
		m.l.noteChange(passes)
	}
	return true
}

// holds says whether an operator holds between two values whose difference has a sign.
func holds(operator string, sign types.Int) bool {
	switch operator {
	case operators.Less:
		return sign < 0
	case operators.LessEquals:
		return sign <= 0
	case operators.Greater:
		return sign > 0
	default:
		return sign >= 0
	}
}

// splitTime says how a part of a time, as a getter of CEL returns it, changes from a moment on. It begins again at the end: of a minute, an hour, a
// day, and so on in the time's own zone, or where the offset of the zone changes.
func splitTime(getter string, at time.Time) (*steps, bool) {
	_, offset := at.Zone()
	fixed := time.FixedZone("", offset)
	year, month, day := at.Date()
	unit, end := 24*time.Hour, time.Time{}
	var read func(time.Time) int
	switch getter {
	case "getMilliseconds":
		unit, end = time.Millisecond, at.Truncate(time.Second).Add(time.Second)
		read = func(t time.Time) int { return t.Nanosecond() / int(time.Millisecond) }
	case "getSeconds":
		unit, end, read = time.Second, time.Date(year, month, day, at.Hour(), at.Minute()+1, 0, 0, fixed), time.Time.Second
	case "getMinutes":
		unit, end, read = time.Minute, time.Date(year, month, day, at.Hour()+1, 0, 0, 0, fixed), time.Time.Minute
	case "getHours":
		unit, end, read = time.Hour, time.Date(year, month, day+1, 0, 0, 0, 0, fixed), time.Time.Hour
	case "getDayOfWeek":
		end = time.Date(year, month, day+7-int(at.Weekday()), 0, 0, 0, 0, fixed)
		read = func(t time.Time) int { return int(t.Weekday()) }
	case "getDate":
		end, read = time.Date(year, month+1, 1, 0, 0, 0, 0, fixed), time.Time.Day
	case "getDayOfMonth":
		end = time.Date(year, month+1, 1, 0, 0, 0, 0, fixed)
		read = func(t time.Time) int { return t.Day() - 1 }
	case "getDayOfYear":
		end = time.Date(year+1, 1, 1, 0, 0, 0, 0, fixed)
		read = func(t time.Time) int { return t.YearDay() - 1 }
	case "getMonth":
		end = time.Date(year+1, 1, 1, 0, 0, 0, 0, fixed)
		read = func(t time.Time) int { return int(t.Month()) - 1 }
	case "getFullYear":
		end, read = at.Add(time.Duration(horizon)), time.Time.Year
	default:
		return nil, false
	}
	if _, zoneEnds := at.ZoneBounds(); !zoneEnds.IsZero() && zoneEnds.Before(end) {
		end = zoneEnds
	}
	s := newSteps(func(k int64) ref.Val { return types.Int(read(at.Add(time.Duration(k)))) }, false, int64(end.Sub(at)))
	s.unit = int64(unit)
	s.first = s.unit - int64(at.Sub(time.Date(year, month, day, 0, 0, 0, 0, fixed)))%s.unit
	return s, true
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
