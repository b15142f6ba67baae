// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// What the operator itself needs, from which config/rbac/role.yaml is made. What it needs to read and delete targets is
// not here: administrators grant that by labelling ClusterRoles, see config/rbac/targets_role.yaml.

// Its own kinds. It sets and removes a finalizer, and deletes a Cleaner that has done its work. Templates it only reads.
// +kubebuilder:rbac:groups=cleaner.vtex.dev,resources=cleaners;clustercleaners,verbs=get;list;watch;update;patch;delete
// +kubebuilder:rbac:groups=cleaner.vtex.dev,resources=cleaners/status;clustercleaners/status,verbs=update;patch
// +kubebuilder:rbac:groups=cleaner.vtex.dev,resources=cleanertemplates,verbs=get;list;watch

// Events on Cleaners.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Which kinds are served, and what the operator may do with them.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=selfsubjectaccessreviews,verbs=create

// Whether the ServiceAccount exists that a Cleaner names. To act as it is granted in its namespace, by a binding to the
// ClusterRole of config/rbac/impersonation_role.yaml. What accounts may read is asked with subjectaccessreviews, below.
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get

// Whether a Cleaner's namespace is being deleted, and which namespaces a namespaceSelector means.
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Who may read the metrics, and what ServiceAccounts may read.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Addresses to which no event of a Cleaner is sent: those of the API server and of the nodes.
// +kubebuilder:rbac:groups="",resources=services,resourceNames=kubernetes,verbs=get
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,resourceNames=kubernetes,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list
