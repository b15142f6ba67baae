// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package whynot says what a Cleaner makes of one object: that it acts on the object, by which rule and when, or which step of each rule leaves
// the object out.
//
// It makes the plan that `plan` shows, and never acts.
package whynot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/planning"
	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/itemtrace"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/planjson"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Explanation is what a Cleaner makes of an object. Its structure is a promise: fields are only added.
type Explanation struct {
	Kind    string          `json:"kind"`
	Cleaner string          `json:"cleaner"`
	Object  string          `json:"object"`
	At      planjson.Moment `json:"at"`
	// Acts says that the Cleaner acts on the object now, and Answer says in a sentence what it does, or why not.
	Acts   bool   `json:"acts"`
	Answer string `json:"answer"`
	// Verdict, Reason and Message are those of the plan for all objects.
	Verdict v1alpha1.Verdict `json:"verdict"`
	Reason  string           `json:"reason"`
	Message string           `json:"message"`
	Targets []Target         `json:"targets"`
	Rules   []Rule           `json:"rules"`
	// Next is the first moment at which time alone may change the plan, and Recheck the moment at which the operator makes it again at the
	// latest.
	Next    planjson.Moment `json:"next"`
	Recheck planjson.Moment `json:"recheck"`
}

// Target says whether a target selects the object, or else why not.
type Target struct {
	Name     string `json:"name"`
	Selected bool   `json:"selected"`
	Because  string `json:"because,omitempty"`
	// Delete says that the target deletes what it selects.
	Delete bool `json:"delete,omitempty"`
}

// Rule says what a rule makes of the object.
type Rule struct {
	Name string `json:"name"`
	Step Step   `json:"step"`
	// Item names an item of the rule that is not the object itself, and whose action is about the object.
	Item    string          `json:"item,omitempty"`
	Because string          `json:"because,omitempty"`
	Until   planjson.Moment `json:"until"`
	// Parts are those of `when`, and what they gave.
	Parts []Part `json:"parts,omitempty"`
}

// Part is a part of an expression.
type Part struct {
	// Of is when, or the variable that it belongs to, and Depth 0 for the whole expression.
	Of         string `json:"of"`
	Depth      int    `json:"depth"`
	Expression string `json:"expression"`
	Value      string `json:"value,omitempty"`
	Error      string `json:"error,omitempty"`
	NotNeeded  bool   `json:"notNeeded,omitempty"`
}

// Step is the step of a rule that leaves the object out, or that it is acted on.
type Step string

const (
	stepActs        Step = "acts"
	stepForEach     Step = "forEach"
	stepNotAsked    Step = "notEvaluated"
	stepFor         Step = "for"
	stepEarlierRule Step = "earlierRule"
	stepError       Step = "error"
)

// describeOutcome returns the step that leaves an item with this outcome out, and why, if the trace does not say it.
func describeOutcome(o itemtrace.Outcome) (step Step, because string) {
	switch o {
	case itemtrace.NotMatched:
		return "when", "it is false"
	case itemtrace.Kept:
		return "keep", "the rule keeps it"
	case itemtrace.Left:
		return "leave", "without it, fewer of its group would be left than leave says"
	case itemtrace.Spared:
		return "unless", "it is true"
	case itemtrace.Waiting:
		return stepFor, ""
	case itemtrace.Protected:
		return "protected", ""
	case itemtrace.Shadowed:
		return stepEarlierRule, ""
	case itemtrace.Deferred:
		return "backOff", "an action on it has failed"
	case itemtrace.Unchanged:
		return "actions", "no action applies to it, or all is done"
	case itemtrace.LeftOut:
		return stepForEach, ""
	case itemtrace.Acted:
		return stepActs, ""
	default:
		return stepError, ""
	}
}

// explaining is an explanation in the making.
type explaining struct {
	planning.Decision
	world *snapshot.Objects
	name  Name
	kind  kind
	known bool
	// object is nil if no target has its kind, or if a Cleaner cannot see its namespace.
	object *observed.Object
	plan   plan.Plan
	out    *Explanation
}

