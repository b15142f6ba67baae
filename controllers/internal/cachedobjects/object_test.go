// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

func TestLargeObjects(t *testing.T) {
	for _, size := range []int{fewBytes, fewBytes + 1} {
		o, err := NewObject(pods, "Pod", &wire.Object{Size: size}, nil)
		if err != nil || o.Large != (size > fewBytes) {
			t.Errorf("of %d bytes: large is %t, error %v", size, o.Large, err)
		}
	}
	for name, tc := range map[string]struct {
		value any
		want  bool
	}{
		"Small":     {map[string]any{"spec": map[string]any{"a": "b", "n": int64(1), "l": []any{"x"}}}, false},
		"Text":      {map[string]any{"a": strings.Repeat("x", fewBytes+fewBytes/fewValues)}, true},
		"Keys":      {map[string]any{strings.Repeat("x", fewBytes+fewBytes/fewValues): 1}, true},
		"Items":     {map[string]any{"a": slices.Repeat([]any{map[string]any{}}, fewValues)}, true},
		"FewItems":  {map[string]any{"a": slices.Repeat([]any{map[string]any{}}, fewValues/2)}, false},
		"ManyParts": {map[string]any{"a": slices.Repeat([]any{[]any{"x", "y"}}, fewValues/3)}, true},
	} {
		if got := spendOnValues(tc.value, fewValues) < 0; got != tc.want {
			t.Errorf("%s: large is %t", name, got)
		}
	}
}

// newLater returns a Pod whose content is loaded on demand, and how often it was.
func newLater(content map[string]any, err error) (pod *Object, loaded *int) {
	pod, loaded = newPod("a", "p", map[string]string{"app": "web"}), new(int)
	pod.Value = nil
	pod.LoadValue = func() (map[string]any, error) { *loaded++; return content, err }
	return pod, loaded
}

// The content of an object is loaded for the fields of a query that nothing else decides.
func TestContentIsLoadedForFieldsOnly(t *testing.T) {
	content := map[string]any{"status": map[string]any{"phase": "Running"}}
	for name, tc := range map[string]struct {
		query       snapshot.Query
		want, loads bool
	}{
		"NoFields":     {newQuery(), true, false},
		"FieldMatches": {newQuery(selectFields("status.phase=Running")), true, true},
		"FieldDiffers": {newQuery(selectFields("status.phase=Failed")), false, true},
		"FieldOfName":  {newQuery(selectFields("metadata.name=other")), false, false},
		"AnotherPlace": {newQuery(selectFields("status.phase=Running"), func(q *snapshot.Query) { q.Namespace = "b" }), false, false},
	} {
		o, loaded := newLater(content, nil)
		if got := o.MatchesQuery(&tc.query, true, snapshot.BuiltinFieldLabels(pods.GroupResource())); got != tc.want || (*loaded > 0) != tc.loads {
			t.Errorf("%s: matches is %t, loaded %d times", name, got, *loaded)
		}
	}
}

// An object that cannot be read matches, so that whoever asks learns of the error.
func TestContentThatCannotBeLoaded(t *testing.T) {
	o, _ := newLater(nil, errors.New("no such thing"))
	q := newQuery(selectFields("status.phase=Running"))
	if !o.MatchesQuery(&q, true, snapshot.BuiltinFieldLabels(pods.GroupResource())) {
		t.Error("it does not match")
	}
	_, err := o.ReadWhole()
	if want := "cannot read pods a/p: no such thing"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Until a change is matched, an object is kept without content that nobody compares.
func TestKeepForMatching(t *testing.T) {
	for name, tc := range map[string]struct{ fields, large, want bool }{
		"Compared":    {true, false, true},
		"TooLarge":    {true, true, false},
		"NotCompared": {false, false, false},
	} {
		o := newPod("a", "p", map[string]string{"app": "web"})
		o.Large = tc.large
		kept := o.KeepForMatching(tc.fields)
		if kept.Ref != o.Ref || LabelsOf(kept)["app"] != "web" {
			t.Errorf("%s: kept is %s with the labels %v", name, kept.Ref, LabelsOf(kept))
		}
		if (kept.Value != nil) != tc.want || o.Value == nil {
			t.Errorf("%s: kept %v of %v", name, kept.Value, o.Value)
		}
		if _, err := kept.ReadWhole(); (err == nil) != tc.want {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if got := (*Object)(nil).KeepForMatching(true); got != nil || LabelsOf(got) != nil {
		t.Errorf("of nothing, %v is kept", got)
	}
	metadata := &Object{Object: observed.Object{Ref: observed.Ref{Name: "p"}}}
	if metadata.KeepForMatching(false) != metadata {
		t.Error("metadata has no content to drop")
	}
}

// What an API server sends is converted, or an error names the object.
func TestConvertObject(t *testing.T) {
	meta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
	whole := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "p", "namespace": "a", "managedFields": []any{}}, "spec": map[string]any{}}}
	for _, o := range []any{meta, whole} {
		got, err := ConvertObject(pods, "Pod", o)
		if err != nil || got.Name != "p" || got.Namespace != "a" || (got.Value != nil) != (o == any(whole)) {
			t.Errorf("%T: got %+v, %v", o, got, err)
		}
		if _, found, _ := unstructured.NestedSlice(got.Value, "metadata", "managedFields"); found {
			t.Error("managedFields are kept")
		}
	}
	if _, err := ConvertObject(pods, "Pod", "text"); err == nil {
		t.Error("a text became an object")
	}
}

// Many labels take about 8 times their text, of each kind, also where only metadata is watched. The page of limits says so.
func TestLabelsTakeTimesTheirText(t *testing.T) {
	const letters, objects, room = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", 4, 1_400_000
	var b strings.Builder
	b.WriteString(`{"metadata":{"namespace":"shop","name":"a","labels":{`)
	for n := 0; b.Len() < room; n++ {
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%c%c%c":""`, letters[n%62], letters[n/62%62], letters[n/62/62%62])
	}
	text := []byte(b.String() + "}}}")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var kept []*Object
	for range objects {
		o := &metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(text, o); err != nil {
			t.Fatal(err)
		}
		made, err := NewObject(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", o, nil)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, made)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	times := float64(after.HeapAlloc-before.HeapAlloc) / float64(objects*len(text))
	t.Logf("%d labels take %.1f times their text", len(kept[0].Labels), times)
	if times > 9 {
		t.Errorf("they take %.1f times their text", times)
	}
	runtime.KeepAlive(kept)
}
