// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// countSharedEnvs counts the environments that are shared.
func (c *Compiler) countSharedEnvs() int {
	c.envs.mu.Lock()
	defer c.envs.mu.Unlock()
	return len(c.envs.made)
}

// manyNames is a spec that declares as many names as the schema has room for, other ones for each n.
func manyNames(n int) *v1alpha1.Work {
	w := &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}}
	for i := range 64 {
		w.Variables = append(w.Variables, v1alpha1.Variable{Name: fmt.Sprintf("v_%05d_%02d_abcdefghijklmnopq", n, i), Expression: "1"})
		rule := v1alpha1.Rule{Name: fmt.Sprint("r", i), ForEach: "[1]", When: "true"}
		for k := range 64 {
			rule.Variables = append(rule.Variables, v1alpha1.Variable{Name: fmt.Sprintf("w%02d_%05d_%02d_abcdefghijklmno", i, n, k), Expression: "1"})
		}
		w.Rules = append(w.Rules, rule)
	}
	return w
}

// Specs that nobody keeps, such as those of reviews and of Cleaners that are gone, leave nothing behind, whatever names they declare.
func TestNothingStaysOfNames(t *testing.T) {
	c, err := NewCompiler(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if _, errs := c.Compile(t.Context(), manyNames(n)); len(errs) > 0 {
			t.Fatal(errs[0])
		}
	}
	deadline := time.Now().Add(time.Minute)
	for c.countSharedEnvs() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d environments stay", c.countSharedEnvs())
		}
		runtime.GC()
	}
}

// Specs with the same names share an environment for as long as one of them is kept, and it makes no difference to what they mean.
func TestSpecsShareAnEnvironment(t *testing.T) {
	c, err := NewCompiler(Options{})
	if err != nil {
		t.Fatal(err)
	}
	spec := func(names ...string) *v1alpha1.Work {
		w := &v1alpha1.Work{}
		for _, name := range names {
			w.Targets = append(w.Targets, v1alpha1.ClusterTarget{Name: name})
			w.Conditions = append(w.Conditions, name+" != null")
		}
		return w
	}
	kept := []*Programs{}
	for n, tc := range []struct {
		names []string
		envs  int
	}{{[]string{"a", "b"}, 1}, {[]string{"b", "a"}, 1}, {[]string{"a"}, 2}, {[]string{"a", "b"}, 2}} {
		p, errs := c.Compile(t.Context(), spec(tc.names...))
		if len(errs) > 0 {
			t.Fatal(errs[0])
		}
		kept = append(kept, p)
		runtime.GC()
		if got := c.countSharedEnvs(); got != tc.envs {
			t.Errorf("after %d specs there are %d environments, want %d", n+1, got, tc.envs)
		}
	}
	runtime.KeepAlive(kept)
}
