// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/keptparts"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/realistic"
)

// newRealisticPod makes a Pod as clusters have them.
func newRealisticPod(tb testing.TB, n int) *corev1.Pod {
	tb.Helper()
	p, err := realistic.Pod(fmt.Sprintf("team-%d", n%50), n, n/20)
	if err != nil {
		tb.Fatal(err)
	}
	p.ResourceVersion = strconv.Itoa(100_000 + n)
	return p
}

// readsOfPods is what the templates read of Pods.
func readsOfPods(tb testing.TB, names ...string) *snapshot.Reads {
	tb.Helper()
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	var all []*snapshot.Reads
	for _, name := range names {
		template, err := templates.Load(name)
		if err != nil {
			tb.Fatal(err)
		}
		work, errs := templates.StandIn(template)
		if len(errs) > 0 {
			tb.Fatal(errs)
		}
		programs, errs := compiler.Compile(tb.Context(), work)
		if len(errs) > 0 {
			tb.Fatal(errs)
		}
		qs := snapshot.NewQueries("", work)
		qs.KeepReadings(work, programs.FindReadings())
		for i := range qs {
			if qs[i].Kind == "Pod" {
				all = append(all, qs[i].Reads)
			}
		}
	}
	if len(all) == 0 {
		tb.Fatal("the templates select no Pods")
	}
	return keptparts.MergeReads(all).Reads()
}

// bytesOfAPod is how much memory one of many Pods takes in a store, where so much is read of it, and how much it is said to take.
func bytesOfAPod(tb testing.TB, reads *snapshot.Reads) (took, said int64) {
	tb.Helper()
	s := &store{feeds: &feeds{sharing: keptparts.NewSharing()}, informer: &informer{scope: &scope{resource: &resource{Resource: served.Resource{GVR: apiserver.Pods}}}}, reads: reads}
	var kept cachedobjects.SortedObjects
	var shelf cachedobjects.Shelf
	took = bytesOf(tb, func(text []byte) {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(text); err != nil {
			tb.Fatal(err)
		}
		o, err := s.makeObject(u)
		if err != nil {
			tb.Fatal(err)
		}
		kept, said = append(kept, o), said+int64(o.Bytes)
		if len(kept) == manyPods {
			shelf, kept = cachedobjects.NewShelf(kept), nil
		}
	})
	runtime.KeepAlive(shelf)
	runtime.KeepAlive(s)
	return took, said / manyPods
}

// bytesInCache is how much memory one of many Pods takes in a cache of client-go, as an object that a function decodes.
func bytesInCache(tb testing.TB, decode func(text []byte) (any, error)) int64 {
	tb.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	took := bytesOf(tb, func(text []byte) {
		o, err := decode(text)
		if err == nil {
			err = indexer.Add(o)
		}
		if err != nil {
			tb.Fatal(err)
		}
	})
	runtime.KeepAlive(indexer)
	return took
}

func decodeTyped(text []byte) (any, error) {
	p := &corev1.Pod{}
	return p, json.Unmarshal(text, p)
}

func decodeUnstructured(text []byte) (any, error) {
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(text)
}

const manyPods = 1000

// bytesOf is how much more memory is used when each of many Pods was kept, for one of them.
func bytesOf(tb testing.TB, keep func(text []byte)) int64 {
	tb.Helper()
	texts := make([][]byte, manyPods)
	for n := range texts {
		var err error
		if texts[n], err = json.Marshal(newRealisticPod(tb, n)); err != nil {
			tb.Fatal(err)
		}
	}
	before := heapInUse()
	for _, text := range texts {
		keep(text)
	}
	took := heapInUse() - before
	runtime.KeepAlive(texts)
	return took / manyPods
}

// medianOf is the median of three measurements: what other tests have left may go meanwhile.
func medianOf(measure func() int64) int64 {
	all := []int64{measure(), measure(), measure()}
	slices.Sort(all)
	return all[1]
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// podgc are the templates of podgc.
func podgc() []string {
	return []string{"podgc-orphaned", "podgc-out-of-service", "podgc-terminated", "podgc-unscheduled-terminating"}
}

// The four templates of podgc together read little of a Pod.
func TestAPodTakesWhatIsReadOfIt(t *testing.T) {
	reads := readsOfPods(t, podgc()...)
	sizeOf := func(reads *snapshot.Reads) int64 {
		var said int64
		took := medianOf(func() (took int64) {
			took, said = bytesOfAPod(t, reads)
			return took
		})
		if said < took*2/3 || said > took*3/2 {
			t.Errorf("a Pod takes %d bytes, and is said to take %d", took, said)
		}
		return took
	}
	whole, part := sizeOf(nil), sizeOf(reads)
	typed, untyped := medianOf(func() int64 { return bytesInCache(t, decodeTyped) }), medianOf(func() int64 { return bytesInCache(t, decodeUnstructured) })
	t.Logf("a Pod takes %d bytes typed in a cache of client-go, %d unstructured, %d as a whole, %d of what is read: %v", typed, untyped, whole, part, reads.Projection().ListPaths())
	if whole > untyped/4 || part > untyped/20 || part > typed/5 {
		t.Errorf("a Pod takes %d bytes as a whole, %d of what is read, and in caches of client-go %d typed and %d unstructured", whole, part, typed, untyped)
	}
}

// BenchmarkBytesOfAPod says how many bytes a Pod takes, by what is read of it.
func BenchmarkBytesOfAPod(b *testing.B) {
	for name, reads := range map[string]*snapshot.Reads{"Whole": nil, "PodGC": readsOfPods(b, podgc()...), "Orphaned": readsOfPods(b, "podgc-orphaned")} {
		b.Run(name, func(b *testing.B) {
			var took int64
			for b.Loop() {
				took, _ = bytesOfAPod(b, reads)
			}
			b.ReportMetric(float64(took), "bytes/pod")
		})
	}
}
