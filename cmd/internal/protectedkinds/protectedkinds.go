// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protectedkinds has the flag --allow-protected-kinds, which the operator and the command line share. It never decides which kinds are
// protected: that is api/protection's.
package protectedkinds

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/vtex/cleaner/api/protection"
)

// NewValue returns the value of the flag, which appends to a list. It takes names as api/protection.CheckName has them, separated by commas, and
// may be set repeatedly.
func NewValue(to *[]string) pflag.Value { return names{to} }

// names is the value of the flag.
type names struct{ list *[]string }

// String returns the names as they are written in the flag.
func (n names) String() string {
	if n.list == nil { // as package pflag makes one
		return ""
	}
	return strings.Join(*n.list, ",")
}

// Set appends names. An empty text has none.
func (n names) Set(text string) error {
	if text == "" {
		return nil
	}
	for name := range strings.SplitSeq(text, ",") {
		if err := protection.CheckName(name); err != nil {
			return err
		}
		*n.list = append(*n.list, name)
	}
	return nil
}

// Type is how help describes the value.
func (names) Type() string { return "strings" }
