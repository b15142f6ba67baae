// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config holds the tests of what config/ ships, on a real API server: that it applies, that the manager may run
// where Pods are restricted, who may do what, and that the samples are good.
package config
