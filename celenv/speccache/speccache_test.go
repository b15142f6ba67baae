// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package speccache

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
)

func newCompiler(t *testing.T) *celenv.Compiler {
	t.Helper()
	c, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// spec has a condition, and no targets.
func spec(condition string) *v1alpha1.Work {
	return &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{condition}}}
}

// heap is how many bytes are live.
func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// filled is a text of about so many bytes.
func filled(begin, more, end string, bytes int) string {
	return begin + strings.Repeat(more, (bytes-len(begin)-len(end))/len(more)) + end
}

func TestCache(t *testing.T) {
	c := NewCache(newCompiler(t))
	good, bad := spec("true"), spec("nonsense")

	first, errs := c.Get(t.Context(), "ns", "a", "1", good)
	if first == nil || len(errs) > 0 {
		t.Fatal(errs)
	}
	if again, _ := c.Get(t.Context(), "ns", "a", "1", bad); again != first {
		t.Error("one generation was compiled twice")
	}
	if other, _ := c.Get(t.Context(), "ns", "b", "1", good); other == first {
		t.Error("two Cleaners share what may differ")
	}
	if next, errs := c.Get(t.Context(), "ns", "a", "2", bad); next != nil || len(errs) != 1 {
		t.Errorf("the next generation gave %v, %v", next, errs)
	}
	if _, errs := c.Get(t.Context(), "ns", "a", "2", good); len(errs) != 1 {
		t.Error("what does not compile was compiled twice")
	}
	c.Forget("a")
	if p, _ := c.Get(t.Context(), "ns", "a", "2", good); p == nil {
		t.Error("a forgotten Cleaner is remembered")
	}
	p, _ := c.Get(t.Context(), "ns", "", "1", good)
	if q, _ := c.Get(t.Context(), "ns", "", "1", good); p == nil || p == q {
		t.Error("an object without a UID was remembered")
	}
}

func TestCacheCompilesOnceAtATime(t *testing.T) {
	c := NewCache(newCompiler(t))
	got := make([]*celenv.Programs, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i], _ = c.Get(t.Context(), "ns", "a", "1", spec(`[1, 2].all(x, x > 0)`)) })
	}
	wg.Wait()
	for _, p := range got {
		if p == nil || p != got[0] {
			t.Fatalf("got different Programs: %v", got)
		}
	}
}

// What a context has cut short is not remembered.
func TestWhatIsCutShortIsForgotten(t *testing.T) {
	c := NewCache(newCompiler(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	entry := c.ensureEntry("ns", "a", "1")
	entry.compiling <- struct{}{}
	if p, errs := c.Get(ctx, "ns", "a", "1", spec("true")); p != nil || len(errs) > 0 {
		t.Errorf("while another one compiles it, it is %v, %v", p, errs)
	}
	<-entry.compiling
	_, _ = c.Get(ctx, "ns", "a", "1", spec("true")) // it may be compiled sooner than the context is looked at
	if p, errs := c.Get(t.Context(), "ns", "a", "1", spec("true")); p == nil || len(errs) > 0 {
		t.Errorf("what was cut short is remembered: %v, %v", p, errs)
	}
}

// There is room for what is used, and one namespace takes none from others.
func TestCacheForgetsWhatIsOldestOfWhoHasMost(t *testing.T) {
	c := NewCache(newCompiler(t))
	s := spec("true")
	p, _ := c.compiler.Compile(t.Context(), s)
	each := celenv.SumFootprint(p, nil)
	c.maxBytes, c.maxNamespaceBytes = 6*each, 4*each
	get := func(namespace string, uid types.UID) *celenv.Programs {
		t.Helper()
		p, errs := c.Get(t.Context(), namespace, uid, "1", s)
		if p == nil {
			t.Fatal(errs)
		}
		return p
	}
	known := func(uid types.UID) bool { return c.entries[uid] != nil }

	quiet := get("quiet", "quiet-1")
	for i := range 4 {
		get("a", types.UID(fmt.Sprintf("a-%d", i)))
	}
	get("a", "a-0") // used again
	get("a", "a-4")
	if known("a-1") || !known("a-0") || !known("a-2") || !known("a-4") {
		t.Errorf("the share of a namespace: %v", c.entries)
	}
	get("b", "b-0")
	get("b", "b-1")
	if known("a-2") || !known("a-3") || !known("b-0") || !known("b-1") {
		t.Errorf("all together: %v", c.entries)
	}
	if get("quiet", "quiet-1") != quiet {
		t.Error("the namespace that has least has lost something")
	}
	if c.totalBytes > c.maxBytes {
		t.Errorf("%d bytes are remembered, of %d", c.totalBytes, c.maxBytes)
	}
	get("a", "a-1") // compiled again
	c.Forget("a-1")
	for _, uid := range []types.UID{"a-0", "a-3", "a-4", "b-0", "b-1", "quiet-1", "never"} {
		c.Forget(uid)
	}
	if c.totalBytes != 0 || len(c.namespaceBytes) != 0 || c.recent.Len() != 0 {
		t.Errorf("after all are forgotten there are %d bytes, %v", c.totalBytes, c.namespaceBytes)
	}
}

// However many Cleaners there are, with expressions as large as they may be, and whatever is wrong with them.
func TestCacheTakesBoundedMemory(t *testing.T) {
	c := NewCache(newCompiler(t))
	c.maxBytes, c.maxNamespaceBytes = 16<<20, 4<<20
	large := spec(filled("size([1", ",1", "]) < 0", 15_000))
	wrong := spec(filled("size([x", ",x", "]) < 0", 3_000))
	before := heap()
	for i := range 60 {
		namespace := fmt.Sprintf("ns-%d", i%6)
		if p, errs := c.Get(t.Context(), namespace, types.UID(fmt.Sprintf("large-%d", i)), "1", large); p == nil {
			t.Fatal(errs)
		}
		if p, errs := c.Get(t.Context(), namespace, types.UID(fmt.Sprintf("wrong-%d", i)), "1", wrong); p != nil || len(errs) == 0 {
			t.Fatal("it compiles")
		}
	}
	if took := heap() - before; took > c.maxBytes*4/3 {
		t.Errorf("it takes %d MiB", took>>20)
	}
	if len(c.namespaceBytes) == 0 {
		t.Error("nothing is remembered")
	}
	for namespace, bytes := range c.namespaceBytes {
		if bytes > c.maxNamespaceBytes {
			t.Errorf("%s has %d bytes", namespace, bytes)
		}
	}
	runtime.KeepAlive(c)
}
