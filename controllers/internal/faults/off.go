// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !faultpoints

package faults

import "fmt"

// Point is passed between two requests.
func Point(string) {}

// Before is passed before a request that plan.Next asked for.
func Before(fmt.Stringer) {}

// After is passed when it has been carried out.
func After(fmt.Stringer) {}
