// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package references finds what objects of any kind refer to, by the conventions of the API, and says which parts of an object that depends on: so a
// cache can keep these alone.
//
// It reads plain maps and lists. It never uses CEL, and changes nothing.
package references
