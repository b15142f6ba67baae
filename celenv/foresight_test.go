// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/common/types/ref"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/timedependence"
)

// foresees evaluates conditions as of now, and says when one gives another answer: never, after how long, not after how
// long, or unknown.
func foresees(t *testing.T, p *Programs, in Input, within time.Duration) string {
	t.Helper()
	e := begin(t, p, in)
	results := e.EvaluateConditions()
	first := e.Foresight()
	e.Close()
	at, exact := p.FindFlip(t.Context(), in, results, first, in.Time.Add(within))
	switch {
	case first.Unknown && at.IsZero():
		return "unknown"
	case first.Unknown:
		return "unknown, or " + at.Sub(in.Time).String()
	case !exact:
		return "not before " + at.Sub(in.Time).String()
	case at.IsZero():
		return "never"
	default:
		return at.Sub(in.Time).String()
	}
}

// A condition changes at the very nanosecond that is foreseen.
func TestFlip(t *testing.T) {
	const decade = 10 * 365 * 24 * time.Hour
	now := at("2025-03-29T12:00:00Z")
	cases := map[string]struct{ condition, want string }{
		"Proposal":    {proposal, "260h0m0s"},
		"After":       {`time - timestamp(svc.ts) > duration("24h")`, "12h0m0.000000001s"},
		"At":          {`time - timestamp(svc.ts) >= duration("24h")`, "12h0m0s"},
		"NotAnyMore":  {`time - timestamp(svc.ts) <= duration("24h")`, "12h0m0.000000001s"},
		"Before":      {`time - timestamp(svc.ts) < duration("24h")`, "12h0m0s"},
		"Sliced":      {`[timestamp(svc.ts), time].slice(1, 2)[0] >= timestamp("2025-03-30T00:00:00Z")`, "12h0m0s"},
		"SlicedAway":  {`[timestamp(svc.ts), time].slice(0, 1)[0] >= timestamp("2025-03-30T00:00:00Z")`, "never"},
		"TextOfTime":  {`string(time) > "2025-03-30"`, "unknown"},
		"TextInAList": {`[string(time)].size() > 0`, "unknown"},
		// Its nanoseconds are too many for an int64, in which they would be those of an instant to come.
		"LongAgo":          {`time > timestamp("1440-09-09T00:25:26.290448384Z")`, "unknown"},
		"LeastDuration":    {`time - timestamp("2025-03-29T12:00:01Z") > duration("-2562047h47m16.854775808s")`, "unknown"},
		"Turned":           {`timestamp(svc.ts) + duration("24h") < time`, "12h0m0.000000001s"},
		"Left":             {`timestamp("2025-03-30T00:00:00Z") - time < duration("1h")`, "11h0m0.000000001s"},
		"Instant":          {`time == timestamp("2025-03-30T00:00:00Z")`, "12h0m0s"},
		"InstantIsNow":     {`time != timestamp("2025-03-29T12:00:00Z")`, "1ns"},
		"InstantIsOver":    {`time == timestamp("2025-03-29T00:00:00Z")`, "never"},
		"Over":             {`time > timestamp("2024-01-01T00:00:00Z")`, "never"},
		"FarAway":          {`time > timestamp("2105-01-01T00:00:00Z")`, "never"},
		"EndOfTime":        {`time > timestamp("9999-01-01T00:00:00Z")`, "unknown"},
		"TwiceAsFast":      {`(time - timestamp(svc.ts)) + (time - timestamp(svc.ts)) >= duration("48h")`, "12h0m0s"},
		"EqualSpeed":       {`time - duration("1h") < time`, "never"},
		"Hours":            {`(time - timestamp(svc.ts)).getHours() >= 24`, "12h0m0s"},
		"Seconds":          {`int(time) - int(timestamp(svc.ts)) > 86400`, "12h0m1s"},
		"SecondsLeft":      {`86400 - (int(time) - int(timestamp(svc.ts))) <= 0`, "12h0m0s"},
		"Days":             {`(int(time) - int(timestamp(svc.ts))) / 86400 >= 7`, "156h0m0s"},
		"OneOfSeconds":     {`int(time) in [1743249601, 5]`, "1s"},
		"OneOfSecondsNow":  {`int(time) in [1743249600, 5]`, "1s"},
		"Remainder":        {`int(time) % 10 == 7`, "7s"},
		"Hour":             {`time.getHours() == 3`, "15h0m0s"},
		"HourOfSummer":     {`time.getHours("Europe/Berlin") == 3`, "13h0m0s"}, // at 01:00Z the clock goes from 02:00 to 03:00
		"DayOfSummer":      {`time.getDate("Europe/Berlin") == 31`, "34h0m0s"},
		"WeekdayOfSummer":  {`time.getDayOfWeek("Europe/Berlin") == 1`, "34h0m0s"},
		"MonthOfSummer":    {`time.getMonth("Europe/Berlin") == 3`, "58h0m0s"},
		"DayOfYear":        {`time.getDayOfYear() > 87`, "12h0m0s"},
		"Offset":           {`time.getDate("+05:45") == 30`, "6h15m0s"},
		"NegativeOffset":   {`time.getDate("-03:30") == 30`, "15h30m0s"},
		"Weekday":          {`time.getDayOfWeek() == 1 && time.getHours() >= 9`, "45h0m0s"},
		"Year":             {`time.getFullYear() > 2025`, "6660h0m0s"},
		"Milliseconds":     {`time.getMilliseconds() >= 20`, "20ms"},
		"ShiftedHour":      {`(time + duration("90m")).getHours() == 14`, "30m0s"},
		"TooOften":         {`int(time) % 10 == 17`, "not before 5m30s"},
		"SecondsOfDay":     {`int(time) % 86400 < 3600`, "12h0m0s"},
		"Fraction":         {`double(int(time) - int(timestamp(svc.ts))) / 3600.0 > 13.0`, "1h0m1s"},
		"Clock":            {`time.getHours() * 60 + time.getMinutes() >= 1350`, "10h30m0s"},
		"ClockOfSummer":    {`time.getHours("Europe/Berlin") * 60 + time.getMinutes("Europe/Berlin") == 210`, "13h30m0s"}, // there is no 02:30
		"SortedMoving":     {`[time, timestamp("2025-03-29T18:00:00Z")].sortBy(t, t)[0] == time`, "6h0m0.000000001s"},
		"Youngest":         {`revisions.items.sortBy(r, age(r))[0].metadata.name == "b"`, "never"},
		"MinByAge":         {`age(revisions.items.minBy(r, age(r)).value()) > duration("5h")`, "1h0m0.000000001s"},
		"SumOfAges":        {`revisions.items.map(r, age(r)).sum() >= duration("48h")`, "8h0m0s"},
		"Multiplied":       {`2 * (time - timestamp(svc.ts)) >= duration("48h")`, "12h0m0s"},
		"Merged":           {`{"a": time}.merge({"b": timestamp(svc.ts)}).a > timestamp("2025-03-30T00:00:00Z")`, "12h0m0.000000001s"},
		"NameOfDay":        {`["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][time.getDayOfWeek()] == "Mon"`, "36h0m0s"},
		"NamedMonths":      {`[time.getMonth()].map(m, ["Jan", "Feb", "Mar", "Apr"][m])[0] == "Apr"`, "60h0m0s"},
		"Minute":           {`time.getMinutes() == 59`, "59m0s"},
		"Text":             {`string(time).startsWith("2026")`, "unknown"},
		"TextAfterwards":   {`time < timestamp("2025-03-29T13:00:00Z") || string(time) != "x"`, "not before 1h0m0s"},
		"TextAndMore":      {`string(time).startsWith("2026") || time - timestamp(svc.ts) > duration("24h")`, "unknown, or 12h0m0.000000001s"},
		"Max":              {`[time, timestamp(svc.ts) + duration("24h")].max() > timestamp(svc.ts) + duration("24h")`, "12h0m0.000000001s"},
		"Min":              {`revisions.items.map(r, time - timestamp(r.ts)).min() >= duration("24h")`, "20h0m0s"},
		"Bound":            {`cel.bind(old, time - timestamp(svc.ts) > duration("24h"), (old && svc.no) || (old && svc.yes))`, "12h0m0.000000001s"},
		"BoundDuration":    {`cel.bind(age, time - timestamp(svc.ts), age > duration("24h") && age < duration("48h"))`, "12h0m0.000000001s"},
		"Exists":           {`revisions.items.exists(r, time - timestamp(r.ts) > duration("24h"))`, "12h0m0.000000001s"},
		"All":              {`revisions.items.all(r, time - timestamp(r.ts) > duration("24h"))`, "20h0m0.000000001s"},
		"Count":            {`revisions.items.filter(r, time - timestamp(r.ts) > duration("24h")).size() >= 2`, "16h0m0.000000001s"},
		"ShortCircuit":     {`has(svc.nope) && time > timestamp(svc.nope)`, "never"},
		"Irrelevant":       {`!has(svc.nope) || time > timestamp(svc.ts) + duration("24h")`, "never"},
		"Error":            {`time > timestamp(svc.nope)`, "never"},
		"ErrorLater":       {`time < timestamp(svc.ts) + duration("24h") || svc.nope`, "12h0m0s"},
		"ErrorUntil":       {`time > timestamp(svc.ts) + duration("24h") || svc.nope`, "12h0m0.000000001s"},
		"Either":           {`svc.yes ? time > timestamp(svc.ts) + duration("24h") : time > timestamp(svc.ts) + duration("18h")`, "12h0m0.000000001s"},
		"EitherTime":       {`(time > timestamp(svc.ts) + duration("18h") ? time : timestamp(svc.ts)) > timestamp(svc.ts) + duration("15h")`, "6h0m0.000000001s"},
		"Map":              {`{"a": time}["a"] > timestamp("2025-03-30T00:00:00Z")`, "12h0m0.000000001s"},
		"MapField":         {`{"a": time}.a > timestamp("2025-03-30T00:00:00Z")`, "12h0m0.000000001s"},
		"List":             {`[1, 2].map(x, time - duration("1h")).exists(t, t > timestamp("2025-03-30T00:00:00Z"))`, "13h0m0.000000001s"},
		"Reversed":         {`[svc.ts, svc.ts].map(x, time - timestamp(x)).reverse().first().value() > duration("24h")`, "12h0m0.000000001s"},
		"Optional":         {`optional.of(time).orValue(timestamp(0)) > timestamp("2025-03-30T00:00:00Z")`, "12h0m0.000000001s"},
		"OptionalNone":     {`svc.?nope.optMap(d, time - timestamp(d) > duration("1h")).orValue(time > timestamp("2025-03-30T00:00:00Z"))`, "12h0m0.000000001s"},
		"OptionalSome":     {`svc.?ts.optMap(d, time - timestamp(d)).orValue(duration("0s")) > duration("24h")`, "12h0m0.000000001s"},
		"TransformedKeys":  {`{"x": timestamp(svc.ts)}.transformMap(k, v, time - v).exists(k, k == "x")`, "never"},
		"TransformedMap":   {`{"x": timestamp(svc.ts)}.transformMap(k, v, time - v)["x"] > duration("24h")`, "12h0m0.000000001s"},
		"Dynamic":          {`dyn(time) > dyn(timestamp("2025-03-30T00:00:00Z"))`, "12h0m0.000000001s"},
		"Age":              {`revisions.items.all(r, age(r) >= duration("24h"))`, "20h0m0s"},
		"Type":             {`type(time) == google.protobuf.Timestamp`, "unknown"},
		"TimeAsKey":        {`{time: 1}.size() == 1`, "unknown"},
		"TimeAsIndex":      {`[1, 2, 3][int(time) - 1743249600] == 2`, "1s"},
		"TimesInAList":     {`time in [timestamp("2025-03-30T00:00:00Z")]`, "12h0m0s"},
		"EqualLists":       {`[time] == [timestamp("2025-03-30T00:00:00Z")]`, "unknown"},
		"Set":              {`sets.contains([time], [timestamp("2025-03-30T00:00:00Z")])`, "unknown"},
		"SortedByTime":     {`[3, 1, 2].sortBy(x, time - duration("1h"))[0] == 3`, "never"},
		"Written":          {`json.marshal([time]).size() > 3`, "unknown"},
		"Formatted":        {`"%s".format([time]).size() > 3`, "unknown"},
		"TooLarge":         {`time + duration("2500000h") > time`, "unknown"},
		"NoTime":           {`svc.yes`, "never"},
		"GlobalInALoop":    {`[timestamp(0)].all(time, .time > timestamp("2025-03-30T00:00:00Z"))`, "12h0m0.000000001s"},
		"HiddenByALoop":    {`[timestamp(svc.ts)].all(time, time > timestamp("2025-03-30T00:00:00Z"))`, "never"},
		"NestedLoops":      {`revisions.items.exists(a, revisions.items.exists(b, timestamp(a.ts) + duration("30h") < time && timestamp(b.ts) + duration("16h") < time))`, "18h0m0.000000001s"},
		"TwoConditionsOne": {`time - timestamp(svc.ts) > duration("24h") ? svc.nope : svc.yes`, "12h0m0.000000001s"},
	}
	item := func(name, ts string) any {
		return map[string]any{"ts": ts, "metadata": map[string]any{"name": name, "creationTimestamp": ts}}
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := Input{Time: now, Targets: map[string]any{
				"svc":       map[string]any{"ts": "2025-03-29T00:00:00Z", "yes": true, "no": false},
				"revisions": list(item("a", "2025-03-29T00:00:00Z"), item("b", "2025-03-29T08:00:00Z"), item("c", "2025-03-29T04:00:00Z")),
			}}
			if name == "Proposal" {
				in.Targets["revisions"] = list(revision("a", "sfj-1", "False", "2025-03-12T20:00:00Z"),
					revision("b", "sfj-2", "False", "2025-03-25T08:00:00Z"), revision("c", "sfj-3", "False", "2025-03-14T22:00:00Z"))
			}
			if got := foresees(t, programs(t, c, tc.condition), in, decade); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.condition, got, tc.want)
			}
		})
	}
}

