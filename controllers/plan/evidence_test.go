// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// A target that could not be read as a whole fails each read of one of its objects, and of no other target.
func TestAReadFailsWithItsTarget(t *testing.T) {
	in := evidence{&Input{Unreadable: map[observed.Read]string{{Target: 1, All: true}: "no", {Target: 2, Name: "n"}: "nor this"}}}
	for read, want := range map[observed.Read]string{
		{Target: 1, All: true}: "no", {Target: 1, Name: "n"}: "no", {Target: 2, Name: "n"}: "nor this",
		{Target: 2, Name: "m"}: "", {Target: 2, All: true}: "", {Target: 3, Name: "n"}: "",
	} {
		if got, failed := in.findReadError(read); got != want || failed != (want != "") {
			t.Errorf("%+v fails with %q (%t), want %q", read, got, failed, want)
		}
	}
}

// In an open run only the conditions need live reads, because its rows are read by themselves. A Recurring Cleaner that deletes targets
// also needs what its expressions see, unless its run is open.
func TestGateReads(t *testing.T) {
	nodesTarget, podsTarget := observed.Read{Target: 0, All: true}, observed.Read{Target: 1, All: true}
	for name, tc := range map[string]struct {
		recurs, deletes, acting bool
		want                    []observed.Read
	}{
		"Once":               {false, true, false, nil},
		"OpenRun":            {false, true, true, []observed.Read{nodesTarget}},
		"Recurring":          {true, false, false, []observed.Read{nodesTarget}},
		"RecurringTargets":   {true, true, false, []observed.Read{nodesTarget, podsTarget}},
		"RecurringRunIsOpen": {true, true, true, []observed.Read{nodesTarget}},
	} {
		work := &v1alpha1.Work{
			CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"nodes.items.size() > 0"}},
			Targets:    []v1alpha1.ClusterTarget{target("nodes", "Node"), target("pods", "Pod", func(t *v1alpha1.ClusterTarget) { t.Delete = tc.deletes })},
		}
		if tc.recurs {
			work.Lifecycle = v1alpha1.LifecycleRecurring
		}
		in := over(t, work)
		in.OpenRun = tc.acting
		if diff := cmp.Diff(tc.want, evidence{&in}.gateReads()); diff != "" {
			t.Errorf("%s: reads (-want +got):\n%s", name, diff)
		}
	}
}

// The names of a target that was read as a whole cost no further reads, however many there are.
func TestNamesOfAWholeTargetAreNoReads(t *testing.T) {
	work := cluster(rule(func(r *v1alpha1.Rule) {
		for i := range 3 {
			r.Confirm = append(r.Confirm, v1alpha1.Confirm{Target: "nodes", Name: fmt.Sprintf(`lists.range(%d).map(i, "%d-" + string(i))`, MaxReads/2, i)})
		}
	}))
	in := over(t, work)
	in.Snapshot, in.Batch, in.Reads = observed.Snapshot{seen(p("a")), nodesSeen(), poolsSeen()}, 10, MaxReads
	in.Confirmed = map[observed.Read]bool{{Target: 1, All: true}: true}
	if got := ComputePlan(t.Context(), in); len(got.Errors) > 0 || len(got.Steps) != 1 {
		t.Errorf("it wants %v, with errors %v", shorts(got.Steps), got.Errors)
	}
}

// NextCheck is set only if it is before Next: nothing is due earlier.
func TestNextCheckIsBeforeNext(t *testing.T) {
	for name, tc := range map[string]struct {
		period v1alpha1.Duration
		checks bool
	}{"Before": {"2h", true}, "After": {"30m", false}, "AtTheSameTime": {"1h", false}} {
		work := cluster(rule(func(r *v1alpha1.Rule) { r.When = `age(item) >= duration("1h")` }))
		work.Retry = &v1alpha1.Retry{Period: tc.period}
		o := p("a")
		aged(&o)
		in := over(t, work, o)
		in.Now = born
		got := ComputePlan(t.Context(), in)
		if checks := !got.NextCheck.IsZero(); checks != tc.checks || got.NextEvaluation().IsZero() {
			t.Errorf("%s: NextCheck %s, Next %s", name, got.NextCheck, got.Next)
		}
	}
}

func TestDescribeConditionsMet(t *testing.T) {
	once, recurring := &v1alpha1.Work{}, &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Lifecycle: v1alpha1.LifecycleRecurring}}
	for _, tc := range []struct {
		spec       *v1alpha1.Work
		conditions int
		want       string
	}{
		{once, 0, "No conditions are set, and the ttl has expired."},
		{once, 1, "All conditions are true."},
		{recurring, 0, "There are items to act on."},
		{recurring, 1, "All conditions are true."},
	} {
		if got := describeConditionsMet(tc.spec, tc.conditions); got != tc.want {
			t.Errorf("%d conditions: %q, want %q", tc.conditions, got, tc.want)
		}
	}
}
