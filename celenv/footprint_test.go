// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/compilecost"
)

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools have held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// filled is an expression of about so many bytes that repeats a part.
func filled(head, part, tail string, bytes int) string {
	return head + strings.Repeat(part, (bytes-len(head)-len(tail))/len(part)) + tail
}

// shapes are expressions that take much memory for their length, each of its own kind, of at most so many bytes.
func shapes(most int) map[string]string {
	return map[string]string{
		"numbers":   filled("size([1", ",1", "]) < 0", most),
		"texts":     filled("size(['a'", ",'a'", "]) < 0", most),
		"long text": filled("size('", "a", "') < 0", most),
		"entries":   filled("size({1: 1", ",1:1", "}) < 0", most),
		"lists":     filled("size([[1]", ",[1]", "]) < 0", most),
		"maps":      filled("size([{1:1}", ",{1:1}", "]) < 0", min(most, 8000)),
		"reads":     filled("size([maps", ",maps", "]) < 0", most),
		"fields":    filled("size([maps", ",maps.a", "]) < 0", most),
		"presence":  filled("size([true", ",has(maps.a)", "]) < 0", most),
		"deep":      filled("true", "||maps.a.a.a.a.a.a", "", most/2),
		"calls":     filled("size([1", ",-maps", "]) < 0", most),
		"equality":  filled("true", "||maps==1", "", min(most, 6000)),
		"set":       filled("maps in ['a'", ",'a'", "]", most),
		"choices":   filled("size([1", ",true?1:maps", "]) < 0", min(most, 8000)),
		"loops":     filled("true", "||maps.items.all(a,a.b)", "", min(most, 6000)),
		"mapping":   filled("size([1", ",maps.map(a,a)", "]) < 0", min(most, 2500)),
		"time":      filled("size([time", ",time", "]) < 0", most),
		"times":     filled("true", "||time<time", "", min(most, 6000)),
		"pattern":   `"a".matches("(a[a-z]{1,400}){1,2}b") || "a".matches("(b[a-z]{1,400}){1,2}b")`,
		"usual":     proposal,
	}
}

// compileTimes compiles a spec so many times, with the programs that look ahead of its conditions, and says how many bytes each takes.
func compileTimes(t *testing.T, c *Compiler, s *v1alpha1.Work, n int) (kept []*Programs, took int64) {
	t.Helper()
	compile := func() *Programs {
		p, errs := c.Compile(t.Context(), s)
		if p == nil {
			t.Fatalf("%.300s", errs.ToAggregate())
		}
		for _, x := range p.conditions {
			if x.readsTime {
				x.ahead.ensureProgram()
			}
		}
		return p
	}
	compile() // which makes what is shared
	kept = make([]*Programs, n)
	before := heap()
	for i := range kept {
		kept[i] = compile()
	}
	return kept, (heap() - before) / int64(n)
}

// What is estimated of what is compiled is about what it takes, and seldom less.
func TestFootprint(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	for name, source := range shapes(4000) {
		t.Run(name, func(t *testing.T) {
			s := spec(source)
			s.Targets = append(s.Targets, v1alpha1.ClusterTarget{Name: "maps"})
			kept, took := compileTimes(t, c, s, 16)
			estimated := kept[0].footprint
			if low, high := took*3/4, took*3+16<<10; estimated < low || estimated > high {
				t.Errorf("it takes %d bytes, and the estimate is %d", took, estimated)
			}
			runtime.KeepAlive(kept)
		})
	}
}

// manyExpressions is a spec with the same short expression in many variables of many rules.
func manyExpressions(source string, sameNames bool) *v1alpha1.Work {
	w := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{{Name: "maps"}}}
	w.Variables = variablesOf([]string{"v: maps"})
	for r := range 32 {
		rule := v1alpha1.Rule{Name: fmt.Sprint("r", r), ForEach: "[1]", When: "true"}
		for i := range 64 {
			name := fmt.Sprintf("w%d", i)
			if !sameNames {
				name = fmt.Sprintf("w%d_%d_and_so_on", r, i)
			}
			rule.Variables = append(rule.Variables, v1alpha1.Variable{Name: name, Expression: source})
		}
		w.Rules = append(w.Rules, rule)
	}
	return w
}

