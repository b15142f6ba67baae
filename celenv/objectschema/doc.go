// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objectschema says which fields the objects of a kind have, and which values a field may hold.
//
// It reads Go types, OpenAPI v3 documents and CustomResourceDefinitions. What a schema leaves open, it leaves open too: it never says that a
// field does not exist which an object may have. It contacts no cluster, and validates no object.
package objectschema
