// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/planjson"
)

const (
	// maxRows bounds each table of a Cleaner's pages, and maxText its texts, in characters.
	maxRows = 200
	maxText = 1000
)

// subject is the Cleaner of a page: what all its pages show.
type subject struct {
	summary
	ToneLabel string
	Tabs      []link
	NextTime  *moment
	Suspended bool
	// Change is where the forms of the buttons lead to, without the last part.
	Change string
}

// fact is a line of a table with two columns.
type fact struct{ Name, Value string }

// state is what the status of a Cleaner says.
type state struct {
	subject
	// Outdated says that the status is about an earlier generation.
	Outdated bool
	Facts    []fact
	Others   []condition
	Verdict  *verdict
	// Funnels are the counts of the rules, and MoreFunnels says how many rules are not shown.
	Funnels     []funnel
	MoreFunnels string
	Pending     []pendingRow
	Findings    []findingRow
	Run         *runView
	Actions     []actionRow
	Targets     []targetRow
	// Resolved lists what the targets select, and ResolvedMore says how many more there are.
	Resolved     []string
	ResolvedMore string
}

type condition struct {
	Type, Status, Reason, Message string
	Bad                           bool
	Since                         *moment
}

type verdict struct {
	Verdict, Reason, Message string
	Since                    *moment
	Conditions               []outcome
	Errors                   []errorRow
	Withheld                 []fact
}

type outcome struct{ Expression, Value, Error string }

type errorRow struct{ Rule, Key, Where, Message string }

type pendingRow struct {
	Rule, Key string
	Until     *moment
}

type findingRow struct{ Rule, Count, Items, Message string }

type runView struct {
	Title, Message string
	Began          *moment
	Counts         []fact
	// More says how many counts are not shown.
	More string
}

type actionRow struct {
	Action, Class, Object, Rule, Result string
	At                                  *moment
}

type targetRow struct{ Name, Selects, Use string }

// makeSubject returns what all pages of a Cleaner show.
func (v viewer) makeSubject(o v1alpha1.Owner, current string) subject {
	is := summarize(o)
	out := subject{summary: is, ToneLabel: labelTone(is.Tone), NextTime: v.showTime(is.Next), Suspended: o.Common().Suspend, Change: is.Path(), Tabs: listTabs(is.Name, current)}
	if ready := meta.FindStatusCondition(o.State().Conditions, v1alpha1.ConditionReady); ready != nil {
		out.Message = shorten(ready.Message, maxText)
	}
	return out
}

// makeState lays out what the status of a Cleaner says.
func (v viewer) makeState(o v1alpha1.Owner) *state {
	is := o.State()
	out := &state{subject: v.makeSubject(o, "")}
	out.Outdated = out.Reason != "" && is.ObservedGeneration < o.GetGeneration()
	out.Facts = v.listFacts(o)
	for i := range is.Conditions {
		c := &is.Conditions[i]
		good := c.Status == metav1.ConditionTrue
		if slices.Contains([]string{v1alpha1.ConditionStalled, v1alpha1.ConditionTripped, v1alpha1.ConditionRequestDropped, v1alpha1.ConditionSchemaMismatch}, c.Type) {
			good = !good
		}
		out.Others = append(out.Others, condition{Type: showLine(c.Type), Status: showLine(string(c.Status)), Reason: showLine(c.Reason), Message: shorten(c.Message, maxText), Bad: !good, Since: v.showTime(c.LastTransitionTime.Time)})
	}
	out.Verdict = v.makeVerdict(is.LastEvaluation, out.Message)
	out.addFunnels(is.RuleCounts)
	for _, p := range is.Pending[:min(len(is.Pending), maxRows)] {
		out.Pending = append(out.Pending, pendingRow{Rule: showLine(p.Rule), Key: shorten(p.Key, maxText), Until: v.showTime(p.Until.Time)})
	}
	for _, f := range is.Findings[:min(len(is.Findings), maxRows)] {
		items := strings.Join(f.Items, ", ")
		if f.Count > int64(len(f.Items)) {
			items += ", …"
		}
		out.Findings = append(out.Findings, findingRow{Rule: showLine(f.Rule), Count: groupDigits(f.Count), Items: shorten(items, maxText), Message: shorten(f.Message, maxText)})
	}
	out.Run = v.makeRun(is.Run)
	for _, a := range is.LastActions[:min(len(is.LastActions), maxRows)] {
		out.Actions = append(out.Actions, actionRow{Action: showLine(a.Action), Class: classOf(a.Action), Object: shorten(a.Object, maxText), Rule: showLine(a.Rule), Result: shorten(a.Result, maxText), At: v.showTime(a.Time.Time)})
	}
	out.Targets = listTargets(o.Work())
	for _, t := range is.ResolvedTargets[:min(len(is.ResolvedTargets), maxRows)] {
		out.Resolved = append(out.Resolved, shorten(t, maxText))
	}
	if n := is.ResolvedTargetCount - int64(len(out.Resolved)); n > 0 {
		out.ResolvedMore = groupDigits(n) + " more"
	}
	return out
}

