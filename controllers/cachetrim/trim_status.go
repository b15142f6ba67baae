// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachetrim

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/internal/statusfindings"
)

const (
	// MaxConditions is how many conditions a status has, and MaxOutcomes how many of the spec its last evaluation.
	MaxConditions, MaxOutcomes = 16, 64
	// maxRules is how many rules a status names.
	maxRules = 64
	// MaxResolved is how many objects a status names, MaxListed how many of what waits, went wrong, is withheld or is skipped, and MaxActions how
	// many actions.
	MaxResolved, MaxListed, MaxActions = 100, 20, 20
	// maxReported is how many bytes a text of a report may have.
	maxReported = sanitize.MaxText
)

// trimReport leaves as much of a report as the operator itself writes: who may write a status may fill it. The record stays whole, which
// is believed only as it was signed.
func trimReport(s *v1alpha1.CleanerStatus) {
	s.Conditions = trimList(s.Conditions, MaxConditions, func(c *metav1.Condition) []*string {
		return []*string{&c.Type, (*string)(&c.Status), &c.Reason, &c.Message}
	})
	s.ResolvedTargets = trimList(s.ResolvedTargets, MaxResolved, func(t *string) []*string { return []*string{t} })
	s.Pending = trimList(s.Pending, MaxListed, func(p *v1alpha1.Pending) []*string { return []*string{&p.Rule, &p.Key} })
	s.LastActions = TrimActions(s.LastActions)
	s.Findings = trimFindings(s.Findings)
	s.RuleCounts = trimList(s.RuleCounts, maxRules, func(c *v1alpha1.RuleCounts) []*string { return []*string{&c.Rule} })
	if k := s.SkippedKinds; k != nil {
		k.Kinds = trimList(k.Kinds, MaxListed, func(k *v1alpha1.SkippedKind) []*string { return []*string{&k.Target, &k.Kind, &k.Reason} })
	}
	e := s.LastEvaluation
	if e == nil {
		return
	}
	trimTexts(&e.Reason, &e.Message, (*string)(&e.Verdict))
	e.Conditions = trimList(e.Conditions, MaxOutcomes, func(o *v1alpha1.ConditionOutcome) []*string { return []*string{&o.Expression, &o.Error} })
	e.Errors = trimList(e.Errors, MaxListed, func(i *v1alpha1.ItemError) []*string { return []*string{&i.Rule, &i.Key, &i.Field, &i.Message} })
	e.Withheld = trimList(e.Withheld, MaxListed, func(w *v1alpha1.Withheld) []*string { return []*string{&w.Object, &w.Because} })
}

// trimFindings leaves what rules report in the room that the operator gives it.
func trimFindings(all []v1alpha1.Finding) []v1alpha1.Finding {
	all = trimList(all, maxRules, func(f *v1alpha1.Finding) []*string { return []*string{&f.Rule, &f.Message} })
	for i := range all {
		all[i].Items = trimList(all[i].Items, statusfindings.MaxItems, func(name *string) []*string { return []*string{name} })
	}
	statusfindings.ShortenFindings(all)
	return all
}

// TrimActions keeps as many actions as a status shows, in place.
func TrimActions(all []v1alpha1.Action) []v1alpha1.Action {
	return trimList(all, MaxActions, func(a *v1alpha1.Action) []*string { return []*string{&a.Object, &a.UID, &a.Rule, &a.Action, &a.Result} })
}

// trimList leaves the first entries of a list, and the beginning of their texts. Of what is left out nothing is kept.
func trimList[T any](all []T, most int, texts func(*T) []*string) []T {
	if len(all) > most {
		all = slices.Clone(all[:most])
	}
	for i := range all {
		trimTexts(texts(&all[i])...)
	}
	return all
}

func trimTexts(texts ...*string) {
	for _, t := range texts {
		*t = sanitize.CutToBytes(*t, maxReported)
	}
}
