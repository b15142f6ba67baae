// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// FindMissingVerbs asks which of the verbs that a watch needs the operator lacks: for one object, or for all in a namespace or the cluster.
func FindMissingVerbs(ctx context.Context, access authorizationv1client.SelfSubjectAccessReviewInterface, r Resource, namespace, name string) ([]string, error) {
	var missing []string
	for _, verb := range []string{"list", "watch"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: r.GVR.Group, Version: r.GVR.Version, Resource: r.GVR.Resource, Namespace: namespace, Name: name,
			},
		}}
		answer, err := access.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot determine whether the operator may %s %s: %w", verb, DescribeScope(r, namespace, name), err)
		}
		if !answer.Status.Allowed {
			missing = append(missing, verb)
		}
	}
	return missing, nil
}
