// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// allowedServes and deniedServes are for how long an answer of the API server is used again. A right that was taken
	// away still hides nothing from the confirmation, which is a request of the account itself.
	allowedServes = time.Minute
	deniedServes  = 10 * time.Second
)

// Access knows what accounts may read.
type Access struct {
	reviews authorizationv1client.SubjectAccessReviewInterface
	answers *cache.Expiring
}

// NewAccess makes an Access that asks through the operator's client.
func NewAccess(reviews authorizationv1client.SubjectAccessReviewInterface, c clock.Clock) *Access {
	return &Access{reviews: reviews, answers: cache.NewExpiringWithClock(c)}
}

type question struct {
	account                                           Account
	verb, group, version, resource, namespace, object string
}

// may says whether an account may do something.
func (a *Access) may(ctx context.Context, q question) (bool, error) {
	if known, ok := a.answers.Get(q); ok {
		return known.(bool), nil
	}
	name, groups := q.account.user()
	answer, err := a.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: name, Groups: groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: q.verb, Group: q.group, Version: q.version, Resource: q.resource, Namespace: q.namespace, Name: q.object,
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("cannot find out what %s may do: %w", q.account, err)
	}
	serves := deniedServes
	if answer.Status.Allowed {
		serves = allowedServes
	}
	a.answers.Set(q, answer.Status.Allowed, serves)
	return answer.Status.Allowed, nil
}

// Reader shows of what another Reader knows only what an account may read: all of a target, or nothing.
func (a *Access) Reader(account Account, shared snapshot.Reader) snapshot.Reader {
	if account.Operator() {
		return shared
	}
	return &reader{access: a, account: account, shared: shared}
}

type reader struct {
	access  *Access
	account Account
	shared  snapshot.Reader
}

// Read answers a query, if the account may.
func (r *reader) Read(ctx context.Context, q snapshot.Query) plan.Target {
	t := r.shared.Read(ctx, q)
	if t.State != plan.Complete {
		return t
	}
	about := question{
		account: r.account, group: t.Resource.Group, version: t.Resource.Version, resource: t.Resource.Resource, object: q.Name,
	}
	if t.Namespaced {
		about.namespace = q.Namespace
	}
	var missing []string
	for _, about.verb = range verbs(&q) {
		allowed, err := r.access.may(ctx, about)
		if err != nil {
			return plan.Target{State: plan.Failed, Resource: t.Resource, Namespaced: t.Namespaced, Detail: err.Error()}
		}
		if !allowed {
			missing = append(missing, about.verb)
		}
	}
	if len(missing) == 0 {
		return t
	}
	return plan.Target{State: plan.Forbidden, Resource: t.Resource, Namespaced: t.Namespaced, Detail: fmt.Sprintf("%s may not %s %s",
		r.account, strings.Join(missing, " and "), snapshot.Where(t.Resource.GroupResource(), t.Namespaced, q.Namespace, q.Name))}
}

// verbs are what an account needs for a query: what a watch of its own would need, or no more than the confirmation
// does where no expression sees the objects.
func verbs(q *snapshot.Query) []string {
	switch {
	case !q.MetadataOnly:
		return []string{"get", "list", "watch"}
	case q.Name != "":
		return []string{"get"}
	default:
		return []string{"list"}
	}
}