// Explain says what a Cleaner makes of an object of the world.
func Explain(ctx context.Context, d planning.Decision, world *snapshot.Objects, name Name) (*Explanation, error) {
	owner := d.BuildOwner()
	x := &explaining{Decision: d, world: world, name: name}
	if err := x.findObject(owner.Namespace); err != nil {
		return nil, err
	}
	if x.object != nil {
		x.Trace = itemtrace.NewTrace(x.object.Identify())
	}
	x.plan = x.ComputePlan(ctx, world)
	x.out = &Explanation{
		Kind: "Explanation", Cleaner: owner.Name, Object: x.describeObject(), At: planjson.Moment{Time: d.Times.At}, Next: planjson.Moment{Time: x.plan.NextChange}, Recheck: planjson.Moment{Time: x.plan.Recheck},
		Verdict: x.plan.Verdict, Reason: x.plan.Reason, Message: x.plan.Message, Targets: []Target{}, Rules: []Rule{},
	}
	if owner.Namespace != "" {
		x.out.Cleaner = owner.Namespace + "/" + owner.Name
	}
	x.explainTargets(ctx, owner.Namespace)
	x.explainRules()
	x.answer()
	return x.out, nil
}

// describeObject names the object as messages do. If no target has its kind, the kind is as the user has written it.
func (x *explaining) describeObject() string {
	if x.object != nil {
		return x.object.String()
	}
	return x.name.String()
}

// findObject finds the object in the world. It errs if there is none that the Cleaner could see.
func (x *explaining) findObject(owner string) (err error) {
	if x.kind, x.known, err = x.name.resolveKind(x.world, x.Cleaner.Work.Targets); err != nil || !x.known {
		return err
	}
	n, r := &x.name, x.kind.resource.GroupResource()
	switch {
	case !x.kind.namespaced && n.Namespace != "":
		return fmt.Errorf("%s have no namespace: write %s/%s", r, n.Kind, n.Name)
	case x.kind.namespaced && n.Namespace == "" && owner == "":
		return fmt.Errorf("%s are namespaced: write %s/NAMESPACE/%s", r, n.Kind, n.Name)
	case x.kind.namespaced && n.Namespace == "":
		n.Namespace = owner
	}
	if x.kind.namespaced && owner != "" && owner != n.Namespace {
		return nil // a Cleaner does not see it, whether it exists or not
	}
	if x.object = x.world.FindNamed(r, n.Namespace, n.Name); x.object == nil && !x.isUnreadable() {
		return fmt.Errorf("%s does not exist", n)
	}
	return nil
}

// isUnreadable says that the objects of the kind cannot be read.
func (x *explaining) isUnreadable() bool {
	return x.world.FindFailure(x.kind.resource.GroupResource()) != ""
}

// explainTargets says which targets select the object.
func (x *explaining) explainTargets(ctx context.Context, owner string) {
	targets := x.Cleaner.Work.Targets
	seen := snapshot.ReadTargets(ctx, x.world, owner, x.Cleaner.Work)
	for i := range targets {
		t := Target{Name: targets[i].Name, Delete: targets[i].Delete}
		t.Because = x.findTargetMiss(owner, &targets[i], &seen[i])
		t.Selected = t.Because == ""
		x.out.Targets = append(x.out.Targets, t)
	}
}

// findTargetMiss says why a target does not have the object; empty if it has.
func (x *explaining) findTargetMiss(owner string, t *v1alpha1.ClusterTarget, seen *observed.Target) string {
	if t.IsOfAnyKind() && x.known {
		return x.findAnyKindMiss(owner, t)
	}
	of, _ := x.world.FindResource(schema.GroupVersion{Group: t.Reference.APIGroup, Version: t.Reference.Version}, t.Reference.Kind)
	q, err := snapshot.NewQuery(owner, t)
	switch {
	case err != nil:
		return err.Error()
	case !x.known || of.GroupResource() != x.kind.resource.GroupResource():
		return fmt.Sprintf("kind: it selects %s", cmp.Or(of.GroupResource().String(), t.Reference.Kind))
	case seen.State != observed.Complete:
		return seen.Detail
	case x.object == nil:
		return fmt.Sprintf("namespace: a Cleaner sees only its own namespace %s", owner)
	default:
		return x.world.FindMiss(&q, x.object)
	}
}