// addFunnels lays out the counts of the rules.
func (s *state) addFunnels(counts []v1alpha1.RuleCounts) {
	for i := range counts[:min(len(counts), maxRows)] {
		c := &counts[i]
		s.Funnels = append(s.Funnels, makeFunnel(&planjson.Count{
			Rule: c.Rule, Items: c.Items, Matched: c.Matched, Kept: c.Kept, Spared: c.Spared, Waiting: c.Waiting, Protected: c.Protected, Shadowed: c.Shadowed, Errors: c.Errors, Acted: c.Acted,
		}, c.Deferred))
	}
	if n := len(counts) - maxRows; n > 0 {
		s.MoreFunnels = countOf(n, "more rule") + " not shown: see status.ruleCounts."
	}
}

// listFacts lists what the spec says in a word.
func (v viewer) listFacts(o v1alpha1.Owner) []fact {
	work := o.Work()
	var out []fact
	add := func(name, value string) {
		if value != "" {
			out = append(out, fact{name, shorten(value, maxText)})
		}
	}
	lifecycle := work.Lifecycle
	if lifecycle == "" {
		lifecycle = v1alpha1.LifecycleOnce
	}
	add("Mode", summarize(o).Mode)
	add("Lifecycle", string(lifecycle))
	add("ttl", string(work.TTL))
	if work.Schedule != "" {
		zone := work.TimeZone
		if zone == "" {
			zone = "UTC"
		}
		add("Schedule", work.Schedule+" ("+zone+")")
	}
	if t := work.TemplateRef; t != nil {
		add("Template", t.Name)
	}
	if h := work.Helm; h != nil {
		add("Helm release", h.Release)
	}
	add("Sink", work.CloudEventSink)
	if c := o.State().Counters; c != nil {
		add("Done", countOf(int(c.Acted), "action"))
		if c.Failed > 0 {
			add("Failed", countOf(int(c.Failed), "action"))
		}
	}
	if at := v.showTime(o.GetCreationTimestamp().Time); at != nil {
		add("Created", at.Text+", "+at.Away)
	}
	return out
}

// makeVerdict lays out the last evaluation, without a message that is shown already.
func (v viewer) makeVerdict(e *v1alpha1.Evaluation, shown string) *verdict {
	if e == nil {
		return nil
	}
	out := &verdict{Verdict: showLine(string(e.Verdict)), Reason: showLine(e.Reason), Message: shorten(e.Message, maxText), Since: v.showTime(e.Time.Time)}
	if out.Message == shown {
		out.Message = ""
	}
	for _, c := range e.Conditions[:min(len(e.Conditions), maxRows)] {
		out.Conditions = append(out.Conditions, makeOutcome(c.Expression, c.Value, c.Error))
	}
	for _, i := range e.Errors[:min(len(e.Errors), maxRows)] {
		message := i.Message
		if i.Count > 1 {
			message += fmt.Sprintf(" (%s items)", groupDigits(i.Count))
		}
		out.Errors = append(out.Errors, errorRow{Rule: showLine(i.Rule), Key: shorten(i.Key, maxText), Where: showLine(i.Field), Message: shorten(message, maxText)})
	}
	for _, h := range e.Withheld[:min(len(e.Withheld), maxRows)] {
		out.Withheld = append(out.Withheld, fact{shorten(h.Object, maxText), shorten(h.Because, maxText)})
	}
	return out
}

