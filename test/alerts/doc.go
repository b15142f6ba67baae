// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package alerts holds the tests of the alerts and of the dashboard: Prometheus' own engine evaluates their queries on the metrics of a
// running operator, the cause of each alert is made to happen, and its runbook is followed until the alert ends.
//
// It is a module of its own, so that the operator does not depend on Prometheus.
package alerts
