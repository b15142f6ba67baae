// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook holds the tests of the webhook as users meet it: config/default is applied to a real control plane, the
// built manager serves with the certificates that it makes itself, and the API server calls it.
package webhook
