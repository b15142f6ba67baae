// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// rightSet collects different rights.
type rightSet map[observed.Right]struct{}

// addVerbs collects the rights to do something with an object and all of its kind in its namespace.
func (s rightSet) addVerbs(o object, verbs ...string) {
	for _, verb := range verbs {
		s[observed.Right{Verb: verb, Group: o.Resource.Group, Resource: o.Resource.Resource, Namespace: o.Namespace}] = struct{}{}
	}
}

// listRights gives them in order.
func (s rightSet) listRights() []observed.Right {
	return slices.SortedFunc(maps.Keys(s), observed.CompareRights)
}

// rightsToDelete are those that the deletion of the objects and of the release's records needs. What the chart keeps, and
// what is of a kind that is not served, is not deleted and needs none: a session deletes nothing without a right that was
// reviewed, should the kind be served by then.
func rightsToDelete(r resolvedManifest, namespace string) rightSet {
	rights := rightSet{}
	for _, verb := range []string{"get", "list", "update", "delete"} { // as the webhook asks of the author
		rights[observed.Right{Verb: verb, Resource: "secrets", Namespace: namespace}] = struct{}{}
	}
	for _, o := range r.objects {
		rights.addVerbs(o, "get", "delete")
	}
	return rights
}

// rightsForHooks are those that it takes to run hooks that are made of these objects.
func rightsForHooks(objects []object) rightSet {
	rights := rightSet{}
	for _, o := range objects {
		rights.addVerbs(o, "get", "watch", "create", "delete")
	}
	return rights
}

// checkRightsCount refuses a release that asks for more reviews than are made.
func checkRightsCount(name string, rights ...rightSet) *BlockedError {
	count := 0
	for _, s := range rights {
		count += len(s)
	}
	if count <= observed.MaxReleaseRights {
		return nil
	}
	return &BlockedError{
		Reason: v1alpha1.ReasonTooManyObjects,
		Detail: fmt.Sprintf("release %q needs %d different rights, one for each verb, resource and namespace, and %d are reviewed at most: uninstall it with Helm",
			name, count, observed.MaxReleaseRights),
	}
}

// isRightReviewed reports whether a right was reviewed for the author, or whether none was: then the API server checks each request
// against the rights of the account, or the operator trusts all who write Cleaners. A review is always about some rights: those on
// the records.
func (c UninstallRequest) isRightReviewed(o object, verb string) bool {
	return len(c.Rights) == 0 ||
		slices.Contains(c.Rights, observed.Right{Verb: verb, Group: o.Resource.Group, Resource: o.Resource.Resource, Namespace: o.Namespace})
}