// A variable that reads the time bounds everybody who reads it, whoever has it computed.
func TestForesightThroughVariables(t *testing.T) {
	w := spec("variables.age > duration('24h')", "variables.old || svc.yes", "variables.name == 'x' && variables.old")
	w.Variables = variablesOf([]string{
		"age: time - timestamp(svc.ts)", "old: variables.age > duration('20h')", "name: svc.name", "text: string(time)", "sum: variables.age + variables.age",
	})
	p := compileWork(t, budget.Limits{}, w)
	in := Input{Time: at("2025-03-29T12:00:00Z"), Targets: map[string]any{
		"revisions": list(), "svc": map[string]any{"ts": "2025-03-29T00:00:00Z", "yes": false, "name": "x"},
	}}
	if got := foresees(t, p, in, 100*time.Hour); got != "8h0m0.000000001s" {
		t.Errorf("got %s", got)
	}
	in.Time = at("2025-03-29T21:00:00Z")
	if got := foresees(t, p, in, 100*time.Hour); got != "3h0m0.000000001s" {
		t.Errorf("later got %s", got)
	}
	w.Conditions = []string{"svc.yes", "svc.yes && variables.text == ''"}
	if got := foresees(t, compileWork(t, budget.Limits{}, w), in, 100*time.Hour); got != "never" {
		t.Errorf("what is not read got %s", got)
	}
	w.Conditions = []string{"variables.text == ''", "variables.sum >= duration('54h')"}
	if got := foresees(t, compileWork(t, budget.Limits{}, w), in, 100*time.Hour); got != "unknown, or 6h0m0s" {
		t.Errorf("a text got %s", got)
	}
}

