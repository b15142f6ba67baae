// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ownerpatches

import (
	"strings"
	"testing"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// TestFindChange shows which patches are about owners, or about metadata as a whole, in whatever way they say it.
func TestFindChange(t *testing.T) {
	const owner = `[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"u"}]`
	maps := []v1alpha1.PatchType{v1alpha1.PatchStrategic, v1alpha1.PatchMerge, v1alpha1.PatchApply}
	strategic := []v1alpha1.PatchType{v1alpha1.PatchStrategic}
	lists := []v1alpha1.PatchType{v1alpha1.PatchJSON}
	for _, tc := range []struct {
		kinds []v1alpha1.PatchType
		body  string
		want  string // empty: it may be sent
	}{
		{maps, `{"metadata":{"ownerReferences":` + owner + `}}`, "it sets metadata.ownerReferences"},
		{maps, `{"metadata":{"ownerReferences":null}}`, "it sets metadata.ownerReferences"},
		{maps, `{"metadata":{"OWNERreferences":[]}}`, "it sets metadata.ownerReferences"},
		{maps, `{"metadata":{"labels":{}, "ownerReferences":[], "ownerReferences":{}}, "n": 1e999}`, "it sets metadata.ownerReferences"},
		{strategic, `{"metadata":{"$setElementOrder/ownerReferences":[]}}`, "it sets metadata.ownerReferences"},
		{strategic, `{"metadata":{"$deleteFromPrimitiveList/ownerReferences":[]}}`, "it sets metadata.ownerReferences"},
		{strategic, `{"metadata":{"$patch":"replace","labels":{}}}`, "metadata.$patch also changes metadata.ownerReferences"},
		{strategic, `{"metadata":{"$retainKeys":["labels"],"labels":{}}}`, "metadata.$retainKeys also changes metadata.ownerReferences"},
		{strategic, `{"$patch":"replace","metadata":{}}`, "$patch also changes metadata.ownerReferences"},
		{strategic, `{"$retainKeys":["metadata"],"metadata":{}}`, ""}, // which keeps the metadata that each patch has
		{strategic, `{"$retainKeys":["spec"],"spec":{}}`, "$retainKeys removes metadata as a whole"},
		{strategic, `{"$retainKeys":"metadata"}`, "$retainKeys removes metadata as a whole"},
		{maps, `{"metadata":null}`, "it replaces or removes metadata as a whole, with metadata.ownerReferences"},
		{maps, `{"METADATA":null}`, "it replaces or removes metadata as a whole"},
		{maps, `{"metadata":{},"metadata":null}`, "it replaces or removes metadata as a whole"},
		{maps, `{"metadata":[]}`, "it replaces or removes metadata as a whole"},
		{maps, `{"metadata":"","spec":{}}`, "it replaces or removes metadata as a whole"},
		{maps, `null`, "it replaces or removes metadata as a whole"},
		{maps, `[{"op":"remove","path":"/metadata"}]`, "it replaces or removes metadata as a whole"},
		{maps, `{"metadata":{}}`, ""},
		{maps, `{"metadata":{"labels":null,"annotations":null,"finalizers":null},"spec":null}`, ""},
		{maps, `{"spec":{"metadata":null},"data":{"metadata":null}}`, ""},
		{maps, `{"metadata":{"labels":{"ownerReferences":"a"},"annotations":{"b":"ownerReferences"},"finalizers":[]}}`, ""},
		{maps, `{"spec":{"template":{"metadata":{"ownerReferences":` + owner + `}}},"ownerReferences":[]}`, ""},
		{maps, `{}`, ""},
		{strategic, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]},"spec":{"$patch":"replace","$retainKeys":[]}}`, ""},

		{lists, `[{"op":"add","path":"/metadata/ownerReferences","value":` + owner + `}]`, "operation 0 touches metadata.ownerReferences"},
		{lists, `[{"op":"add","path":"/spec/a","value":1},{"op":"add","path":"/metadata/ownerReferences/-","value":{}}]`, "operation 1 touches"},
		{lists, `[{"op":"replace","path":"/metadata/ownerReferences/0/uid","value":"u"}]`, "operation 0 touches"},
		{lists, `[{"op":"remove","path":"/metadata/ownerReferences/0"}]`, "operation 0 touches"},
		{lists, `[{"op":"replace","path":"/metadata","value":{}}]`, "operation 0 replaces or removes metadata as a whole, with metadata.ownerReferences"},
		{lists, `[{"op":"add","path":"/metadata","value":{}}]`, "operation 0 replaces or removes metadata as a whole"},
		{lists, `[{"op":"remove","path":"/metadata"}]`, "operation 0 replaces or removes metadata as a whole"},
		{lists, `[{"op":"remove","path":"/spec/a"},{"op":"remove","path":"/Metadata"}]`, "operation 1 replaces or removes metadata as a whole"},
		{lists, `[{"op":"replace","path":"","value":{}}]`, "operation 0 replaces or removes metadata as a whole"},
		{lists, `[{"op":"remove","path":""}]`, "operation 0 replaces or removes metadata as a whole"},
		{lists, `[{"op":"copy","from":"/spec","path":""}]`, "operation 0 replaces or removes metadata as a whole"},
		{lists, `[{"op":"move","from":"/spec","path":""}]`, "operation 0 replaces or removes metadata as a whole"},
		{lists, `[{"op":"move","from":"","path":"/spec/old"}]`, "operation 0 replaces or removes metadata as a whole"},
		{lists, `[{"op":"replace","value":{}}]`, "operation 0 replaces or removes metadata as a whole"},
		{lists, `[{"op":"replace","path":null,"value":{}}]`, "operation 0 replaces or removes metadata as a whole"},
		{lists, `[{"op":"add","path":"anything/metadata/ownerReferences","value":[]}]`, "operation 0 touches"},
		{lists, `[{"op":"add","path":"/METADATA/ownerreferences","value":[]}]`, "operation 0 touches"},
		{lists, `[{"op":"move","from":"/spec/owners","path":"/metadata/ownerReferences"}]`, "operation 0 touches"},
		{lists, `[{"op":"copy","from":"/spec/owners","path":"/metadata/ownerReferences"}]`, "operation 0 touches"},
		{lists, `[{"op":"copy","from":"/spec","path":"/metadata"}]`, "operation 0 replaces or removes metadata as a whole"},
		{lists, `[{"op":"move","from":"/metadata/ownerReferences","path":"/spec/owners"}]`, "operation 0 touches"},
		{lists, `[{"op":"move","from":"/metadata","path":"/spec/old"}]`, "operation 0 replaces or removes metadata as a whole"},
		{lists, `[{"op":"Test","path":"/metadata/ownerReferences","value":[]}]`, "operation 0 touches"},
		{lists, `[{"op":"test","path":"/metadata/ownerReferences","value":[]}]`, ""}, // which changes nothing
		{lists, `[{"op":"test","path":"/metadata","value":{}},{"op":"test","path":"","value":{}}]`, ""},
		{lists, `[{"op":"copy","from":"/metadata/ownerReferences","path":"/spec/owners"}]`, ""},
		{lists, `[{"op":"copy","from":"/metadata","path":"/spec/old"},{"op":"copy","from":"","path":"/spec/all"}]`, ""},
		{lists, `[{"op":"add","path":"/metadata/labels/ownerReferences","value":"a"}]`, ""},
		{lists, `[{"op":"add","path":"/metadata/annotations/metadata~1ownerReferences","value":"a"}]`, ""},
		{lists, `[{"op":"remove","path":"/metadata/finalizers/0"},{"op":"remove","path":"/ownerReferences"},{"op":"remove","path":"/spec/metadata/ownerReferences"}]`, ""},
		{lists, `[]`, ""},
		{lists, `{}`, ""}, // which is refused as no list
	} {
		for _, kind := range tc.kinds {
			if got := FindChange(kind, []byte(tc.body)); got != tc.want && (tc.want == "" || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("%s %s: got %q, want %q", kind, tc.body, got, tc.want)
			}
		}
	}
}

// The API server refuses what is no JSON: nothing is said of it here.
func TestFindChangeReadsNoJSON(t *testing.T) {
	for _, body := range []string{"", "{", `{"metadata":`, "metadata: {ownerReferences: []}"} {
		for _, kind := range []v1alpha1.PatchType{v1alpha1.PatchStrategic, v1alpha1.PatchMerge, v1alpha1.PatchApply, v1alpha1.PatchJSON} {
			if got := FindChange(kind, []byte(body)); got != "" {
				t.Errorf("%s %q: got %q", kind, body, got)
			}
		}
	}
}

// What an expression gave is looked at as what was read of bytes is.
func TestFindChangeIn(t *testing.T) {
	owners := map[string]any{"metadata": map[string]any{"ownerReferences": []any{}}}
	for name, tc := range map[string]struct {
		kind  v1alpha1.PatchType
		value any
		found bool
	}{
		"Owners":     {v1alpha1.PatchMerge, owners, true},
		"Labels":     {v1alpha1.PatchMerge, map[string]any{"metadata": map[string]any{"labels": nil}}, false},
		"Nothing":    {v1alpha1.PatchMerge, nil, true},
		"Operation":  {v1alpha1.PatchJSON, []any{map[string]any{"op": "remove", "path": "/metadata/ownerReferences"}}, true},
		"NoMap":      {v1alpha1.PatchJSON, []any{"remove"}, false},
		"NoList":     {v1alpha1.PatchJSON, owners, false},
		"OtherTypes": {v1alpha1.PatchStrategic, map[string]any{"$retainKeys": []any{"metadata", "spec"}}, false},
	} {
		if got := FindChangeIn(tc.kind, tc.value); (got != "") != tc.found {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
