// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs holds the tests of what README.md and docs/ say: that links and names lead somewhere, that examples work
// and give what is written beside them, and that the tables of flags, reasons and imports are those of the code.
//
// It reads files of this repository, and needs neither a cluster nor a network.
package docs
