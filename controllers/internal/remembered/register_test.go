// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package remembered

import (
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/internal/memoryquota"
)

// bytes is a memory of so many bytes of items, and so many of results.
type bytes struct{ n, results int64 }

func (b *bytes) CountBytes() int64 { return b.n + b.results }
func (b *bytes) FitInto(room int64) {
	if b.CountBytes() > room {
		b.results, b.n = 0, min(b.n, max(room, 0))
	}
}

func (b *bytes) ForgetItems() { b.n, b.results = 0, 0 }

func (b *bytes) ForgetResults() bool {
	had := b.results > 0
	b.results = 0
	return had
}

func key(name string) (k types.NamespacedName) {
	k.Namespace, k.Name = name[:1], name
	return k
}

// visit has a pass over a Cleaner remember so many bytes.
func visit(r *Register[*bytes], name string, n int64) *bytes {
	b := r.BeginPass(key(name), func() *bytes { return &bytes{} })
	b.n = n
	r.EndPass(key(name), b)
	return b
}

func TestRegister(t *testing.T) {
	r := &Register[*bytes]{Bounds: memoryquota.Bounds{Cleaner: 100, Namespace: 150, Namespaces: 300, Cluster: 100}}
	if _, known := r.FindRoom(key("a1"), &bytes{}); known {
		t.Error("before the first pass it is known how much room there is")
	}
	r.ForgetCleaner(key("a1")) // nothing is known of it
	a := visit(r, "a1", 1000)
	if a.n != 100 {
		t.Errorf("of one Cleaner %d bytes are remembered", a.n)
	}
	if room, known := r.FindRoom(key("a1"), &bytes{n: 60}); !known || room != 40 {
		t.Errorf("it has room for %d more", room)
	}
	if again := r.BeginPass(key("a1"), func() *bytes { return nil }); again != a {
		t.Error("another pass has another memory")
	}
	a.n = 90
	r.ForgetCleaner(key("a1"))
	if r.EndPass(key("a1"), a); visit(r, "a1", 0) == a {
		t.Error("what is gone is remembered")
	}
	if other := r.BeginPass(key("b1"), func() *bytes { return &bytes{} }); other == a {
		t.Error("two Cleaners share a memory")
	}
}

// Where all is taken, those forget that have most; one that a pass is about, when that has ended.
func TestWhoHasMostForgets(t *testing.T) {
	r := &Register[*bytes]{Bounds: memoryquota.Bounds{Cleaner: 1000, Namespace: 1000, Namespaces: 1500, Cluster: 1000}}
	a, b := visit(r, "a1", 900), visit(r, "b1", 500)
	passing := r.BeginPass(key("a1"), func() *bytes { return nil })
	c := visit(r, "c1", 500)
	if a.n != 900 || b.n != 500 || c.n != 500 {
		t.Errorf("during the pass there are %d, %d and %d bytes", a.n, b.n, c.n)
	}
	if r.EndPass(key("a1"), passing); a.n != 0 || b.n != 500 || c.n != 500 {
		t.Errorf("after it there are %d, %d and %d bytes", a.n, b.n, c.n)
	}
	if d := visit(r, "d1", 600); d.n != 500 || b.n != 500 || c.n != 500 {
		t.Errorf("what is left is for another one: there are %d, %d and %d bytes", b.n, c.n, d.n)
	}
}

// Who has most forgets its results first, also when a pass is about it, and its items only if that is not enough.
func TestResultsAreForgottenBeforeItems(t *testing.T) {
	r := &Register[*bytes]{Bounds: memoryquota.Bounds{Cleaner: 1000, Namespace: 1000, Namespaces: 1500, Cluster: 1000}}
	with := func(name string, n, results int64) *bytes {
		b := r.BeginPass(key(name), func() *bytes { return &bytes{} })
		b.n, b.results = n, results
		r.EndPass(key(name), b)
		return b
	}
	a, b := with("a1", 100, 800), with("b1", 500, 0)
	if with("c1", 500, 0); a.n != 100 || a.results != 0 || b.n != 500 {
		t.Errorf("there are %d bytes and %d of results, and %d of another one", a.n, a.results, b.n)
	}
	with("c1", 0, 0)
	a = with("a1", 100, 800)
	passing := r.BeginPass(key("a1"), func() *bytes { return nil })
	with("c1", 500, 0)
	if r.EndPass(key("a1"), passing); a.n != 100 || a.results != 0 || b.n != 500 {
		t.Errorf("after a pass there are %d bytes and %d of results, and %d of another one", a.n, a.results, b.n)
	}
	with("c1", 0, 0)
	a = with("a1", 900, 50)
	if with("c1", 600, 0); a.n != 0 || b.n != 500 {
		t.Errorf("where results are not enough there are %d bytes and %d of results, and %d of another one", a.n, a.results, b.n)
	}
}

func TestTheDefaultBounds(t *testing.T) {
	r := &Register[*bytes]{}
	if got := visit(r, "a1", 1<<40).n; got != memoryquota.DefaultBounds().Cleaner {
		t.Errorf("of one Cleaner %d bytes are remembered", got)
	}
}

func TestRegisterIsSafeForConcurrentUse(*testing.T) {
	r := &Register[*bytes]{Bounds: memoryquota.Bounds{Cleaner: 100, Namespace: 150, Namespaces: 300, Cluster: 100}}
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			name := fmt.Sprint(string(rune('a'+n%4)), n)
			for i := range 200 {
				if b := visit(r, name, int64(i)); i%50 == 0 {
					r.FindRoom(key(name), b)
					r.ForgetCleaner(key(name))
				}
			}
		})
	}
	all.Wait()
}
