// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rights lists the rights that an author must have so that a Cleaner may act for them: the rights that a spec uses, and how to
// ask the API server about them.
//
// It decides nothing and keeps no answer: package webhooks refuses what lacks rights, and the controllers do not act.
package rights

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// RetryAfter is how soon a right that was missing is asked about again.
const RetryAfter = 30 * time.Second

// maxReviews is how many reviews of one request are under way at a time.
const maxReviews = 16

// Right is one action on one kind, as the API server reviews it.
type Right = observed.Right

// ListRequired lists the rights that a Cleaner or a ClusterCleaner makes use of, each once and in order: its author must have them. A
// target is read, and its objects' names appear in the status, whether expressions see it or not. What a rule does must be
// allowed on each target whose objects its actions may touch.
//
// Of the account that an administrator has set for those that name none, only a release makes more use than its author's
// own rights allow: what it contains is not reviewed, and neither are its hooks.
func ListRequired(namespace string, spec *v1alpha1.Work, o validation.Options) []Right {
	all := listTargetsRights(namespace, spec, o.Served, listUses(spec, o))
	for i := range spec.Targets {
		if spec.Targets[i].Reference.NamespaceSelector != nil { // the labels of Namespaces say where it looks
			all = append(all, Right{Verb: "list", Resource: "namespaces"}, Right{Verb: "watch", Resource: "namespaces"})
		}
	}
	if spec.Helm != nil && spec.Helm.Delete {
		for _, verb := range uninstallVerbs() {
			all = append(all, Right{Verb: verb, Resource: "secrets", Namespace: namespace})
		}
	}
	if uninstalls := spec.Helm != nil && spec.Helm.Delete || spec.UninstallsForRules(); uninstalls && !spec.Cluster && spec.ServiceAccount == nil && o.DefaultServiceAccount != "" {
		all = append(all, newImpersonateRight(namespace, o.DefaultServiceAccount))
	}
	all = append(all, listAccountRights(namespace, spec)...)
	all = append(all, listSecretRights(namespace, spec)...)
	slices.SortFunc(all, observed.CompareRights)
	return slices.Compact(all)
}

// ListUsed lists the rights that a Cleaner makes use of now. Of kinds that are not served nothing can be used. If it cannot be found out whether a
// kind is served, unknown says so.
func ListUsed(
	ctx context.Context, namespace string, spec *v1alpha1.Work, o validation.Options,
	resolve func(ctx context.Context, r *v1alpha1.Reference) (validation.ServedKind, observed.TargetState, string),
) (used []Right, unknown string) {
	o.Served = make([]validation.ServedKind, len(spec.Targets))
	for i := range spec.Targets {
		if spec.Targets[i].IsOfAnyKind() {
			continue
		}
		found, state, detail := resolve(ctx, &spec.Targets[i].Reference.Reference)
		switch state {
		case observed.Complete:
			o.Served[i] = found
		case observed.NoSuchKind:
		default:
			return nil, fmt.Sprintf("Cannot check the rights of the author: %s.", detail)
		}
	}
	for _, r := range ListRequired(namespace, spec, o) {
		if r.Resource != observed.AllResources {
			used = append(used, r)
		}
	}
	return used, ""
}

// use is one thing that is done with the objects of a target.
type use struct {
	target            int
	verb, subresource string
}

// listUses returns what is done with targets, each once: there are far fewer than rules, times actions, times targets.
func listUses(spec *v1alpha1.Work, o validation.Options) map[use]struct{} {
	uses := map[use]struct{}{}
	for i := range spec.Targets {
		for _, verb := range listTargetVerbs(&spec.Targets[i]) {
			uses[use{i, verb, ""}] = struct{}{}
		}
	}
	for i := range spec.Rules {
		addRuleUses(uses, spec, i, o)
	}
	return uses
}

// uninstallVerbs are what the uninstall of a release does with the Secrets that record it.
func uninstallVerbs() []string { return []string{"get", "list", "update", "delete"} }

// maxSpread is how many rights are asked about one namespace at a time. What takes more is asked about all namespaces.
const maxSpread = 4096

// listTargetsRights returns the rights to uses of targets.
func listTargetsRights(namespace string, spec *v1alpha1.Work, served []validation.ServedKind, uses map[use]struct{}) []Right {
	spread := 0
	for u := range uses {
		spread += len(spec.Targets[u.target].Reference.Namespaces)
	}
	var all []Right
	for u := range uses {
		if spec.Targets[u.target].IsOfAnyKind() { // each kind is reviewed by itself, and skipped if it is denied
			continue
		}
		all = append(all, listTargetRights(namespace, spec, u, served, spread <= maxSpread)...)
	}
	return all
}

// ListForDelivery lists those of the rights that the delivery of an event makes use of.
func ListForDelivery(namespace string, spec *v1alpha1.Work) []Right {
	return append(listSecretRights(namespace, spec), listAccountRights(namespace, spec)...)
}

// listSecretRights returns the right to read what events carry to the sink.
func listSecretRights(namespace string, spec *v1alpha1.Work) []Right {
	auth := spec.CloudEventSinkAuth
	if auth == nil {
		return nil
	}
	return []Right{{Verb: "get", Resource: "secrets", Namespace: cmp.Or(auth.SecretRef.Namespace, namespace), Name: auth.SecretRef.Name}}
}

