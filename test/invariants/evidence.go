// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
)

// template is a CleanerTemplate as a write left it.
type template struct {
	at   time.Time
	name string
	body v1alpha1.TemplateBody
}

// takeTemplate reads what a write to a CleanerTemplate left. Templates are in no namespace, and everybody's.
func (h *history) takeTemplate(e cluster.Event) {
	if e.ObjectRef == nil || e.ObjectRef.APIGroup != v1alpha1.GroupVersion.Group || e.ObjectRef.Resource != "cleanertemplates" ||
		!slices.Contains([]string{"create", "update", "patch"}, e.Verb) || e.Code()/100 != 2 || e.ResponseObject == nil || isDryRun(e) {
		return
	}
	var t v1alpha1.CleanerTemplate
	if json.Unmarshal(e.ResponseObject.Raw, &t) == nil && t.Name != "" {
		h.templates = append(h.templates, template{e.StageTimestamp.Time, t.Name, t.Spec.Template})
	}
}

// workAt is what a Cleaner asked for at a moment, with its template in place. Nil if nobody can say, because the template was
// written at about that time, or was not seen.
func (h *history) workAt(s *state, at time.Time) *v1alpha1.Work {
	work := s.c.Work()
	if work.TemplateRef == nil {
		return work
	}
	var last *template
	for i := range h.templates {
		if t := &h.templates[i]; t.name == work.TemplateRef.Name && !t.at.After(at) && (last == nil || t.at.After(last.at)) {
			last = t
		}
	}
	if last == nil || slices.ContainsFunc(h.templates, func(t template) bool {
		return t.name == last.name && t.at.Sub(at).Abs() < h.Latency
	}) {
		return nil
	}
	out := *work
	out.Targets, out.Variables, out.Conditions, out.Rules = last.body.Targets, last.body.Variables, last.body.Conditions, last.body.Rules
	return &out
}

// evidence is I3.
func (j *judge) evidence() {
	for _, l := range j.history.lives {
		for _, s := range l.commits() {
			arrived := s.event.RequestReceivedTimestamp.Time
			work := j.history.workAt(s, arrived)
			if s.recurs() || work == nil { // what a Recurring Cleaner does is judged deed by deed
				continue
			}
			for i := range work.Targets {
				t := &work.Targets[i]
				if !t.IsIncluded() {
					continue
				}
				if missing, lines := j.unread(l.namespace, t, time.Time{}, arrived); missing != "" {
					j.violated("I3", fmt.Sprintf("%s was committed, and %s", l, missing), append(lines, quote(s.event))...)
				}
			}
		}
	}
	for _, d := range j.history.deeds {
		if d.recurs() && d.intent != nil && !d.helm { // an uninstall that has begun is finished whatever is there
			j.confirmed(d)
		}
	}
}

// confirmed judges what a deed of a Recurring Cleaner rests on: by the spec that was in force when it was decided.
func (j *judge) confirmed(d *deed) {
	what, lines := "", []string(nil)
	for _, s := range d.life.between(d.when().Add(-j.history.Latency), d.when()) {
		work := j.history.workAt(s, d.when())
		if work == nil {
			return
		}
		what, lines = j.unreadBeside(d, work)
		for _, t := range rests(work, d.intent.Rule) {
			if what != "" {
				break
			}
			what, lines = j.unread(d.life.namespace, t, d.intent.decidedAt(), d.when())
		}
		if what == "" {
			return
		}
	}
	if what != "" {
		j.violated("I3", fmt.Sprintf("%s by rule %q of %s, and %s", d.title(), d.intent.Rule, d.life, what), append(lines, d.lines()...)...)
	}
}

// unreadBeside says what was not read that decides on the object of a request, although its version says nothing of it: the Namespaces whose labels its
// target selects, and the definition of a custom kind, unless the target was read as a whole. One target of the kind will do.
func (j *judge) unreadBeside(d *deed, work *v1alpha1.Work) (what string, lines []string) {
	group, resource := d.ObjectRef.APIGroup, d.ObjectRef.Resource
	for i := range work.Targets {
		t := &work.Targets[i]
		if t.Reference.APIGroup != group || !isKind(resource, t.Reference.Reference) {
			continue
		}
		what = ""
		if s := t.Reference.NamespaceSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
			namespaces := &v1alpha1.ClusterTarget{Name: "the Namespaces of " + t.Name}
			namespaces.Reference.Kind, namespaces.Reference.MatchLabels, namespaces.Reference.MatchExpressions = "Namespace", s.MatchLabels, s.MatchExpressions
			what, lines = j.unread("", namespaces, d.intent.decidedAt(), d.when())
		}
		if what == "" && isCustom(group) {
			if !j.history.isDefinitionRead(d) {
				what, lines = j.unread(d.life.namespace, t, d.intent.decidedAt(), d.when())
			}
		}
		if what == "" {
			return "", nil
		}
	}
	return what, lines
}

// isDefinitionRead says that the definition of the kind of a request was read after the decision. There is none where another API server serves the kind.
func (h *history) isDefinitionRead(d *deed) bool {
	return slices.ContainsFunc(h.listReads(d.intent.decidedAt(), d.when(), func(e *cluster.Event) bool {
		return e.Verb == "get" && e.ObjectRef.Resource == "customresourcedefinitions" && e.ObjectRef.Name == d.ObjectRef.Resource+"."+d.ObjectRef.APIGroup
	}), func(e *cluster.Event) bool { return e.Code() == http.StatusOK || e.Code() == http.StatusNotFound })
}

