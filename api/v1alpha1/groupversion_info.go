// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is what a user writes about a cleaning and what the operator reports back.
//
// It holds types, their bounds as schema markers, and the names of conditions and reasons. It decides nothing: the
// checks that a schema cannot express live in api/validation, and what a Cleaner does next in controllers/plan.
//
// +kubebuilder:object:generate=true
// +groupName=cleaner.vtex.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and the version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "cleaner.vtex.dev", Version: "v1alpha1"}

// SchemeBuilder collects what AddToScheme registers.
var SchemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Cleaner{}, &CleanerList{}, &ClusterCleaner{}, &ClusterCleanerList{}, &CleanerTemplate{}, &CleanerTemplateList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers the kinds of this package.
var AddToScheme = SchemeBuilder.AddToScheme
