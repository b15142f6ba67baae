// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifemodel is an explicit model of the life of a Cleaner that cleans once, and an explorer that visits each of
// its states; lifemodel/recurring is one of a Cleaner that stays. Tests use it twice: its properties hold in small worlds that are explored whole, and break as soon as one
// rule is taken out; and its steps are what the real state machine in controllers/plan/life may do, so that random walks hold
// the one against the other.
//
// An operator process takes one request to the API server at a time. Between two steps anything may happen: a crash that
// loses its memory, a lost answer, an old leader that was paused and wakes, time, and a bounded number of acts of others.
//
// What is left out: there are two targets and one piece of evidence that only conditions read; the objects of a release
// are one object; live reads of one decision happen at one moment, and the watches show the same; rows go in any order; back-off and settle times may be
// over at any moment; DryRun is a suspend; schedules and requests for an evaluation are times at which
// the operator evaluates, which it may do at any time here, and TestARequestIsOverWhateverHoldsIt and its neighbours in controllers
// show when it must not; and a resourceVersion is the knowledge whether what was read is current.
package lifemodel
