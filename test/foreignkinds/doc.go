// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package foreignkinds checks expressions against the CustomResourceDefinitions of other projects: what exists is not said to be missing, and a
// mistyped field is found. The definitions are read from the Go modules of these projects, and for Spiderpool from test/spiderpool.
package foreignkinds
