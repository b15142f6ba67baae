// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"fmt"
	"strings"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// FindProblem says for which reason a target holds an evaluation up, and in words; both empty if it does not. The owner is the namespace of the
// Cleaner.
func FindProblem(t *v1alpha1.ClusterTarget, seen *Target, owner string) (reason, message string) {
	if !t.IsIncluded() && !t.Delete {
		return "", ""
	}
	asNull := t.IsIncluded() && t.OnMissing == v1alpha1.OnMissingAsNull
	missing := func(r string) string {
		return fmt.Sprintf("Target %q: %s.", t.Name, strings.TrimSuffix(r, "."))
	}
	switch seen.State {
	case Complete:
		if t.IsIncluded() && t.Reference.Name != "" && len(seen.Objects) == 0 && !asNull {
			namespace := t.Reference.Namespace
			if namespace == "" && seen.Namespaced {
				namespace = owner
			}
			return v1alpha1.ReasonTargetMissing, missing(FormatName(t.Reference.Kind, namespace, t.Reference.Name) + " does not exist")
		}
		return "", ""
	case NoSuchKind:
		if asNull {
			return "", ""
		}
		return v1alpha1.ReasonKindNotServed, missing(seen.Detail)
	default:
		return findReason(seen.State), missing(seen.Detail)
	}
}

// findReason returns why a Cleaner waits for a target in this state.
func findReason(s TargetState) string {
	switch s {
	case Forbidden:
		return v1alpha1.ReasonAccessDenied
	case TooLarge:
		return v1alpha1.ReasonTooLarge
	case Unsynced:
		return v1alpha1.ReasonNotSynced
	default:
		return v1alpha1.ReasonReadFailed
	}
}

// IsAnswer says whether a live read of a whole target is an answer: it found what there is, or that the kind is not served,
// where expressions see null then.
func IsAnswer(t *v1alpha1.ClusterTarget, found TargetState) bool {
	return found == Complete || found == NoSuchKind && t.IsIncluded() && t.OnMissing == v1alpha1.OnMissingAsNull
}