// What takes memory in a short expression is that there is one: many of them are not estimated lower than they are.
func TestFootprintOfShortExpressions(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	for name, source := range map[string]string{"number": "1", "time": "time", "variable": "variables.v", "target": "maps", "call": "size('a')"} {
		for _, sameNames := range []bool{true, false} {
			t.Run(fmt.Sprint(name, sameNames), func(t *testing.T) {
				s := manyExpressions(source, sameNames)
				kept, took := compileTimes(t, c, s, 4)
				estimated := SumFootprint(kept[0], nil)
				if low, high := took*3/4, took*3; estimated < low || estimated > high {
					t.Errorf("it takes %d bytes, and the estimate is %d", took, estimated)
				}
				runtime.KeepAlive(kept)
			})
		}
	}
}

// No spec takes more than MaxFootprint once it is compiled, whatever it consists of.
func TestFootprintIsBounded(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	refused := 0
	for name, source := range shapes(15_900) {
		t.Run(name, func(t *testing.T) {
			s := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{{Name: "maps"}, {Name: "revisions"}, {Name: "services"}}}
			s.Conditions = []string{source}
			p, errs := c.Compile(t.Context(), s)
			if p == nil {
				t.Fatalf("%.300s", errs.ToAggregate())
			}
			before := heap()
			n := min(64, int(compilecost.MaxFootprint/p.footprint)+1)
			for p = nil; p == nil; n-- {
				s.Conditions = slices.Repeat([]string{source}, n)
				if p, errs = c.Compile(t.Context(), s); p == nil && strings.Contains(errs[len(errs)-1].Detail, "more than 8 MiB of memory") {
					refused++
				}
			}
			if took := heap() - before; took > compilecost.MaxFootprint*4/3 {
				t.Errorf("it takes %d bytes", took)
			}
			runtime.KeepAlive(p)
		})
	}
	if refused < 5 {
		t.Errorf("%d kinds of expressions were refused for their memory", refused)
	}
}

// What people write takes a small part of what a spec may take, and what is shipped leaves as much again.
func TestFootprintOfSamples(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	files, err := filepath.Glob("../config/samples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../config/samples/cookbook/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	templates, err := filepath.Glob("../config/templates/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	compiled := 0
	for _, file := range append(append(files, more...), templates...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, doc := range bytes.Split(text, []byte("\n---\n")) {
			var read struct {
				Kind string
				Spec struct {
					v1alpha1.Work `json:",inline"`
					Template      *v1alpha1.Work
				}
			}
			if yaml.Unmarshal(doc, &read) != nil || !strings.HasSuffix(read.Kind, "Cleaner") && read.Kind != "CleanerTemplate" {
				continue
			}
			work := &read.Spec.Work
			if read.Spec.Template != nil {
				work = read.Spec.Template
			}
			p, _ := c.Compile(t.Context(), work)
			if p == nil {
				continue
			}
			compiled++
			most := int64(compilecost.MaxFootprint / 8)
			if slices.Contains(templates, file) {
				most = compilecost.MaxFootprint / 2
			}
			if p.footprint > most {
				t.Errorf("%s: document %d takes %d bytes, and %d are enough", file, i, p.footprint, most)
			}
		}
	}
	if compiled < 20 {
		t.Errorf("%d samples were compiled", compiled)
	}
}

// Why an expression failed is found out by programs that are gone when the evaluation is.
func TestExplanationsAreDropped(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	s := spec(filled("size([revisions.items.b", ",revisions.items.a", "]) < 0", 15_000))
	p, errs := c.Compile(t.Context(), s)
	if p == nil {
		t.Fatalf("%.300s", errs.ToAggregate())
	}
	in := Input{Targets: map[string]any{"revisions": map[string]any{"items": map[string]any{}}}, Time: time.Unix(1, 0)}
	before := heap()
	for range 2 {
		results := p.EvaluateConditions(t.Context(), in)
		if err := results[0].Err; err == nil || !strings.Contains(err.Error(), "b") {
			t.Fatalf("the evaluation gave %v", err)
		}
	}
	if more := heap() - before; more > 256<<10 {
		t.Errorf("an evaluation that failed leaves %d bytes", more)
	}
	runtime.KeepAlive(p)
}