// findAnyKindMiss is findTargetMiss for a target of kind "*".
func (x *explaining) findAnyKindMiss(owner string, t *v1alpha1.ClusterTarget) string {
	q, err := snapshot.NewQuery(owner, t)
	if err != nil {
		return err.Error()
	}
	meant := slices.ContainsFunc(anykind.SelectKinds(x.world.ListKinds(), q.Kinds), func(k anykind.Kind) bool {
		return k.GroupResource() == x.kind.resource.GroupResource()
	})
	switch {
	case q.Kinds.NamespacedOnly && !x.kind.namespaced:
		return fmt.Sprintf("kind: the target selects namespaces, and %s are cluster-scoped", x.kind.resource.GroupResource())
	case !meant:
		return fmt.Sprintf("kind: it leaves out %s", x.kind.resource.GroupResource())
	case x.isUnreadable():
		return x.world.FindFailure(x.kind.resource.GroupResource())
	case x.object == nil:
		return fmt.Sprintf("namespace: a Cleaner sees only its own namespace %s", owner)
	}
	return x.world.FindMiss(&q, x.object)
}

// explainRules says what each rule makes of the object.
func (x *explaining) explainRules() {
	entries := x.Trace.ListEntries()
	rules := x.Cleaner.Work.Rules
	for i := range rules {
		found := false
		for _, e := range entries {
			if e.Rule == rules[i].Name {
				x.out.Rules, found = append(x.out.Rules, x.explainEntry(&e)), true
			}
		}
		if !found {
			x.out.Rules = append(x.out.Rules, x.explainNoItem(i))
		}
	}
}

// explainNoItem says why a rule has no item that is about the object.
func (x *explaining) explainNoItem(rule int) Rule {
	name := x.Cleaner.Work.Rules[rule].Name
	out := Rule{Name: name, Step: stepForEach, Because: "it does not list the object"}
	failed := x.findError(name, func(e *v1alpha1.ItemError) bool { return e.Key == "" })
	switch {
	case !x.plan.RulesEvaluated:
		out.Step, out.Because = stepNotAsked, x.plan.Reason
	case failed != "":
		out.Step, out.Because = stepError, failed
	case !slices.ContainsFunc(x.out.Targets, func(t Target) bool { return t.Selected }):
		out.Because = "no target selects the object"
	}
	return out
}

// explainEntry writes down what a rule makes of the object.
func (x *explaining) explainEntry(e *itemtrace.Entry) Rule {
	step, because := describeOutcome(e.Outcome)
	out := Rule{Name: e.Rule, Step: step, Because: cmp.Or(e.Because, because), Until: planjson.Moment{Time: e.Until}}
	if e.ByAction {
		out.Item = e.Item.Name
	}
	for _, p := range e.Parts {
		part := Part{Of: p.Of, Depth: p.Depth, Expression: p.Expression, Value: p.Value, NotNeeded: p.NotNeeded}
		if p.Failed {
			part.Value, part.Error = "", p.Value
		}
		out.Parts = append(out.Parts, part)
	}
	switch {
	case out.Step == stepEarlierRule:
		out.Because = fmt.Sprintf("rule %s acts on it first", e.Because)
	case out.Step == stepFor && !x.isListed(e):
		out.Because = "no status lists its timer: it is taken to start at " + formatMoment(planjson.Moment{Time: x.Times.Since})
	case out.Step == stepError && e.Because == "": // it is an error of its group
		out.Because = x.findError(e.Rule, func(*v1alpha1.ItemError) bool { return true })
	}
	return out
}

