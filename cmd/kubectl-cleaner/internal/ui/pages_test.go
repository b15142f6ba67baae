// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/forecast"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/whynot"
	"github.com/vtex/cleaner/controllers/plan/planjson"
)

// hostile is text that would be markup, a style, a script or a link if it were not escaped.
const hostile = `"><script>forged()</script><style>*{}</style></title></textarea><a href="javascript:forged()">' onload='forged()' {{.CSRF}}` + "\x1b[31m\u202e"

// fill returns a Cleaner whose texts are all this one.
func fill(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := object(t, preview)
	status := map[string]any{
		"observedGeneration": int64(1), "nextScheduledEvaluation": "2026-01-01T13:30:00Z",
		"conditions": []any{
			map[string]any{"type": "Ready", "status": "False", "reason": text, "message": text, "lastTransitionTime": "2026-01-01T11:00:00Z"},
			map[string]any{"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": "2026-01-01T11:00:00Z"},
		},
		"lastEvaluation": map[string]any{
			"time": "2026-01-01T11:00:00Z", "verdict": text, "reason": text, "message": "It is " + text,
			"conditions": []any{map[string]any{"expression": text, "value": true}, map[string]any{"expression": text, "error": text}},
			"errors":     []any{map[string]any{"rule": text, "key": text, "field": text, "message": text, "count": int64(3)}}, "withheld": []any{map[string]any{"object": text, "because": text}},
		},
		"pending": []any{map[string]any{"rule": text, "key": text, "until": "2026-01-01T13:30:00Z"}}, "findings": []any{map[string]any{"rule": text, "count": int64(7), "items": []any{text}, "message": text}},
		"lastActions":     []any{map[string]any{"object": text, "rule": text, "action": text, "time": "2026-01-01T11:00:00Z", "result": text}},
		"ruleCounts":      []any{map[string]any{"rule": text, "items": int64(8), "matched": int64(4), "deferred": int64(1), "acted": int64(3)}},
		"resolvedTargets": []any{text}, "resolvedTargetCount": int64(5),
		"run": map[string]any{"number": int64(3), "decides": text, "decidedAt": "2026-01-01T11:00:00Z", "result": text, "message": text, "counts": []any{map[string]any{"resource": text, "outcome": text, "count": int64(2)}}},
	}
	u.Object["status"] = status
	spec := u.Object["spec"].(map[string]any)
	spec["schedule"], spec["cloudEventSink"], spec["templateRef"], spec["mode"] = text, text, map[string]any{"name": text}, text
	spec["targets"] = []any{map[string]any{"name": text, "delete": true, "reference": map[string]any{"version": "v1", "kind": text, "name": text, "fieldSelector": text, "matchLabels": map[string]any{"app": text}}}}
	return u
}

// fillCommands returns commands whose texts are all this one.
func fillCommands(text string) *commands {
	step := planjson.Step{Rule: text, Verb: text, Kind: text, Namespace: text, Name: text, Key: text, Subresource: text, Reason: text}
	return &commands{
		plan: &planjson.Plan{
			Verdict: v1alpha1.Verdict(text), Reason: text, At: planjson.Moment{Time: begin}, Warnings: []string{text}, Conditions: []planjson.Condition{{Expression: text, Error: text}}, Steps: []planjson.Step{step},
			Withheld: []planjson.Withheld{{Step: step, Because: text}}, Pending: []planjson.Pending{{Rule: text, Key: text, Until: planjson.Moment{Time: begin}}}, Errors: []planjson.Error{{Rule: text, Key: text, Expression: text, Message: text}},
			Shadowed: []planjson.Shadow{{Rule: text, By: text, Object: text, Items: 3}}, Counts: []planjson.Count{{Rule: text, Items: 3, Matched: 2, Errors: 1}},
		},
		explains: &whynot.Explanation{
			Cleaner: text, Object: text, Answer: text, At: planjson.Moment{Time: begin}, Targets: []whynot.Target{{Name: text, Because: text}},
			Rules: []whynot.Rule{{Name: text, Step: whynot.Step(text), Item: text, Because: text, Until: planjson.Moment{Time: begin}, Parts: []whynot.Part{
				{Of: text, Expression: text, Value: text}, {Of: text, Depth: 1, Expression: text, Error: text}, {Of: text, Depth: 40, Expression: text, NotNeeded: true},
			}}},
		},
		wanted:   map[string][]Wanted{"preview": {{UID: "a", Kind: text, Created: begin}}},
		predicts: []forecast.Cleaner{{Kind: text, Cleaner: text, Until: planjson.Moment{Time: begin.Add(time.Hour)}, Steps: []forecast.Step{{At: planjson.Moment{Time: begin}, Step: step}}, Warnings: []string{text}}},
	}
}

