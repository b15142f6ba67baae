// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// The rights of the operator itself, from which config/rbac/role.yaml is generated. Rights to read and delete targets are
// not here: administrators grant them by labelling ClusterRoles, see config/rbac/targets_role.yaml.

// Its own kinds. It sets and removes a finalizer, and deletes a Cleaner that is done. It only reads templates.
// +kubebuilder:rbac:groups=cleaner.vtex.dev,resources=cleaners;clustercleaners,verbs=get;list;watch;update;patch;delete
// +kubebuilder:rbac:groups=cleaner.vtex.dev,resources=cleaners/status;clustercleaners/status,verbs=update;patch
// +kubebuilder:rbac:groups=cleaner.vtex.dev,resources=cleanertemplates,verbs=get;list;watch

// Events on Cleaners.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Which kinds are served, and what the operator may do with them.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=selfsubjectaccessreviews,verbs=create

// Whether the ServiceAccount of a Cleaner exists. The right to act as it is granted in its namespace, by a binding to the
// ClusterRole of config/rbac/impersonation_role.yaml. What accounts may read is reviewed with subjectaccessreviews, below.
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get

// Whether a Cleaner's namespace is being deleted, and which namespaces a namespaceSelector selects.
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Who may read the metrics, and what ServiceAccounts may read.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// The addresses to which no event of a Cleaner is sent: those of the API server and of the nodes.
// +kubebuilder:rbac:groups="",resources=services,resourceNames=kubernetes,verbs=get
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,resourceNames=kubernetes,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list