// isListed says that the status lists the timer of an item, or that its name there is not known.
func (x *explaining) isListed(e *itemtrace.Entry) bool {
	return slices.ContainsFunc(x.Cleaner.Work.Rules, func(r v1alpha1.Rule) bool { return r.Name == e.Rule && r.ForKey != "" }) ||
		slices.ContainsFunc(x.Waiting, func(p v1alpha1.Pending) bool { return p.Rule == e.Rule && p.Key == e.Item.Name })
}

// findError returns the first such error of a rule in words; empty if there is none.
func (x *explaining) findError(rule string, is func(*v1alpha1.ItemError) bool) string {
	for i := range x.plan.Errors {
		if e := &x.plan.Errors[i]; e.Rule == rule && is(e) {
			return strings.TrimSpace(e.Field + " " + e.Message)
		}
	}
	return ""
}

// answer says in a sentence what becomes of the object.
func (x *explaining) answer() {
	acting := strings.Join(x.listActing(), ", ")
	if acting == "" {
		x.out.Answer = x.explainNothing()
		return
	}
	tick := planning.NextTick(x.Cleaner.Work, x.Times.At)
	switch p := &x.plan; {
	case p.Verdict != v1alpha1.VerdictAct:
		acting += fmt.Sprintf(", but not now (%s): %s", p.Reason, p.Message)
	case x.Cleaner.Work.Mode == v1alpha1.ModeDryRun:
		acting += ", but not while spec.mode is DryRun."
	case tick.After(x.Times.At):
		acting += fmt.Sprintf(" at %s, by spec.schedule.", formatMoment(planjson.Moment{Time: tick}))
	default:
		x.out.Acts = true
		acting += " now."
	}
	x.out.Answer = strings.ToUpper(acting[:1]) + acting[1:]
}

// explainNothing says in a sentence why nothing is done with the object.
func (x *explaining) explainNothing() string {
	if !x.plan.RulesEvaluated && x.plan.Verdict != v1alpha1.VerdictAct {
		return fmt.Sprintf("The Cleaner acts on nothing now (%s): %s", x.plan.Reason, x.plan.Message)
	}
	waiting := slices.IndexFunc(x.out.Rules, func(r Rule) bool { return r.Step == stepFor })
	if waiting < 0 {
		return "The Cleaner does not act on it."
	}
	r := &x.out.Rules[waiting]
	return fmt.Sprintf("Rule %s acts on it at %s, if when stays true until then.", r.Name, formatMoment(r.Until))
}

// listActing says which rules and targets act on the object, and how.
func (x *explaining) listActing() []string {
	var out []string
	if x.object == nil {
		return nil
	}
	for i := range x.plan.Steps {
		s := &x.plan.Steps[i]
		if s.Object.Name == "" || s.Object.Identify() != x.object.Identify() {
			continue
		}
		by := "rule " + s.Rule
		if target, is := strings.CutPrefix(s.Rule, "targets."); is {
			by = "target " + target
		}
		out = append(out, by+" "+describeVerb(s.Verb))
	}
	if len(out) > 0 || x.plan.Verdict == v1alpha1.VerdictAct {
		return out
	}
	for _, r := range x.out.Rules { // a plan that waits has no steps
		if r.Step == stepActs {
			out = append(out, "rule "+r.Name+" acts on it")
		}
	}
	return out
}

// describeVerb says what a step does with the object.
func describeVerb(v plan.Verb) string {
	switch v {
	case plan.VerbDelete:
		return "deletes it"
	case plan.VerbEvict:
		return "evicts it"
	case plan.VerbPatch:
		return "patches it"
	case plan.VerbRemoveFinalizer:
		return "removes a finalizer from it"
	case plan.VerbHelmUninstall:
		return "uninstalls the release that it records"
	default:
		return "reports it"
	}
}

func formatMoment(m planjson.Moment) string {
	text, err := m.MarshalJSON()
	if err != nil { // a time of the years that JSON can write never fails
		return m.String()
	}
	return strings.Trim(string(text), `"`)
}
