// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protection says once, for the API, the webhook, the operator and the command line, which kinds and namespaces a cluster
// depends on.
//
// It never decides what is done about an object: that is controllers/plan's. It reads no cluster.
package protection

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// ProtectedNamespaces returns the namespaces in which nothing is touched, unless an administrator lists others.
func ProtectedNamespaces() []string { return []string{"kube-system", "kube-public", "kube-node-lease"} }

// plural is the name of a protected resource: they all end like this.
var plural = regexp.MustCompile(`^[a-z]+s$`)

// IsProtected says that a cluster hangs on objects of a resource: they are deleted only where an administrator allows it.
// OpenShift serves some of them under names of its own.
func IsProtected(r schema.GroupResource) bool {
	switch r.Group {
	case "":
		return r.Resource == "namespaces" || r.Resource == "nodes" || r.Resource == "persistentvolumes"
	case "apiextensions.k8s.io", "apiregistration.k8s.io", "admissionregistration.k8s.io", "rbac.authorization.k8s.io",
		"authorization.openshift.io", "project.openshift.io", "user.openshift.io", v1alpha1.GroupVersion.Group:
		return true
	default:
		return false
	}
}

// CheckName returns an error for a name that no protected resource can have, as <resource> or <resource>.<group>. It cannot tell whether a
// cluster serves it.
func CheckName(name string) error {
	r := schema.ParseGroupResource(name)
	if r.String() == name && plural.MatchString(r.Resource) && name == strings.ToLower(name) && IsProtected(r) {
		return nil
	}
	return fmt.Errorf("%q is no protected resource: write a plural and its group, such as namespaces or clusterroles.rbac.authorization.k8s.io", name)
}

// DescribeProtected returns the message that objects of a protected resource are not deleted, and what allows it.
func DescribeProtected(r schema.GroupResource) string {
	return fmt.Sprintf("%s are protected unless the operator runs with --allow-protected-kinds=%s", r, r)
}

// IsNamespace says that an object of a resource is a namespace. OpenShift serves each Namespace as a Project too: deleting the Project
// deletes the Namespace.
func IsNamespace(r schema.GroupResource) bool {
	return r == schema.GroupResource{Resource: "namespaces"} || r == schema.GroupResource{Group: "project.openshift.io", Resource: "projects"}
}
