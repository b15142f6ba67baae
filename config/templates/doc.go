// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package templates reads the CleanerTemplates that Cleaner ships, and puts a template in the place where a Cleaner or a
// ClusterCleaner names one.
//
// Each folder beside this file is a template: template.yaml is what `kubectl apply -k config/templates` applies, README.md
// says what it stands for, and testdata has cases that must and that must not match.
//
// It compiles no expression and reads no cluster: what it gives may still be found wrong by celenv or by validation.
package templates
