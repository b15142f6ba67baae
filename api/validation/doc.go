// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation finds mistakes in Cleaners, with the same messages for the webhook, the controller and the command line.
//
// It checks what the schema cannot express. It also checks again what the schema can express, because a Cleaner may be older
// than the schema. It does not compile expressions: it repeats the errors of celenv.
//
// It is pure: it reads the spec and no cluster. A Cleaner that it accepts can still fail in the cluster.
package validation
