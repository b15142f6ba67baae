// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/go-cmp/cmp"
)

// A lookup is guarded by a test that stands beside it and is written the same way.
func TestFindUnguarded(t *testing.T) {
	cases := map[string]struct {
		source string
		want   []string
		sure   SureLabels
	}{
		"Index":              {`a.metadata.labels["x"] == ""`, []string{`write a.metadata.?labels[?"x"].orValue("")`}, nil},
		"Field":              {`a.metadata.annotations.x == ""`, []string{`write a.metadata.?annotations[?"x"].orValue("")`}, nil},
		"Two":                {`a.metadata.labels.x == b.metadata.labels.y`, []string{`write a.metadata.?labels[?"x"].orValue("")`, `write b.metadata.?labels[?"y"].orValue("")`}, nil},
		"Guarded by has":     {`has(a.metadata.labels.x) && a.metadata.labels.x == ""`, nil, nil},
		"Guarded by in":      {`"x" in a.metadata.labels && a.metadata.labels["x"] == ""`, nil, nil},
		"Guarded by absence": {`!has(a.metadata.labels.x) || a.metadata.labels.x == ""`, nil, nil},
		"Guarded by ?:":      {`has(a.metadata.labels.x) ? a.metadata.labels.x == "" : true`, nil, nil},
		"Not not":            {`!(!has(a.metadata.labels.x)) && a.metadata.labels.x == ""`, nil, nil},
		"Of another object":  {`has(b.metadata.labels.x) && a.metadata.labels.x == ""`, []string{`write a.metadata.?labels[?"x"].orValue("")`}, nil},
		"Of another key":     {`has(a.metadata.labels.y) && a.metadata.labels.x == ""`, []string{`write a.metadata.?labels[?"x"].orValue("")`}, nil},
		"A value is no guard": {`a.metadata.labels.x && b.metadata.labels.y && a.metadata.labels.x == ""`, []string{
			`write a.metadata.?labels[?"x"].orValue("")`, `write b.metadata.?labels[?"y"].orValue("")`, `write a.metadata.?labels[?"x"].orValue("")`,
		}, nil},
		"Or is no guard":      {`has(a.metadata.labels.x) || a.metadata.labels.x == ""`, []string{`write a.metadata.?labels[?"x"].orValue("")`}, nil},
		"In the other branch": {`has(a.metadata.labels.x) ? true : a.metadata.labels.x == ""`, []string{`write a.metadata.?labels[?"x"].orValue("")`}, nil},
		"Optional":            {`a.metadata.?labels[?"x"].orValue("") == ""`, nil, nil},
		"No labels":           {`a.spec.labels.x == ""`, nil, nil},
		"In a loop":           {`a.items.all(i, i.metadata.labels.x == "")`, []string{`write i.metadata.?labels[?"x"].orValue("")`}, nil},
		"An optional guard":   {`a.metadata.?labels[?"x"].hasValue() && a.metadata.labels["x"] == ""`, nil, nil},
		"An optional key":     {`a.metadata.labels[?"x"].hasValue() && a.metadata.labels.x == ""`, nil, nil},
		"An optional field":   {`!a.metadata.labels.?x.hasValue() || a.metadata.labels.x == ""`, nil, nil},
		"Behind an optional":  {`a.metadata.?labels.x.hasValue() && a.metadata.labels.x == ""`, nil, nil},
		"Optional of another": {`a.metadata.?annotations[?"x"].hasValue() && a.metadata.labels.x == ""`, []string{`write a.metadata.?labels[?"x"].orValue("")`}, nil},
		"Optional, not there": {`a.metadata.?labels[?"x"].hasValue() || a.metadata.labels.x == ""`, []string{`write a.metadata.?labels[?"x"].orValue("")`}, nil},
		"Sure item":           {`item.metadata.labels.x == "" && item.metadata.labels["y"] == ""`, []string{`write item.metadata.?labels[?"y"].orValue("")`}, SureLabels{"item": {"x"}}},
		"Sure annotation":     {`item.metadata.annotations.x == ""`, []string{`write item.metadata.?annotations[?"x"].orValue("")`}, SureLabels{"item": {"x"}}},
		"Sure in a loop":      {`a.items.filter(i, i.spec.y).all(i, i.metadata.labels.x == "")`, nil, SureLabels{"a": {"x"}}},
		"Sure in another":     {`b.items.all(i, a.items.exists(j, i.metadata.labels.x == ""))`, []string{`write i.metadata.?labels[?"x"].orValue("")`}, SureLabels{"a": {"x"}}},
		"Hidden by a loop":    {`b.items.all(item, item.metadata.labels.x == "")`, []string{`write item.metadata.?labels[?"x"].orValue("")`}, SureLabels{"item": {"x"}}},
		"Of what they become": {`a.items.map(i, i.spec.template).all(i, i.metadata.labels.x == "")`, []string{`write i.metadata.?labels[?"x"].orValue("")`}, SureLabels{"a": {"x"}}},
		"Guard in the loop":   {`a.items.all(i, has(i.metadata.labels.x) && i.metadata.labels.x == "")`, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range parse(t, tc.source).FindUnguarded("conditions[0]", tc.sure) {
				got = append(got, w.Hint)
				if w.Path != "conditions[0]" || w.FieldPath() != "spec.conditions[0]" || w.Line != 1 || w.Column < 1 || w.Snippet == "" || w.Message == "" {
					t.Errorf("it does not say all: %+v", w)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An item has what the objects of all its targets have.
func TestSureLabelsWithItem(t *testing.T) {
	of := SureLabels{"a": {"x", "y"}, "b": {"y", "z"}}
	for _, tc := range []struct {
		targets, want []string
	}{{[]string{"a"}, []string{"x", "y"}}, {[]string{"a", "b"}, []string{"y"}}, {[]string{"a", "c"}, nil}, {nil, nil}} {
		if got := of.WithItem("item", tc.targets)["item"]; !cmp.Equal(tc.want, got) {
			t.Errorf("%v: %v", tc.targets, got)
		}
	}
	if len(of) != 2 {
		t.Error("what is sure for one rule is so for others")
	}
}

func TestSuggestTimeFix(t *testing.T) {
	for _, tc := range []struct {
		left, right *types.Type
		want        string
	}{
		{types.TimestampType, types.StringType, "date-time fields are strings: wrap in timestamp()"},
		{types.StringType, types.TimestampType, "date-time fields are strings: wrap in timestamp()"},
		{types.StringType, types.DurationType, "durations are strings until they are read: wrap in duration() or parseDuration()"},
		{types.StringType, types.StringType, ""},
		{types.TimestampType, types.DurationType, ""},
	} {
		if got := SuggestTimeFix(tc.left, tc.right); got != tc.want {
			t.Errorf("%s and %s: got %q, want %q", tc.left, tc.right, got, tc.want)
		}
	}
}