// What is asked about items counts, one by one, and so do those that are asked together.
func TestForesightOfRules(t *testing.T) {
	old := func(hours int) string { return fmt.Sprintf(`age(item) > duration("%dh")`, hours) }
	base := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "true", Variables: variablesOf([]string{
		`old: age(item) > duration("24h")`, `due: timestamp(item.metadata.creationTimestamp) + duration("24h")`, `shared: variables.noon && variables.old`,
	})}
	cases := map[string]struct {
		change func(*v1alpha1.Rule)
		ask    func(*testing.T, []*Item, *RuleEvaluation)
		want   string
	}{
		"When":          {func(r *v1alpha1.Rule) { r.When = old(24) }, nil, "12h0m0.000000001s"},
		"Variable":      {func(r *v1alpha1.Rule) { r.When = "variables.old" }, nil, "12h0m0.000000001s"},
		"OtherVariable": {func(r *v1alpha1.Rule) { r.When = "time >= variables.due" }, nil, "12h0m0s"},
		"Shared":        {func(r *v1alpha1.Rule) { r.When = "variables.shared" }, nil, "3h0m0s"},
		"ForEach":       {func(r *v1alpha1.Rule) { r.ForEach = "pods.items.filter(p, age(p) > duration('18h'))" }, nil, "6h0m0.000000001s"},
		"MovingItems":   {func(r *v1alpha1.Rule) { r.ForEach = "pods.items.map(p, age(p))" }, nil, "unknown"},
		"Unless": {func(r *v1alpha1.Rule) { r.Unless = old(24) }, func(_ *testing.T, items []*Item, _ *RuleEvaluation) {
			for _, i := range items {
				_, _ = i.EvaluateUnless()
			}
		}, "12h0m0.000000001s"},
		"NotAsked": {func(r *v1alpha1.Rule) { r.Unless = old(24) }, nil, "never"},
		"Group": {func(r *v1alpha1.Rule) { r.GroupBy = "age(item).getHours() / 24" }, func(_ *testing.T, items []*Item, _ *RuleEvaluation) {
			_, _ = items[1].EvaluateGroup()
		}, "16h0m0s"},
		"Keep": {func(r *v1alpha1.Rule) {
			r.Keep = new(intstr.FromString("time > timestamp('2025-03-29T13:00:00Z') ? 1 : 2"))
		},
			func(t *testing.T, items []*Item, r *RuleEvaluation) {
				if n, err := r.EvaluateKeep(items); n != 2 || err != nil {
					t.Error(n, err)
				}
			}, "1h0m0.000000001s"},
		"Patch": {func(r *v1alpha1.Rule) {
			r.Actions = []v1alpha1.RuleAction{{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"a": age(object) > duration("24h") ? "old" : "young"}`}}}
		}, func(t *testing.T, items []*Item, r *RuleEvaluation) {
			if _, err := r.EvaluatePatch(0, items[0].AsObject(), items[:1]); err != nil {
				t.Error(err)
			}
			if _, err := r.EvaluatePatch(0, items[1].AsObject(), items); err != nil {
				t.Error(err)
			}
		}, "12h0m0.000000001s"},
		"Reason": {func(r *v1alpha1.Rule) { r.Reason = "string(time)" }, func(t *testing.T, items []*Item, _ *RuleEvaluation) {
			if text, err := items[0].EvaluateReason(); text != "2025-03-29T12:00:00Z" || err != nil {
				t.Error(text, err)
			}
		}, "never"},
		"Order":       {func(r *v1alpha1.Rule) { r.OrderBy = []v1alpha1.OrderBy{{Expression: "age(item)"}} }, order, "never"},
		"OrderByText": {func(r *v1alpha1.Rule) { r.OrderBy = []v1alpha1.OrderBy{{Expression: "string(age(item))"}} }, order, "unknown"},
		"OrderByDay":  {func(r *v1alpha1.Rule) { r.OrderBy = []v1alpha1.OrderBy{{Expression: "age(item).getHours() / 24"}} }, order, "12h0m0s"},
		"OrderOvertakes": {func(r *v1alpha1.Rule) {
			r.OrderBy = []v1alpha1.OrderBy{{Expression: "item.metadata.name == 'a' ? age(item) : duration('14h')"}}
		}, order, "unknown"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rule := base
			tc.change(&rule)
			p := compileWork(t, budget.Limits{}, podWork([]string{"noon: time < timestamp('2025-03-29T15:00:00Z')"}, rule))
			born := func(name, ts string) any {
				return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "creationTimestamp": ts}}
			}
			e := begin(t, p, Input{Time: at("2025-03-29T12:00:00Z"), Targets: map[string]any{"nodes": list(), "config": nil,
				"pods": list(born("a", "2025-03-29T00:00:00Z"), born("b", "2025-03-29T04:00:00Z"))}})
			defer e.Close()
			r := e.SelectRule(0)
			all := items(t, r)
			for _, i := range all {
				if _, err := i.EvaluateWhen(); err != nil {
					t.Error(err)
				}
			}
			if tc.ask != nil {
				tc.ask(t, all, r)
			}
			f, got := e.Foresight(), "never"
			switch {
			case f.Unknown:
				got = "unknown"
			case !f.Until.IsZero():
				got = f.Until.Sub(e.getTime()).String()
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// What says what holds is foreseen by itself, whatever else of a rule cannot be.
func TestForesightOfWhatHolds(t *testing.T) {
	const never = "string(time) == ''"
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Rule)
		want   bool // that it can be foreseen
	}{
		"Nothing":    {func(*v1alpha1.Rule) {}, true},
		"ForEach":    {func(r *v1alpha1.Rule) { r.ForEach = "pods.items.filter(p, !(" + never + "))" }, false},
		"When":       {func(r *v1alpha1.Rule) { r.When = "!(" + never + ")" }, false},
		"Variable":   {func(r *v1alpha1.Rule) { r.Variables, r.When = variablesOf([]string{"x: " + never}), "!variables.x" }, false},
		"For":        {func(r *v1alpha1.Rule) { r.For = never + " ? '1m' : '2m'" }, false},
		"ForKey":     {func(r *v1alpha1.Rule) { r.For, r.ForKey = "1m", "string(time)" }, false},
		"Key":        {func(r *v1alpha1.Rule) { r.Key = "string(time)" }, false},
		"Unless":     {func(r *v1alpha1.Rule) { r.Unless = never }, true},
		"GroupBy":    {func(r *v1alpha1.Rule) { r.GroupBy = never }, true},
		"OrderBy":    {func(r *v1alpha1.Rule) { r.OrderBy = []v1alpha1.OrderBy{{Expression: "string(age(item))"}} }, true},
		"ActionWhen": {func(r *v1alpha1.Rule) { r.Actions[0].When = never }, true},
		"Patch": {func(r *v1alpha1.Rule) {
			r.Actions[0] = v1alpha1.RuleAction{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"a": string(time)}`}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			rule := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "true", Actions: []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}}
			tc.change(&rule)
			p := compileWork(t, budget.Limits{}, podWork([]string{"noon: time < timestamp('2025-03-29T15:00:00Z')"}, rule))
			pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a", "creationTimestamp": "2025-03-29T00:00:00Z"}}
			e := begin(t, p, Input{Time: at("2025-03-29T12:00:00Z"), Targets: map[string]any{"nodes": list(), "config": nil, "pods": list(pod)}})
			defer e.Close()
			r := e.SelectRule(0)
			for _, i := range items(t, r) {
				_, whenErr := i.EvaluateWhen()
				_, forErr := i.EvaluateFor()
				_, forKeyErr := i.EvaluateForKey()
				_, keyErr := i.EvaluateKey()
				_, unlessErr := i.EvaluateUnless()
				_, groupErr := i.EvaluateGroup()
				_, orderErr := i.EvaluateOrder()
				_, actionErr := i.EvaluateActionWhen(0)
				for _, err := range []*expr.Error{whenErr, forErr, forKeyErr, keyErr, unlessErr, groupErr, orderErr, actionErr} {
					if err != nil {
						t.Error(err)
					}
				}
				if rule.Actions[0].Patch != nil {
					if _, err := r.EvaluatePatch(0, i.AsObject(), []*Item{i}); err != nil {
						t.Error(err)
					}
				}
			}
			if known := !e.HoldForesight().Unknown; known != tc.want {
				t.Errorf("what holds is foreseen: %t", known)
			}
			if known := !e.Foresight().Unknown; known != (name == "Nothing") {
				t.Errorf("all is foreseen: %t", known)
			}
		})
	}
	p := programs(t, newCompiler(t, budget.Limits{}), "!("+never+")")
	e := begin(t, p, Input{Time: at("2025-01-02T00:00:00Z"), Targets: map[string]any{"revisions": list(), "svc": nil}})
	defer e.Close()
	if e.EvaluateConditions(); !e.HoldForesight().Unknown {
		t.Error("a condition says what holds, and is foreseen")
	}
}

