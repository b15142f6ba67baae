// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compilecost bounds what the expressions of one spec cost before they run: how long cel-go's checker takes for them, and
// how much memory what is compiled of them takes. Both are estimated from what is parsed.
package compilecost
