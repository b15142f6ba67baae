// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bundle holds the tests of bundle/, from which OLM installs the operator: that it is what config/ says, that OLM's own
// validators find nothing in it, and that what OLM would create from it works, on a real API server.
package bundle
