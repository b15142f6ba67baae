// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/protection"
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// Protection says what is never touched, whatever a Cleaner says.
type Protection struct {
	// Namespaces in which nothing is touched. A ClusterCleaner may include them.
	Namespaces []string
	// Own is the namespace of the operator, in which nothing is ever touched; empty if that is not known.
	Own string
	// AllowedKinds are protected resources, as <resource>.<group>, that the administrator has given free.
	AllowedKinds []string
	// unnamed says that the author has named no account to act as, and so has not shown the right to act as one.
	unnamed bool
	// templated says that a template says what is done: its author has written it, and the one who uses it has named the account.
	templated bool
	// records says that all Secrets that the spec selects are records of Helm releases, and that it says so.
	records bool
}

// ForSpec is what is left of the protection for a spec.
func (p Protection) ForSpec(spec *v1alpha1.Work) Protection {
	if spec.Cluster && spec.IncludeProtected {
		p.Namespaces = nil
	}
	p.unnamed, p.templated, p.records = spec.ServiceAccount == nil, spec.Declared != nil, spec.SelectsRecords()
	return p
}

// ForbidsDelete says why an object must not be deleted; empty if it may.
func (p Protection) ForbidsDelete(o *observed.Object) string { return p.ForbidsVerb(VerbDelete, o) }

// ForbidsVerb says why a verb is not for an object; empty if it is. Kinds on which a cluster hangs are protected from being
// deleted only: to taint a Node is what some rules are for.
func (p Protection) ForbidsVerb(verb Verb, o *observed.Object) string {
	if verb == VerbReport {
		return ""
	}
	return cmp.Or(runrow.ForbidsName(o.Name), p.forbidsLending(verb, o), p.forbidsObject(o), p.forbidsRecord(verb, o), p.forbidsKind(verb, o))
}

// forbidsLending says why a verb would lend somebody rights that are not theirs.
func (p Protection) forbidsLending(verb Verb, o *observed.Object) string {
	r := o.Resource.GroupResource()
	judges := verb == VerbPatch && v1alpha1.JudgesRequester(r.Group)
	switch {
	case r.Group == v1alpha1.GroupVersion.Group:
		return fmt.Sprintf("the operator never changes %s: the author of the rule would act with the permissions of the operator", r.String())
	case judges && p.templated:
		return fmt.Sprintf("the API server checks the rights of the user who changes %s, not those of the author of the template: write the rule into the Cleaner itself", r.String())
	case judges && p.unnamed:
		return fmt.Sprintf("the API server checks the rights of the user who changes %s, which would be the operator: set a ServiceAccount", r.String())
	}
	return ""
}

// forbidsObject says why an object is left alone, whatever its kind.
func (p Protection) forbidsObject(o *observed.Object) string {
	r := o.Resource.GroupResource()
	switch inside := p.OfNamespace(o.Namespace); {
	case o.Protected:
		return fmt.Sprintf("it has the label or annotation %s: \"true\"", v1alpha1.ProtectKey)
	case inside != "":
		return inside
	case protection.IsNamespace(r) && (slices.Contains(p.Namespaces, o.Name) || o.Name == p.Own):
		return fmt.Sprintf("namespace %q is protected", o.Name)
	}
	return ""
}

// forbidsRecord says why the record of a Helm release is left alone. Helm labels a revision superseded when it deploys a newer one, or has tried to
// roll it back: until then, the revision may be the only record of what runs.
func (p Protection) forbidsRecord(verb Verb, o *observed.Object) string {
	switch {
	case o.Unreadable != "":
		return o.DescribeUnreadable()
	case o.Resource.GroupResource() != schema.GroupResource{Resource: "secrets"} || !strings.HasPrefix(o.Name, v1alpha1.ReleaseSecretPrefix):
		return ""
	case verb == VerbHelmUninstall && strings.HasPrefix(o.Labels["status"], "pending-"):
		return "Helm is installing, upgrading or rolling back the release: its status is " + o.Labels["status"]
	case verb == VerbHelmUninstall: // which keeps the record until all else of the release is gone
		return ""
	case verb != VerbDelete || !p.records:
		return "it is the record of a Helm release: only spec.helm and helmUninstall uninstall a release, and only a Cleaner that selects no Secrets but by helmReleases or fieldSelector type=" +
			v1alpha1.ReleaseSecretType + " may delete superseded revisions"
	case o.Labels["owner"] != "helm" || o.Labels["status"] != "superseded":
		return "it is the record of a revision of a Helm release that Helm has not labelled owner=helm and status=superseded"
	}
	return ""
}

// forbidsKind says why no object of a kind is deleted.
func (p Protection) forbidsKind(verb Verb, o *observed.Object) string {
	r := o.Resource.GroupResource()
	if verb == VerbPatch || verb == VerbRemoveFinalizer || !protection.IsProtected(r) || slices.Contains(p.AllowedKinds, r.String()) {
		return ""
	}
	return protection.DescribeProtected(r)
}

// OfNamespace says why nothing in a namespace is touched; empty if it may be, and for what lies in none.
func (p Protection) OfNamespace(namespace string) string {
	switch {
	case namespace == "":
		return ""
	case namespace == p.Own:
		return fmt.Sprintf("namespace %q is the namespace of the operator", namespace)
	case slices.Contains(p.Namespaces, namespace):
		return fmt.Sprintf("namespace %q is protected", namespace)
	}
	return ""
}

// OfRelease says why an object of a Helm release is protected; empty if it is not. What lies in a namespace goes with its
// release, access rights included; of what lies in none, each kind has to be given free.
func (p Protection) OfRelease(r observed.Ref, namespaced bool) string {
	switch kind := r.Resource.GroupResource().String(); {
	case namespaced:
		return p.OfNamespace(r.Namespace)
	case !slices.Contains(p.AllowedKinds, kind):
		return fmt.Sprintf("%s are cluster-scoped: a release may delete them only if the operator runs with --allow-protected-kinds=%s", kind, kind)
	}
	return ""
}
