// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cookbook holds the tests of config/samples/cookbook on a real control plane: that the webhook admits each recipe,
// that each leaves a fresh cluster alone, with the rights that its role.yaml adds and no others, and that some do on real
// objects what their cases say. The cases themselves are run by `kubectl cleaner test`.
package cookbook
