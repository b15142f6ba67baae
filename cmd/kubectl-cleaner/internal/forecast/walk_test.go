// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/casetest"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/planning"
	"github.com/vtex/cleaner/controllers/liveconfirm"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/planjson"
	"github.com/vtex/cleaner/controllers/plan/schedule"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const week = 7 * 24 * time.Hour

func never() bool { return false }

// clockwork is a cluster whose clock runs, with a Cleaner that is evaluated as the operator evaluates it, and far more often. It shares no
// code with the forecast but what changes objects.
type clockwork struct {
	planning.Decision
	world    *world
	holds    fortimers.Holds
	done     limits.Done
	begun    bool
	reported map[string]bool
	lastTick time.Time
	ended    bool
	// refuses says that a request fails at a moment; nil: none does.
	refuses func(*plan.Step, time.Time) bool
	// happened is what was done.
	happened []string
}

// describeStep is the same for what is predicted and what happens.
func describeStep(at time.Time, rule, verb, kind, namespace, name, key string) string {
	return fmt.Sprintf("%s %s: %s %s %s/%s%s", at.UTC().Format(time.RFC3339Nano), rule, verb, kind, namespace, name, key)
}

// evaluate has the Cleaner decide at a moment, and does what it wants until it wants nothing more. It returns when it is evaluated again.
func (c *clockwork) evaluate(ctx context.Context, t *testing.T, now time.Time) time.Time {
	t.Helper()
	for range 200 {
		owner := c.BuildOwner()
		d := c.Decision
		d.Times.At = now
		due := true
		if work := d.Cleaner.Work; work.Schedule != "" {
			var err error
			if due, _, _, err = schedule.IsDue(work, c.lastTick, owner.Created, now); err != nil {
				t.Fatal(err)
			}
		}
		in := d.MakeInput(ctx, c.world)
		in.Owner, in.Holds, in.Done = owner, c.holds, c.done
		first := plan.ComputePlan(ctx, in)
		if !c.begun {
			in.Holds, c.begun = first.Holds.BeganAt(d.Times.Since), true
		}
		p := liveconfirm.DecideToShow(ctx, c.world, in, first, plan.ComputePlan)
		c.holds = p.Holds
		switch {
		case !due:
		case p.Verdict == v1alpha1.VerdictWait:
			c.reported = nil
		case p.Verdict != v1alpha1.VerdictAct:
		case c.act(t, &in, &p, now):
			continue
		}
		if due && len(p.Pending) == 0 {
			c.lastTick = now
		}
		return p.NextEvaluation()
	}
	t.Fatalf("the Cleaner does not come to rest at %s", now)
	return time.Time{}
}

// act does what a plan wants, and reports whether that changed anything.
func (c *clockwork) act(t *testing.T, in *plan.Input, p *plan.Plan, now time.Time) (changed bool) {
	t.Helper()
	reports := map[string]bool{}
	written := planjson.WritePlan(p, in.Owner, now, nil).Steps
	for i := range p.Steps {
		s, w := &p.Steps[i], &written[i]
		what := describeStep(now, s.Rule, w.Verb, w.Kind, w.Namespace, w.Name, w.Key)
		if !s.IsChange() {
			id := fmt.Sprint(s.Rule, s.Action, w.Kind, w.Namespace, w.Name, w.Key)
			if reports[id] = true; !c.reported[id] {
				c.happened = append(c.happened, what)
			}
			continue
		}
		if !c.changeObject(t, s, now) {
			continue
		}
		changed = true
		c.happened = append(c.happened, what)
		c.done = c.done.AddAction(in.MakeAction(s, now))
	}
	c.reported = reports
	c.world.collectGarbage(now)
	if !c.Cleaner.Work.IsRecurring() {
		c.ended = true
		return false
	}
	return changed
}

func (c *clockwork) changeObject(t *testing.T, s *plan.Step, now time.Time) bool {
	t.Helper()
	o := c.world.findLiving(s.Object.UID)
	if o == nil || c.refuses != nil && c.refuses(s, now) {
		return false
	}
	switch s.Verb {
	case plan.VerbPatch:
		step := *s
		step.Object = *o
		content, err := planning.PatchObject(&step)
		if err != nil {
			t.Fatal(err)
		}
		if cmp.Equal(content, o.Value) {
			return false
		}
		return c.world.ReplaceObject(o.UID, content)
	case plan.VerbRemoveFinalizer:
		c.world.removeFinalizer(o, s.Finalizer)
		return true
	case plan.VerbHelmUninstall:
		c.world.removeRelease(o)
		return true
	default:
		return c.world.deleteObject(o, deletion{at: now, propagation: s.Propagation, grace: s.Grace})
	}
}

// listPredicted lists what is predicted: what happens at exact moments, and at others.
func listPredicted(f *Cleaner) (exact, about []string) {
	for i := range f.Steps {
		s := &f.Steps[i]
		what := describeStep(s.At.Time, s.Rule, s.Verb, s.Kind, s.Namespace, s.Name, s.Key)
		if s.Exact {
			exact = append(exact, what)
		} else {
			about = append(about, what)
		}
	}
	return exact, about
}

// pace is at how many moments a clock stops: minutes of the first hour, and moments by chance.
type pace struct{ minutes, random int }

var (
	slow = pace{minutes: 60, random: 30}
	fast = pace{minutes: 3, random: 3}
)

