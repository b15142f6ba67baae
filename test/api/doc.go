// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api holds the tests of the Cleaner's schema, on a real API server: what it accepts, what it refuses and with
// which words, and that whatever it accepts can be decoded.
package api
