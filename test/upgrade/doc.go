// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgrade holds the tests of two versions of the operator that follow each other, up and down again, on a real control
// plane with the webhook: no author, no record and no Lease is lost.
//
// The other version is made of this one: the same source with fields that this one does not know, and the CRDs with them.
// It has tests only.
package upgrade
