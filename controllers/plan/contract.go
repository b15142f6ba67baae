// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Document is a plan as it is written down for people and programs: `kubectl cleaner plan -o json`, and what tests of
// templates expect. Its form is a promise: equal plans are equal bytes, lists are never null, and fields are only added.
type Document struct {
	Kind string `json:"kind"`
	// Cleaner is <namespace>/<name>, or the name of a ClusterCleaner.
	Cleaner    string              `json:"cleaner"`
	At         Moment              `json:"at"`
	Verdict    v1alpha1.Verdict    `json:"verdict"`
	Reason     string              `json:"reason"`
	Conditions []DocumentCondition `json:"conditions"`
	Steps      []DocumentStep      `json:"steps"`
	Withheld   []DocumentWithheld  `json:"withheld"`
	Pending    []DocumentPending   `json:"pending"`
	Next       Moment              `json:"next"`
	Errors     []DocumentError     `json:"errors"`
	Warnings   []string            `json:"warnings"`
}

// DocumentCondition is what one condition gave: a value, or an error.
type DocumentCondition struct {
	Expression string `json:"expression"`
	Value      *bool  `json:"value,omitempty"`
	Error      string `json:"error,omitempty"`
}

// DocumentStep is a step.
type DocumentStep struct {
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
	Options         *DocumentOptions   `json:"options,omitempty"`
	Reason          string             `json:"reason,omitempty"`
}

// DocumentOptions are the options of a verb.
type DocumentOptions struct {
	GracePeriodSeconds *int64                     `json:"gracePeriodSeconds,omitempty"`
	PropagationPolicy  v1alpha1.PropagationPolicy `json:"propagationPolicy,omitempty"`
	Force              bool                       `json:"force,omitempty"`
	Finalizer          string                     `json:"finalizer,omitempty"`
	Revision           int64                      `json:"revision,omitempty"`
}

// DocumentWithheld is a step that is not taken.
type DocumentWithheld struct {
	DocumentStep `json:",inline"`
	Because      string `json:"because"`
}

// DocumentPending is something that waits.
type DocumentPending struct {
	Rule  string `json:"rule"`
	Key   string `json:"key"`
	Until Moment `json:"until"`
}

// DocumentError is what went wrong with items.
type DocumentError struct {
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

// ToDocument is the plan as it is written down: for its owner, as decided at a moment. Warnings are added as they are.
func (p *Plan) ToDocument(owner Owner, at time.Time, warnings []string) Document {
	d := Document{
		Kind: "Plan", Cleaner: owner.Name, At: Moment{at}, Verdict: p.Verdict, Reason: p.Reason, Next: Moment{p.NextLook()},
		Conditions: []DocumentCondition{}, Steps: []DocumentStep{}, Withheld: []DocumentWithheld{}, Pending: []DocumentPending{},
		Errors: []DocumentError{}, Warnings: append([]string{}, warnings...),
	}
	if owner.Namespace != "" {
		d.Cleaner = owner.Namespace + "/" + owner.Name
	}
	for _, c := range p.Conditions {
		d.Conditions = append(d.Conditions, DocumentCondition{Expression: c.Expression, Value: c.Value, Error: c.Error})
	}
	for i := range p.Steps {
		d.Steps = append(d.Steps, p.Steps[i].toDocument())
	}
	if p.Release != nil {
		d.Steps = append(d.Steps, DocumentStep{
			Rule: ruleHelm, Verb: verbUninstall, Namespace: owner.Namespace, Name: p.Release.Name, UID: string(p.Release.UID),
			Options: &DocumentOptions{Revision: p.Release.Revision},
		})
	}
	for i := range p.Withheld {
		d.Withheld = append(d.Withheld, DocumentWithheld{DocumentStep: p.Withheld[i].Step.toDocument(), Because: p.Withheld[i].Because})
	}
	for _, w := range p.Pending {
		d.Pending = append(d.Pending, DocumentPending{Rule: w.Rule, Key: w.Key, Until: Moment{w.Until}})
	}
	for _, e := range p.Errors {
		out := DocumentError{Rule: e.Rule, Key: e.Key, Expression: e.Field, Message: e.Message}
		if e.Count > 1 {
			out.Count = e.Count
		}
		d.Errors = append(d.Errors, out)
	}
	return d
}

func (s *Step) toDocument() DocumentStep {
	o := &s.Object
	d := DocumentStep{
		Rule: s.Rule, Verb: string(s.Verb), Namespace: o.Namespace, Name: o.Name, UID: string(o.UID),
		ResourceVersion: o.ResourceVersion, Reason: s.Reason,
	}
	if o.Name == "" && len(s.Keys) > 0 {
		d.Key = s.Keys[0]
	}
	d.APIVersion, d.Kind = o.apiVersionKind()
	options := DocumentOptions{GracePeriodSeconds: s.Grace, PropagationPolicy: s.Propagation, Finalizer: s.Finalizer}
	if s.Patch != nil {
		d.Subresource, d.PatchType, d.Patch = s.Patch.Subresource, s.Patch.Type, s.Patch.Body
		options.Force = s.Patch.Force
	}
	if options != (DocumentOptions{}) {
		d.Options = &options
	}
	return d
}

// apiVersionKind is what the object calls itself. Of one of which only metadata was read it is the resource.
func (o *Object) apiVersionKind() (apiVersion, kind string) {
	apiVersion, _ = o.Value["apiVersion"].(string)
	kind, _ = o.Value["kind"].(string)
	if kind == "" && o.Resource.Resource != "" {
		return o.Resource.GroupVersion().String(), o.Resource.Resource
	}
	return apiVersion, kind
}
