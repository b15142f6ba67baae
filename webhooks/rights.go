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
	// everything stands for all verbs and all groups.
	everything = "*"
)

// reviews is what asks the API server whether somebody may do something.
type reviews interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, opts metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// right is one thing that somebody may do.
type right struct {
	verb, group, resource, subresource string
	// namespace is empty for what is cluster-scoped, and for what lies in all namespaces; name is empty for all objects.
	namespace, name string
	// everywhere says that what lives in namespaces is meant in all of them.
	everywhere bool
}

// String is the right as it is asked for: delete deployments.apps "web" in namespace "shop".
func (r right) String() string {
	if r.verb == everything {
		return "do everything"
	}
	var b strings.Builder
	switch gr := (schema.GroupResource{Group: r.group, Resource: r.resource}); {
	case r.resource != allResources:
		fmt.Fprintf(&b, "%s %s", r.verb, gr)
	case r.group == "":
		fmt.Fprintf(&b, "%s all resources of the core group", r.verb)
	default:
		fmt.Fprintf(&b, "%s all resources of group %q", r.verb, r.group)
	}
	if r.subresource != "" {
		fmt.Fprintf(&b, "/%s", r.subresource)
	}
	if r.name != "" {
		fmt.Fprintf(&b, " %q", r.name)
	}
	switch {
	case r.namespace != "":
		fmt.Fprintf(&b, " in namespace %q", r.namespace)
	case r.everywhere:
		b.WriteString(" in all namespaces")
	}
	return b.String()
}

// compare orders rights as they are listed.
func compare(a, b right) int {
	return cmp.Or(
		cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource), cmp.Compare(a.subresource, b.subresource), cmp.Compare(a.name, b.name),
		cmp.Compare(a.verb, b.verb), cmp.Compare(a.namespace, b.namespace),
	)
}

// rights are those that a Cleaner or a ClusterCleaner makes use of, each once and in order: its author must have them. A
// target is read, and its objects' names appear in the status, whether expressions see it or not. What a rule does must be
// allowed on each target whose objects its actions may touch.
//
// Of the account that an administrator has set for those that name none, only a release makes more use than its author's
// own rights allow: what it contains is not reviewed, and neither are its hooks.
func rights(namespace string, spec *v1alpha1.Work, o validation.Options) []right {
	var all []right
	for i := range spec.Targets {
		t := &spec.Targets[i]
		for _, verb := range verbs(t) {
			all = append(all, on(namespace, spec, i, o.Served, verb, "")...)
		}
		if t.Reference.NamespaceSelector != nil { // the labels of Namespaces say where it looks
			all = append(all, right{verb: "list", resource: "namespaces"}, right{verb: "watch", resource: "namespaces"})
		}
	}
	for i := range spec.Rules {
		all = append(all, rightsOfRule(namespace, spec, i, o)...)
	}
	account, of := "", namespace
	if spec.ServiceAccount != nil {
		account, of = spec.ServiceAccount.Name, cmp.Or(spec.ServiceAccount.Namespace, namespace)
	}
	if spec.Helm != nil && spec.Helm.Delete {
		account = cmp.Or(account, o.DefaultServiceAccount)
		for _, verb := range []string{"get", "list", "update", "delete"} { // a release is recorded in Secrets
			all = append(all, right{verb: verb, resource: "secrets", namespace: namespace})
		}
	}
	if account != "" {
		all = append(all, right{verb: "impersonate", resource: "serviceaccounts", namespace: of, name: account})
	}
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

// rightsOfRule are those that a rule makes use of besides looking at the targets: what it confirms is read live, and what
// it acts on when somebody else has changed it meanwhile.
func rightsOfRule(namespace string, spec *v1alpha1.Work, rule int, o validation.Options) []right {
	var all []right
	r := &spec.Rules[rule]
	for _, c := range r.Confirm {
		if c.Target == v1alpha1.ConfirmAll { // as each target is looked at
			continue
		}
		at := slices.IndexFunc(spec.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Name == c.Target })
		verb := "get"
		if c.Name == "" && spec.Targets[at].Reference.Name == "" {
			verb = "list"
		}
		all = append(all, on(namespace, spec, at, o.Served, verb, "")...)
	}
	for j := range r.Actions {
		verb, subresource := deed(&r.Actions[j])
		if verb == "" {
			continue
		}
		for _, at := range validation.Touched(spec, rule, j, o) {
			all = append(all, on(namespace, spec, at, o.Served, verb, subresource)...)
			all = append(all, on(namespace, spec, at, o.Served, "get", "")...)
		}
	}
	return all
}

// deed is what an action asks of the API server; nothing for a report.
func deed(a *v1alpha1.RuleAction) (verb, subresource string) {
	switch {
	case a.Delete != nil:
		return "delete", ""
	case a.Evict != nil:
		return "create", "eviction"
	case a.Patch != nil:
		return "patch", a.Patch.Subresource
	case a.RemoveFinalizer != nil:
		return "patch", ""
	}
	return "", ""
}

// on is the right to one verb on a target, in each of the namespaces that it names.
func on(namespace string, spec *v1alpha1.Work, target int, served []validation.Served, verb, subresource string) []right {
	r := &spec.Targets[target].Reference
	one := right{verb: verb, group: r.APIGroup, resource: cmp.Or(served[target].Resource, allResources), subresource: subresource, name: r.Name}
	switch {
	case !served[target].Namespaced: // or nobody knows yet
		return []right{one}
	case !spec.Cluster:
		one.namespace = namespace
		return []right{one}
	case r.Namespace != "":
		one.namespace = r.Namespace
		return []right{one}
	case len(r.Namespaces) == 0:
		one.everywhere = true
		return []right{one}
	}
	var all []right
	for _, n := range r.Namespaces {
		if !slices.Contains(r.ExcludeNamespaces, n) {
			one.namespace = n
			all = append(all, one)
		}
	}
	return all
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
					Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, Name: r.name,
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
