// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// laggingStep is one on the object a, for the items x and y.
func laggingStep(version string) *plan.Step {
	return &plan.Step{Rule: "r", Keys: []string{"x", "y"}, Object: observed.Object{Ref: observed.Ref{UID: "uid-a", ResourceVersion: version}}}
}

// showing is a target that shows the object a at a version, and another one; no a without a version.
func showing(state observed.TargetState, version string) observed.Target {
	t := observed.Target{State: state, Objects: []observed.Object{{Ref: observed.Ref{UID: "uid-b", ResourceVersion: "1"}}}}
	if version != "" {
		t.Objects = append(t.Objects, observed.Object{Ref: observed.Ref{UID: types.UID("uid-a"), ResourceVersion: version}})
	}
	return t
}

// second is a moment of these tests.
func second(n int) time.Time { return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC) }

func TestLagging(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		live     string
		snapshot observed.Snapshot
		lags     bool
	}{
		"Old":         {"the watches show what was known to be old", "8", observed.Snapshot{showing(observed.Complete, "5")}, true},
		"AlsoOld":     {"and each of the old versions is", "8", observed.Snapshot{showing(observed.Complete, "6")}, true},
		"Older":       {"the watches are behind the live read still", "8", observed.Snapshot{showing(observed.Complete, "7")}, true},
		"Live":        {"the watches have caught up", "8", observed.Snapshot{showing(observed.Complete, "8")}, false},
		"Newer":       {"the watches are ahead", "8", observed.Snapshot{showing(observed.Complete, "10")}, false},
		"NoOrder":     {"versions that are no numbers have no order: another one will do", "h", observed.Snapshot{showing(observed.Complete, "g")}, false},
		"NoOrderOld":  {"but none that is known to be old", "h", observed.Snapshot{showing(observed.Complete, "6")}, true},
		"Gone":        {"there is no such object any more", "8", observed.Snapshot{showing(observed.Complete, "")}, false},
		"Unknown":     {"nobody knows whether there is one", "8", observed.Snapshot{showing(observed.Unsynced, "")}, true},
		"InASecond":   {"one of the targets shows it", "8", observed.Snapshot{showing(observed.Complete, ""), showing(observed.Complete, "5")}, true},
		"NoneIsKnown": {"one of the targets may show it", "8", observed.Snapshot{showing(observed.Complete, ""), showing(observed.Failed, "")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := Lagging{}
			l.NoteLag(laggingStep("5"), tc.live, second(0), "5", "", "6", "5")
			items := l.ListItems(tc.snapshot, second(1))
			for _, key := range []string{"x", "y"} {
				if since, lags := items[plan.ItemKey{Rule: "r", Key: key}]; lags != tc.lags || lags && !since.Equal(second(0)) {
					t.Errorf("%s: %s lags: %t", tc.reason, key, !tc.lags)
				}
			}
		})
	}
}

// The watches have shown what a live read showed: what they hide now has happened since.
func TestIsBlind(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		shown  string
		looked int
		uid    types.UID
		now    int
		blind  bool
	}{
		"Soon":      {"less is unknown than a hold bears", "8", 1, "uid-a", 5, false},
		"TooLate":   {"more is unknown than a hold bears", "8", 1, "uid-a", 6, true},
		"Behind":    {"the watches have not shown it", "7", 1, "uid-a", 2, true},
		"Replaced":  {"of another object nothing is known", "8", 1, "uid-b", 2, true},
		"Forgotten": {"it was long ago", "8", 11, "uid-a", 12, true},
		"ClockBack": {"a clock was set back", "8", 1, "uid-a", -1, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, s := Lagging{}, laggingStep("9")
			if s.BlindFor = 5 * time.Second; !l.IsBlind(s, second(0)) {
				t.Error("it is known without any read")
			}
			l.NoteLag(s, "8", second(0), "5")
			if l.ListItems(observed.Snapshot{showing(observed.Complete, tc.shown)}, second(tc.looked)); tc.looked > 10 && len(l) > 0 {
				t.Errorf("remembers %v", l)
			}
			s.Object.UID = tc.uid
			if l.IsBlind(s, second(tc.now)) != tc.blind {
				t.Errorf("%s: blind: %t", tc.reason, !tc.blind)
			}
		})
	}
}

// What lags again after it has caught up waits for the new version.
func TestLaggingAgain(t *testing.T) {
	l, s := Lagging{}, laggingStep("9")
	l.NoteLag(s, "8", second(0), "5")
	l.ListItems(observed.Snapshot{showing(observed.Complete, "8")}, second(1))
	l.NoteLag(s, "10", second(7), "8")
	if items := l.ListItems(observed.Snapshot{showing(observed.Complete, "9")}, second(8)); len(items) != 2 {
		t.Errorf("waiting are %v", items)
	}
	if items := l.ListItems(observed.Snapshot{showing(observed.Complete, "10")}, second(9)); len(items) != 0 {
		t.Errorf("waiting are %v", items)
	}
}

// An object that has the key of another one lags by its own versions.
func TestLaggingIsOfOneObject(t *testing.T) {
	l := Lagging{}
	l.NoteLag(laggingStep("5"), "6", second(0), "5")
	other := laggingStep("8")
	other.Object.UID = "uid-b"
	l.NoteLag(other, "9", second(0), "8")
	lag := l[LaggingKey{plan.ItemKey{Rule: "r", Key: "x"}, "uid-b"}]
	if len(lag.Old) != 1 || lag.Old[0] != "8" || lag.Live != "9" {
		t.Errorf("it lags by %+v", lag)
	}
}

// An item that is about two objects, which both change all the time, waits for neither of them for ever.
func TestLaggingOfTwoObjectsOfAnItem(t *testing.T) {
	l, steps := Lagging{}, []*plan.Step{laggingStep(""), laggingStep("")}
	for i, s := range steps {
		s.Object.UID, s.BlindFor = []types.UID{"uid-a", "uid-b"}[i], 5*time.Second
	}
	for now := range 10 {
		old, live := strconv.Itoa(10+now), strconv.Itoa(11+now)
		l.ListItems(observed.Snapshot{{State: observed.Complete, Objects: []observed.Object{
			{Ref: observed.Ref{UID: "uid-a", ResourceVersion: old}}, {Ref: observed.Ref{UID: "uid-b", ResourceVersion: old}},
		}}}, second(now))
		blind := false
		for _, s := range steps {
			if l.IsBlind(s, second(now)) {
				blind = true
				l.NoteLag(s, live, second(now), old)
			}
		}
		if !blind {
			return
		}
	}
	t.Errorf("it waits for ever: %v", l)
}

func TestLaggingIsCounted(t *testing.T) {
	var none Lagging
	if none.CountBytes() != 0 || none.ListItems(nil, second(0)) != nil {
		t.Error("nothing is something")
	}
	l := Lagging{}
	l.NoteLag(laggingStep("5"), "7", second(0), "5")
	before := l.CountBytes()
	if l.NoteLag(laggingStep("5"), "7", second(0), "6"); before <= 0 || l.CountBytes() <= before {
		t.Errorf("%d bytes, and %d with one more version", before, l.CountBytes())
	}
}
