// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation says what is wrong with a Cleaner, in the same words for the webhook, the controller and the
// command line.
//
// It checks what the schema cannot express, and once more what the schema can, because a Cleaner may have been stored
// before its schema was. Whether expressions compile is found out by celenv, and only repeated here.
//
// It is pure: it sees the spec alone, no cluster, so that what it accepts may still fail on what is found there.
package validation
