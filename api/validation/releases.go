// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// checkReleases checks what only a target of Helm releases has.
func checkReleases(f *Findings, t *v1alpha1.ClusterTarget, p *field.Path) {
	if t.HasOwnReference() {
		f.addError(p, "needs exactly one of reference and helmReleases: remove one of them")
	}
	if t.Delete {
		f.addError(p.Child("delete"), "must be false: to delete the record of a release does not uninstall it; a rule with forEach: "+t.Name+
			".items deletes records of superseded revisions, or uninstalls releases with actions: [helmUninstall: {}]")
	}
	if !t.IsIncluded() {
		f.addError(p.Child("includeWhenEvaluating"), "must be true: only rules act on revisions of releases, and they read them")
	}
	if _, found := t.HelmReleases.MatchLabels[v1alpha1.ReleaseOwnerLabel]; found {
		f.addError(p.Child("helmReleases", "matchLabels"), "must not have owner, which is helm for all releases: remove it")
	}
}

// changesRecord says that an action would change objects of a target that are records of Helm releases. The operator changes none of them.
func changesRecord(t *v1alpha1.ClusterTarget, a *v1alpha1.RuleAction) bool {
	return t.IsOfReleases() && a.Delete == nil && a.Report == nil && a.HelmUninstall == nil
}

// checkHookTimeout checks how long a hook of a release may take.
func checkHookTimeout(f *Findings, timeout v1alpha1.Duration, p *field.Path) {
	if d, ok := f.parseDuration(timeout, p); ok && d <= 0 {
		f.addError(p, fmt.Sprintf("%s is too short: write more than 0s, or leave it out for 5m", timeout))
	}
}

// mayUninstall checks whether an action of a rule may uninstall releases, and whether its items are releases as far as that is known.
func mayUninstall(f *Findings, spec *v1alpha1.Work, rule, action int, p *field.Path, o Options) bool {
	actions := spec.Rules[rule].Actions
	touched, sole := findSoleTarget(spec, &spec.Rules[rule], &actions[action])
	later := slices.IndexFunc(actions[action+1:], func(a v1alpha1.RuleAction) bool { return a.Report == nil })
	switch {
	case o.isTemplate, o.Template != "":
		f.addError(p, "is not for templates: write the rule in a Cleaner or ClusterCleaner, or select what the template deletes instead of releases")
	case !spec.IsRecurring():
		f.addError(p, "requires lifecycle: Recurring: change lifecycle, or write helm: {release: NAME, delete: true}, which uninstalls one release, instead of the rule")
	case later >= 0 && actions[action+1+later].HelmUninstall != nil:
		f.addError(p, "is in two actions of the rule: remove one of them, or write two rules")
	case later >= 0:
		f.addError(p, "must come after all other actions of the rule that change something, because they do not wait until the release is uninstalled: put it last")
	case sole && !spec.Targets[touched].IsOfReleases():
		f.addError(p, fmt.Sprintf("is for the items of targets with helmReleases, and the target %q has objects of kind %s: select releases with helmReleases, or write delete",
			spec.Targets[touched].Name, spec.Targets[touched].Reference.Kind))
	case sole && findRevisionLabel(spec.Targets[touched].HelmReleases) != "":
		label := findRevisionLabel(spec.Targets[touched].HelmReleases)
		f.addError(p, fmt.Sprintf("acts on the newest revision of each release, and the target %q selects by the label %s, which hides newer revisions: remove %s from its helmReleases, and ask for it in when, as in item.status == \"deployed\"",
			spec.Targets[touched].Name, label, label))
	default:
		return true
	}
	return false
}

// findRevisionLabel returns a label by which a target of releases selects, and whose value differs between the revisions of a release; empty if there is none.
func findRevisionLabel(h *v1alpha1.ClusterHelmReleases) string {
	for _, label := range []string{"status", "version", "createdAt", "modifiedAt"} {
		_, matched := h.MatchLabels[label]
		if matched || slices.ContainsFunc(h.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return e.Key == label }) {
			return label
		}
	}
	return ""
}