func order(_ *testing.T, items []*Item, _ *RuleEvaluation) {
	for _, i := range items {
		_, _ = i.EvaluateOrder()
	}
}

// What is foreseen is paid for apart: no answer costs more, or has less, because of it. Where it is too dear nothing is
// foreseen.
func TestForesightIsPaidApart(t *testing.T) {
	p := programs(t, newCompiler(t, budget.Limits{Steps: 25}), `[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(x, time > timestamp("2025-01-01T00:00:00Z"))`, "[1, 2, 3].all(x, x > 0)")
	in := Input{Time: at("2025-01-02T00:00:00Z"), Targets: map[string]any{"revisions": list(), "svc": nil}}
	e := begin(t, p, in)
	results := e.EvaluateConditions()
	if results[0].Cost != 10 || results[1].Cost != 3 || results[1].Err != nil {
		t.Errorf("got %v", results)
	}
	if f := e.Foresight(); f.Unknown || !f.Until.IsZero() {
		t.Errorf("got %v", f)
	}
	e.Close()

	p = programs(t, newCompiler(t, budget.Limits{Steps: 25}), `[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(x, [time, time, time].max() > timestamp("2025-01-01T00:00:00Z"))`)
	if got := foresees(t, p, in, time.Hour); got != "unknown" {
		t.Errorf("what is too dear got %s", got)
	}
	if got := p.EvaluateConditions(t.Context(), in); !got[0].Value {
		t.Errorf("the answer is %v", got[0])
	}
}

