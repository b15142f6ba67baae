// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unused tests recipes of config/samples/cookbook on a real control plane with the webhook: that it admits each of
// them, that each leaves a fresh cluster alone, with the rights that its role.yaml adds and no others, and that those about
// what nothing refers to do on real objects what their cases say. It never touches a cluster that it has not started.
package unused
