// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import "k8s.io/apimachinery/pkg/util/resourceversion"

// ChooseLater returns the later of two resource versions of a resource. A version that has no order is never later.
func ChooseLater(known, version string) string {
	if _, err := resourceversion.CompareResourceVersion(version, version); err != nil {
		return known
	}
	if order, err := resourceversion.CompareResourceVersion(known, version); err == nil && order > 0 {
		return known
	}
	return version
}

// IsAsNew says that a resource version is another one of its resource, or a later one. A version that has no order never is.
func IsAsNew(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order >= 0
}
