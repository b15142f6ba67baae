// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"testing"

	"github.com/vtex/cleaner/api/v1alpha1"
)

func TestIsAnswer(t *testing.T) {
	wait := &v1alpha1.ClusterTarget{Name: "t"}
	null := &v1alpha1.ClusterTarget{Name: "t", OnMissing: v1alpha1.OnMissingAsNull}
	unseen := &v1alpha1.ClusterTarget{Name: "t", OnMissing: v1alpha1.OnMissingAsNull, IncludeWhenEvaluating: new(false)}
	for _, state := range []TargetState{Complete, Unsynced, Forbidden, NoSuchKind, Failed} {
		if got, want := IsAnswer(wait, state), state == Complete; got != want {
			t.Errorf("%s answers: %t", state, got)
		}
		if got, want := IsAnswer(null, state), state == Complete || state == NoSuchKind; got != want {
			t.Errorf("%s answers, where null is seen: %t", state, got)
		}
		if got, want := IsAnswer(unseen, state), state == Complete; got != want {
			t.Errorf("%s answers, where nothing is seen: %t", state, got)
		}
	}
}

// TestFindProblem shows which targets hold an evaluation up, and what is said of them.
func TestFindProblem(t *testing.T) {
	one := v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Kind: "Pod", Name: "web"}}
	null := v1alpha1.ClusterTarget{Name: "t", Reference: one, OnMissing: v1alpha1.OnMissingAsNull}
	for name, tc := range map[string]struct {
		target       v1alpha1.ClusterTarget
		seen         Target
		reason, says string
	}{
		"Complete":  {target: v1alpha1.ClusterTarget{Name: "t"}, seen: Target{State: Complete}},
		"Missing":   {target: v1alpha1.ClusterTarget{Name: "t", Reference: one}, seen: Target{State: Complete, Namespaced: true}, reason: v1alpha1.ReasonTargetMissing, says: `Target "t": Pod shop/web does not exist.`},
		"Null":      {target: null, seen: Target{State: Complete}},
		"NoKind":    {target: v1alpha1.ClusterTarget{Name: "t"}, seen: Target{State: NoSuchKind, Detail: "it is not served"}, reason: v1alpha1.ReasonKindNotServed, says: `Target "t": it is not served.`},
		"NullKind":  {target: null, seen: Target{State: NoSuchKind}},
		"Forbidden": {target: null, seen: Target{State: Forbidden, Detail: "no."}, reason: v1alpha1.ReasonAccessDenied, says: `Target "t": no.`},
		"TooLarge":  {seen: Target{State: TooLarge}, reason: v1alpha1.ReasonTooLarge, says: `Target "": .`},
		"Unsynced":  {seen: Target{State: Unsynced}, reason: v1alpha1.ReasonNotSynced, says: `Target "": .`},
		"Failed":    {seen: Target{State: Failed}, reason: v1alpha1.ReasonReadFailed, says: `Target "": .`},
		"Unused":    {target: v1alpha1.ClusterTarget{IncludeWhenEvaluating: new(false)}, seen: Target{State: Failed}},
	} {
		if reason, says := FindProblem(&tc.target, &tc.seen, "shop"); reason != tc.reason || says != tc.says {
			t.Errorf("%s: got %s: %s", name, reason, says)
		}
	}
}
