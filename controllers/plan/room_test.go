// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// heap is how many bytes are in use.
func heap() int64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

// What is counted for holds is what they take, however long the names are that an author gives items.
func TestHoldsTakeWhatTheyAreCountedWith(t *testing.T) {
	for items, long := range map[int]int{1000: 900, 15_000: 900, 60_000: 10} {
		work := cluster(rule(func(r *v1alpha1.Rule) {
			r.ForEach, r.Key, r.For = fmt.Sprintf("lists.range(%d)", items), fmt.Sprintf("%q + string(item)", strings.Repeat("x", long)), "1h"
			r.Actions = []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}
		}))
		in := over(t, work)
		before := heap()
		got := ComputePlan(t.Context(), in)
		holds, message := got.Holds, got.Message
		got = Plan{}
		if took := heap() - before; len(holds["r"].Since) != items || took > holds.Bytes()+(1<<18) {
			t.Errorf("%d holds take %d KiB, and are counted with %d KiB: %s", len(holds["r"].Since), took>>10, holds.Bytes()>>10, message)
		}
		runtime.KeepAlive(holds)
		runtime.KeepAlive(in)
	}
}

// Where there is no room for more holds those that began first go on, and the others do not begin: status says so.
func TestHoldsBeyondTheirRoomDoNotBegin(t *testing.T) {
	work := cluster(rule(func(r *v1alpha1.Rule) { r.For = "10m" }))
	acted := func(p Plan) (names []string) {
		for i := range p.Steps {
			names = append(names, p.Steps[i].Object.Name)
		}
		return names
	}
	look := func(at time.Duration, holds fortimers.Holds, room int, names ...string) Plan {
		var objects []observed.Object
		for _, name := range names {
			objects = append(objects, p(name))
		}
		in := over(t, work, objects...)
		in.Now, in.Holds, in.Room = born.Add(at), holds, &Room{Holds: room, DoneBytes: 1 << 20}
		return ComputePlan(t.Context(), in)
	}
	first := look(time.Hour, nil, 2, "x", "y")
	second := look(time.Hour+5*time.Minute, first.Holds, 2, "a", "x", "y")
	const message = `rule "r", item "Pod shop/a": spec.rules[0].for: too many items wait and take too much memory: the timer does not start for some of them; select fewer items in when, or use for in fewer Cleaners of the namespace`
	if len(second.Holds["r"].Since) != 2 || len(second.Pending) != 2 || len(second.Errors) != 1 || second.Errors[0].Count != 1 || second.Reason != v1alpha1.ReasonEvaluationFailed ||
		!strings.HasSuffix(second.Message, message) {
		t.Errorf("%d holds, %v pending, %+v: %s %s", len(second.Holds["r"].Since), second.Pending, second.Errors, second.Reason, second.Message)
	}
	third := look(time.Hour+10*time.Minute, second.Holds, 2, "a", "x", "y")
	if got := fmt.Sprint(acted(third)); got != "[x y]" {
		t.Errorf("%s are acted on, want [x y]: %s", got, third.Message)
	}
	fourth := look(time.Hour+11*time.Minute, third.Holds, 2, "a")
	fifth := look(time.Hour+12*time.Minute, fourth.Holds, 2, "a")
	sixth := look(time.Hour+22*time.Minute, fifth.Holds, 2, "a")
	if len(acted(fourth))+len(acted(fifth)) > 0 || fmt.Sprint(acted(sixth)) != "[a]" {
		t.Errorf("what had no room is acted on at %v, %v and %v, and not ten minutes after there was", acted(fourth), acted(fifth), acted(sixth))
	}
	if none := look(time.Hour, nil, 0, "a"); len(acted(none)) > 0 || len(none.Holds["r"].Since) > 0 {
		t.Errorf("without room %v are acted on", acted(none))
	}
}

// However little room there is, nothing is acted on that would not be with all the room there is.
func TestLessRoomNeverActsEarlier(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		work := cluster(rule(func(r *v1alpha1.Rule) {
			r.When, r.For = `has(item.spec.done) && item.spec.done == "yes"`, "20s"
			r.ForKey = rapid.SampledFrom([]string{"", "item.spec.node"}).Draw(rt, "forKey")
		}))
		now := born.Add(time.Hour)
		var ample, narrow fortimers.Holds
		for range 10 {
			now = now.Add(time.Duration(rapid.IntRange(0, 25).Draw(rt, "passes")) * time.Second)
			in := over(t, work, drawnPods(rt)...)
			in.Now, in.Holds = now, ample
			all := ComputePlan(t.Context(), in)
			in.Holds, in.Room = narrow, &Room{Holds: rapid.IntRange(0, 4).Draw(rt, "room"), DoneBytes: 1 << 20}
			some := ComputePlan(t.Context(), in)
			if known, room := narrow.CountHolds(), in.Room.Holds; some.Holds.CountHolds() > max(room, known) {
				rt.Fatalf("%d holds have room for %d, and there were %d", some.Holds.CountHolds(), room, known)
			}
			ample, narrow = all.Holds, some.Holds
			may := all.ListItems()
			for item := range some.ListItems() {
				if !may[item] {
					rt.Fatalf("%v is acted on early", item)
				}
			}
		}
	})
}

// What limits count has the room that is shared, and no more than is for one Cleaner.
func TestDoneHasTheRoomThatIsThere(t *testing.T) {
	work := cluster(rule())
	work.Limits = &v1alpha1.Limits{MaxActions: 100}
	in := over(t, work, p("a"))
	s := Step{Rule: "r", Verb: VerbDelete, Object: p("x"), Keys: []string{"x"}}
	in.Done = in.Done.AddAction(in.MakeAction(&s, in.Now))
	for name, tc := range map[string]struct {
		room *Room
		full bool
	}{
		"Alone":  {nil, false},
		"Enough": {&Room{DoneBytes: in.Done.CountBytes() + 1}, false},
		"None":   {&Room{DoneBytes: in.Done.CountBytes()}, true},
	} {
		in.Room = tc.room
		got := ComputePlan(t.Context(), in)
		if blocked := got.Reason == v1alpha1.ReasonLimitExceeded; blocked != tc.full || blocked && !strings.Contains(got.Message, "too much memory") {
			t.Errorf("%s: got %s: %s", name, got.Reason, got.Message)
		}
	}
}