// When answers have taken half of the time that there is, the rest is for answers alone.
func TestForesightLeavesTimeForAnswers(t *testing.T) {
	p := programs(t, newCompiler(t, budget.Limits{Wall: time.Hour}), `time > timestamp("2025-01-01T00:00:00Z")`)
	in := Input{Time: at("2025-01-02T00:00:00Z"), Targets: map[string]any{"revisions": list(), "svc": nil}}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // as if 40 of the 60 minutes were over
	defer cancel()
	e, problem := p.BeginEvaluation(short, in)
	if problem != nil {
		t.Fatal(problem)
	}
	defer e.Close()
	if got := e.EvaluateConditions(); !got[0].Value || !e.Foresight().Unknown {
		t.Errorf("got %v, and %v is foreseen", got, e.Foresight())
	}
}

// Flip ends, and asks no more often than it may.
func TestFlipIsBounded(t *testing.T) {
	evaluations := 0
	c := newCompiler(t, budget.Limits{})
	c.calls.Charges["matchesSelector"] = budget.Charge{BeforeCall: func(*budget.Meter, []ref.Val) ref.Val { evaluations++; return nil }}
	in := Input{Time: at("2025-01-01T01:00:00Z"), Targets: map[string]any{"svc": young(), "revisions": list()}}
	cases := map[string]struct {
		condition string
		within    time.Duration
		want      string
		most      int // twice for each moment: for the answer, and to look ahead
	}{
		"Beyond":    {`time > timestamp("2025-01-01T07:00:00Z")`, 5 * time.Hour, "never", 0},
		"TheEnd":    {`time >= timestamp("2025-01-01T06:00:00Z")`, 5 * time.Hour, "5h0m0s", 1},
		"Once":      {`time > timestamp("2025-01-01T03:00:00Z")`, 5 * time.Hour, "2h0m0.000000001s", 1},
		"EachHour":  {`time.getHours() == 5`, 5 * time.Hour, "4h0m0s", 7},
		"NotLong":   {`time.getHours() == 5`, 3 * time.Hour, "never", 6},
		"EachSound": {`int(time) % 10 == 17`, 5 * time.Hour, "not before 5m30s", 64},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := programs(t, c, `svc.metadata.?labels.orValue({}).size() == 0 && !matchesSelector({}, {}) || `+tc.condition)
			_ = p.EvaluateConditions(t.Context(), in)
			evaluations = 0
			got := foresees(t, p, in, tc.within)
			if n := evaluations - 2; got != tc.want || n > tc.most {
				t.Errorf("got %s after %d evaluations, want %s after at most %d", got, n, tc.want, tc.most)
			}
		})
	}
	p := programs(t, c, `time.getHours() == 5`)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if at, exact := p.FindFlip(over, in, []Result{{}}, Foresight{Until: in.Time.Add(time.Hour)}, in.Time.Add(5*time.Hour)); exact || !at.Equal(in.Time.Add(time.Hour)) {
		t.Errorf("who is interrupted got %s, %t", at, exact)
	}
}

