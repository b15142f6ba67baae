// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// fields is a Projection of some fields of a map.
func fields(of map[string]*Projection) *Projection { return &Projection{Fields: of} }

func TestApply(t *testing.T) {
	value := map[string]any{
		"name": "x", "count": int64(3), "part": 0.5, "on": true, "none": nil,
		"labels": map[string]any{"a": "1", "b": "2"}, "list": []any{map[string]any{"type": "Ready", "text": "long"}, "plain"},
	}
	scalar := &Projection{Scalar: true}
	cases := map[string]struct {
		kept *Projection
		want any
	}{
		"Nothing":        {nil, map[string]any{}},
		"All":            {All(), value},
		"Absent":         {KeepPath("spec", "nodeName"), map[string]any{}},
		"Path":           {KeepPath("labels", "a"), map[string]any{"labels": map[string]any{"a": "1"}}},
		"Types":          {&Projection{Shape: true}, map[string]any{"name": "", "count": int64(0), "part": float64(0), "on": false, "none": nil, "labels": map[string]any{}, "list": []any{}}},
		"Scalar":         {fields(map[string]*Projection{"count": scalar, "labels": scalar, "list": scalar}), map[string]any{"count": int64(3), "labels": map[string]any{}, "list": []any{}}},
		"Keys":           {fields(map[string]*Projection{"labels": {Shape: true}}), map[string]any{"labels": map[string]any{"a": "", "b": ""}}},
		"Length":         {fields(map[string]*Projection{"list": {Shape: true}}), map[string]any{"list": []any{map[string]any{}, ""}}},
		"Elements":       {fields(map[string]*Projection{"list": {Elements: KeepPath("type")}}), map[string]any{"list": []any{map[string]any{"type": "Ready"}, ""}}},
		"ByType":         {fields(map[string]*Projection{"list": {ByType: map[string]*Projection{"Ready": KeepPath("text"), "Other": All()}}}), map[string]any{"list": []any{map[string]any{"type": "Ready", "text": "long"}}}},
		"OfNoType":       {fields(map[string]*Projection{"list": {ByType: map[string]*Projection{"": All()}}}), map[string]any{"list": []any{}}},
		"ByTypeAndAll":   {fields(map[string]*Projection{"list": {Shape: true, ByType: map[string]*Projection{"Other": All()}}}), map[string]any{"list": []any{map[string]any{"type": "Ready"}, ""}}},
		"Entries":        {fields(map[string]*Projection{"labels": {Entries: scalar}}), map[string]any{"labels": map[string]any{"a": "1", "b": "2"}}},
		"Entry and keys": {fields(map[string]*Projection{"labels": {Shape: true, Fields: map[string]*Projection{"b": scalar}}}), map[string]any{"labels": map[string]any{"a": "", "b": "2"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.kept.Apply(value)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestListPaths(t *testing.T) {
	scalar := &Projection{Scalar: true}
	p := fields(map[string]*Projection{
		"status":   fields(map[string]*Projection{"conditions": {Elements: fields(map[string]*Projection{"type": scalar, "reason": {}})}}),
		"metadata": fields(map[string]*Projection{"labels": {Shape: true, Elements: &Projection{}}, "name": {Scalar: true, Shape: true, Elements: scalar}, "annotations": {Fields: map[string]*Projection{"a/b": scalar}, Elements: scalar}}),
		"spec":     {Entries: All(), ByType: map[string]*Projection{"Ready": fields(map[string]*Projection{"status": scalar})}},
	})
	want := []string{`metadata.annotations["a/b"]`, "metadata.labels{keys}", "metadata.name", "spec[*]", `spec[type="Ready"].status`, "status.conditions[*].reason?", "status.conditions[*].type"}
	if diff := cmp.Diff(want, p.ListPaths()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, tc := range []struct {
		p    *Projection
		want []string
	}{{nil, nil}, {&Projection{}, nil}, {All(), []string{"*"}}, {&Projection{Elements: scalar}, []string{"[*]"}}} {
		if diff := cmp.Diff(tc.want, tc.p.ListPaths()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// drawProjection draws any Projection.
func drawProjection(t *rapid.T, depth int) *Projection {
	if depth <= 0 || rapid.IntRange(0, 4).Draw(t, "none") == 0 {
		return rapid.SampledFrom([]*Projection{nil, {}, {Scalar: true}, {Shape: true}, {Whole: true}, {References: []string{"ConfigMap"}}, {References: []string{"Secret"}}}).Draw(t, "leaf")
	}
	p := &Projection{Scalar: rapid.Bool().Draw(t, "scalar"), Shape: rapid.Bool().Draw(t, "shape")}
	if rapid.IntRange(0, 2).Draw(t, "references") == 0 {
		for _, kind := range []string{"ConfigMap", "Secret", "ServiceAccount"} {
			if rapid.Bool().Draw(t, kind) {
				p.References = append(p.References, kind)
			}
		}
	}
	if rapid.Bool().Draw(t, "elements") {
		p.Elements = drawProjection(t, depth-1)
	}
	if rapid.IntRange(0, 3).Draw(t, "entries") == 0 {
		p.Entries = drawProjection(t, depth-1)
	}
	for range rapid.IntRange(0, 3).Draw(t, "fields") {
		if p.Fields == nil {
			p.Fields = map[string]*Projection{}
		}
		p.Fields[rapid.SampledFrom(keys).Draw(t, "field")] = drawProjection(t, depth-1)
	}
	for range rapid.IntRange(0, 2).Draw(t, "types") {
		if p.ByType == nil {
			p.ByType = map[string]*Projection{}
		}
		p.ByType[rapid.SampledFrom([]string{"x", "y", ""}).Draw(t, "type")] = drawProjection(t, depth-1)
	}
	return p
}

// drawNarrower draws a Projection that keeps a part of what another one keeps, of some elements where that one does of all.
func drawNarrower(t *rapid.T, p *Projection) *Projection {
	if p == nil || p.Whole || rapid.IntRange(0, 3).Draw(t, "as it is") == 0 {
		return p
	}
	some := func() bool { return rapid.Bool().Draw(t, "kept") }
	out := &Projection{
		Scalar: p.Scalar && some(), Shape: p.Shape && some(), Elements: drawNarrower(t, p.Elements), Entries: drawNarrower(t, p.Entries),
		Fields: drawNarrowerOf(t, p.Fields), ByType: drawNarrowerOf(t, p.ByType),
	}
	for _, kind := range p.References {
		if some() {
			out.References = append(out.References, kind)
		}
	}
	if out.Elements != nil && some() {
		out.ByType, out.Elements = mergeKeyed(out.ByType, map[string]*Projection{"x": out.Elements}), nil
	}
	return out
}

// drawNarrowerOf is drawNarrower for the Projections of keys.
func drawNarrowerOf(t *rapid.T, of map[string]*Projection) map[string]*Projection {
	out := map[string]*Projection{}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if rapid.Bool().Draw(t, key) {
			out[key] = drawNarrower(t, of[key])
		}
	}
	return out
}

// keys are those of maps: some that are kept by their names, and some where searches look for references.
var keys = []string{"a", "b", "c", "type", "a", "b", "c", "type", "kind", "name", "namespace", "metadata", "annotations", "items", "containers", "env", "value", "command", "secretName", "secretNamespace", "configMap", "serviceAccountName"}

func drawValue(t *rapid.T, depth int) any {
	switch n := rapid.IntRange(0, 3).Draw(t, "kind"); {
	case n == 0 && depth > 0:
		m := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "size") {
			m[rapid.SampledFrom(keys).Draw(t, "key")] = drawValue(t, depth-1)
		}
		return m
	case n == 1 && depth > 0:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			element := drawValue(t, depth-1)
			if m, isMap := element.(map[string]any); isMap && rapid.Bool().Draw(t, "has a type") {
				m["type"] = rapid.SampledFrom([]string{"x", "y", ""}).Draw(t, "type")
			}
			list = append(list, element)
		}
		return list
	default:
		return rapid.SampledFrom([]any{"x", "y", "", "Secret", "ConfigMap", "system:serviceaccount:ns:x", int64(1), 1.5, true, nil}).Draw(t, "scalar")
	}
}

// What is merged covers both. What is covered can be kept of what was kept: an object that was kept with more serves as well as the whole one.
func TestMergedProjectionsCoverEach(t *testing.T) {
	check := func(t *rapid.T) {
		a, b, value := drawProjection(t, 3), drawProjection(t, 3), drawValue(t, 4)
		switch rapid.IntRange(0, 2).Draw(t, "like the first") {
		case 0:
			b = Merge(a, drawProjection(t, 1))
		case 1:
			b = drawNarrower(t, a)
		}
		both := Merge(a, b)
		if !both.Covers(a) || !both.Covers(b) || !a.Covers(a) {
			t.Fatalf("%v, %v", a.ListPaths(), b.ListPaths())
		}
		if both != nil && (!slices.IsSorted(both.References) || len(slices.Compact(slices.Clone(both.References))) < len(both.References)) {
			t.Fatalf("of %v and %v it keeps the references to %v", a.ListPaths(), b.ListPaths(), both.References)
		}
		for _, p := range []*Projection{a, b} {
			if diff := cmp.Diff(p.Apply(value), p.Apply(both.Apply(value))); diff != "" {
				t.Fatalf("%v of %v (-of all +of what was kept):\n%s", p.ListPaths(), both.ListPaths(), diff)
			}
		}
		if a.Covers(b) {
			if diff := cmp.Diff(b.Apply(value), b.Apply(a.Apply(value))); diff != "" {
				t.Fatalf("%v is said to cover %v (-of all +of what was kept):\n%s", a.ListPaths(), b.ListPaths(), diff)
			}
		}
	}
	for range 100 {
		rapid.Check(t, check)
	}
}

func TestCovers(t *testing.T) {
	for name, tc := range map[string]struct {
		p, other *Projection
		want     bool
	}{
		"Nothing":         {nil, nil, true},
		"Type":            {nil, &Projection{}, false},
		"All":             {All(), KeepPath("a"), true},
		"Not all":         {KeepPath("a"), All(), false},
		"Deeper":          {KeepPath("a"), KeepPath("a", "b"), true},
		"Less deep":       {KeepPath("a", "b"), KeepPath("a"), false},
		"Another":         {KeepPath("a"), KeepPath("b"), false},
		"Key":             {&Projection{Shape: true}, fields(map[string]*Projection{"a": {}}), true},
		"Not what it has": {&Projection{Shape: true}, fields(map[string]*Projection{"a": {Scalar: true}}), false},
		"Any entry":       {&Projection{Entries: All(), Shape: true}, KeepPath("a", "b"), true},
		"No length":       {&Projection{Fields: map[string]*Projection{"a": {}}}, &Projection{Shape: true}, false},
		"No types":        {&Projection{Elements: KeepPath("a")}, &Projection{ByType: map[string]*Projection{"x": KeepPath("a")}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.p.Covers(tc.other); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
