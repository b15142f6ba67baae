// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package itemerrors collects what goes wrong with the items of rules, within a bound: equal errors are one, and those beyond the bound too.
//
// It decides nothing.
package itemerrors

import (
	"fmt"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/expr"
)

const (
	// MaxErrors bounds how many different errors there are.
	MaxErrors = 100
	// OtherErrors stands for those that are more.
	OtherErrors = "other errors"
)

// Collection are errors of items, of which equal ones are one. The zero value has none.
type Collection struct {
	rows []v1alpha1.ItemError
	at   map[errorID]int
}

type errorID struct{ rule, field, message string }

// ListRows returns the errors in the order in which they came.
func (c *Collection) ListRows() []v1alpha1.ItemError { return c.rows }

// AddError records an error that happened to so many items, of which the first has a key.
func (c *Collection) AddError(rule, key string, err *expr.Error, items int64) {
	message := DescribeError(err)
	if c.at == nil {
		c.at = map[errorID]int{}
	}
	id := errorID{rule, err.Path, message}
	i, ok := c.at[id]
	if !ok && len(c.rows) >= MaxErrors {
		id.message, key = OtherErrors, ""
		i, ok = c.at[id]
	}
	if !ok {
		i = len(c.rows)
		c.at[id] = i
		c.rows = append(c.rows, v1alpha1.ItemError{Rule: rule, Key: key, Field: err.Path, Message: id.message})
	}
	c.rows[i].Count += items
}

// DescribeError is an error in words, without its field.
func DescribeError(err *expr.Error) string {
	message := err.Message
	if err.Line > 0 {
		message = fmt.Sprintf("at %d:%d: %s", err.Line, err.Column, message)
	}
	if err.Hint != "" {
		message += "; " + err.Hint
	}
	return message
}

// DescribeRow is an error of items in words. It names the item that was evaluated: what is missing can be in another object, which the
// expression reads for it.
func DescribeRow(e *v1alpha1.ItemError) string {
	about := fmt.Sprintf("rule %q", e.Rule)
	if e.Key != "" {
		about += fmt.Sprintf(", item %q", e.Key)
	}
	return fmt.Sprintf("%s: spec.%s: %s", about, e.Field, e.Message)
}