var (
	tags   = regexp.MustCompile(`<[^>]*>`)
	quoted = regexp.MustCompile(`"[^"]*"`)
)

// listTags lists the tags of a page, without the values of attributes.
func listTags(page string) []string {
	var out []string
	for _, tag := range tags.FindAllString(page, -1) {
		out = append(out, quoted.ReplaceAllString(tag, `""`))
	}
	return out
}

// What tenants wrote is text: all pages have the same elements and attributes, whatever the texts are.
func TestHostileTexts(t *testing.T) {
	read := func(text string) map[string]string {
		c := fillCommands(text)
		s := newSite(t, c, fill(t, text))
		s.Server.Context, s.Server.Address = text, text
		s.fleet.setSource("Cleaner", source{Limit: describeError(errors.New(text)), Problem: describeError(errors.New(text))})
		out := map[string]string{}
		for _, path := range []string{"/", "/cleaners/team/preview", "/cleaners/team/preview/plan", "/cleaners/team/preview/forecast", "/cleaners/team/preview/spec", "/cleaners/team/preview/object?name=pod/a", "/forecast?until=7d", "/waste?count=now"} {
			out[path] = s.page(http.StatusOK, path)
		}
		c.err = errors.New(text)
		out["no plan"] = s.page(http.StatusOK, "/cleaners/team/preview/plan")
		out["no forecast"] = s.page(http.StatusOK, "/forecast?until=7d")
		out["no answer"] = s.page(http.StatusOK, "/cleaners/team/preview/object?name="+url.QueryEscape(text))
		out["no waste"] = s.page(http.StatusOK, "/waste?count=now")
		out["refused"] = s.ask(http.MethodPost, "/cleaners/team/preview/run", map[string][]string{csrfField: {s.guard.csrf}}).Body.String()
		return out
	}
	harmless, got := read("harmless"), read(hostile)
	for name, page := range got {
		if want := listTags(harmless[name]); !slices.Equal(listTags(page), want) {
			t.Errorf("%s: the elements are\n%v\nand not\n%v", name, listTags(page), want)
		}
		if !strings.Contains(page, "forged()") {
			t.Errorf("%s does not show the text", name)
		}
		if strings.ContainsAny(page, "\x1b\u202e") || strings.Contains(page, "ZgotmplZ") {
			t.Errorf("%s has characters that are not shown, or a text at a place where none may be", name)
		}
	}
}

// The filter is text too.
func TestHostileFilter(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	read := func(text string) []string {
		f := filter{Namespace: text, Text: text, Tone: toneQuiet, Page: 3}
		return append(listTags(s.page(http.StatusOK, f.address())), slices.Concat(listTags(s.page(http.StatusOK, "/forecast"+strings.TrimPrefix(f.address(), "/"))), listTags(s.page(http.StatusOK, "/waste"+strings.TrimPrefix(f.address(), "/"))))...)
	}
	if want, got := read("harmless"), read(hostile); !slices.Equal(want, got) {
		t.Errorf("the elements are\n%v\nand not\n%v", got, want)
	}
	for _, path := range []string{"/%2e%2e/%3Cscript%3Eforged()", "/cleaners/%3Cscript%3E/%3Cscript%3E"} {
		if got := s.page(http.StatusNotFound, path); strings.Contains(got, "<script>") {
			t.Errorf("%s: it has a script", path)
		}
	}
}

