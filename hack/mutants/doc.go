// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mutants plants mistakes in the code, one at a time, and runs the tests: a mutant that no test catches shows what
// the tests cannot see.
//
// mutants.yaml lists the packages, with the number of mutants for each, the mistakes that are planted in every run, and the
// mutants that are known to live, each with its reason. The seed decides which of all possible mutants are planted; a mutant
// keeps its place in that choice when the code around it changes or moves. No file of the tree is changed: the compiler
// reads a mutant through an overlay. A mutant that does not compile does not count.
//
// It is our own because what exists for Go (gremlins; go-mutesting is no longer kept) swaps operators only: it drops no
// statement, no return, no case and no element, and it knows no seed, no list and no mutants that may live.
package main
