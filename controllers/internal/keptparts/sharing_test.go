// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package keptparts

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"
)

func read(tb testing.TB, text string) map[string]any {
	tb.Helper()
	var out map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &out); err != nil {
		tb.Fatal(err)
	}
	return out
}

// value shares an object, and drops its size.
func value(s *Sharing, object map[string]any) map[string]any {
	shared, _ := s.ShareValue(object)
	return shared
}

func addressOf(value any) uintptr { return uintptr(reflect.ValueOf(value).UnsafePointer()) }

func TestSharing(t *testing.T) {
	s := NewSharing()
	const pod = `{"kind": "Pod", "metadata": {"name": "%s", "namespace": "a", "labels": {"app": "web"}, "finalizers": ["x"]}, "spec": {"nodeName": "n1", "t": [{"key": "k"}, {}]}, "status": {"phase": "%s", "n": 1, "f": 1.0, "b": true, "z": null, "e": []}}`
	a, b := read(t, fmt.Sprintf(pod, "a", "Running")), read(t, fmt.Sprintf(pod, "b", "Failed"))
	wantA, wantB := read(t, fmt.Sprintf(pod, "a", "Running")), read(t, fmt.Sprintf(pod, "b", "Failed"))
	sharedA, sharedB := value(s, a), value(s, b)
	for _, diff := range []string{cmp.Diff(wantA, sharedA), cmp.Diff(wantB, sharedB), cmp.Diff(wantA, a), cmp.Diff(wantB, b)} {
		if diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if addressOf(sharedA["spec"]) != addressOf(sharedB["spec"]) {
		t.Error("equal specs are two")
	}
	if addressOf(sharedA["status"]) == addressOf(sharedB["status"]) {
		t.Error("different statuses are one")
	}
	metadataA, metadataB := sharedA["metadata"].(map[string]any), sharedB["metadata"].(map[string]any)
	for _, key := range []string{"labels", "finalizers"} {
		if addressOf(metadataA[key]) != addressOf(metadataB[key]) {
			t.Errorf("equal %s are two", key)
		}
	}
	labels, others := s.ShareLabels(map[string]string{"app": "web", "x": "y"}), s.ShareLabels(map[string]string{"app": "y", "x": "web"})
	if !maps.Equal(labels, map[string]string{"app": "web", "x": "y"}) || !maps.Equal(others, map[string]string{"app": "y", "x": "web"}) {
		t.Errorf("labels became %v and %v", labels, others)
	}
	if again := s.ShareLabels(map[string]string{"x": "y", "app": "web"}); addressOf(again) != addressOf(labels) {
		t.Error("equal labels are two")
	}
	if value(s, nil) != nil || s.ShareLabels(nil) != nil || s.ShareLabels(map[string]string{}) == nil {
		t.Error("what is missing is there, or the reverse")
	}
}

// Values that only look alike stay what they are.
func TestSharingKeepsTypes(t *testing.T) {
	s := NewSharing()
	texts := []string{`{}`, `[]`, `null`, `0`, `0.0`, `false`, `""`, `"0"`, `1`, `1.0`, `true`, `"1"`, `[[]]`, `[{}]`, `{"a": {}}`, `{"a": []}`, `{"a": null}`, `[null]`, `{"a": "b"}`, `{"b": "a"}`, `["a", "b"]`, `["b", "a"]`}
	for range 2 {
		for _, text := range texts {
			object := `{"v": ` + text + `}`
			if diff := cmp.Diff(read(t, object), value(s, read(t, object))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", text, diff)
			}
		}
	}
}

// 0 and -0 are equal, and 1 divided by them is not.
func TestSharingKeepsTheSignOfZero(t *testing.T) {
	s := NewSharing()
	for _, x := range []float64{0, math.Copysign(0, -1), 0} {
		got := value(s, map[string]any{"spec": map[string]any{"x": x}, "list": []any{x}})
		for _, shared := range []any{got["spec"].(map[string]any)["x"], got["list"].([]any)[0]} {
			if math.Signbit(shared.(float64)) != math.Signbit(x) {
				t.Errorf("%v became %v", x, shared)
			}
		}
	}
}

// Random objects are what they were, also where hashes collide, and whoever shares at the same time.
func TestSharingChangesNothing(t *testing.T) {
	s := NewSharing()
	var all sync.WaitGroup
	for n := range uint64(4) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(n, 1))
			for range 2000 {
				object := randomMap(random, 4)
				want := read(t, toJSON(object))
				got := value(s, object)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
					return
				}
			}
		})
	}
	all.Wait()
	for hash := range s.young { // each is taken for another one
		s.young[hash], s.young[hash+1] = "other", []any{"other"}
	}
	object := randomMap(rand.New(rand.NewPCG(0, 1)), 4)
	if diff := cmp.Diff(read(t, toJSON(object)), value(s, object)); diff != "" {
		t.Errorf("where hashes collide (-want +got):\n%s", diff)
	}
}

func randomMap(random *rand.Rand, depth int) map[string]any {
	out := map[string]any{}
	for range random.IntN(4) {
		out[string(rune('a'+random.IntN(4)))] = randomValue(random, depth-1)
	}
	return out
}

func randomValue(random *rand.Rand, depth int) any {
	switch n := random.IntN(8); {
	case n < 2 && depth > 0:
		return randomMap(random, depth)
	case n < 4 && depth > 0:
		list := make([]any, random.IntN(3))
		for i := range list {
			list[i] = randomValue(random, depth-1)
		}
		return list
	case n < 6:
		return string(rune('a' + random.IntN(3)))
	default:
		return []any{int64(1), 1.5, true, nil, false}[random.IntN(5)]
	}
}

func toJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// What objects have in common stays shared, and what is seen once takes no more than a bounded share of memory, also where each part is as
// large as it may be.
func TestSharingIsBounded(t *testing.T) {
	s := NewSharing()
	common := value(s, read(t, `{"spec": {"nodeName": "n1"}}`))
	before := heapInUse()
	for n := range 5 * maxShared {
		s.ShareValue(map[string]any{"status": map[string]any{"message": strings.Repeat("x", 700) + fmt.Sprint(n)}, "other": fmt.Sprint(n)})
		s.ShareLabels(map[string]string{"n": strings.Repeat("x", 700) + fmt.Sprint(n)})
		if n%1000 == 0 {
			if again := value(s, read(t, `{"spec": {"nodeName": "n1"}}`)); addressOf(again["spec"]) != addressOf(common["spec"]) {
				t.Fatalf("after %d others what is common is two", n)
			}
		}
	}
	if len(s.young) > maxShared || len(s.old) > maxShared {
		t.Errorf("there are %d and %d", len(s.young), len(s.old))
	}
	const most = 2 * maxShared * 2 * maxSharedSize
	if took := heapInUse() - before; took > most {
		t.Errorf("it takes %d bytes, and %d are allowed", took, most)
	}
	large := map[string]any{"message": strings.Repeat("x", 2*maxSharedSize)}
	for range 2 {
		s.ShareValue(map[string]any{"status": large})
	}
	for _, known := range s.young {
		if m, ok := known.(map[string]any); ok && len(m) == 1 && m["message"] == large["message"] {
			t.Error("a part that is too large is kept")
		}
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
