// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !faultpoints

package faults

import "fmt"

// PassPoint passes a point between two requests.
func PassPoint(string) {}

// PassBefore passes the point before a request that life.Next asked for.
func PassBefore(fmt.Stringer) {}

// PassAfter passes the point after it, when it has been carried out.
func PassAfter(fmt.Stringer) {}
