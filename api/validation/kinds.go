// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/protection"
	"github.com/vtex/cleaner/api/v1alpha1"
)

// kindInfo is what is known about a kind. The zero value is an unknown kind.
type kindInfo struct {
	group, kind, resource string
	clusterScoped         bool
}

func (k kindInfo) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.group, Resource: k.resource}
}

// resourceName returns the resource as administrators write it: "<resource>.<group>", or "<resource>" for the core group.
func (k kindInfo) resourceName() string { return k.groupResource().String() }

// isProtected reports whether the kind is protected: clusters depend on its objects.
func (k kindInfo) isProtected() bool {
	return protection.IsProtected(k.groupResource())
}

// withServed returns k with what the API server says about the kind.
func (k kindInfo) withServed(group string, s ServedKind) kindInfo {
	if s.Resource == "" {
		return k
	}
	found := findKnownKind(group, s.Resource)
	found.group, found.resource, found.clusterScoped = group, s.Resource, !s.Namespaced
	return found
}

// findTargetKind returns what is known about the kind of a target.
func (o *Options) findTargetKind(spec *v1alpha1.Work, target int) kindInfo {
	r := &spec.Targets[target].Reference
	k := findKnownKind(r.APIGroup, r.Kind)
	if len(o.Served) > target {
		return k.withServed(r.APIGroup, o.Served[target])
	}
	return k
}

// findKnownKind finds a kind by its name, or by the singular or plural name of its resource, ignoring case. It returns the zero value
// for a kind that is not in the list.
func findKnownKind(group, name string) kindInfo {
	for _, k := range knownKinds() {
		// The singular name of each of these is its kind in lower case.
		if k.group == group && (strings.EqualFold(k.kind, name) || strings.EqualFold(k.resource, name)) {
			return k
		}
	}
	return kindInfo{}
}

// knownKinds calls listKinds once.
var knownKinds = sync.OnceValue(listKinds) //nolint:gochecknoglobals // listed once, and never changed

