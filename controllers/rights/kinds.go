// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// ListKindVerbs lists the verbs that the author of a spec needs on each kind of a target of all kinds: no more than to list, where nothing is
// deleted.
func ListKindVerbs(spec *v1alpha1.Work) []string {
	for i := range spec.Rules {
		if slices.ContainsFunc(spec.Rules[i].Actions, func(a v1alpha1.RuleAction) bool { return a.Delete != nil }) {
			return []string{"delete", "list"}
		}
	}
	return []string{"list"}
}

// ListKindRights lists the rights that the targets of all kinds make use of, each once and in order: of the kinds that are known.
func ListKindRights(spec *v1alpha1.Work, o validation.Options) []Right {
	var all []Right
	for i := range spec.Targets {
		if !spec.Targets[i].IsOfAnyKind() || i >= len(o.Served) {
			continue
		}
		request := anykind.NewRequest(&spec.Targets[i])
		for _, r := range o.Served[i].Kinds {
			k := anykind.Kind{GroupVersionResource: schema.GroupVersionResource{Group: r.Group, Resource: r.Resource}, Namespaced: r.Namespaced}
			if !r.Namespaced && request.NamespacedOnly {
				continue
			}
			for _, verb := range append([]string{"watch"}, ListKindVerbs(spec)...) {
				all = append(all, NewKindRight(&k, request.FindReviewedNamespace(), verb))
			}
		}
	}
	slices.SortFunc(all, observed.CompareRights)
	return slices.Compact(all)
}

// NameKinds returns kinds as they are among what is served.
func NameKinds(kinds []anykind.Kind) []validation.NamedResource {
	named := make([]validation.NamedResource, len(kinds))
	for i, k := range kinds {
		named[i] = validation.NamedResource{Group: k.Group, Resource: k.Resource, Namespaced: k.Namespaced}
	}
	return named
}

// ListWatchVerbs lists the verbs that the operator itself needs on each kind: the watches are its own, and what it does as itself, as the verbs of the
// author say.
func ListWatchVerbs(author []string, asItself bool) []string {
	if asItself && slices.Contains(author, "delete") {
		return []string{"list", "watch", "delete"}
	}
	return []string{"list", "watch"}
}

// ListForAllKinds lists the rights to do with all kinds what the targets of all kinds do; nil if there are none. Those who answer for others need
// them: the author of a template, and a user who asks for an evaluation of a Cleaner of another author.
func ListForAllKinds(spec *v1alpha1.Work) (all []Right) {
	if len(spec.ListAnyKind()) == 0 {
		return nil
	}
	for _, verb := range ListKindVerbs(spec) {
		all = append(all, Right{Verb: verb, Group: observed.Everything, Resource: observed.AllResources})
	}
	return all
}

// SplitKinds divides kinds into those on which all verbs are allowed, in a namespace or in all, and the others. It asks about each kind: a yes for
// all kinds does not say that no authorizer denies one of them.
func SplitKinds(ctx context.Context, kinds []anykind.Kind, namespace string, verbs []string, isAllowed func(context.Context, Right) (bool, error)) (may, denied []anykind.Kind, err error) {
	var each []Right
	for i := range kinds {
		for _, verb := range verbs {
			each = append(each, NewKindRight(&kinds[i], namespace, verb))
		}
	}
	missing, err := FindMissing(ctx, each, isAllowed)
	if err != nil {
		return nil, nil, err
	}
	lacks := map[schema.GroupResource]bool{}
	for _, r := range missing {
		lacks[schema.GroupResource{Group: r.Group, Resource: r.Resource}] = true
	}
	may, denied = anykind.Split(kinds, func(k *anykind.Kind) bool { return !lacks[k.GroupResource()] })
	return may, denied, nil
}

// NewKindRight is the right to do something with all objects of a kind, in a namespace or in all.
func NewKindRight(k *anykind.Kind, namespace, verb string) Right {
	r := Right{Verb: verb, Group: k.Group, Resource: k.Resource}
	if k.Namespaced {
		r.Namespace, r.Everywhere = namespace, namespace == ""
	}
	return r
}

// RulesReviews asks the API server which rights the caller has in a namespace. client-go's client for SelfSubjectRulesReviews is one.
type RulesReviews interface {
	Create(ctx context.Context, review *authorizationv1.SelfSubjectRulesReview, opts metav1.CreateOptions) (*authorizationv1.SelfSubjectRulesReview, error)
}

// Own are rights that a caller has in a namespace: those that were listed for it, which may be more than it has in all namespaces.
type Own struct {
	rules []authorizationv1.ResourceRule
	// incomplete says that there may be others.
	incomplete bool
}

// ListOwn asks which rights the caller has in a namespace, with one review for all kinds.
func ListOwn(ctx context.Context, reviews RulesReviews, namespace string) (*Own, error) {
	answer, err := reviews.Create(ctx, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list the operator's own rights: %w", err)
	}
	return &Own{rules: answer.Status.ResourceRules, incomplete: answer.Status.Incomplete}, nil
}

// MayHave reports whether the caller may have all these verbs on all objects of a kind. It is false only if that is certain.
func (o *Own) MayHave(k *anykind.Kind, verbs []string) bool {
	return o.incomplete || !slices.ContainsFunc(verbs, func(verb string) bool { return !o.has(k, verb) })
}

func (o *Own) has(k *anykind.Kind, verb string) bool {
	names := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, observed.Everything)
	}
	return slices.ContainsFunc(o.rules, func(r authorizationv1.ResourceRule) bool {
		return len(r.ResourceNames) == 0 && names(r.Verbs, verb) && names(r.APIGroups, k.Group) && names(r.Resources, k.Resource)
	})
}

// DescribeVerbs joins verbs as a message names them.
func DescribeVerbs(verbs []string) string { return strings.Join(verbs, " and ") }
