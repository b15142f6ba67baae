// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package facts states once what the API, the webhook, the operator and the command line have to agree on: what a cluster
// hangs on, and when the times of a schedule are.
//
// It never decides what is done about an object: that is controllers/plan's. It reads no clock and no cluster.
package facts
