// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha is the first version of the Cleaner, served so that manifests written for it apply unchanged. Its
// type is v1alpha1's under another name: schema and meaning are the same, and nothing is converted.
//
// +groupName=cleaner.vtex.dev
package v1alpha

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupVersion is the group and the version of the kinds in this package. There is no AddToScheme: a Go type that a scheme knows under
// two versions no longer has one version, and clients refuse it.
var GroupVersion = schema.GroupVersion{Group: "cleaner.vtex.dev", Version: "v1alpha"}
