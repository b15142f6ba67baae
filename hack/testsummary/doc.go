// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Command testsummary runs go test and prints what a person needs of it: a line for each package as it ends, the whole
// output of each failed test, and at the end one line with the number of tests that passed, failed and were skipped.
//
// Its arguments are given to go test. It exits with 0 only if go test did, and leaves no process behind, however the
// tests end. It never runs a test twice.
package main
