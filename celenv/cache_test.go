// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"sync"
	"testing"
)

func TestCache(t *testing.T) {
	c := NewCache(newCompiler(t, Limits{}))
	good, bad := spec("true"), spec("nonsense")

	first, errs := c.Get(t.Context(), "a", "1", good)
	if first == nil || len(errs) > 0 {
		t.Fatal(errs)
	}
	if again, _ := c.Get(t.Context(), "a", "1", bad); again != first {
		t.Error("one generation was compiled twice")
	}
	if other, _ := c.Get(t.Context(), "b", "1", good); other == first {
		t.Error("two Cleaners share what may differ")
	}
	if next, errs := c.Get(t.Context(), "a", "2", bad); next != nil || len(errs) != 1 {
		t.Errorf("the next generation gave %v, %v", next, errs)
	}
	if _, errs := c.Get(t.Context(), "a", "2", good); len(errs) != 1 {
		t.Error("what does not compile was compiled twice")
	}
	c.Forget("a")
	if p, _ := c.Get(t.Context(), "a", "2", good); p == nil {
		t.Error("a forgotten Cleaner is remembered")
	}
	p, _ := c.Get(t.Context(), "", "1", good)
	if q, _ := c.Get(t.Context(), "", "1", good); p == nil || p == q {
		t.Error("an object without a UID was remembered")
	}
}

func TestCacheCompilesOnceAtATime(t *testing.T) {
	c := NewCache(newCompiler(t, Limits{}))
	got := make([]*Programs, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i], _ = c.Get(t.Context(), "a", "1", spec(proposal)) })
	}
	wg.Wait()
	for _, p := range got {
		if p == nil || p != got[0] {
			t.Fatalf("got different Programs: %v", got)
		}
	}
}
