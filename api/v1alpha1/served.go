// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JudgesRequester says that the API server itself, besides its authorizer, decides by who makes a request whether an object
// of a group may be written as it is: what a role or a binding grants, what a certificate is approved or signed for, which
// objects a policy may read as its parameters, and which devices a claim is given. OpenShift serves roles and bindings in a
// group of its own, too.
func JudgesRequester(group string) bool {
	return slices.Contains([]string{
		"admissionregistration.k8s.io", "authorization.openshift.io", "certificates.k8s.io", "rbac.authorization.k8s.io", "resource.k8s.io",
	}, group)
}

// ListsByRequester says that the API server of a group lists other objects to each user: those of the user. The watches of the operator
// would show all of them to every Cleaner. Source: OpenShift, where the role basic-user lets everybody list projects.
func ListsByRequester(group string) bool { return group == "project.openshift.io" }

// FindKind finds, among the resources that an API server serves in one version of a group, the one that a reference's
// kind stands for: by its kind, else by its plural or singular name, in any case. Nil if there is none.
func FindKind(kind string, resources []metav1.APIResource) *metav1.APIResource {
	for _, name := range []func(*metav1.APIResource) string{
		func(r *metav1.APIResource) string { return r.Kind },
		func(r *metav1.APIResource) string { return r.Name },
		func(r *metav1.APIResource) string { return r.SingularName },
	} {
		for i := range resources { // not by value: this is asked for each object that is read live
			if r := &resources[i]; !strings.Contains(r.Name, "/") && strings.EqualFold(name(r), kind) {
				return r
			}
		}
	}
	return nil
}
