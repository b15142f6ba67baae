// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// drawnValue is any part of an object.
func drawnValue(t *rapid.T, depth int) any {
	switch kind := rapid.IntRange(0, 7).Draw(t, "kind"); {
	case kind == 0 && depth > 0:
		m := map[string]any{}
		for _, key := range []string{"", "a", "metadata", "resourceVersion"} {
			if rapid.Bool().Draw(t, "has "+key) {
				m[key] = drawnValue(t, depth-1)
			}
		}
		return m
	case kind == 1 && depth > 0:
		l := []any{}
		for range rapid.IntRange(0, 2).Draw(t, "elements") {
			l = append(l, drawnValue(t, depth-1))
		}
		return l
	default:
		return []any{nil, "", "a", int64(0), int64(1), float64(0), negative, true, false}[rapid.IntRange(0, 8).Draw(t, "scalar")]
	}
}

// negative is -0, which is no constant of Go.
var negative = math.Copysign(0, -1)

// describeValue writes a value down with its types: 0 and 0.0 differ, and so do 0.0 and -0.0.
func describeValue(value any) string {
	switch v := value.(type) {
	case map[string]any:
		text := "{"
		for _, key := range slices.Sorted(maps.Keys(v)) {
			text += fmt.Sprintf("%q: %s, ", key, describeValue(v[key]))
		}
		return text + "}"
	case []any:
		text := "["
		for _, element := range v {
			text += describeValue(element) + ", "
		}
		return text + "]"
	default:
		return fmt.Sprintf("%T(%v)", value, value)
	}
}

// A new version has the number of an earlier one if all is equal but metadata.resourceVersion, types included, and only then.
func TestInheritContent(t *testing.T) {
	same, other := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		with := func(version string, metadata, spec any) *Object {
			return &Object{Object: observed.Object{Ref: observed.Ref{UID: "u", ResourceVersion: version}, Content: 1, Value: map[string]any{
				"metadata": map[string]any{"name": "a", "resourceVersion": version, "labels": metadata}, "spec": spec,
			}}}
		}
		labels, spec := drawnValue(rt, 2), drawnValue(rt, 3)
		earlier := with("1", labels, spec)
		now := with("2", labels, spec)
		switch rapid.IntRange(0, 3).Draw(rt, "change") {
		case 0:
			now = with("2", drawnValue(rt, 2), spec)
		case 1:
			now = with("2", labels, drawnValue(rt, 3))
		case 2:
			now.Value = maps.Clone(now.Value)
			delete(now.Value, rapid.SampledFrom([]string{"spec", "metadata", "none"}).Draw(rt, "which"))
		}
		now.Content = 2
		describe := func(o *Object) string {
			value := maps.Clone(o.Value)
			if metadata, ok := value["metadata"].(map[string]any); ok {
				metadata = maps.Clone(metadata)
				delete(metadata, "resourceVersion")
				value["metadata"] = metadata
			}
			return describeValue(value)
		}
		now.InheritContent(earlier)
		if want := describe(earlier) == describe(now); (now.Content == 1) != want {
			rt.Fatalf("equal is %t, and the content %d, for\n%s\nand\n%s", want, now.Content, describe(earlier), describe(now))
		}
		if now.Content == 1 {
			same++
		} else {
			other++
		}
	})
	if same == 0 || other == 0 {
		t.Errorf("%d are the same, and %d are not: the test shows too little", same, other)
	}
}

// The content of another object, of a large one, and of one whose Value is not held is not inherited.
func TestWhatInheritsNoContent(t *testing.T) {
	with := func(uid types.UID, value map[string]any) *Object {
		return &Object{Object: observed.Object{Ref: observed.Ref{UID: uid}, Content: 1, Value: value}}
	}
	value := map[string]any{"metadata": map[string]any{"name": "a"}}
	large := with("u", value)
	large.Large = true
	for name, tc := range map[string]struct{ earlier, now *Object }{
		"NoEarlier":      {nil, with("u", value)},
		"AnotherObject":  {with("v", value), with("u", value)},
		"Large":          {with("u", value), large},
		"LoadedLater":    {with("u", nil), with("u", nil)},
		"LoadedBefore":   {with("u", nil), with("u", value)},
		"NoMetadata":     {with("u", map[string]any{"metadata": nil}), with("u", map[string]any{"metadata": map[string]any{}})},
		"MetadataIsList": {with("u", map[string]any{"metadata": map[string]any{}}), with("u", map[string]any{"metadata": []any{}})},
	} {
		tc.now.Content = 2
		if tc.now.InheritContent(tc.earlier); tc.now.Content != 2 {
			t.Errorf("%s: the content is inherited", name)
		}
	}
}
