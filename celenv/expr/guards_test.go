// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/go-cmp/cmp"
)

// A lookup is guarded by a test that stands beside it and is written the same way.
func TestFindUnguarded(t *testing.T) {
	cases := map[string]struct {
		source string
		want   []string
		sure   SureLookups
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
		"Sure item":           {`item.metadata.labels.x == "" && item.metadata.labels["y"] == ""`, []string{`write item.metadata.?labels[?"y"].orValue("")`}, SureLookups{"item": LookUpMetadata([]string{"x"}, nil)}},
		"Sure annotation":     {`item.metadata.annotations.x == ""`, []string{`write item.metadata.?annotations[?"x"].orValue("")`}, SureLookups{"item": LookUpMetadata([]string{"x"}, nil)}},
		"Given annotation":    {`item.metadata.annotations["x/y"] == ""`, nil, SureLookups{"item": LookUpMetadata(nil, []string{"x/y"})}},
		"Sure in a loop":      {`a.items.filter(i, i.spec.y).all(i, i.metadata.labels.x == "")`, nil, SureLookups{"a": LookUpMetadata([]string{"x"}, nil)}},
		"Sure in another":     {`b.items.all(i, a.items.exists(j, i.metadata.labels.x == ""))`, []string{`write i.metadata.?labels[?"x"].orValue("")`}, SureLookups{"a": LookUpMetadata([]string{"x"}, nil)}},
		"Hidden by a loop":    {`b.items.all(item, item.metadata.labels.x == "")`, []string{`write item.metadata.?labels[?"x"].orValue("")`}, SureLookups{"item": LookUpMetadata([]string{"x"}, nil)}},
		"Of what they become": {`a.items.map(i, i.spec.template).all(i, i.metadata.labels.x == "")`, []string{`write i.metadata.?labels[?"x"].orValue("")`}, SureLookups{"a": LookUpMetadata([]string{"x"}, nil)}},
		"Filtered before":     {`a.items.filter(o, has(o.metadata.labels.x)).map(i, i.metadata.labels.x) == []`, nil, nil},
		"Filtered by another": {`a.items.filter(o, has(o.metadata.labels.y)).map(i, i.metadata.labels.x) == []`, []string{`write i.metadata.?labels[?"x"].orValue("")`}, nil},
		"Of what is inside":   {`a.items.filter(o, has(o.spec.metadata.labels.x)).all(i, i.metadata.labels.x == "")`, []string{`write i.metadata.?labels[?"x"].orValue("")`}, nil},
		"Sure inside":         {`a.items.filter(o, has(o.spec.metadata.labels.x)).all(i, i.spec.metadata.labels.x == "")`, nil, nil},
		"Sure annotations":    {`item.metadata.annotations.x == ""`, nil, SureLookups{"item": {`.metadata.annotations["x"]`}}},
		"Hidden list":         {`b.items.all(a, a.items.all(i, i.metadata.labels.x == ""))`, []string{`write i.metadata.?labels[?"x"].orValue("")`}, SureLookups{"a": LookUpMetadata([]string{"x"}, nil)}},
		"Guard in the loop":   {`a.items.all(i, has(i.metadata.labels.x) && i.metadata.labels.x == "")`, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range parse(t, tc.source).findUnguarded("conditions[0]", tc.sure) {
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

// An item has what the objects of all its targets have, and what the filters of its list have tested.
func TestSureLookupsWithItem(t *testing.T) {
	x, y, z, note := `.metadata.labels["x"]`, `.metadata.labels["y"]`, `.metadata.labels["z"]`, `.metadata.annotations["n"]`
	of := SureLookups{"a": {x, y}, "b": {y, z}}
	for _, tc := range []struct {
		list          string
		targets, want []string
	}{
		{"v", []string{"a"}, []string{x, y}},
		{"v", []string{"a", "b"}, []string{y}},
		{"v", []string{"a", "c"}, nil},
		{"v", nil, nil},
		{"a.items", nil, []string{x, y}},
		{"a.items + b.items", nil, []string{y}},
		{`c.items.filter(p, has(p.metadata.annotations) && "n" in p.metadata.annotations)`, nil, []string{`.metadata["annotations"]`, note}},
		{`c.items.filter(p, p.metadata.?annotations[?"n"].hasValue())`, nil, []string{note}},
		{`v.filter(p, "n" in p.metadata.annotations)`, []string{"b"}, []string{note, y, z}},
		{`c.items.filter(p, "n" in p.metadata.annotations).filter(q, has(q.metadata.labels.x))`, nil, []string{note, x}},
		{`c.items.filter(p, "n" in p.metadata.annotations) + d.items.filter(q, "n" in q.metadata.annotations)`, nil, []string{note}},
		{`c.items.filter(p, "n" in p.metadata.annotations) + d.items`, nil, nil},
		{`c.items.filter(p, "n" in p.metadata.annotations || p.spec.y)`, nil, nil},
		{`c.items.filter(p, !("n" in p.metadata.annotations))`, nil, nil},
		{`c.items.filter(p, d.items.exists(q, "n" in q.metadata.annotations))`, nil, nil},
		{`c.items.filter(p, d.items.exists(p, "n" in p.metadata.annotations))`, nil, nil},
		{`c.items.filter(p, "n" in other.metadata.annotations)`, nil, nil},
		{`c.items.filter(p, "n" in p.metadata.annotations).map(p, p.spec.template)`, nil, nil},
		{`c.items.map(p, "n" in p.metadata.annotations, p.spec.template)`, nil, nil},
	} {
		if got := of.WithItem("item", tc.targets, parse(t, tc.list))["item"]; !cmp.Equal(tc.want, got) {
			t.Errorf("%s, %v: %q, want %q", tc.list, tc.targets, got, tc.want)
		}
	}
	if len(of) != 2 || len(of["a"]) != 2 || of["a"][1] != y {
		t.Errorf("what is sure for one rule is so for others: %v", of)
	}
}

// Where an expression is true, the object has what a chain of && in it has tested, by whichever of its names.
func TestSureLookupsWithGuards(t *testing.T) {
	x, y := `.metadata.labels["x"]`, `.metadata.labels["y"]`
	of := SureLookups{"a": {x}, "item": {y}}
	for _, tc := range []struct {
		holds string
		want  []string
	}{
		{`has(item.metadata.labels.x)`, []string{y, x}},
		{`item.spec.a && "x" in item.metadata.labels && true`, []string{y, x}},
		{`!(item.spec.a || !has(object.metadata.labels.x))`, []string{y, x}},
		{`item.metadata.?labels[?"x"].hasValue()`, []string{y, x}},
		{`has(item.metadata.labels.x) || item.spec.a`, []string{y}},
		{`!has(item.metadata.labels.x)`, []string{y}},
		{`has(a.metadata.labels.z)`, []string{y}},
		{`a.items.exists(item, has(item.metadata.labels.x))`, []string{y}},
	} {
		got := of.WithGuards(parse(t, tc.holds), "item", "object")
		if !cmp.Equal(tc.want, got["item"]) || !cmp.Equal(tc.want, got["object"]) || !cmp.Equal([]string{x}, got["a"]) {
			t.Errorf("%s: %q, want %q", tc.holds, got, tc.want)
		}
		if without := got.Without("object"); without["object"] != nil || !cmp.Equal(tc.want, without["item"]) || got["object"] == nil {
			t.Errorf("%s: without object %q of %q", tc.holds, without, got)
		}
	}
	if len(of) != 2 || !cmp.Equal([]string{y}, of["item"]) {
		t.Errorf("what is sure for one rule is so for others: %v", of)
	}
}

func TestSuggestIndexFix(t *testing.T) {
	for source, want := range map[string]string{
		`x.y["a"]`:                `write x.y[?"a"] and .orValue(...) at the end`,
		`variables.names[item.x]`: `write variables.names[?item.x] and .orValue(...) at the end`,
		`x.map(y, y + 1)[7]`:      `write [?7] for the index and .orValue(...) at the end`,
		`x[y + 1]`:                "",
		`x.y`:                     "",
		`x[?"a"]`:                 "",
		`x["` + long(1000) + `"]`: `write x[?"` + long(maxShown-len(`write x[?"`)) + "…",
	} {
		if got := SuggestIndexFix(parse(t, source).Root); got != want {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
}

func long(n int) string { return strings.Repeat("k", n) }

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
