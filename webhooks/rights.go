// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
)

const (
	// maxReviews is how many reviews of one request are under way at a time.
	maxReviews = 16
	// allResources stands for the resource of a kind that is not served: who may do something with all resources of the
	// group may do it with that one, whatever it will be called.
	allResources = "*"
)

// reviews is what asks the API server whether somebody may do something.
type reviews interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, opts metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// right is one thing that somebody may do.
type right struct {
	verb, group, resource string
	// namespace is empty for what is cluster-scoped, and name for all objects.
	namespace, name string
}

// String is the right as it is asked for: delete deployments.apps "web" in namespace "shop".
func (r right) String() string {
	var b strings.Builder
	switch gr := (schema.GroupResource{Group: r.group, Resource: r.resource}); {
	case r.resource != allResources:
		fmt.Fprintf(&b, "%s %s", r.verb, gr)
	case r.group == "":
		fmt.Fprintf(&b, "%s all resources of the core group", r.verb)
	default:
		fmt.Fprintf(&b, "%s all resources of group %q", r.verb, r.group)
	}
	if r.name != "" {
		fmt.Fprintf(&b, " %q", r.name)
	}
	if r.namespace != "" {
		fmt.Fprintf(&b, " in namespace %q", r.namespace)
	}
	return b.String()
}

// compare orders rights as they are listed.
func compare(a, b right) int {
	return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource), cmp.Compare(a.name, b.name), cmp.Compare(a.verb, b.verb))
}

// rights are those that a Cleaner makes use of, each once and in order: its author must have them. A target is read,
// and its objects' names appear in the status, whether expressions see it or not.
//
// Of the account that an administrator has set for those that name none, only a release makes more use than its author's
// own rights allow: what it contains is not reviewed, and neither are its hooks.
func rights(namespace string, spec *v1alpha1.Work, defaultAccount string, served []validation.Served) []right {
	var all []right
	for i := range spec.Targets {
		t := &spec.Targets[i]
		on := right{group: t.Reference.APIGroup, resource: served[i].Resource, namespace: namespace, name: t.Reference.Name}
		if on.resource == "" {
			on.resource = allResources
		}
		if !served[i].Namespaced { // or nobody knows yet
			on.namespace = ""
		}
		for _, verb := range verbs(t) {
			on.verb = verb
			all = append(all, on)
		}
	}
	account := ""
	if spec.ServiceAccount != nil {
		account = spec.ServiceAccount.Name
	}
	if spec.Helm != nil && spec.Helm.Delete {
		account = cmp.Or(account, defaultAccount)
		for _, verb := range []string{"get", "list", "update", "delete"} { // a release is recorded in Secrets
			all = append(all, right{verb: verb, resource: "secrets", namespace: namespace})
		}
	}
	if account != "" {
		all = append(all, right{verb: "impersonate", resource: "serviceaccounts", namespace: namespace, name: account})
	}
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

// verbs are those with which a target is looked at, waited for, and deleted.
func verbs(t *v1alpha1.ClusterTarget) []string {
	var out []string
	if t.Delete {
		out = append(out, "delete", "get")
	}
	if t.Reference.Name == "" {
		out = append(out, "list")
	} else if !t.Delete {
		out = append(out, "get")
	}
	if t.Included() {
		out = append(out, "watch")
	}
	return out
}

// missing are the rights that a user does not have. A review that fails is an error: what nobody could find out is no
// permission.
func (v *validator) missing(ctx context.Context, user authenticationv1.UserInfo, needed []right) ([]right, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for k, values := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(values)
	}
	denied := make([]bool, len(needed))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxReviews)
	for i, r := range needed {
		group.Go(func() error {
			answer, err := v.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: r.verb, Group: r.group, Resource: r.resource, Namespace: r.namespace, Name: r.name,
				},
			}}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("cannot find out whether user %q may %s: %w", user.Username, r, err)
			}
			denied[i] = !answer.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []right
	for i, r := range needed {
		if denied[i] {
			out = append(out, r)
		}
	}
	return out, nil
}
