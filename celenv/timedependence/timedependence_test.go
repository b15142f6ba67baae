// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package timedependence

import (
	"math"
	"testing"
	"time"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

var comparisonsOf = map[string]func(a, b int64) bool{
	operators.Less:          func(a, b int64) bool { return a < b },
	operators.LessEquals:    func(a, b int64) bool { return a <= b },
	operators.Greater:       func(a, b int64) bool { return a > b },
	operators.GreaterEquals: func(a, b int64) bool { return a >= b },
	operators.Equals:        func(a, b int64) bool { return a == b },
	operators.NotEquals:     func(a, b int64) bool { return a != b },
}

// firstOther is the first k from 1 on at which an answer is not that at 0.
func firstOther(answer func(k int64) bool) int64 {
	for k := int64(1); k < 100; k++ {
		if answer(k) != answer(0) {
			return k
		}
	}
	return Never
}

// Every crossing of small numbers is where counting finds it.
func TestCrossing(t *testing.T) {
	for operator, compare := range comparisonsOf {
		for distance := int64(-12); distance <= 12; distance++ {
			for slope := int64(-4); slope <= 4; slope++ {
				want := firstOther(func(k int64) bool { return compare(distance+slope*k, 0) })
				if got := findCrossing(operator, distance, slope); got != want {
					t.Errorf("%d%+dk %s 0: got %d, want %d", distance, slope, operator, got, want)
				}
			}
		}
	}
}

// And so is every step of a whole number, up or down.
func TestPasses(t *testing.T) {
	for operator, compare := range comparisonsOf {
		for base := int64(-12); base <= 12; base++ {
			for _, slope := range []int64{-3, -1, 1, 3} {
				for n := int64(-4); n <= 4; n++ {
					l := &Lookout{Until: Never}
					s := newSteps(func(k int64) ref.Val { return types.Int((base + slope*k) / 4) }, slope < 0, 99)
					if m := (&Value{now: s.at(0), steps: s, l: l}); !m.notePassing(operator, types.Int(n)) {
						t.Fatal("numbers cannot be compared")
					}
					want := firstOther(func(k int64) bool { return compare((base+slope*k)/4, n) })
					if l.Until != min(want, 99) && !(want == Never && l.Until == Never) || l.Unknown { // nothing is known from 99 on
						t.Errorf("(%d%+dk)/4 %s %d: got %d, want %d", base, slope, operator, n, l.Until, want)
					}
				}
			}
		}
	}
}

// What is too large is unknown, and never believed to be early or late.
func TestFarAway(t *testing.T) {
	l := &Lookout{Until: Never}
	l.noteCrossing(operators.Less, line{base: math.MinInt64 + 2, slope: 1}, line{base: math.MaxInt64})
	if !l.Unknown {
		t.Errorf("got %+v", l)
	}
	l = &Lookout{Until: Never}
	l.noteCrossing(operators.Less, line{base: 0, slope: 1}, line{base: horizon + 1})
	if l.Until != horizon || l.Unknown {
		t.Errorf("beyond the horizon got %+v", l)
	}
	l = &Lookout{Until: Never}
	if m := l.newMoving(types.Duration{Duration: math.MaxInt64 - 5}, math.MaxInt64-5, 2); !isMoving(m) || l.Until != 2 {
		t.Errorf("what becomes too large after two nanoseconds got %+v", l)
	}
}

// A part of a time lasts until the moment that is said, and is another one then, unless only the offset changes.
func TestTurnOf(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		getter, at string
		place      *time.Location
		want       string
	}{
		"Millisecond":    {"getMilliseconds", "2025-12-31T23:59:59.9995Z", time.UTC, "2026-01-01T00:00:00Z"},
		"Second":         {"getSeconds", "2025-12-31T23:59:59.5Z", time.UTC, "2026-01-01T00:00:00Z"},
		"Minute":         {"getMinutes", "2025-12-31T23:59:00Z", time.UTC, "2026-01-01T00:00:00Z"},
		"Hour":           {"getHours", "2024-02-28T23:00:00Z", time.UTC, "2024-02-29T00:00:00Z"},
		"LeapDay":        {"getDate", "2024-02-29T00:00:00Z", time.UTC, "2024-03-01T00:00:00Z"},
		"Month":          {"getMonth", "2025-01-31T12:00:00Z", time.UTC, "2025-02-01T00:00:00Z"},
		"Year":           {"getFullYear", "2025-06-01T00:00:00Z", time.UTC, "2026-01-01T00:00:00Z"},
		"YearThere":      {"getFullYear", "2025-12-31T22:30:00Z", berlin, "2025-12-31T23:00:00Z"},
		"HourOffset":     {"getHours", "2025-06-01T00:20:00Z", time.FixedZone("", 5*3600+45*60), "2025-06-01T01:15:00Z"},
		"SummerBegins":   {"getDate", "2025-03-29T23:30:00Z", berlin, "2025-03-30T01:00:00Z"},
		"SummerHasBegun": {"getDate", "2025-03-30T01:00:00Z", berlin, "2025-03-30T22:00:00Z"},
		"SummerEnds":     {"getHours", "2025-10-26T00:30:00Z", berlin, "2025-10-26T01:00:00Z"},
		"SummerHasEnded": {"getDayOfYear", "2025-10-26T01:00:00Z", berlin, "2025-10-26T23:00:00Z"},
		"BeforeUnixTime": {"getMinutes", "1969-12-31T23:59:30Z", time.UTC, "1970-01-01T00:00:00Z"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			at := parseMoment(tc.at).In(tc.place)
			s, ok := splitTime(tc.getter, at)
			if !ok {
				t.Fatal("it is no part of a time")
			}
			l := &Lookout{Until: Never}
			(&Value{now: s.at(0), steps: s, l: l}).NoteNextStep()
			if got := at.Add(time.Duration(l.Until)); !got.Equal(parseMoment(tc.want)) {
				t.Errorf("got %s, want %s", got.UTC(), tc.want)
			}
		})
	}
	if _, ok := splitTime("getCentury", parseMoment("2025-06-24T00:00:00Z")); ok {
		t.Error("an unknown part of a time changes")
	}
}

func parseMoment(text string) time.Time {
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return moment
}
