// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ui opens the pages of `kubectl cleaner ui` in a headless Chromium, beside a real control plane. It is a module of its own, so that
// what drives the browser is no dependency of the product.
package ui