// Pages keep to the policy: nothing is inline, and nothing is loaded from elsewhere. And readers find their way without seeing them.
func TestPagesAreOfOnePiece(t *testing.T) {
	c := fillCommands("some")
	s := newSite(t, c, object(t, preview))
	inline := regexp.MustCompile(`(?i)<script>|<script [^>]*>[^<]|<style| style=| on[a-z]+=|javascript:|https?://`)
	for _, path := range []string{"/", "/cleaners/team/preview", "/cleaners/team/preview/plan", "/cleaners/team/preview/forecast", "/cleaners/team/preview/spec", "/cleaners/team/preview/object", "/cleaners/team/preview/object?name=pod/a", "/forecast", "/forecast?until=7d", "/waste", "/waste?count=now"} {
		page := s.page(http.StatusOK, path)
		if found := inline.FindString(strings.ReplaceAll(page, "https://cluster.example", "")); found != "" {
			t.Errorf("%s has %q", path, found)
		}
		if n := strings.Count(page, "<h1"); n != 1 {
			t.Errorf("%s has %d main headings", path, n)
		}
		wants(t, page, `<html lang="en">`, `<header `, `<nav aria-label="Pages">`, `<main id="main"`, `<footer `, `href="#main"`, `aria-current="page"`, `name="viewport"`)
		ids := map[string]bool{}
		for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			if ids[m[1]] {
				t.Errorf("%s: two elements have the id %s", path, m[1])
			}
			ids[m[1]] = true
		}
		for _, m := range regexp.MustCompile(` aria-labelledby="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			if !ids[m[1]] {
				t.Errorf("%s: no element has the id %s", path, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`<th( [^>]*)?>`).FindAllStringSubmatch(page, -1) {
			if !strings.Contains(m[1], "scope=") {
				t.Errorf("%s: a header has no scope", path)
			}
		}
		for _, m := range regexp.MustCompile(`<[a-z]+ [^>]*data-live[^>]*>`).FindAllString(page, -1) {
			if !strings.Contains(m, " id=") {
				t.Errorf("%s: the script cannot find %s", path, m)
			}
		}
	}
	for path := range s.pages.assets {
		if text := string(s.pages.assets[path]); strings.Contains(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), "http") || strings.Contains(text, "@import") || strings.Contains(text, "url(") {
			t.Errorf("%s loads something", path)
		}
	}
}

func TestState(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	got := s.page(http.StatusOK, "/cleaners/team/preview")
	wants(t, got,
		"Rule old: 2 items wait.", `<time datetime="2026-01-01T13:30:00Z">2026-01-01 14:30:00 CET</time> <span class="away muted">in 90m</span>`, "1,234 actions", "2 actions", "delete", "ConfigMap shop/a",
		"ConfigMap with labels app=web", "Times are in CET (UTC&#43;01:00).", `action="/cleaners/team/preview/suspend"`, `data-events="/events?name=preview&amp;namespace=team&amp;since=`+s.fleet.id+`.7"`)
	if strings.Contains(got, "earlier generation") || strings.Contains(got, "/resume") {
		t.Error("it is up to date, and not suspended")
	}
	u := object(t, preview)
	u.SetGeneration(3)
	if err := unstructured.SetNestedField(u.Object, true, "spec", "suspend"); err != nil {
		t.Fatal(err)
	}
	wants(t, newSite(t, &commands{}, u).page(http.StatusOK, "/cleaners/team/preview"), "earlier generation of the spec", `action="/cleaners/team/preview/resume"`)
	unseen := object(t, "kind: ClusterCleaner\nmetadata: {name: everywhere}\nspec: {}")
	wants(t, newSite(t, &commands{}, unseen).page(http.StatusOK, "/clustercleaners/everywhere"), "The operator has not seen it yet, or is not running.", "It has not acted yet.")
	wants(t, s.page(http.StatusNotFound, "/cleaners/team/none"), "Cannot read Cleaner team/none", "not found")
	wants(t, s.page(http.StatusOK, "/cleaners/team/preview/spec"), "spec:\n  lifecycle: Recurring", "forEach: maps.items")
}

// The counts of rules in the status are a funnel on the page of the state.
func TestFunnelOfState(t *testing.T) {
	u := object(t, preview)
	counts := []any{map[string]any{"rule": "old", "items": int64(8000), "matched": int64(4000), "kept": int64(1000), "deferred": int64(7), "acted": int64(2993)}}
	for i := range maxRows {
		counts = append(counts, map[string]any{"rule": fmt.Sprintf("rule-%d", i)})
	}
	if err := unstructured.SetNestedSlice(u.Object, counts, "status", "ruleCounts"); err != nil {
		t.Fatal(err)
	}
	got := newSite(t, &commands{}, u).page(http.StatusOK, "/cleaners/team/preview")
	wants(t, got, `<h2 id="rules">Rules</h2>`, "<h3>old</h3>", `<td class="number">8,000</td>`, `width="50.00%"`, `Deferred <span class="muted">after a failed action</span>`, `<td class="number">7</td>`, "2,993", "1 more rule not shown")
	if n := strings.Count(got, "<h3>rule-"); n != maxRows-1 {
		t.Errorf("it shows %d rules", n)
	}
	if strings.Contains(newSite(t, &commands{}, object(t, preview)).page(http.StatusOK, "/cleaners/team/preview"), `id="rules"`) {
		t.Error("without counts, there is nothing to show")
	}
}

// The page of an object says what becomes of it, with the values of the parts of expressions.
func TestObject(t *testing.T) {
	parts := []whynot.Part{
		{Of: "when", Expression: `item.status.phase == "Failed"`, Value: "false"}, {Of: "when", Depth: 1, Expression: "item.status.phase", Value: `"Running"`},
		{Of: "variables.old", Expression: "age(item)", Error: "no such key"}, {Of: "variables.old", Depth: 30, Expression: "later", NotNeeded: true},
	}
	for range 2 * maxRows {
		parts = append(parts, whynot.Part{Of: "when", Expression: "more", Value: "1"})
	}
	c := &commands{explains: &whynot.Explanation{
		Cleaner: "team/preview", Object: "pod/team/web-1", Answer: "The Cleaner does not act on it.", At: planjson.Moment{Time: begin},
		Targets: []whynot.Target{{Name: "pods", Selected: true}, {Name: "nodes", Because: "it is of another kind"}},
		Rules:   []whynot.Rule{{Name: "failed", Step: "when", Because: "it is false", Parts: parts}, {Name: "second", Step: "when", Parts: parts}},
	}}
	s := newSite(t, c, object(t, preview))
	if got := s.page(http.StatusOK, "/cleaners/team/preview/object"); len(c.asked) > 0 || !strings.Contains(got, "What this Cleaner makes of one object") {
		t.Errorf("without a name it asks for %q and shows\n%s", c.asked, got)
	}
	got := s.page(http.StatusOK, "/cleaners/team/preview/object?name=+pod/team/web-1")
	wants(t, got, `<h2 id="answer">The Cleaner does not act on it.</h2>`, `value="pod/team/web-1"`, "It is selected.", "It is not selected: it is of another kind", "<strong>when</strong>: it is false",
		"<caption>when</caption>", "<caption>variables.old</caption>", `class="depth1"><code>item.status.phase</code>`, "&#34;Running&#34;", `class="bad">no such key`, `class="depth8"><code>later</code>`, `class="muted">not needed`,
		"204 more parts not shown", "404 more parts not shown")
	if want := []string{"explain preview pod/team/web-1"}; !slices.Equal(c.asked, want) {
		t.Errorf("it asks for %q, not %q", c.asked, want)
	}
	c.err = errors.New(`"x" names no object`)
	wants(t, s.page(http.StatusOK, "/cleaners/team/preview/object?name=x"), `<h2 id="noanswer">There is no answer</h2><p>&#34;x&#34; names no object</p>`, `value="x"`)
}

// The waste counts each object once, by kind and age, and is computed only when the user asks.
func TestWaste(t *testing.T) {
	at := func(days float64) time.Time { return begin.Add(-time.Duration(days * 24 * float64(time.Hour))) }
	c := &commands{wanted: map[string][]Wanted{
		"preview": {{"1", "Pod", at(0)}, {"2", "Pod", at(1)}, {"3", "Pod", at(29)}, {"4", "Job.batch", at(400)}},
		"other":   {{"2", "Pod", at(1)}, {"5", "Pod", at(0.99)}, {"6", "Pod", begin.Add(time.Hour)}},
	}}
	s := newSite(t, c, object(t, preview), object(t, "kind: Cleaner\nmetadata: {name: other, namespace: else}\nspec: {}"))
	if got := s.page(http.StatusOK, "/waste"); len(c.asked) > 0 || !strings.Contains(got, "by kind and age") {
		t.Errorf("before the user asks, it reads %q", c.asked)
	}
	got := s.page(http.StatusOK, "/waste?count=now")
	wants(t, got, "6 objects of 2 kinds, which 2 Cleaners would remove now", `<title>Pod: 3 of under 1 day, 1 of 1 to 7 days, 1 of 7 to 30 days</title>`, `<title>Job.batch: 1 of over 90 days</title>`,
		`<rect class="age0" x="0.00%" width="60.00%"`, `<rect class="age1" x="60.00%" width="20.00%"`, `<rect class="age4" x="0.00%" width="20.00%"`, `aria-current="page">Waste`)
	if strings.Index(got, ">Pod<") > strings.Index(got, ">Job.batch<") {
		t.Error("the kind with most objects is not the first")
	}
	c.asked = nil
	wants(t, s.page(http.StatusOK, "/waste?count=now&namespace=else"), "3 objects of 1 kind, which 1 Cleaner would remove now")
	if want := []string{"waste other"}; !slices.Equal(c.asked, want) {
		t.Errorf("it plans %q, not %q", c.asked, want)
	}
	wants(t, newSite(t, &commands{}, object(t, preview)).page(http.StatusOK, "/waste?count=now"), "There is nothing to remove now.")
	c.err = errors.New("no route")
	wants(t, s.page(http.StatusOK, "/waste?count=now"), "Cannot plan Cleaner team/preview: no route", "0 objects of 0 kinds")
}

// However much there is, the page is bounded.
func TestLargeWaste(t *testing.T) {
	count := newWasteCount(begin)
	var wanted []Wanted
	for i := range maxWaste + 1 {
		wanted = append(wanted, Wanted{UID: types.UID(fmt.Sprint(i)), Kind: fmt.Sprintf("Kind%d", i%(maxRows+5)), Created: begin})
	}
	count.addObjects(wanted)
	content := &wastePage{}
	for range maxRows + 3 {
		count.addProblem("no")
	}
	count.layOut(content)
	if len(content.Rows) != maxRows || content.MoreRows == "" || len(count.seen) != maxWaste || len(content.Problems) != maxRows+1 {
		t.Errorf("%d rows, %q, %d objects, %d problems", len(content.Rows), content.MoreRows, len(count.seen), len(content.Problems))
	}
	if !slices.ContainsFunc(count.problems, func(p string) bool { return strings.Contains(p, "Only the first 200,000 objects are counted") }) {
		t.Error("it does not say that there are more")
	}
}

func TestPlan(t *testing.T) {
	c := &commands{plan: &planjson.Plan{
		Verdict: v1alpha1.VerdictAct, Reason: "ConditionsMet", At: planjson.Moment{Time: begin}, Warnings: []string{"Mode is DryRun."},
		Counts: []planjson.Count{{Rule: "old", Items: 8, Matched: 4, Kept: 1, Acted: 3}}, Steps: make([]planjson.Step, 3*maxRows),
		Shadowed: []planjson.Shadow{{Rule: "old", By: "first", Object: "ConfigMap shop/a", Items: 3}},
	}}
	s := newSite(t, c, object(t, preview))
	got := s.page(http.StatusOK, "/cleaners/team/preview/plan")
	wants(t, got,
		"It would take 600 steps now", "Mode is DryRun.", "the timers of <code>for</code> begin now", `<tr class="all"><th scope="row">Matched <span class="muted">when is true</span></th><td class="number">4</td>`, `width="50.00%"`,
		"Kept", "Acted on", "400 more are not shown: see kubectl cleaner plan -o json.", "Rule old leaves ConfigMap shop/a to rule first, which wants it first, and 2 more items.")
	if n := strings.Count(got, `data-label="Verb"`); n != maxRows {
		t.Errorf("it lists %d steps", n)
	}
	if strings.Contains(got, "Spared") || strings.Contains(got, "data-events") {
		t.Error("a step that leaves nothing out is shown, or the plan is made anew by itself")
	}
	c.dryRun, c.message = true, "All <conditions> are true."
	wants(t, s.page(http.StatusOK, "/cleaners/team/preview/plan"), "It would take 600 steps now, but its mode is DryRun", "All &lt;conditions&gt; are true.")
	c.due = begin.Add(2 * time.Hour)
	wants(t, s.page(http.StatusOK, "/cleaners/team/preview/plan"), "It would take 600 steps when it is due, <time", "</span>, but its mode is DryRun")
	c.dryRun = false
	if got := s.page(http.StatusOK, "/cleaners/team/preview/plan"); !strings.Contains(got, "It does nothing now: it would take 600 steps when it is due, <time") || strings.Contains(got, "600 steps now") {
		t.Errorf("a plan that is not due: %s", got)
	}
	c.err = errors.New(`you are not allowed to list pods`)
	wants(t, s.page(http.StatusOK, "/cleaners/team/preview/plan"), "No plan can be made", "you are not allowed to list pods")
}

func TestForecast(t *testing.T) {
	c := &commands{predicts: []forecast.Cleaner{{Kind: "Cleaner", Cleaner: "team/preview", Until: planjson.Moment{Time: begin.Add(time.Hour)}, Steps: []forecast.Step{{At: planjson.Moment{Time: begin}, Exact: true, Step: planjson.Step{Rule: "old", Verb: "delete", Kind: "ConfigMap", Name: "a"}}}}}}
	var many []*unstructured.Unstructured
	for i := range maxPredicted + 5 {
		u := object(t, preview)
		u.SetName(fmt.Sprint("c", i))
		many = append(many, u)
	}
	s := newSite(t, c, many...)
	got := s.page(http.StatusOK, "/forecast")
	wants(t, got, "takes up to a minute", `<option value="7d" selected>`, "Times are in UTC.")
	if len(c.asked) > 0 {
		t.Error("a forecast is made that was not asked for")
	}
	wants(t, s.page(http.StatusOK, "/forecast?until=24h"), "5 more Cleaners are left out: this page is for at most 100.", `<h2 id="timeline">`, `<option value="24h" selected>`)
	if len(c.asked) != maxPredicted {
		t.Errorf("%d were predicted", len(c.asked))
	}
	c.asked = nil
	wants(t, s.page(http.StatusOK, "/forecast?until=24h&text=team/c10&namespace=team"), "6 steps of 6 Cleaners")
	if len(c.asked) != 6 { // c10 and c100 to c104
		t.Errorf("predicted are %v", c.asked)
	}
	wants(t, s.page(http.StatusOK, "/cleaners/team/c1/forecast?until=forged"), "ConfigMap a", `<option value="7d" selected>`, `action="/cleaners/team/c1/forecast"`)
	c.err, c.predicts = errors.New("the spec is invalid"), nil
	wants(t, s.page(http.StatusOK, "/cleaners/team/c1/forecast"), "Cannot predict Cleaner team/c1: the spec is invalid", "There is nothing to predict.")
}

// A forecast of 100,000 steps is a page that browsers show at once: it says what it leaves out.
func TestLargeForecast(t *testing.T) {
	c := &commands{}
	for i := range 20 {
		of := forecast.Cleaner{Kind: "Cleaner", Cleaner: fmt.Sprint("team/c", i), Until: planjson.Moment{Time: begin.Add(7 * 24 * time.Hour)}}
		for n := range forecast.MaxSteps {
			of.Steps = append(of.Steps, forecast.Step{At: planjson.Moment{Time: begin.Add(time.Duration(n) * time.Minute)}, Exact: true, Step: planjson.Step{Rule: "old", Verb: "delete", Kind: "ConfigMap", Namespace: "team", Name: fmt.Sprint("a", n)}})
		}
		c.predicts = append(c.predicts, of)
	}
	s := newSite(t, c, object(t, preview))
	began := time.Now()
	got := s.page(http.StatusOK, "/forecast?until=7d")
	t.Logf("%d bytes in %s", len(got), time.Since(began))
	wants(t, got, "100000 steps of 20 Cleaners", "98000 more steps are not in the table")
	if len(got) > 2<<20 {
		t.Errorf("the page has %d bytes", len(got))
	}
}

// The warnings of a forecast are bounded, whatever its Cleaners warn of.
func TestWarningsOfForecast(t *testing.T) {
	c := &commands{}
	for i := range 30 {
		of := forecast.Cleaner{Kind: "Cleaner", Cleaner: fmt.Sprint("team/c", i), Until: planjson.Moment{Time: begin.Add(time.Hour)}}
		for range 100 {
			of.Warnings = append(of.Warnings, "a warning")
		}
		c.predicts = append(c.predicts, of)
	}
	got := newSite(t, c, object(t, preview)).page(http.StatusOK, "/forecast?until=7d")
	wants(t, got, "2,800 more warnings are not shown")
	if n := strings.Count(got, "a warning"); n != maxRows {
		t.Errorf("%d warnings are shown", n)
	}
}

// A run with many counts says how many are not shown.
func TestCountsOfRun(t *testing.T) {
	u := object(t, preview)
	var counts []any
	for i := range 1024 {
		counts = append(counts, map[string]any{"resource": fmt.Sprint("res", i), "outcome": "Done", "count": int64(2)})
	}
	run := map[string]any{"number": int64(3), "decides": "x", "decidedAt": "2026-01-01T11:00:00Z", "result": "Done", "counts": counts}
	if err := unstructured.SetNestedMap(u.Object, run, "status", "run"); err != nil {
		t.Fatal(err)
	}
	got := newSite(t, &commands{}, u).page(http.StatusOK, "/cleaners/team/preview")
	wants(t, got, "824 more are not shown: see kubectl get -o yaml.")
	if n := strings.Count(got, "<dt>res"); n != maxRows {
		t.Errorf("%d counts are shown", n)
	}
}

// The page names the time zones that its times have, also those of another season.
func TestZones(t *testing.T) {
	for name, want := range map[string]string{
		"UTC": "UTC", "Europe/London": "GMT (UTC+00:00) or BST (UTC+01:00)", "America/New_York": "EST (UTC−05:00) or EDT (UTC−04:00)", "Asia/Tokyo": "JST (UTC+09:00)", "America/Sao_Paulo": "UTC−03:00",
	} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		s := newSite(t, &commands{})
		if got := (viewer{s.Clock, zone}).describeZone(zone); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
