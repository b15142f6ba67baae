// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timedependence determines until when results are valid if nothing but the time changes.
//
// Analyze finds the calls of an expression that can be given a value which changes as time passes. FollowCalls has a program follow such
// values through these calls; a Lookout records when a result may change, or that this cannot be predicted.
//
// It never computes a result that counts: its programs are evaluated beside those that do. It reads no clock.
package timedependence
