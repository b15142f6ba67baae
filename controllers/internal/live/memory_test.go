// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// budget is a Memory that has so many bytes.
type budget struct {
	mu          sync.Mutex
	room, taken int64
}

var errFull = errors.New("there is no room")

func (b *budget) TakeBytes(bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken += bytes; b.taken > b.room {
		return errFull
	}
	return nil
}

// What is read takes memory while it arrives, a list, metadata and one object alike; without any more the read ends, and says so.
func TestReadsTakeMemory(t *testing.T) {
	s := apiserver.New(t)
	for n := range 50 {
		s.Put(apiserver.Pods, "a", fmt.Sprint("p", n), map[string]string{"text": strings.Repeat("x", 1000)})
	}
	for name, tc := range map[string]struct {
		query snapshot.Query
		least int64 // that it takes
	}{
		"List":     {queries.New("Pod"), 50_000},
		"Metadata": {queries.New("Pod", queries.MetadataOnly), 50_000 * perByte},
		"Object":   {queries.New("Pod", queries.Named("p1")), 1000},
	} {
		t.Run(name, func(t *testing.T) {
			l := newReader(t, s)
			enough := &budget{room: 1 << 40}
			if got := l.Read(snapshot.WithMemory(t.Context(), enough), tc.query); got.State != observed.Complete || enough.taken < tc.least {
				t.Errorf("it comes to %s %s, and takes %d", got.State, got.Detail, enough.taken)
			}
			little := &budget{room: tc.least / 2}
			got := l.Read(snapshot.WithMemory(t.Context(), little), tc.query)
			if got.State != observed.Failed || got.Detail != errFull.Error() || len(got.Objects) > 0 {
				t.Errorf("without memory it comes to %s %q, %d objects", got.State, got.Detail, len(got.Objects))
			}
			if got := l.Read(t.Context(), tc.query); got.State != observed.Complete {
				t.Errorf("without a bound it comes to %s %s", got.State, got.Detail)
			}
		})
	}
}

// A list takes what is read of its objects, and while a page of it arrives its bytes. So it needs less memory than the objects have.
func TestListsTakeWhatIsRead(t *testing.T) {
	s := apiserver.New(t)
	const pods, size, kept = 2000, 4000, 2500
	for n := range pods {
		s.Put(apiserver.Pods, "a", fmt.Sprintf("p%04d", n), nil, map[string]any{
			"metadata": map[string]any{
				"name": fmt.Sprintf("p%04d", n), "namespace": "a", "uid": fmt.Sprint("uid-", n), "resourceVersion": fmt.Sprint(n + 1), "labels": map[string]any{"app": "web"},
				"annotations": map[string]any{v1alpha1.ProtectKey: "true", "text": strings.Repeat("x", size)}, "finalizers": []any{"example.com/f"},
			},
			"status": map[string]any{"phase": "Failed", "message": strings.Repeat("x", size)},
		})
	}
	l := newReader(t, s)
	whole, part := queries.New("Pod"), queries.New("Pod")
	part.Reads = snapshot.NewReads(projection.Merge(projection.KeepPath("status", "phase"), projection.Identity()))
	full := &budget{room: 1 << 40}
	all := l.Read(snapshot.WithMemory(t.Context(), full), whole)
	if all.State != observed.Complete || full.taken < pods*2*size {
		t.Fatalf("it comes to %s %s, and takes %d", all.State, all.Detail, full.taken)
	}
	little := &budget{room: 500*2*size*perByte*5/4 + pods*kept} // a page, and what is kept
	got := l.Read(snapshot.WithMemory(t.Context(), little), part)
	if got.State != observed.Complete || len(got.Objects) != pods || little.taken > pods*kept {
		t.Fatalf("it comes to %s %s, %d objects, and takes %d", got.State, got.Detail, len(got.Objects), little.taken)
	}
	for n, o := range got.Objects {
		want := all.Objects[n]
		if phase, _ := want.Value["status"].(map[string]any)["phase"]; phase != o.Value["status"].(map[string]any)["phase"] || len(o.Value["status"].(map[string]any)) != 1 {
			t.Fatalf("of %s it has %v", o.Name, o.Value["status"])
		}
		want.Value, o.Value = nil, nil
		if diff := cmp.Diff(want, o); diff != "" {
			t.Fatalf("(-whole +part):\n%s", diff)
		}
	}
}

// Once objects are read they take what they hold, be it more or less than their bytes count for.
func TestWhatObjectsHoldIsTaken(t *testing.T) {
	var empty []any
	for range 1000 {
		empty = append(empty, map[string]any{})
	}
	value := map[string]any{"list": empty, "text": strings.Repeat("x", 100)}
	if n := measureValue(value); n < 200_000 || n > 1_000_000 {
		t.Errorf("a thousand maps take %d bytes", n)
	}
	const long = 1 << 20
	text := strings.Repeat("x", long)
	for name, v := range map[string]any{
		"text": text, "key": map[string]any{text: "x"}, "element": []any{"x", text, "x"}, "entry": map[string]any{"a": "x", "b": text, "c": "x"},
	} {
		if n := measureValue(v); n < long+perValue || n > long+1000 {
			t.Errorf("a long %s takes %d bytes", name, n)
		}
	}
	for _, read := range []runtime.Unstructured{
		&unstructured.Unstructured{Object: value}, &unstructured.UnstructuredList{Items: []unstructured.Unstructured{{Object: value}}},
	} {
		all := &budget{room: 1 << 40}
		ctx, memory := countMemory(snapshot.WithMemory(t.Context(), all))
		for _, before := range []int64{1000, 1 << 30} {
			if err := errors.Join(snapshot.TakeBytes(ctx, before), memory.settle(read)); err != nil || all.taken != measureValue(value) {
				t.Errorf("%d bytes are taken: %v", all.taken, err)
			}
		}
		_, memory = countMemory(snapshot.WithMemory(t.Context(), &budget{room: 100_000}))
		if err := memory.settle(read); !errors.Is(err, errFull) {
			t.Errorf("it is held: %v", err)
		}
	}
}
