// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install holds the test that all ways to install the operator come to the same: the same rights, the same Pod with
// the same flags, the same kinds, the same webhooks. Where one has to differ, it is written down here, with the reason.
package install
