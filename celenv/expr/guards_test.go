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
	}{
		"Index":              {`a.metadata.labels["x"] == ""`, []string{`write a.metadata.?labels[?"x"].orValue("")`}},
		"Field":              {`a.metadata.annotations.x == ""`, []string{`write a.metadata.?annotations[?"x"].orValue("")`}},
		"Two":                {`a.metadata.labels.x == b.metadata.labels.y`, []string{`write a.metadata.?labels[?"x"].orValue("")`, `write b.metadata.?labels[?"y"].orValue("")`}},
		"Guarded by has":     {`has(a.metadata.labels.x) && a.metadata.labels.x == ""`, nil},
		"Guarded by in":      {`"x" in a.metadata.labels && a.metadata.labels["x"] == ""`, nil},
		"Guarded by absence": {`!has(a.metadata.labels.x) || a.metadata.labels.x == ""`, nil},
		"Guarded by ?:":      {`has(a.metadata.labels.x) ? a.metadata.labels.x == "" : true`, nil},
		"Not not":            {`!(!has(a.metadata.labels.x)) && a.metadata.labels.x == ""`, nil},
		"Of another object":  {`has(b.metadata.labels.x) && a.metadata.labels.x == ""`, []string{`write a.metadata.?labels[?"x"].orValue("")`}},
		"Of another key":     {`has(a.metadata.labels.y) && a.metadata.labels.x == ""`, []string{`write a.metadata.?labels[?"x"].orValue("")`}},
		"A value is no guard": {`a.metadata.labels.x && b.metadata.labels.y && a.metadata.labels.x == ""`, []string{
			`write a.metadata.?labels[?"x"].orValue("")`, `write b.metadata.?labels[?"y"].orValue("")`, `write a.metadata.?labels[?"x"].orValue("")`,
		}},
		"Or is no guard":      {`has(a.metadata.labels.x) || a.metadata.labels.x == ""`, []string{`write a.metadata.?labels[?"x"].orValue("")`}},
		"In the other branch": {`has(a.metadata.labels.x) ? true : a.metadata.labels.x == ""`, []string{`write a.metadata.?labels[?"x"].orValue("")`}},
		"Optional":            {`a.metadata.?labels[?"x"].orValue("") == ""`, nil},
		"No labels":           {`a.spec.labels.x == ""`, nil},
		"In a loop":           {`a.items.all(i, i.metadata.labels.x == "")`, []string{`write i.metadata.?labels[?"x"].orValue("")`}},
		"Guard in the loop":   {`a.items.all(i, has(i.metadata.labels.x) && i.metadata.labels.x == "")`, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range parse(t, tc.source).FindUnguarded("conditions[0]") {
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