// walkClock has a clock run to the end of a forecast: through the first hour, moments by chance, those just before, at and just after
// everything that is predicted, and those at which the operator would look. It returns what happened.
func walkClock(t *testing.T, d planning.Decision, objects *snapshot.Objects, f *Cleaner, p pace, refuses func(*plan.Step, time.Time) bool) []string {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	at, until := d.Times.At, d.Times.At.Add(week)
	moments := []time.Time{at}
	for n := range p.minutes {
		moments = append(moments, at.Add(time.Duration(n)*time.Hour/time.Duration(p.minutes)))
	}
	for range p.random {
		moments = append(moments, at.Add(time.Duration(random.Int64N(int64(week)))))
	}
	if work := d.Cleaner.Work; work.Schedule != "" {
		times, err := schedule.ParseSchedule(work)
		if err != nil {
			t.Fatal(err)
		}
		for tick := times.Next(at); !tick.After(until); tick = times.Next(tick) {
			moments = append(moments, tick)
		}
	}
	for i := range f.Steps {
		for _, near := range []time.Duration{-time.Second, -1, 0, 1, time.Second} {
			moments = append(moments, f.Steps[i].At.Add(near))
		}
	}
	moments = slices.DeleteFunc(moments, func(m time.Time) bool { return m.Before(at) || m.After(until) })
	slices.SortFunc(moments, time.Time.Compare)
	moments = slices.CompactFunc(moments, time.Time.Equal)
	c := &clockwork{Decision: withPeriod(d, "48h"), world: newWorld(objects), lastTick: at.Add(-time.Second), refuses: refuses}
	next := until // when the operator evaluates it if nothing happens
	for !c.ended {
		now := next
		if len(moments) > 0 && !moments[0].After(next) {
			now, moments = moments[0], moments[1:]
		}
		if next = c.evaluate(t.Context(), t, now); next.IsZero() || next.After(until) {
			next = until
		}
		if len(moments) == 0 && !now.Before(until) {
			break
		}
	}
	return c.happened
}

// withPeriod is the decision on a Cleaner that is evaluated so often if nothing happens.
func withPeriod(d planning.Decision, period v1alpha1.Duration) planning.Decision {
	c, work, retry := *d.Cleaner, *d.Cleaner.Work, v1alpha1.Retry{}
	if work.Retry != nil {
		retry = *work.Retry
	}
	retry.Period = period
	work.Retry, c.Work, d.Cleaner = &retry, &work, &c
	return d
}

// compareWalk compares a forecast with what happens. If not all is exact, only what is predicted exactly must happen as it is predicted.
func compareWalk(t *testing.T, d planning.Decision, objects *snapshot.Objects, p pace) (f Cleaner, exact int) {
	t.Helper()
	until := d.Times.At.Add(week)
	f = Predict(t.Context(), Input{Decision: d, Objects: objects, Until: until, IsLate: never})
	if f.Cut != "" || f.Omitted > 0 || !f.Until.Equal(until) {
		t.Fatalf("the forecast ends at %s: %s (%d steps omitted)", f.Until, f.Cut, f.Omitted)
	}
	want, about := listPredicted(&f)
	got := walkClock(t, d, objects, &f, p, nil)
	slices.Sort(want)
	if len(about) > 0 || len(f.Unpredictable) > 0 {
		got = slices.DeleteFunc(got, func(what string) bool { return !slices.Contains(want, what) })
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-predicted +happened\n%s", diff)
	}
	return f, len(want)
}

// loadShipped returns all cases of the shipped templates and recipes.
func loadShipped(t *testing.T) []casetest.Case {
	t.Helper()
	var folders []*manifests.Folder
	for _, dir := range []string{"templates", "samples/cookbook"} {
		f, err := manifests.OpenFolder("../../../../config/" + dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		folders = append(folders, f)
	}
	cases, err := casetest.FindCases(folders)
	if err != nil || len(cases) < 100 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	return cases
}

// For each case of the shipped templates and recipes: in a cluster whose clock runs through a week, all that is predicted happens at that
// moment and not a nanosecond earlier, and nothing else happens.
func TestWhatIsPredictedHappens(t *testing.T) {
	l, err := manifests.NewLoader()
	if err != nil {
		t.Fatal(err)
	}
	all, later, unpredictable, other := 0, 0, 0, 0
	of := map[string]int{} // cases of a template or recipe
	for _, one := range loadShipped(t) {
		name := strings.TrimPrefix(one.DisplayDir(), "../../../../config/")
		whole, _, _ := strings.Cut(name, "/testdata/")
		of[whole]++
		p := slow
		if of[whole] > 6 {
			p = fast
		}
		if testing.Short() && of[whole] > 2 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			d, objects, err := casetest.Runner{Loader: l}.LoadCase(t.Context(), one)
			if err != nil {
				t.Fatal(err)
			}
			f, exact := compareWalk(t, d, objects, p)
			all += exact
			for _, u := range f.Unpredictable {
				if u.Because == becauseEviction || u.Because == becauseRate || u.Because == becauseRelease {
					other++
				} else {
					unpredictable++
				}
			}
			for i := range f.Steps {
				if f.Steps[i].At.After(d.Times.At) {
					later++
				}
			}
		})
	}
	if !testing.Short() && (all < 300 || later < 80) || unpredictable > 0 {
		t.Errorf("%d steps are predicted, %d of them later than at once; %d things cannot be predicted, besides %d evictions, rates and releases", all, later, unpredictable, other)
	}
}
