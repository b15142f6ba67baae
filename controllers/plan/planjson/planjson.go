// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planjson writes a plan down for people and programs: its form is a promise.
//
// It never decides: what it writes is in the plan.
package planjson

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// Plan is a plan as it is written down: `kubectl cleaner plan -o json`, and what tests of templates expect. Equal plans are equal bytes,
// lists are never null, and fields are only added.
type Plan struct {
	Kind string `json:"kind"`
	// Cleaner is <namespace>/<name>, or the name of a ClusterCleaner.
	Cleaner    string           `json:"cleaner"`
	At         Moment           `json:"at"`
	Verdict    v1alpha1.Verdict `json:"verdict"`
	Reason     string           `json:"reason"`
	Conditions []Condition      `json:"conditions"`
	Steps      []Step           `json:"steps"`
	Withheld   []Withheld       `json:"withheld"`
	Pending    []Pending        `json:"pending"`
	// Next is the first moment at which time alone may change the plan, and Recheck the moment at which the operator makes it again at the
	// latest.
	Next     Moment   `json:"next"`
	Recheck  Moment   `json:"recheck"`
	Errors   []Error  `json:"errors"`
	Warnings []string `json:"warnings"`
	Shadowed []Shadow `json:"shadowed,omitempty"`
	// Counts are there only if they are asked for.
	Counts []Count `json:"counts,omitempty"`
}

// Condition is what one condition gave: a value, or an error.
type Condition struct {
	Expression string `json:"expression"`
	Value      *bool  `json:"value,omitempty"`
	Error      string `json:"error,omitempty"`
}

// Step is a step.
type Step struct {
	Rule            string             `json:"rule"`
	Verb            string             `json:"verb"`
	APIVersion      string             `json:"apiVersion,omitempty"`
	Kind            string             `json:"kind,omitempty"`
	Namespace       string             `json:"namespace,omitempty"`
	Name            string             `json:"name,omitempty"`
	Key             string             `json:"key,omitempty"` // of an item that is no object
	UID             string             `json:"uid,omitempty"`
	ResourceVersion string             `json:"resourceVersion,omitempty"`
	Subresource     string             `json:"subresource,omitempty"`
	PatchType       v1alpha1.PatchType `json:"patchType,omitempty"`
	Patch           json.RawMessage    `json:"patch,omitempty"`
	Options         *Options           `json:"options,omitempty"`
	Reason          string             `json:"reason,omitempty"`
}

// Options are the options of a verb.
type Options struct {
	GracePeriodSeconds *int64                     `json:"gracePeriodSeconds,omitempty"`
	PropagationPolicy  v1alpha1.PropagationPolicy `json:"propagationPolicy,omitempty"`
	Force              bool                       `json:"force,omitempty"`
	Finalizer          string                     `json:"finalizer,omitempty"`
	// Release is the Helm release that a rule uninstalls, whose newest revision the object records; Revision is that revision.
	Release  string `json:"release,omitempty"`
	Revision int64  `json:"revision,omitempty"`
}

// NameObject names the object of a step for people: the release that it uninstalls, or the item that is no object.
func (s *Step) NameObject() string {
	kind, name := s.Kind, s.Name+s.Key
	if s.Options != nil && s.Options.Release != "" {
		kind, name = "release", s.Options.Release
	}
	return observed.FormatName(kind, s.Namespace, name)
}

// Withheld is a step that is not taken.
type Withheld struct {
	Step    `json:",inline"`
	Because string `json:"because"`
}

// Pending is something that waits.
type Pending struct {
	Rule  string `json:"rule"`
	Key   string `json:"key"`
	Until Moment `json:"until"`
}

// Count says what became of the items of a rule: those for which when holds are matched, and each of these is in one of the other numbers,
// has nothing to be done, or has an error.
type Count struct {
	Rule      string `json:"rule"`
	Items     int64  `json:"items"`
	Matched   int64  `json:"matched"`
	Kept      int64  `json:"kept"`
	Spared    int64  `json:"spared"`
	Waiting   int64  `json:"waiting"`
	Protected int64  `json:"protected"`
	Shadowed  int64  `json:"shadowed"`
	Errors    int64  `json:"errors"`
	Acted     int64  `json:"acted"`
}

// WriteCounts writes the counts of the rules of a plan.
func WriteCounts(p *plan.Plan) []Count {
	var out []Count
	for _, c := range p.ListCounts() {
		out = append(out, Count{
			Rule: c.Rule, Items: c.Items, Matched: c.Matched, Kept: c.Kept, Spared: c.Spared, Waiting: c.Waiting, Protected: c.Protected,
			Shadowed: c.Shadowed, Errors: c.Errors, Acted: c.Acted,
		})
	}
	return out
}