// Where a condition cannot be asked any more, nobody knows whether it is another one then.
func TestAFlipThatCannotBeAskedIsNotExact(t *testing.T) {
	asked, stops := 0, false
	c := newCompiler(t, budget.Limits{})
	c.calls.Charges["matchesSelector"] = budget.Charge{BeforeCall: func(m *budget.Meter, _ []ref.Val) ref.Val {
		if asked++; stops && asked > 2 { // once for the answer, and once to look ahead
			m.StopEvaluation(&expr.Error{Kind: expr.Exhausted, Message: "it takes too long"})
		}
		return nil
	}}
	in := Input{Time: at("2025-01-01T01:00:00Z"), Targets: map[string]any{"svc": young(), "revisions": list()}}
	p := programs(t, c, `!matchesSelector({}, {}) || time.getHours() == 5`)
	_ = p.EvaluateConditions(t.Context(), in)
	for _, want := range []string{"4h0m0s", "not before 4h0m0s"} {
		asked = 0
		if got := foresees(t, p, in, 5*time.Hour); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		stops = true
	}
}

// Only expressions that read the time have a second program, and only once it was of use.
func TestOnlyTheTimeIsForeseen(t *testing.T) {
	p := programs(t, newCompiler(t, budget.Limits{}), "svc == null", "time > timestamp('2025-01-01T00:00:00Z')")
	in := Input{Time: at("2025-01-02T00:00:00Z"), Targets: map[string]any{"revisions": list(), "svc": nil}}
	if p.conditions[1].ahead.planned {
		t.Error("it was planned before it was of use")
	}
	_ = p.EvaluateConditions(t.Context(), in)
	if p.conditions[0].ahead != nil || p.conditions[1].ahead.program == nil {
		t.Errorf("%v and %v", p.conditions[0].ahead, p.conditions[1].ahead)
	}
}

