// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/rights"
)

// maxNamedKinds is how many kinds a warning names.
const maxNamedKinds = 10

// allKinds lists what the API server serves. client-go's discovery client implements it.
type allKinds interface {
	ServerPreferredResourcesWithContext(ctx context.Context) ([]*metav1.APIResourceList, error)
}

// kindReview reviews the rights to the kinds of the targets of one Cleaner that select objects of all kinds.
type kindReview struct {
	*validator
	user rights.Subject
	work *v1alpha1.Work
	// answers are those of this review: targets of the same kinds are asked about once.
	mu      sync.Mutex
	answers map[rights.Right]bool
}

// reviewAnyKinds warns about the kinds that targets of all kinds skip, and names them. If nothing is left to a target, it says why: then the spec is
// refused. It asks nothing if there is no such target.
func (v *validator) reviewAnyKinds(ctx context.Context, user rights.Subject, work *v1alpha1.Work) (warnings []string, refusal string, err error) {
	targets := work.ListAnyKind()
	if len(targets) == 0 {
		return nil, "", nil
	}
	kinds, _, err := anykind.ListServed(v.allKinds.ServerPreferredResourcesWithContext(ctx))
	if err != nil {
		return nil, "", err
	}
	bound := &anykind.Bound{}
	r := &kindReview{validator: v, user: user, work: work, answers: map[rights.Right]bool{}}
	for i := range work.Targets {
		t := &work.Targets[i]
		if !t.IsOfAnyKind() {
			continue
		}
		left, skipped, err := r.reviewTarget(ctx, t, kinds, bound)
		if err != nil {
			return nil, "", err
		}
		if len(left) == 0 {
			return nil, fmt.Sprintf("spec.targets[%d].reference.kind: no kind is left for target %q: %s", i, t.Name, describeSkipped(skipped)), nil
		}
		if unknown := anykind.FindUnknown(kinds, t.Reference.ExcludeKinds); len(unknown) > 0 {
			warnings = append(warnings, fmt.Sprintf("spec.targets[%d].reference.excludeKinds: no kind that could be selected has the name %s: write the resource in full, such as configmaps or deployments.apps", i, strings.Join(unknown, ", ")))
		}
		if len(skipped) > 0 {
			warnings = append(warnings, fmt.Sprintf("spec.targets[%d].reference.kind: %d kinds are skipped: %s", i, len(skipped), describeSkipped(skipped)))
		}
	}
	return warnings, "", nil
}

// reviewTarget returns the kinds that a target stands for, and those that it skips. What the operator itself may not do costs no review of the
// user.
func (r *kindReview) reviewTarget(ctx context.Context, t *v1alpha1.ClusterTarget, kinds []anykind.Kind, bound *anykind.Bound) (left []anykind.Kind, skipped []anykind.Skipped, err error) {
	request := anykind.NewRequest(t)
	at := request.FindReviewedNamespace()
	own, err := rights.ListOwn(ctx, r.rules, cmp.Or(at, r.options.OperatorNamespace))
	if err != nil {
		return nil, nil, err
	}
	verbs := rights.ListKindVerbs(r.work)
	needed := rights.ListWatchVerbs(verbs, r.work.ServiceAccount == nil)
	left, denied := anykind.Split(anykind.SelectKinds(kinds, request), func(k *anykind.Kind) bool {
		return own.MayHave(k, needed)
	})
	skipped = anykind.Skip(denied, "the operator is not allowed to "+rights.DescribeVerbs(needed))
	left, over := bound.Take(left, request)
	skipped = append(skipped, over...)
	left, denied, err = rights.SplitKinds(ctx, left, at, verbs, r.ask)
	return left, append(skipped, anykind.Skip(denied, fmt.Sprintf("user %q is not allowed to %s", r.user.User, rights.DescribeVerbs(verbs)))...), err
}

// ask reports whether the user has a right.
func (r *kindReview) ask(ctx context.Context, right rights.Right) (bool, error) {
	r.mu.Lock()
	allowed, known := r.answers[right]
	r.mu.Unlock()
	if known {
		return allowed, nil
	}
	allowed, err := rights.IsAllowed(ctx, r.reviews, r.user, right)
	if err == nil {
		r.mu.Lock()
		r.answers[right] = allowed
		r.mu.Unlock()
	}
	return allowed, err
}

// describeSkipped names the first of the kinds that are skipped, by the reasons.
func describeSkipped(skipped []anykind.Skipped) string {
	var reasons []string
	byReason := map[string][]string{}
	for n, s := range skipped {
		if n == maxNamedKinds {
			break
		}
		if byReason[s.Reason] == nil {
			reasons = append(reasons, s.Reason)
		}
		byReason[s.Reason] = append(byReason[s.Reason], s.GroupResource.String())
	}
	var parts []string
	for _, reason := range reasons {
		parts = append(parts, reason+" "+strings.Join(byReason[reason], ", "))
	}
	if more := len(skipped) - maxNamedKinds; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more kinds", more))
	}
	if len(parts) == 0 {
		return "excludeKinds leaves out all kinds"
	}
	return strings.Join(parts, "; ")
}
