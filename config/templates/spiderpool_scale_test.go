// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/controllers/liveconfirm"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Up to as many records as its README says, spiderpool-ip looks at all of them, and frees those that are leaked. Above, it says that it cannot. The
// test has a tenth of the records and of what an evaluation may build and do, because what that takes grows with the records.
func TestSpiderpoolIPOfManyRecords(t *testing.T) {
	text, err := os.ReadFile("spiderpool-ip/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if said := "about 400,000 records together"; !strings.Contains(string(text), said) {
		t.Errorf("the README does not say %q", said)
	}
	const part = 10
	for name, tc := range map[string]struct {
		records int
		fits    bool
	}{
		"Fits":    {400_000, true},
		"TooMany": {800_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := budget.Limits{}.WithDefaults(0)
			l.Steps, l.AllSteps, l.Growth, l.Value, l.Retained, l.Items = l.Steps/part, l.AllSteps/part, l.Growth/part, l.Value/part, l.Retained/part, l.Items/part
			l.Wall, l.SearchWall = time.Hour, time.Hour // however slow this machine is
			compiler, err := celenv.NewCompiler(celenv.Options{Limits: l})
			if err != nil {
				t.Fatal(err)
			}
			c, world := compiled(t, compiler, "spiderpool-ip", map[string]any{"observedFor": "0s"}), gathering{gone: 20}.gather(t, tc.records/part, 250)
			in := plan.Input{
				Owner: plan.Owner{Name: "ip", UID: "ip", Created: start.Add(-time.Hour)}, Spec: c.work, Programs: c.programs, Now: start, Snapshot: snapshot.ReadTargets(t.Context(), world, "", c.work),
			}
			first := plan.ComputePlan(t.Context(), in)
			in.Batch, in.Reads, in.Only = 1000, plan.MaxReads, first.ListItems()
			p, _, _ := liveconfirm.Decide(t.Context(), liveconfirm.Readers{Live: world}, in, first, plan.ComputePlan, liveconfirm.Never)
			if !tc.fits {
				if p.Reason != v1alpha1.ReasonEvaluationFailed || !strings.Contains(p.Message, "the evaluation ") {
					t.Errorf("%d records are too many, and it says %s: %s", tc.records, p.Reason, p.Message)
				}
				return
			}
			freed, released := 0, 0
			for i := range p.Steps {
				switch step := &p.Steps[i]; {
				case step.Verb == plan.VerbRemoveFinalizer && step.Confirmed:
					released++
				case step.Verb == plan.VerbPatch && step.Confirmed:
					freed += len(step.ListItems())
				}
			}
			if freed != 20 || released != 1 || len(first.Errors) > 0 || len(p.Errors) > 0 {
				t.Errorf("%d records: %s: %s: frees %d, and releases %d", tc.records, p.Reason, p.Message, freed, released)
			}
		})
	}
}
