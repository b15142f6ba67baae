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
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// allowedTTL and deniedTTL are for how long an answer of the API server is used again. For so long an account sees what watches show, also where
	// they are proved to be new for a confirmation, after its right was taken away.
	allowedTTL = time.Minute
	deniedTTL  = 10 * time.Second
)

// Access knows what accounts may read.
type Access struct {
	reviews authorizationv1client.SubjectAccessReviewInterface
	answers *answers[accessQuestion] // by the account's namespace
}

// NewAccess makes an Access that asks through the operator's client.
func NewAccess(reviews authorizationv1client.SubjectAccessReviewInterface, c clock.Clock) *Access {
	return &Access{reviews: reviews, answers: newAnswers[accessQuestion](c)}
}

type accessQuestion struct {
	account                                           Account
	verb, group, version, resource, namespace, object string
}

// isAllowed says whether an account may do something.
func (a *Access) isAllowed(ctx context.Context, q accessQuestion) (bool, error) {
	if allowed, known := a.answers.findAnswer(q.account.Namespace, q); known {
		return allowed, nil
	}
	name, groups := q.account.userAndGroups()
	answer, err := a.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: name, Groups: groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: q.verb, Group: q.group, Version: q.version, Resource: q.resource, Namespace: q.namespace, Name: q.object,
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("cannot find out what %s may do: %w", q.account, err)
	}
	serves := deniedTTL
	if answer.Status.Allowed {
		serves = allowedTTL
	}
	a.answers.keepAnswer(q.account.Namespace, q, answer.Status.Allowed, serves)
	return answer.Status.Allowed, nil
}

// NewReader shows of what another Reader knows only what an account may read: all of a target, or nothing.
func (a *Access) NewReader(account Account, shared snapshot.Reader) snapshot.Reader {
	if account.IsOperator() {
		return shared
	}
	return &accountReader{access: a, account: account, shared: shared}
}

type accountReader struct {
	access  *Access
	account Account
	shared  snapshot.Reader
}

// Read answers a query, if the account may.
func (r *accountReader) Read(ctx context.Context, q snapshot.Query) observed.Target {
	t := r.shared.Read(ctx, q)
	if t.State != observed.Complete {
		return t
	}
	denied, err := r.findDenial(ctx, &q, t.Resource, t.Namespaced)
	switch {
	case err != nil:
		return observed.Target{State: observed.Failed, Resource: t.Resource, Namespaced: t.Namespaced, Detail: err.Error()}
	case denied != "":
		return observed.Target{State: observed.Forbidden, Resource: t.Resource, Namespaced: t.Namespaced, Detail: denied}
	}
	return t
}

// findDenial says what the account may not read of what a query asks for, or "". Of several namespaces that are named, it has
// to be allowed the whole cluster or each of them; of those that are chosen otherwise, the whole cluster, and to see the
// Namespaces themselves when their labels choose.
func (r *accountReader) findDenial(ctx context.Context, q *snapshot.Query, resource schema.GroupVersionResource, namespaced bool) (string, error) {
	namespaces := []string{""}
	if namespaced {
		namespaces[0] = q.Namespace
	}
	denied, err := r.findDenialIn(ctx, q, resource, namespaced, namespaces)
	if namespaced && q.Namespaces.Names != nil && denied != "" {
		denied, err = r.findDenialIn(ctx, q, resource, namespaced, q.Namespaces.Names)
	}
	if err != nil || denied != "" || q.Namespaces.Labels == nil {
		return denied, err
	}
	chosen := q.Namespaces.NewListQuery()
	chosen.MetadataOnly = q.MetadataOnly
	return r.findDenialIn(ctx, &chosen, schema.GroupVersionResource{Version: chosen.Version, Resource: "namespaces"}, false, []string{""})
}

// findDenialIn says what the account may not read in the first of these namespaces in which it may not read all.
func (r *accountReader) findDenialIn(ctx context.Context, q *snapshot.Query, resource schema.GroupVersionResource, namespaced bool, namespaces []string) (string, error) {
	for _, namespace := range namespaces {
		about := accessQuestion{
			account: r.account, group: resource.Group, version: resource.Version, resource: resource.Resource,
			namespace: namespace, object: q.Name,
		}
		var missing []string
		for _, about.verb = range requiredVerbs(q) {
			allowed, err := r.access.isAllowed(ctx, about)
			if err != nil {
				return "", err
			}
			if !allowed {
				missing = append(missing, about.verb)
			}
		}
		if len(missing) > 0 {
			return fmt.Sprintf("%s is not allowed to %s %s", r.account, strings.Join(missing, " and "),
				snapshot.DescribeScope(resource.GroupResource(), namespaced, namespace, q.Name)), nil
		}
	}
	return "", nil
}

// requiredVerbs are what an account needs for a query: what a watch of its own would need, or no more than the confirmation
// does where no expression sees the objects.
func requiredVerbs(q *snapshot.Query) []string {
	switch {
	case !q.MetadataOnly:
		return []string{"get", "list", "watch"}
	case q.Name != "":
		return []string{"get"}
	default:
		return []string{"list"}
	}
}
