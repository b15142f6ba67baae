// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// A run records as many rows as fit where they are stored, to the byte, and no more.
func TestARunHasRoomForItsRows(t *testing.T) {
	const objects = 1000
	named := func(bytes int) []observed.Object { // so that the names have so many bytes more than they need
		out := many(objects)
		for i := range out {
			more := bytes / objects
			if i < bytes%objects {
				more++
			}
			out[i].Name += strings.Repeat("x", more)
			out[i].UID = types.UID(fmt.Sprint("u", i))
		}
		return out
	}
	spec := &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}}
	stored := func(all []observed.Object) int {
		var texts []string
		for i := range all {
			texts = append(texts, runrow.Row{Rule: runrow.TargetRule("pods"), Ref: all[i].Ref}.String())
		}
		text, err := json.Marshal(texts)
		if err != nil {
			t.Fatal(err)
		}
		return len(text) - len("[]") + len(",")
	}
	room := maxRowBytes - stored(named(0))
	for name, tc := range map[string]struct {
		bytes   int
		verdict v1alpha1.Verdict
		reason  string
	}{
		"Fits":     {room, v1alpha1.VerdictAct, v1alpha1.ReasonConditionsMet},
		"FitsNot":  {room + 1, v1alpha1.VerdictBlocked, v1alpha1.ReasonTooManyObjects},
		"FarBelow": {0, v1alpha1.VerdictAct, v1alpha1.ReasonConditionsMet},
	} {
		t.Run(name, func(t *testing.T) {
			got := ComputePlan(t.Context(), input(t, spec, seen(named(tc.bytes)...)))
			if got.Verdict != tc.verdict || got.Reason != tc.reason || len(got.Steps) != objects {
				t.Errorf("got %s, %s with %d steps: %s", got.Verdict, got.Reason, len(got.Steps), got.Message)
			}
		})
	}
}