// listAccountRights returns the right to act as the ServiceAccount that the spec names.
func listAccountRights(namespace string, spec *v1alpha1.Work) []Right {
	if spec.ServiceAccount == nil {
		return nil
	}
	return []Right{newImpersonateRight(cmp.Or(spec.ServiceAccount.Namespace, namespace), spec.ServiceAccount.Name)}
}

// NewRightToEverything returns the right to do everything.
func NewRightToEverything() Right {
	return Right{Verb: observed.Everything, Group: observed.Everything, Resource: observed.Everything}
}

func newImpersonateRight(namespace, account string) Right {
	return Right{Verb: "impersonate", Resource: "serviceaccounts", Namespace: namespace, Name: account}
}

// addRuleUses adds what a rule does besides reading its targets: it reads live what it confirms, and reads its items again when they have
// changed meanwhile.
func addRuleUses(uses map[use]struct{}, spec *v1alpha1.Work, rule int, o validation.Options) {
	r := &spec.Rules[rule]
	for _, c := range r.Confirm {
		at := slices.IndexFunc(spec.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Name == c.Target })
		if at < 0 { // it is v1alpha1.ConfirmAll: each target is looked at anyway; validation refuses others
			continue
		}
		verb := "get"
		if c.Name == "" && spec.Targets[at].Reference.Name == "" {
			verb = "list"
		}
		uses[use{at, verb, ""}] = struct{}{}
	}
	for j := range r.Actions {
		if r.Actions[j].HelmUninstall != nil {
			for _, at := range validation.FindActionTargets(spec, rule, j, o) {
				for _, verb := range uninstallVerbs() {
					uses[use{at, verb, ""}] = struct{}{}
				}
			}
			continue
		}
		verb, subresource := actionVerb(&r.Actions[j])
		if verb == "" {
			continue
		}
		for _, at := range validation.FindActionTargets(spec, rule, j, o) {
			uses[use{at, verb, subresource}], uses[use{at, "get", ""}] = struct{}{}, struct{}{}
		}
	}
}

// actionVerb returns what an action asks of the API server; nothing for a report.
func actionVerb(a *v1alpha1.RuleAction) (verb, subresource string) {
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

// listTargetRights returns the right to one use of a target, in each of the namespaces that it names, or in all.
func listTargetRights(namespace string, spec *v1alpha1.Work, u use, served []validation.ServedKind, each bool) []Right {
	r := &spec.Targets[u.target].Reference
	one := Right{Verb: u.verb, Group: r.APIGroup, Resource: cmp.Or(served[u.target].Resource, observed.AllResources), Subresource: u.subresource, Name: r.Name}
	switch {
	case !served[u.target].Namespaced: // or not known yet
		return []Right{one}
	case !spec.Cluster:
		one.Namespace = namespace
		return []Right{one}
	case r.Namespace != "":
		one.Namespace = r.Namespace
		return []Right{one}
	case len(r.Namespaces) == 0, !each:
		one.Everywhere = true
		return []Right{one}
	}
	var all []Right
	for _, n := range r.Namespaces {
		if !slices.Contains(r.ExcludeNamespaces, n) {
			one.Namespace = n
			all = append(all, one)
		}
	}
	return all
}

// listTargetVerbs returns the verbs with which a target is looked at, waited for, and deleted.
func listTargetVerbs(t *v1alpha1.ClusterTarget) []string {
	var out []string
	if t.Delete {
		out = append(out, "delete", "get")
	}
	if t.Reference.Name == "" {
		out = append(out, "list")
	} else if !t.Delete {
		out = append(out, "get")
	}
	if t.IsIncluded() {
		out = append(out, "watch")
	}
	return out
}

// Subject is the user whose rights are reviewed.
type Subject struct {
	User, UID string
	Groups    []string
	Extra     map[string]authorizationv1.ExtraValue
}

// NewSubject returns the user of a request.
func NewSubject(user authenticationv1.UserInfo) Subject {
	s := Subject{User: user.Username, UID: user.UID, Groups: user.Groups, Extra: make(map[string]authorizationv1.ExtraValue, len(user.Extra))}
	for k, values := range user.Extra {
		s.Extra[k] = authorizationv1.ExtraValue(values)
	}
	return s
}

// Reviews asks the API server whether a user may do something. client-go's client for SubjectAccessReviews is one.
type Reviews interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, opts metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// IsAllowed asks the API server whether a subject has a right.
func IsAllowed(ctx context.Context, reviews Reviews, s Subject, r Right) (bool, error) {
	answer, err := reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: s.User, UID: s.UID, Groups: s.Groups, Extra: s.Extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name,
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("cannot determine whether user %q may %s: %w", s.User, r, err)
	}
	return answer.Status.Allowed, nil
}

// FindMissing returns the rights that allowed denies. A failed answer is an error: what could not be determined is no permission.
func FindMissing(ctx context.Context, needed []Right, allowed func(ctx context.Context, r Right) (bool, error)) ([]Right, error) {
	denied := make([]bool, len(needed))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxReviews)
	for i, r := range needed {
		group.Go(func() (err error) {
			defer func() { // in this goroutine a panic would end the process
				if value := recover(); value != nil {
					err = fmt.Errorf("cannot determine whether the user may %s: panic: %v", r, value)
				}
			}()
			ok, err := allowed(ctx, r)
			denied[i] = !ok
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []Right
	for i, r := range needed {
		if denied[i] {
			out = append(out, r)
		}
	}
	return out, nil
}
