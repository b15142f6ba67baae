// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
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
			".items deletes records of superseded revisions, and helm: {release: NAME, delete: true} of a Cleaner uninstalls a release")
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
	return t.IsOfReleases() && a.Delete == nil && a.Report == nil
}
