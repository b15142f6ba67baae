// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package itemerrors

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/expr"
)

func failed(message string) *expr.Error { return &expr.Error{Path: "rules[0].when", Message: message} }

// Equal errors are one, with the key of the first item and the number of items.
func TestEqualErrorsAreOne(t *testing.T) {
	var c Collection
	if got := c.ListRows(); got != nil {
		t.Errorf("the zero value has %v", got)
	}
	c.AddError("old", "a", failed("no such key: x"), 1)
	c.AddError("old", "b", failed("no such key: x"), 2)
	c.AddError("old", "b", failed("no such key: y"), 1)
	c.AddError("new", "b", failed("no such key: x"), 1)
	c.AddError("old", "", &expr.Error{Path: "rules[0].forEach", Message: "no such key: x"}, 1)
	want := []v1alpha1.ItemError{
		{Rule: "old", Key: "a", Field: "rules[0].when", Message: "no such key: x", Count: 3},
		{Rule: "old", Key: "b", Field: "rules[0].when", Message: "no such key: y", Count: 1},
		{Rule: "new", Key: "b", Field: "rules[0].when", Message: "no such key: x", Count: 1},
		{Rule: "old", Field: "rules[0].forEach", Message: "no such key: x", Count: 1},
	}
	if diff := cmp.Diff(want, c.ListRows()); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

// Items may give as many different errors as there are items: those beyond the bound are one for each rule and field.
func TestErrorsAreBounded(t *testing.T) {
	var c Collection
	for i := range 3 * MaxErrors {
		c.AddError("old", fmt.Sprint(i), failed(fmt.Sprint("no such key: ", i)), 1)
	}
	c.AddError("old", "0", failed("no such key: 0"), 1) // one that is known
	rows := c.ListRows()
	if len(rows) != MaxErrors+1 || rows[0].Count != 2 {
		t.Fatalf("there are %d errors, and %d of the first", len(rows), rows[0].Count)
	}
	want := v1alpha1.ItemError{Rule: "old", Field: "rules[0].when", Message: OtherErrors, Count: 2 * MaxErrors}
	if diff := cmp.Diff(want, rows[MaxErrors]); diff != "" {
		t.Errorf("the others (-want +got):\n%s", diff)
	}
}

func TestDescribeError(t *testing.T) {
	for want, err := range map[string]expr.Error{
		"no such key: x": {Path: "a", Message: "no such key: x"},
		"at 2:7: no such key: x; write has(item.x) before": {Message: "no such key: x", Line: 2, Column: 7, Hint: "write has(item.x) before"},
		"the key is empty; return a unique string":         {Message: "the key is empty", Hint: "return a unique string"},
	} {
		if got := DescribeError(&err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDescribeRow(t *testing.T) {
	for want, e := range map[string]v1alpha1.ItemError{
		`rule "old": spec.rules[0].when: no such key: a`:                {Rule: "old", Field: "rules[0].when", Message: "no such key: a"},
		`rule "old", item "Pod shop/a": spec.rules[0].when: it is late`: {Rule: "old", Key: "Pod shop/a", Field: "rules[0].when", Message: "it is late"},
	} {
		if got := DescribeRow(&e); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
