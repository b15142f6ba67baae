// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/celenv/references"
)

// drawPart draws a part of an object: mostly what may be, or be beside, a reference.
func drawPart(t *rapid.T, depth int) any {
	n := rapid.IntRange(0, 9).Draw(t, "part")
	switch {
	case n < 3 || depth <= 0:
		return rapid.SampledFrom([]any{"a", "b", "ns", "ns/c", "Secret", "ConfigMap", "ServiceAccount", "PersistentVolumeClaim", "system:serviceaccount:ns:d", "--x=ns/e f", "", int64(1), nil, true}).Draw(t, "text")
	case n < 5:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, drawPart(t, depth-1))
		}
		return list
	default:
		return drawFields(t, depth)
	}
}

func drawFields(t *rapid.T, depth int) map[string]any {
	m := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(t, "size") {
		m[rapid.SampledFrom([]string{
			"kind", "name", "namespace", "metadata", "annotations", "labels", "items", "spec", "template", "jobTemplate", "containers", "env", "value", "valueFrom", "command", "args",
			"secretName", "secretNamespace", "SECRET_NAME", "SECRET_NAMEamespace", "secret-name1", "secret-name1amespace", "tlsSecret", "secretRef", "secretKeyRef", "imagePullSecrets", "configMap", "configMapNameamespace",
			"configMapName", "claimName", "claimNamespace", "pvc", "serviceAccountName", "serviceAccount", "user", "other",
		}).Draw(t, "key")] = drawPart(t, depth-1)
	}
	return m
}

// drawObjects draws what refs is called with: an object, a target, or a list of these.
func drawObjects(t *rapid.T, depth int) any {
	switch n := rapid.IntRange(0, 7).Draw(t, "objects"); {
	case n == 0 && depth > 0:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, drawObjects(t, depth-1))
		}
		return list
	case n == 1 && depth > 0:
		return map[string]any{"items": []any{drawObjects(t, depth-1), drawObjects(t, depth-1)}, "other": drawPart(t, 2)}
	case n == 2:
		return drawPart(t, 3)
	default:
		o := drawFields(t, 6)
		if rapid.Bool().Draw(t, "has metadata") {
			o["metadata"] = map[string]any{"namespace": drawPart(t, 0), "annotations": drawPart(t, 2), "labels": drawPart(t, 1), "name": "it"}
		}
		if rapid.Bool().Draw(t, "has an environment") {
			o["env"] = []any{map[string]any{"name": "x", "value": drawPart(t, 0), "valueFrom": drawPart(t, 2)}, drawPart(t, 1)}
		}
		if rapid.Bool().Draw(t, "is a workload") {
			o["spec"] = map[string]any{"template": map[string]any{"metadata": drawPart(t, 2), "spec": map[string]any{"containers": drawPart(t, 3), "volumes": drawPart(t, 3), "serviceAccountName": drawPart(t, 0)}}, "other": drawPart(t, 3)}
		}
		return o
	}
}

// A search finds the same in an object and in what is kept of it for the search, also if other parts are kept for others.
func TestRefsAreTheSameOnWhatIsKept(t *testing.T) {
	others := []*projection.Projection{
		nil, projection.KeepPath("spec", "template"), projection.KeepPath("spec", "containers"), projection.Identity(),
		{Shape: true}, {Entries: &projection.Projection{Scalar: true}}, {Elements: &projection.Projection{Shape: true}},
		{Fields: map[string]*projection.Projection{"spec": {References: []string{"Secret"}}}},
		{Shape: true, Elements: &projection.Projection{References: []string{"ConfigMap"}}},
		{Fields: map[string]*projection.Projection{"items": {Elements: &projection.Projection{References: []string{"ServiceAccount"}}}}},
	}
	left, all := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		var kinds []string
		for _, kind := range references.Kinds() {
			if rapid.Bool().Draw(rt, kind) {
				kinds = append(kinds, kind)
			}
		}
		o := drawObjects(rt, 2)
		for _, kind := range kinds {
			p := projection.Merge(&projection.Projection{References: []string{kind}}, rapid.SampledFrom(others).Draw(rt, "others"))
			for _, other := range kinds {
				p = projection.Merge(p, &projection.Projection{References: []string{other}})
			}
			kept := p.Apply(o)
			compareSearches(rt, p, o, kept)
			if diff := cmp.Diff(kept, p.Apply(kept)); diff != "" {
				rt.Fatalf("%s: kept again (-before +after)\n%s\nof %v", kind, diff, o)
			}
			left, all = left+countTexts(kept), all+countTexts(o)
		}
	})
	if t.Logf("of %d texts, %d are kept", all, left); left > all*3/4 {
		t.Error("this is most of them")
	}
}

// compareSearches fails if a search that a projection keeps something for does not find the same in what is kept.
func compareSearches(t *rapid.T, p *projection.Projection, all, kept any) {
	if p == nil {
		return
	}
	for _, kind := range p.References {
		if diff := cmp.Diff(find(all, kind), find(kept, kind)); diff != "" {
			t.Fatalf("%s: (-in all +in what is kept)\n%s\nof %v\nis kept %v", kind, diff, all, kept)
		}
	}
	if fields, isMap := all.(map[string]any); isMap {
		for key, inner := range p.Fields {
			if value, found := fields[key]; found {
				compareSearches(t, inner, value, kept.(map[string]any)[key])
			}
		}
	}
	if list, isList := all.([]any); isList && p.Elements != nil {
		for i, value := range list {
			compareSearches(t, p.Elements, value, kept.([]any)[i])
		}
	}
}

// find is what refs gives, or its error.
func find(objects any, kind string) any {
	got, err := ConvertToNative(findRefs(types.DefaultTypeAdapter.NativeToValue(objects), types.String(kind)))
	if err != nil {
		return err.Error()
	}
	return got
}

func countTexts(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			n += countTexts(inner)
		}
	case []any:
		for _, inner := range v {
			n += countTexts(inner)
		}
	case string:
		if v != "" {
			n++
		}
	}
	return n
}
