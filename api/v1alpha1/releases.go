// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"reflect"
	"slices"
)

const (
	// ReleaseSecretType is the type of the Secrets in which Helm records the revisions of releases.
	ReleaseSecretType = "helm.sh/release.v1"
	// ReleaseSecretPrefix begins the names of these Secrets.
	ReleaseSecretPrefix = "sh.helm.release.v1."
	// ReleaseOwnerLabel is the label of these Secrets that is the same for all of them, ReleaseOwner.
	ReleaseOwnerLabel = "owner"
	ReleaseOwner      = "helm"
)

// Reference returns the reference to the Secrets that record the revisions.
func (h *ClusterHelmReleases) Reference() ClusterReference {
	labels := maps.Clone(h.MatchLabels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[ReleaseOwnerLabel] = ReleaseOwner
	return ClusterReference{
		Reference: Reference{
			Version: "v1", Kind: "Secret", FieldSelector: "type=" + ReleaseSecretType, MatchLabels: labels, MatchExpressions: h.MatchExpressions,
		},
		Namespaces: h.Namespaces, NamespaceSelector: h.NamespaceSelector, ExcludeNamespaces: h.ExcludeNamespaces,
	}
}

// IsOfReleases says that the items of the target are revisions of Helm releases. In a Work its Reference selects their Secrets.
func (t *ClusterTarget) IsOfReleases() bool { return t.HelmReleases != nil }

// HasOwnReference says that a target of a Work has the reference that it was written with, and not the one that its helmReleases stands for.
func (t *ClusterTarget) HasOwnReference() bool {
	return !t.IsOfReleases() || !reflect.DeepEqual(t.Reference, t.HelmReleases.Reference())
}

// ResolveTargets returns targets as a Work has them: those of Helm releases with a reference, unless they have one already, which validation refuses.
// It does not change the targets.
func ResolveTargets(targets []ClusterTarget) []ClusterTarget {
	if !slices.ContainsFunc(targets, func(t ClusterTarget) bool { return t.IsOfReleases() }) {
		return targets
	}
	out := slices.Clone(targets)
	for i := range out {
		if t := &out[i]; t.IsOfReleases() && reflect.ValueOf(t.Reference).IsZero() {
			t.Reference = t.HelmReleases.Reference()
		}
	}
	return out
}

// FindUninstall returns the action of a rule that uninstalls releases; nil if it has none. Validation allows one.
func (r *Rule) FindUninstall() *HelmUninstallAction {
	for i := range r.Actions {
		if uninstall := r.Actions[i].HelmUninstall; uninstall != nil {
			return uninstall
		}
	}
	return nil
}

// UninstallsForRules says that rules uninstall releases.
func (w *Work) UninstallsForRules() bool {
	return slices.ContainsFunc(w.Rules, func(r Rule) bool { return r.FindUninstall() != nil })
}
