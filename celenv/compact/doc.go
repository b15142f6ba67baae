// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compact has maps for expressions that take little memory: records with a few names, and indexes of many keys. A map of cel-go takes 40 to 80
// bytes for each entry besides its key and value, and some hundreds if it is small. These take some 8 bytes for each key of an index, and 48 for a record;
// values that can be made from something else are made when they are looked up.
//
// It never knows what keys and values are about, pays for nothing, and changes no map that exists.
package compact
