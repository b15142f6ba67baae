// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"math"
	"reflect"
)

// InheritContent gives a new version of an object the number of the content of an earlier one, if expressions can read no difference but
// metadata.resourceVersion. It does not look at large objects, and not at those that are held without their Values. No reader may have the new
// version yet.
func (o *Object) InheritContent(earlier *Object) {
	if earlier == nil || o.Large || o.Value == nil || earlier.Value == nil || o.UID != earlier.UID {
		return
	}
	if areEqualObjects(o.Value, earlier.Value) {
		o.Content = earlier.Content
	}
}

// areEqualObjects says that two objects differ in metadata.resourceVersion at most.
func areEqualObjects(a, b map[string]any) bool {
	return areEqualMaps(a, b, func(key string, value, other any) bool {
		metadata, ok := value.(map[string]any)
		if key != "metadata" || !ok {
			return areEqual(value, other)
		}
		others, ok := other.(map[string]any)
		return ok && areEqualMaps(metadata, others, func(key string, value, other any) bool { return key == "resourceVersion" || areEqual(value, other) })
	})
}

// areEqualMaps says that two maps have the same keys, with equal values.
func areEqualMaps(a, b map[string]any, equal func(key string, value, other any) bool) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		if other, has := b[key]; !has || !equal(key, value, other) {
			return false
		}
	}
	return true
}

// areEqual says that two values of objects are equal and of the same type. Most parts of objects are shared, and then it need not look into
// them.
func areEqual(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && (reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer() ||
			areEqualMaps(a, b, func(_ string, value, other any) bool { return areEqual(value, other) }))
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !areEqual(a[i], b[i]) {
				return false
			}
		}
		return true
	case float64: // 0 and -0 are two
		b, ok := b.(float64)
		return ok && math.Float64bits(a) == math.Float64bits(b)
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	default:
		return a == b
	}
}
