// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/plan"
)

// laggingStep is one on the object a, for the items x and y.
func laggingStep(version string) *plan.Step {
	return &plan.Step{Rule: "r", Keys: []string{"x", "y"}, Object: plan.Object{Ref: plan.Ref{UID: "uid-a", ResourceVersion: version}}}
}

// showing is a target that shows the object a at a version, and another one; no a without a version.
func showing(state plan.TargetState, version string) plan.Target {
	t := plan.Target{State: state, Objects: []plan.Object{{Ref: plan.Ref{UID: "uid-b", ResourceVersion: "1"}}}}
	if version != "" {
		t.Objects = append(t.Objects, plan.Object{Ref: plan.Ref{UID: types.UID("uid-a"), ResourceVersion: version}})
	}
	return t
}

func TestLagging(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		snapshot plan.Snapshot
		lags     bool
	}{
		"Old":         {"the watches show what was known to be old", plan.Snapshot{showing(plan.Complete, "5")}, true},
		"AlsoOld":     {"and each of the old versions is", plan.Snapshot{showing(plan.Complete, "6")}, true},
		"New":         {"the watches have caught up", plan.Snapshot{showing(plan.Complete, "7")}, false},
		"Newer":       {"versions have no order: another one will do", plan.Snapshot{showing(plan.Complete, "9")}, false},
		"Gone":        {"there is no such object any more", plan.Snapshot{showing(plan.Complete, "")}, false},
		"Unknown":     {"nobody knows whether there is one", plan.Snapshot{showing(plan.Unsynced, "")}, true},
		"InASecond":   {"one of the targets shows it", plan.Snapshot{showing(plan.Complete, ""), showing(plan.Complete, "5")}, true},
		"NoneIsKnown": {"one of the targets may show it", plan.Snapshot{showing(plan.Complete, ""), showing(plan.Failed, "")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := Lagging{}
			l.NoteLag(laggingStep("5"), "5", "", "6", "5")
			items := l.ListItems(tc.snapshot)
			for _, key := range []string{"x", "y"} {
				item := plan.ItemKey{Rule: "r", Key: key}
				if _, remembered := l[item]; items[item] != tc.lags || remembered != tc.lags {
					t.Errorf("%s: %s lags: %t, remembered: %t", tc.reason, key, items[item], remembered)
				}
			}
		})
	}
}

// An object that has the key of another one lags by its own versions.
func TestLaggingIsOfOneObject(t *testing.T) {
	l := Lagging{}
	l.NoteLag(laggingStep("5"), "5")
	other := laggingStep("8")
	other.Object.UID = "uid-b"
	l.NoteLag(other, "8")
	lag := l[plan.ItemKey{Rule: "r", Key: "x"}]
	if lag.UID != "uid-b" || len(lag.Old) != 1 || lag.Old[0] != "8" {
		t.Errorf("it lags by %+v", lag)
	}
}

func TestLaggingIsCounted(t *testing.T) {
	var none Lagging
	if none.CountBytes() != 0 || none.ListItems(nil) != nil {
		t.Error("nothing is something")
	}
	l := Lagging{}
	l.NoteLag(laggingStep("5"), "5")
	before := l.CountBytes()
	if l.NoteLag(laggingStep("5"), "6"); before <= 0 || l.CountBytes() <= before {
		t.Errorf("%d bytes, and %d with one more version", before, l.CountBytes())
	}
}
