// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Protection says what is never deleted, whatever a Cleaner says.
type Protection struct {
	// Namespaces in which nothing is deleted.
	Namespaces []string
	// AllowedKinds are protected resources, as <resource>.<group>, that the administrator has given free.
	AllowedKinds []string
}

// protectedResources are deleted only where the administrator has given them free: a cluster hangs on them.
func protectedResource(r schema.GroupResource) bool {
	switch r.Group {
	case "":
		return slices.Contains([]string{"namespaces", "nodes", "persistentvolumes"}, r.Resource)
	case "apiextensions.k8s.io", "apiregistration.k8s.io", "admissionregistration.k8s.io", "rbac.authorization.k8s.io":
		return true
	default:
		return r.Group == v1alpha1.GroupVersion.Group
	}
}

// releaseSecretPrefix begins the name of each Secret in which Helm records a revision of a release.
const releaseSecretPrefix = "sh.helm.release.v1."

// Because says why an object is protected; empty if it is not.
func (p Protection) Because(o *Object) string {
	r := o.Resource.GroupResource()
	switch {
	case o.Protected:
		return fmt.Sprintf("it carries %s: \"true\"", v1alpha1.ProtectKey)
	case o.Namespace != "" && slices.Contains(p.Namespaces, o.Namespace):
		return fmt.Sprintf("namespace %q is protected", o.Namespace)
	case r == schema.GroupResource{Resource: "secrets"} && strings.HasPrefix(o.Name, releaseSecretPrefix):
		return "it is the record of a Helm release, which only helm: may remove"
	case protectedResource(r) && !slices.Contains(p.AllowedKinds, r.String()):
		return fmt.Sprintf("%s are protected unless the manager runs with --allow-protected-kinds=%s", r.String(), r.String())
	}
	return ""
}

// OfRelease says why an object of a Helm release is protected; empty if it is not. What lies in a namespace goes with its
// release, access rights included; of what lies in none, each kind has to be given free.
func (p Protection) OfRelease(r Ref, namespaced bool) string {
	switch kind := r.Resource.GroupResource().String(); {
	case namespaced && slices.Contains(p.Namespaces, r.Namespace):
		return fmt.Sprintf("namespace %q is protected", r.Namespace)
	case !namespaced && !slices.Contains(p.AllowedKinds, kind):
		return fmt.Sprintf("%s are cluster-scoped, which releases may only take with them if the manager runs with --allow-protected-kinds=%s", kind, kind)
	}
	return ""
}
