// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"cmp"
	"slices"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/planjson"
)

// Document is a forecast as it is written down: `kubectl cleaner forecast -o json`. Equal forecasts are equal bytes, lists are never null,
// and fields are only added.
type Document struct {
	Kind string `json:"kind"`
	// At is the moment from which on, and Until the moment until which, it is predicted what is done.
	At       planjson.Moment `json:"at"`
	Until    planjson.Moment `json:"until"`
	Cleaners []Cleaner       `json:"cleaners"`
}

// Cleaner is what one Cleaner will do.
type Cleaner struct {
	// Kind is Cleaner or ClusterCleaner.
	Kind string `json:"kind"`
	// Cleaner is <namespace>/<name>, or the name of a ClusterCleaner.
	Cleaner string        `json:"cleaner"`
	Mode    v1alpha1.Mode `json:"mode"`
	// Steps are in the order in which they are carried out.
	Steps []Step `json:"steps"`
	// Omitted is how many steps there are besides the listed ones.
	Omitted int64 `json:"omitted"`
	// States are what is decided where nothing is done, from each moment on.
	States []State `json:"states"`
	// Unpredictable is what cannot be predicted exactly.
	Unpredictable []Unpredictable `json:"unpredictable"`
	// Ends is when a Once Cleaner has cleaned up, and deletes itself.
	Ends planjson.Moment `json:"ends"`
	// Until is the moment until which this Cleaner's steps are known, and Cut says why if that is before the end of the forecast.
	Until    planjson.Moment `json:"until"`
	Cut      string          `json:"cut,omitempty"`
	Warnings []string        `json:"warnings"`
}

// Step is something that will be done.
type Step struct {
	At planjson.Moment `json:"at"`
	// Exact says that it happens at that moment if nothing changes. Otherwise it happens about then, earlier or later.
	Exact bool `json:"exact"`
	planjson.Step
	// Dependents is how many objects Kubernetes deletes with this one, because it owns them or contains them.
	Dependents int64 `json:"dependents,omitempty"`
	// Remains says that finalizers keep the deleted object.
	Remains bool `json:"remains,omitempty"`
}

// State is what is decided from a moment on.
type State struct {
	From    planjson.Moment  `json:"from"`
	Verdict v1alpha1.Verdict `json:"verdict"`
	Reason  string           `json:"reason"`
	Message string           `json:"message,omitempty"`
}

// IsBlocked reports whether something prevents all steps that the rules want. That some objects are protected is no reason to worry.
func (s *State) IsBlocked() bool {
	return s.Verdict == v1alpha1.VerdictInvalid || s.Verdict == v1alpha1.VerdictBlocked && s.Reason != v1alpha1.ReasonProtected
}

// Unpredictable is something that time alone may change at a moment that cannot be predicted.
type Unpredictable struct {
	From planjson.Moment `json:"from"`
	// Rule is the name of the rule; empty: it is the conditions.
	Rule string `json:"rule,omitempty"`
	// Because says why, in a sentence.
	Because string `json:"because"`
}

// Located is a step with the Cleaner that carries it out.
type Located struct {
	*Step
	Of *Cleaner
}

// NewDocument returns an empty forecast.
func NewDocument(at, until time.Time) *Document {
	return &Document{Kind: "Forecast", At: planjson.Moment{Time: at}, Until: planjson.Moment{Time: until}, Cleaners: []Cleaner{}}
}

// SortSteps returns the steps of all Cleaners in the order of their moments.
func (d *Document) SortSteps() []Located {
	var all []Located
	for i := range d.Cleaners {
		for j := range d.Cleaners[i].Steps {
			all = append(all, Located{Step: &d.Cleaners[i].Steps[j], Of: &d.Cleaners[i]})
		}
	}
	slices.SortStableFunc(all, func(a, b Located) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	return all
}

// CountOmitted returns how many steps the forecast does not list.
func (d *Document) CountOmitted() (n int64) {
	for i := range d.Cleaners {
		n += d.Cleaners[i].Omitted
	}
	return n
}