// Shadow is a rule that leaves objects to an earlier rule.
type Shadow struct {
	Rule string `json:"rule"`
	By   string `json:"by"`
	// Object is the first of the objects, and Items how many items of the rule are left out.
	Object string `json:"object"`
	Items  int64  `json:"items"`
}

// Error is what went wrong with items.
type Error struct {
	Rule string `json:"rule"`
	Key  string `json:"key,omitempty"`
	// Expression is the field of the spec that it is about, such as rules[0].when.
	Expression string `json:"expression,omitempty"`
	Message    string `json:"message"`
	// Count is to how many items it happened, if these are several.
	Count int64 `json:"count,omitempty"`
}

// Moment is a time in UTC as RFC 3339 writes it, or null.
type Moment struct{ time.Time }

// MarshalJSON writes the time, or null for the zero one.
func (m Moment) MarshalJSON() ([]byte, error) {
	if m.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(m.UTC().Format(time.RFC3339Nano))
}

// verbUninstall is the verb of the step that uninstalls a Helm release, and ruleHelm its rule.
const (
	verbUninstall = "helmUninstall"
	ruleHelm      = "helm"
)

// WritePlan is a plan as it is written down: for its owner, as decided at a moment. Warnings are added as they are.
func WritePlan(p *plan.Plan, owner plan.Owner, at time.Time, warnings []string) Plan {
	d := Plan{
		Kind: "Plan", Cleaner: owner.Name, At: Moment{at}, Verdict: p.Verdict, Reason: p.Reason, Next: Moment{p.NextChange}, Recheck: Moment{p.Recheck},
		Conditions: []Condition{}, Steps: []Step{}, Withheld: []Withheld{}, Pending: []Pending{},
		Errors: []Error{}, Warnings: append([]string{}, warnings...),
	}
	if owner.Namespace != "" {
		d.Cleaner = owner.Namespace + "/" + owner.Name
	}
	for _, c := range p.Conditions {
		d.Conditions = append(d.Conditions, Condition{Expression: c.Expression, Value: c.Value, Error: c.Error})
	}
	for i := range p.Steps {
		d.Steps = append(d.Steps, writeStep(&p.Steps[i]))
	}
	if p.Release != nil {
		d.Steps = append(d.Steps, Step{
			Rule: ruleHelm, Verb: verbUninstall, Namespace: owner.Namespace, Name: p.Release.Name, UID: string(p.Release.UID),
			Options: &Options{Revision: p.Release.Revision},
		})
	}
	for i := range p.Withheld {
		d.Withheld = append(d.Withheld, Withheld{Step: writeStep(&p.Withheld[i].Step), Because: p.Withheld[i].Because})
	}
	for _, w := range p.Pending {
		d.Pending = append(d.Pending, Pending{Rule: w.Rule, Key: w.Key, Until: Moment{w.Until}})
	}
	for _, s := range p.Shadowed {
		d.Shadowed = append(d.Shadowed, Shadow{Rule: s.Rule, By: s.By, Object: s.Object, Items: s.Items})
	}
	for _, e := range p.Errors {
		out := Error{Rule: e.Rule, Key: e.Key, Expression: e.Field, Message: e.Message}
		if e.Count > 1 {
			out.Count = e.Count
		}
		d.Errors = append(d.Errors, out)
	}
	return d
}

func writeStep(s *plan.Step) Step {
	o := &s.Object
	d := Step{
		Rule: s.Rule, Verb: string(s.Verb), Namespace: o.Namespace, Name: o.Name, UID: string(o.UID),
		ResourceVersion: o.ResourceVersion, Reason: s.Reason,
	}
	if o.Name == "" && len(s.Keys) > 0 {
		d.Key = s.Keys[0]
	}
	d.APIVersion, d.Kind = tellKind(o)
	options := Options{GracePeriodSeconds: s.Grace, PropagationPolicy: s.Propagation, Finalizer: s.Finalizer}
	if s.Patch != nil {
		d.Subresource, d.PatchType, d.Patch = s.Patch.Subresource, s.Patch.Type, s.Patch.Body
		options.Force = s.Patch.Force
	}
	if s.Verb == plan.VerbHelmUninstall {
		options.Release, options.Revision, _ = o.ReadRevision()
	}
	if options != (Options{}) {
		d.Options = &options
	}
	return d
}

// tellKind is what the object calls itself. If only metadata was read, it is the kind of its resource or, if that is not known, the resource.
func tellKind(o *observed.Object) (apiVersion, kind string) {
	apiVersion, _ = o.Value["apiVersion"].(string)
	kind, _ = o.Value["kind"].(string)
	if kind == "" && o.Resource.Resource != "" {
		return o.Resource.GroupVersion().String(), cmp.Or(o.Kind, o.Resource.Resource)
	}
	return apiVersion, kind
}
