// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package projection says which parts of an object are kept, and keeps them.
//
// A Projection is a tree of paths. Of what it does not name it keeps the type, where it keeps anything at all: so an expression that reads
// no more than a Projection names has the same result, or the same error, on an object and on what the Projection keeps of it. It never
// uses CEL: package usage makes Projections of expressions.
package projection
