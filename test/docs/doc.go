// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs holds the tests of what the pages of this repository say: that links and names lead somewhere, that commands
// are run and print what is shown, that manifests are applied, that expressions give what is written beside them, and that
// tables are those of the code. No fenced block escapes them.
//
// Commands are run in a control plane on this machine, into which the pages install the operator themselves; everything else
// reads files of this repository. It needs no network.
package docs
