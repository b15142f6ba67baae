// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package templates loads the CleanerTemplates that Cleaner ships, and expands the template of a Cleaner or a ClusterCleaner.
//
// Each folder beside this file is a template: template.yaml is what `kubectl apply -k config/templates` applies, README.md
// describes it, and testdata has cases that must match and cases that must not.
//
// The package compiles no expression and reads no cluster: celenv and validation may still find mistakes in what it returns.
package templates