// listKinds returns the built-in kinds that are cluster-scoped, and the protected kinds, also under the names that OpenShift gives
// them. The operator checks all other kinds when it has found them in the cluster.
func listKinds() []kindInfo {
	const (
		admission = "admissionregistration.k8s.io"
		rbac      = "rbac.authorization.k8s.io"
		resource  = "resource.k8s.io"
		storage   = "storage.k8s.io"

		openshiftRBAC  = "authorization.openshift.io"
		openshiftUsers = "user.openshift.io"
	)
	return []kindInfo{
		{kind: "Namespace", resource: "namespaces", clusterScoped: true},
		{kind: "Node", resource: "nodes", clusterScoped: true},
		{kind: "PersistentVolume", resource: "persistentvolumes", clusterScoped: true},
		{kind: "ComponentStatus", resource: "componentstatuses", clusterScoped: true},
		{kind: "Secret", resource: "secrets"},

		{group: "apiextensions.k8s.io", kind: "CustomResourceDefinition", resource: "customresourcedefinitions", clusterScoped: true},
		{group: "apiregistration.k8s.io", kind: "APIService", resource: "apiservices", clusterScoped: true},
		{group: admission, kind: "MutatingAdmissionPolicy", resource: "mutatingadmissionpolicies", clusterScoped: true},
		{group: admission, kind: "MutatingAdmissionPolicyBinding", resource: "mutatingadmissionpolicybindings", clusterScoped: true},
		{group: admission, kind: "MutatingWebhookConfiguration", resource: "mutatingwebhookconfigurations", clusterScoped: true},
		{group: admission, kind: "ValidatingAdmissionPolicy", resource: "validatingadmissionpolicies", clusterScoped: true},
		{group: admission, kind: "ValidatingAdmissionPolicyBinding", resource: "validatingadmissionpolicybindings", clusterScoped: true},
		{group: admission, kind: "ValidatingWebhookConfiguration", resource: "validatingwebhookconfigurations", clusterScoped: true},
		{group: rbac, kind: "ClusterRole", resource: "clusterroles", clusterScoped: true},
		{group: rbac, kind: "ClusterRoleBinding", resource: "clusterrolebindings", clusterScoped: true},
		{group: rbac, kind: "Role", resource: "roles"},
		{group: rbac, kind: "RoleBinding", resource: "rolebindings"},
		{group: openshiftRBAC, kind: "ClusterRole", resource: "clusterroles", clusterScoped: true},
		{group: openshiftRBAC, kind: "ClusterRoleBinding", resource: "clusterrolebindings", clusterScoped: true},
		{group: openshiftRBAC, kind: "Role", resource: "roles"},
		{group: openshiftRBAC, kind: "RoleBinding", resource: "rolebindings"},
		{group: openshiftRBAC, kind: "RoleBindingRestriction", resource: "rolebindingrestrictions"},
		{group: "project.openshift.io", kind: "Project", resource: "projects", clusterScoped: true},
		{group: openshiftUsers, kind: "Group", resource: "groups", clusterScoped: true},
		{group: openshiftUsers, kind: "Identity", resource: "identities", clusterScoped: true},
		{group: openshiftUsers, kind: "User", resource: "users", clusterScoped: true},
		{group: openshiftUsers, kind: "UserIdentityMapping", resource: "useridentitymappings", clusterScoped: true},
		{group: v1alpha1.GroupVersion.Group, kind: "Cleaner", resource: "cleaners"},
		{group: v1alpha1.GroupVersion.Group, kind: "ClusterCleaner", resource: "clustercleaners", clusterScoped: true},
		{group: v1alpha1.GroupVersion.Group, kind: "CleanerTemplate", resource: "cleanertemplates", clusterScoped: true},

		{group: "certificates.k8s.io", kind: "CertificateSigningRequest", resource: "certificatesigningrequests", clusterScoped: true},
		{group: "certificates.k8s.io", kind: "ClusterTrustBundle", resource: "clustertrustbundles", clusterScoped: true},
		{group: "flowcontrol.apiserver.k8s.io", kind: "FlowSchema", resource: "flowschemas", clusterScoped: true},
		{group: "flowcontrol.apiserver.k8s.io", kind: "PriorityLevelConfiguration", resource: "prioritylevelconfigurations", clusterScoped: true},
		{group: "internal.apiserver.k8s.io", kind: "StorageVersion", resource: "storageversions", clusterScoped: true},
		{group: "networking.k8s.io", kind: "IngressClass", resource: "ingressclasses", clusterScoped: true},
		{group: "networking.k8s.io", kind: "IPAddress", resource: "ipaddresses", clusterScoped: true},
		{group: "networking.k8s.io", kind: "ServiceCIDR", resource: "servicecidrs", clusterScoped: true},
		{group: "node.k8s.io", kind: "RuntimeClass", resource: "runtimeclasses", clusterScoped: true},
		{group: resource, kind: "DeviceClass", resource: "deviceclasses", clusterScoped: true},
		{group: resource, kind: "DeviceTaintRule", resource: "devicetaintrules", clusterScoped: true},
		{group: resource, kind: "ResourceClaim", resource: "resourceclaims"},
		{group: resource, kind: "ResourceClaimTemplate", resource: "resourceclaimtemplates"},
		{group: resource, kind: "ResourceSlice", resource: "resourceslices", clusterScoped: true},
		{group: "scheduling.k8s.io", kind: "PriorityClass", resource: "priorityclasses", clusterScoped: true},
		{group: storage, kind: "CSIDriver", resource: "csidrivers", clusterScoped: true},
		{group: storage, kind: "CSINode", resource: "csinodes", clusterScoped: true},
		{group: storage, kind: "StorageClass", resource: "storageclasses", clusterScoped: true},
		{group: storage, kind: "VolumeAttachment", resource: "volumeattachments", clusterScoped: true},
		{group: storage, kind: "VolumeAttributesClass", resource: "volumeattributesclasses", clusterScoped: true},
		{group: "storagemigration.k8s.io", kind: "StorageVersionMigration", resource: "storageversionmigrations", clusterScoped: true},
	}
}