// The functions of which it is known how their results go on. Another one has to be proven first to only rise or only fall.
func TestFollowedFunctions(t *testing.T) {
	var got []string
	for name := range newCompiler(t, budget.Limits{}).env.Functions() {
		if timedependence.KeepsMovement(name) || timedependence.CountsElements(name) {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	want := strings.Fields(`-_ _%_ _*_ _+_ _-_ _/_ cel.@mapInsert double duration dyn first getDate getDayOfMonth getDayOfWeek getDayOfYear
		getFullYear getHours getMilliseconds getMinutes getMonth getSeconds hasValue int last math.ceil math.floor math.round math.trunc max merge
		min optional.of reverse size slice sum timestamp value`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What cannot be foreseen, or changes every second, is warned of at its place, in what counts and in the variables that this reads. Nothing is said of
// what is foreseen.
func TestUnforeseenIsWarnedOf(t *testing.T) {
	const unknown, often = "cannot be predicted", "changes every second"
	for when, want := range map[string]string{
		`string(time) == ""`: "1:1 string " + unknown,
		`item.x && age(item) > duration("1h") && string(age(item)) == ""`: "1:41 string " + unknown,
		`"%s".format([time]) == ""`:                                       "1:6 format " + unknown,
		`{time: 1}.size() == 1`:                                           "1:2 looked up " + unknown,
		`[time] == [timestamp(item.x)]`:                                   "1:8 equal " + unknown,
		`pods.items.map(p, age(p)).sort()[0] > duration("1h")`:            "1:27 sort " + unknown,
		`variables.text == ""`:                                            "variables[1].expression 1:1 string " + unknown,
		`variables.own == ""`:                                             "rules[0].variables[0].expression 1:1 string " + unknown,
		`string(variables.due) == ""`:                                     "1:1 string " + unknown,
		`string(int(time)) == ""`:                                         "1:1 string " + often,
		`timestamp(int(time) / 2) < time`:                                 "1:1 timestamp " + often,
		`[1, 2][(int(time) - 5) % 2] == 1`:                                "1:24 looked up " + often,

		`int(time) % 86400 < 3600`:                                                                    "",
		`double(int(time) - int(timestamp(item.x))) > 2.5`:                                            "",
		`time.getHours() * 60 + time.getMinutes() >= 1350`:                                            "",
		`pods.items.sortBy(p, age(p))[0] == item`:                                                     "",
		`pods.items.minBy(p, age(p)).value() == item`:                                                 "",
		`string(time.getHours()) + string(int(time) / 3600) in ["1"]`:                                 "",
		`timestamp(int(time) / 86400 * 86400) < time`:                                                 "",
		`["a", "b"][time.getDayOfWeek() % 2] == "a"`:                                                  "",
		`time in [timestamp(item.x)] && int(time) in [1, 2]`:                                          "",
		`pods.items.map(p, age(p)).sum() > duration("1h")`:                                            "",
		`2 * age(item) > params.wait`:                                                                 "",
		`pods.items.all(p, age(p) > params.wait)`:                                                     "",
		`cel.bind(a, age(item), a > params.wait && a < duration("9h"))`:                               "",
		`json.marshal({"a": item.x}) == ""`:                                                           "",
		`pods.items.map(p, {"name": p.metadata.name, "age": age(p)}).exists(e, string(e.name) == "")`: "",
	} {
		w := podWork([]string{"due: timestamp('2025-01-01T00:00:00Z') - (time - timestamp('2025-01-01T00:00:00Z'))", "text: string(time)"},
			v1alpha1.Rule{Name: "r", ForEach: "pods.items", Variables: variablesOf([]string{"own: string(time)"}), When: when})
		checkUnforeseen(t, w, when, want)
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Rule)
		want   string
	}{
		"Reason": {func(r *v1alpha1.Rule) { r.Reason = "string(time)" }, ""},
		"Patch": {func(r *v1alpha1.Rule) {
			r.Actions[0] = v1alpha1.RuleAction{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"a": string(time)}`}}
		}, ""},
		"Group": {func(r *v1alpha1.Rule) { r.GroupBy = "age(item)" }, "rules[0].groupBy 1:4 what it gives " + unknown},
		"Order": {func(r *v1alpha1.Rule) { r.OrderBy = []v1alpha1.OrderBy{{Expression: "age(item)"}} }, ""},
		"Seconds": {func(r *v1alpha1.Rule) {
			r.OrderBy = []v1alpha1.OrderBy{{Expression: "int(time) - int(timestamp(item.x))"}}
		}, "rules[0].orderBy[0].expression 1:11 what it gives " + often},
	} {
		rule := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "true", Actions: []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}}
		tc.change(&rule)
		checkUnforeseen(t, podWork(nil, rule), name, tc.want)
	}
}

// checkUnforeseen checks what is warned of: where, and words of what is said.
func checkUnforeseen(t *testing.T, w *v1alpha1.Work, what, want string) {
	t.Helper()
	var got []string
	for _, w := range compileWork(t, budget.Limits{}, w).Warnings() {
		if w.Hint == "" || w.Snippet == "" {
			t.Errorf("%s: nobody says what to write in %+v", what, w)
		}
		got = append(got, fmt.Sprintf("%s %d:%d %s", w.Path, w.Line, w.Column, w.Message))
	}
	text := strings.Join(got, ", ")
	place, words, _ := strings.Cut(want, " ")
	if want == "" && text != "" || want != "" && (len(got) != 1 || !strings.Contains(text, place)) {
		t.Errorf("%s: got %q, want %q", what, text, want)
	}
	for _, word := range strings.Fields(words) {
		if !strings.Contains(text, word) {
			t.Errorf("%s: got %q, want %q", what, text, want)
		}
	}
}