// makeOutcome says what a condition gave.
func makeOutcome(expression string, value *bool, problem string) outcome {
	out := outcome{Expression: shorten(expression, maxText), Error: shorten(problem, maxText)}
	if value != nil {
		out.Value = strconv.FormatBool(*value)
	}
	return out
}

// makeRun lays out the run that is open, or the last one.
func (v viewer) makeRun(r *v1alpha1.Run) *runView {
	if r == nil {
		return nil
	}
	out := &runView{Title: fmt.Sprintf("Run %d: in progress, %s", r.Number, countOf(len(r.Rows), "object")), Message: shorten(r.Message, maxText), Began: v.showTime(r.DecidedAt.Time)}
	if r.Result != "" {
		out.Title = fmt.Sprintf("Run %d: %s", r.Number, showLine(string(r.Result)))
	}
	for _, c := range r.Counts[:min(len(r.Counts), maxRows)] {
		out.Counts = append(out.Counts, fact{shorten(c.Resource, maxText), groupDigits(c.Count) + " " + showLine(string(c.Outcome))})
	}
	if n := len(r.Counts) - maxRows; n > 0 {
		out.More = groupDigits(int64(n)) + " more are not shown: see kubectl get -o yaml."
	}
	return out
}

// listTargets says which objects the targets select.
func listTargets(work *v1alpha1.Work) []targetRow {
	var out []targetRow
	for i := range work.Targets[:min(len(work.Targets), maxRows)] {
		t := &work.Targets[i]
		use := "read"
		if t.Delete {
			use = "deleted when the conditions are true"
		}
		out = append(out, targetRow{Name: showLine(t.Name), Selects: shorten(describeTarget(t), maxText), Use: use})
	}
	return out
}

// describeTarget says in words what a target selects.
func describeTarget(t *v1alpha1.ClusterTarget) string {
	if t.IsOfReleases() {
		return "revisions of Helm releases: " + describeReference(&t.Reference)
	}
	return describeReference(&t.Reference)
}

// describeReference says in words what a reference selects.
func describeReference(r *v1alpha1.ClusterReference) string {
	parts := []string{r.Kind}
	if r.APIGroup != "" {
		parts[0] += " (" + r.APIGroup + "/" + r.Version + ")"
	}
	if r.Name != "" {
		parts = append(parts, "named "+r.Name)
	}
	if selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: r.MatchLabels, MatchExpressions: r.MatchExpressions}); len(r.MatchLabels)+len(r.MatchExpressions) > 0 {
		parts = append(parts, "with labels "+selector)
	}
	if keys := r.ListAnnotations(); len(keys) > 0 {
		parts = append(parts, "with annotation "+strings.Join(keys, " or "))
	}
	if len(r.ExcludeKinds) > 0 {
		parts = append(parts, "except kinds "+strings.Join(r.ExcludeKinds, ", "))
	}
	if r.FieldSelector != "" {
		parts = append(parts, "with fields "+r.FieldSelector)
	}
	if r.Namespace != "" {
		parts = append(parts, "in namespace "+r.Namespace)
	}
	if len(r.Namespaces) > 0 {
		parts = append(parts, "in namespaces "+strings.Join(r.Namespaces, ", "))
	}
	if r.NamespaceSelector != nil {
		parts = append(parts, "in namespaces with labels "+metav1.FormatLabelSelector(r.NamespaceSelector))
	}
	if len(r.ExcludeNamespaces) > 0 {
		parts = append(parts, "except in "+strings.Join(r.ExcludeNamespaces, ", "))
	}
	return strings.Join(parts, " ")
}

// showState shows what the status of a Cleaner says.
func (s *Server) showState(w http.ResponseWriter, r *http.Request) {
	owner, _, ok := s.readCleaner(w, r)
	if !ok {
		return
	}
	content := s.viewer.makeState(owner)
	s.showPage(w, r, http.StatusOK, &page{
		Template: "state", Title: content.DisplayName(), Current: "/", Notice: describeNotice(r.URL.Query().Get("said"), owner), Events: s.fleet.eventsOf(content.Name, content.Version), Content: content,
	})
}