// isCustom says that CustomResourceDefinitions may define kinds of a group.
func isCustom(group string) bool {
	return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
}

// rests are the targets that have to be confirmed as a whole before anything is done by a rule: those that conditions name,
// all that expressions see where a target is deleted, those that the rule confirms without a name, and those that its decision
// names and that it does not confirm by a name.
func rests(work *v1alpha1.Work, rule string) []*v1alpha1.ClusterTarget {
	text := unfold(strings.Join(work.Conditions, "\n"), work.Variables)
	deletes := slices.ContainsFunc(work.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Delete })
	whole, byName := map[string]bool{}, map[string]bool{}
	for i := range work.Rules {
		r := &work.Rules[i]
		if r.Name != rule {
			continue
		}
		for _, c := range r.Confirm {
			if c.Name == "" {
				whole[c.Target] = true
			} else {
				byName[c.Target] = true
			}
		}
		decides := decision(r, work.Variables)
		for _, t := range work.Targets {
			if mentions(decides, t.Name) {
				whole[t.Name] = !byName[t.Name]
			}
		}
	}
	var out []*v1alpha1.ClusterTarget
	for i := range work.Targets {
		if t := &work.Targets[i]; t.IsIncluded() && (deletes || whole[t.Name] || mentions(text, t.Name)) {
			out = append(out, t)
		}
	}
	return out
}

// listed are the targets that a list begins with, also as parts of a sum.
var listed = regexp.MustCompile(`(?m)(^|[+(])\s*\w+\.items\b`)

// decision is all that a rule decides by, but for the targets that its forEach goes through, unless it compares their items.
func decision(r *v1alpha1.Rule, variables []v1alpha1.Variable) string {
	variables = slices.Concat(r.Variables, variables)
	list := unfold(r.ForEach, variables)
	if r.Keep == nil && r.GroupBy == "" {
		list = listed.ReplaceAllString(list, "$1")
	}
	parts := []string{r.When, r.For, r.GroupBy, r.Unless}
	if r.Keep != nil {
		parts = append(parts, r.Keep.StrVal)
	}
	for _, o := range r.OrderBy {
		parts = append(parts, o.Expression)
	}
	for _, a := range r.Actions {
		parts = append(parts, a.When, a.Object)
	}
	return list + "\n" + unfold(strings.Join(parts, "\n"), variables)
}

// unfold adds to expressions those of the variables that they name.
func unfold(text string, variables []v1alpha1.Variable) string {
	for range variables { // one may read another
		for _, v := range variables {
			if mentions(text, "variables."+v.Name) && !strings.Contains(text, v.Expression) {
				text += "\n" + v.Expression
			}
		}
	}
	return text
}

// mentions says that an expression has a name in it, as a word of its own, and no field of something else.
func mentions(expression, name string) bool {
	return regexp.MustCompile(`(^|[^\w.])` + regexp.QuoteMeta(name) + `($|\W)`).MatchString(expression)
}

// decidedAt is when the operator decided to send a request, before it read live; zero if the line does not say that.
func (l *Line) decidedAt() time.Time {
	text, _ := l.Evaluation.(string)
	at, _ := time.Parse(time.RFC3339Nano, text)
	return at
}

// unread says why the live read of a target that was wanted before a moment is missing, or had failed; empty if it is there. It was sent after the
// decision: an earlier one, such as a read for another Cleaner, proves nothing. The end of a read is noted after it was answered, and may be after what
// follows from it: so its beginning counts. Cluster-scoped targets are read where the record may not look.
func (j *judge) unread(namespace string, t *v1alpha1.ClusterTarget, decided, to time.Time) (string, []string) {
	var last *cluster.Event
	for _, e := range j.history.listReads(decided, to, func(e *cluster.Event) bool { return reads(e, namespace, t) }) {
		if last == nil || e.StageTimestamp.After(last.StageTimestamp.Time) {
			last = e
		}
	}
	switch {
	case last == nil && t.OnMissing == v1alpha1.OnMissingAsNull: // the kind may not be served, which discovery says
		return "", nil
	case last == nil:
		return fmt.Sprintf("target %q was not read in the %s before, after the decision", t.Name, confirmationServes), nil
	case last.Code() != http.StatusOK && (last.Code() != http.StatusNotFound || t.OnMissing != v1alpha1.OnMissingAsNull):
		return fmt.Sprintf("the last read of target %q had failed", t.Name), []string{quote(*last)}
	}
	return "", nil
}

// listReads lists requests of the operator after a decision, and before a moment, for as long as a confirmation serves.
func (h *history) listReads(decided, to time.Time, wanted func(*cluster.Event) bool) (out []*cluster.Event) {
	const precision = time.Millisecond // of the two clocks' times
	from := to.Add(-confirmationServes)
	for i := range h.Audit {
		e := &h.Audit[i]
		if e.ObjectRef == nil || !e.By(h.Operator) || !wanted(e) {
			continue
		}
		if !e.RequestReceivedTimestamp.Time.After(to) && !e.StageTimestamp.Time.Before(from) && !e.RequestReceivedTimestamp.Add(precision).Before(decided) {
			out = append(out, e)
		}
	}
	return out
}
