// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"runtime"
	"sort"
	"strings"
	"testing"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

// heapInUse is how much memory is held on to.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // and what pools let go of
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// growthTakes is how many bytes of memory a byte of Limits.Growth stands for, at most.
const growthTakes = 2

// evaluated has a variable of the spec computed for params.n, and says whether that is within the Limits. Whoever gets the
// Evaluation must Close it.
func evaluated(t *testing.T, p *Programs, n int) (e *Evaluation, admitted bool) {
	t.Helper()
	var texts, same, lists, ranges []any
	var words []string
	for i := range 200 {
		words, ranges = append(words, fmt.Sprint("w", i)), append(ranges, fmt.Sprintf("2001:db8:0:%x::1-2001:db8:0:%x::ffff:ffff", i, i))
		texts, same, lists = append(texts, fmt.Sprint("text-", i)), append(same, "a"), append(lists, []any{})
	}
	e, problem := p.BeginEvaluation(t.Context(), Input{Time: at("2025-01-01T00:00:00Z"), Params: map[string]any{"n": int64(n), "texts": texts, "same": same, "lists": lists, "words": strings.Join(words, " "), "ranges": ranges}})
	if problem != nil {
		t.Fatal(problem)
	}
	problem = e.EvaluateConditions()[0].Err
	if problem != nil && problem.Kind != expr.Exhausted {
		t.Fatal(problem)
	}
	return e, problem == nil
}

// keeping are Programs whose only variable is kept while they are evaluated.
func keeping(t *testing.T, c *Compiler, expression string) *Programs {
	t.Helper()
	p, errs := c.Compile(t.Context(), variablesSpec([]string{"v: " + expression}, "variables.v.size() >= 0"))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return p
}

// The largest value of each sort that an evaluation may build takes at most a few times Growth in memory.
func TestMemoryOfTheLargestValues(t *testing.T) {
	const growth = 2 << 20
	c := newCompiler(t, budget.Limits{Growth: growth, Value: growth})
	for name, expression := range map[string]string{
		"numbers":                  "lists.range(params.n)",
		"texts":                    "lists.range(params.n).map(x, string(x))",
		"lists of one":             "lists.range(params.n).map(x, [x])",
		"maps of one":              "lists.range(params.n).map(x, {'a': x})",
		"maps of a key":            "lists.range(params.n).map(x, {x: x})",
		"maps of no text":          "lists.range(params.n).map(x, {?'a': optional.of(x)})",
		"lists of loops":           "lists.range(params.n).map(x, lists.range(1).map(y, y))",
		"empty lists of loops":     "lists.range(params.n).map(x, lists.range(1).filter(y, false))",
		"maps of loops":            "lists.range(params.n).map(x, lists.range(1).transformMap(i, v, v))",
		"maps of two":              "lists.range(params.n).map(x, lists.range(9).transformMap(i, v, v))",
		"empty maps of loops":      "lists.range(params.n).map(x, lists.range(1).transformMap(i, v, false, v))",
		"slices":                   "cel.bind(l, lists.range(params.n), l.map(x, l.slice(0, 1)))",
		"sets of one":              "lists.range(params.n).map(x, [x].toSet())",
		"indexes of one":           "lists.range(params.n).map(x, [x].indexBy(y, y))",
		"counts of one":            "lists.range(params.n).map(x, [x].countBy(y, y))",
		"groups of one":            "lists.range(params.n).map(x, [x].groupBy(y, y))",
		"one index":                "lists.range(params.n).indexBy(x, string(x))",
		"merged maps":              "lists.range(params.n).map(x, {x: x}.merge({}))",
		"JSON of nothing":          "lists.range(params.n).map(x, json.unmarshal('{}'))",
		"JSON with escapes":        "lists.range(params.n).map(x, json.unmarshal('{\"a\":\"\\\\n\"}'))",
		"JSON lists":               "json.unmarshal('[' + lists.range(params.n).map(x, '[\"\"]').join(',') + ']')",
		"JSON escapes":             "json.unmarshal('[' + lists.range(params.n).map(x, '\"\\\\n\"').join(',') + ']')",
		"JSON numbers":             "json.unmarshal('[' + lists.range(params.n).map(x, '1000').join(',') + ']')",
		"sums of lists":            "lists.range(params.n).map(x, [x] + [x])",
		"flattened":                "lists.range(params.n).map(x, [[x]].flatten())",
		"sorted":                   "lists.range(params.n).map(x, [x].sort())",
		"split":                    "lists.range(params.n).map(x, 'a b'.split(' '))",
		"references":               "lists.range(params.n).map(x, podRefs({'volumes': [{'secret': {'secretName': 'a'}}]}, 'Secret'))",
		"distinct":                 "lists.range(params.n).map(x, [x].distinct())",
		"shared":                   "lists.range(params.n).map(x, ipsShared({'a': ['10.0.0.1'], 'b': ['10.0.0.1']}))",
		"without":                  "lists.range(params.n).map(x, ipsWithout(['10.0.0.1'], ['10.0.0.2']))",
		"found":                    "lists.range(params.n).map(x, 'aa'.findAll('a'))",
		"extracted":                "lists.range(params.n).map(x, regex.extractAll('aa', 'a'))",
		"reasons":                  "lists.range(params.n).map(x, 'a'.format([]))",
		"validated":                "lists.range(params.n).map(x, format.named('uuid').value().validate('a'))",
		"reversed":                 "lists.range(params.n).map(x, [x].reverse())",
		"sets of an object's list": "lists.range(params.n).map(x, params.texts.toSet())",
		"sets of equal texts":      "lists.range(params.n).map(x, params.same.toSet())",
		"sets of words":            "cel.bind(w, params.words.split(' '), lists.range(params.n).map(x, w.toSet()))",
		"groups of a list":         "lists.range(params.n).map(x, params.lists.groupBy(y, x))",
		"indexes of a list":        "lists.range(params.n).map(x, params.lists.indexBy(y, x))",
		"a list reversed":          "lists.range(params.n).map(x, params.lists.reverse())",
		"a list and more":          "lists.range(params.n).map(x, params.lists + [x])",
		"a part of a list":         "lists.range(params.n).map(x, params.lists.slice(0, 100))",
		"a bit of a list":          "lists.range(params.n).map(x, params.lists.take(1))",
		"texts of a list, sorted":  "lists.range(params.n).map(x, params.texts.sort())",
		"parts of words":           "cel.bind(w, params.words.split(' '), lists.range(params.n).map(x, w.slice(0, 100)))",
		"found words, reversed":    "cel.bind(w, params.words.findAll('w[0-9]+'), lists.range(params.n).map(x, w.reverse()))",
		"lists of elements":        "cel.bind(l, params.lists, lists.range(params.n).map(x, [l[0], l[0], l[0], l[0], l[0], l[0], l[0], l[0], l[0], l[0]]))",
		"lists of options":         "lists.range(params.n).map(x, [params.?lists, params.?lists, params.?lists, params.?lists, params.?lists, params.?lists])",
		"options of options":       "lists.range(params.n).map(x, optional.of(optional.of(optional.of(optional.of(optional.of(optional.of(optional.of(x))))))))",
		"many times":               "lists.range(params.n).map(x, [timestamp(x), timestamp(x), timestamp(x), timestamp(x), timestamp(x), timestamp(x)])",
		"many versions":            "lists.range(params.n).map(x, cel.bind(s, '1.2.' + string(x), [semver(s), semver(s), semver(s), semver(s)]))",
		"long versions":            "lists.range(params.n).map(x, semver('1.2.3-a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.' + string(x)))",
		"many quantities":          "lists.range(params.n).map(x, cel.bind(s, string(x), [quantity(s), quantity(s), quantity(s), quantity(s), quantity(s)]))",
		"many sums":                "lists.range(params.n).map(x, cel.bind(q, quantity(string(x)), [q.add(1), q.add(2), q.add(3), q.sub(4), q.sub(q)]))",
		"many addresses":           "lists.range(params.n).map(x, cel.bind(s, '10.0.0.' + string(x % 250), [ip(s), ip(s), ip(s), ip(s), ip(s), ip(s)]))",
		"many ranges":              "lists.range(params.n).map(x, cel.bind(s, '10.0.0.' + string(x % 250) + '/32', [cidr(s), cidr(s), cidr(s), cidr(s), cidr(s)]))",
		"many durations":           "lists.range(params.n).map(x, [seconds(x), seconds(x), seconds(x), seconds(x), seconds(x), seconds(x), seconds(x)])",
		"what is wrong":            "lists.range(params.n).map(x, format.named('dns1123Label').value().validate('A B'))",
		"formats":                  "lists.range(params.n).map(x, [format.named('uuid'), format.named('uuid'), format.named('uuid'), format.named('uuid')])",
		"exponents":                "json.unmarshal('{' + lists.range(params.n).map(x, '\"k' + string(x) + '\":1e' + string(x % 9)).join(',') + '}')",
		"no UTF-8":                 "cel.bind(s, '\"' + url('https://h/?a=' + lists.range(5000).map(x, '%ff').join()).getQuery()['a'][0] + '\"', lists.range(params.n).map(x, json.unmarshal(s)))",
		"long numbers":             "json.unmarshal('{' + lists.range(params.n).map(x, '\"k' + string(x) + '\":1.00000000000000000000' + string(x)).join(',') + '}')",
		"texts of a list, flat":    "lists.range(params.n).map(x, params.texts.flatten())",
		"nothing merged":           "lists.range(params.n).map(x, {}.merge({}))",
		"no query":                 "cel.bind(u, url('https://h/'), lists.range(params.n).map(x, u.getQuery()))",
		"URLs with escapes":        "lists.range(params.n).map(x, url('https://h/%41' + params.words))",
		"many ranges without one":  "lists.range(params.n).map(x, ipsWithout(params.ranges, ['10.0.0.1']))",
		"maps of maps":             "lists.range(params.n).map(x, {'a': {'a': x}})",
		"lists of lists":           "lists.range(params.n).map(x, [x, [x, [x]]])",
		"optionals":                "lists.range(params.n).map(x, optional.of([x]))",
		"one map":                  "lists.range(params.n).toSet()",
		"groups":                   "lists.range(params.n).groupBy(x, x)",
		"moments":                  "lists.range(params.n).map(x, time + duration('1s'))",
		"spans of time":            "lists.range(params.n).map(x, seconds(x))",
		"quantities":               "lists.range(params.n).map(x, quantity('1'))",
		"sums":                     "lists.range(params.n).map(x, quantity('1').add(x))",
		"addresses":                "lists.range(params.n).map(x, ip('10.0.0.1'))",
		"ranges":                   "lists.range(params.n).map(x, cidr('10.0.0.0/8'))",
		"versions":                 "lists.range(params.n).map(x, semver('1.2.3'))",
		"URLs":                     "lists.range(params.n).map(x, url('https://h'))",
		"parts of URLs":            "cel.bind(u, url('https://h/?a=b'), lists.range(params.n).map(x, u.getQuery()))",
		"parts of a text":          "cel.bind(t, lists.range(params.n).map(x, 'a').join(), t.split(''))",
		"matches":                  "lists.range(params.n).map(x, 'a'.find('a'))",
		"JSON":                     "json.unmarshal('[' + lists.range(params.n).map(x, '{\"a\":{}}').join(',') + ']')",
		"conditions":               "lists.range(params.n).map(x, setCondition([], {'type': 'a', 'status': 'b'}))",
		"ways to write":            "lists.range(params.n).map(x, format.uuid())",
		"labels":                   "lists.range(params.n).map(x, podLabels({}))",
	} {
		t.Run(name, func(t *testing.T) {
			p := keeping(t, c, expression)
			most := sort.Search(growth/budget.ValueSize, func(n int) bool {
				e, admitted := evaluated(t, p, n+1)
				e.Close()
				return !admitted
			})
			before := heapInUse()
			e, _ := evaluated(t, p, most)
			held := heapInUse() - before
			e.Close()
			if most < 5 || held > growthTakes*growth {
				t.Errorf("%d of them take %d bytes, and %d may be built", most, held, int64(growth))
			}
		})
	}
}

// What takes most of all is admitted up to the default of Growth, and no further, and is let go of with the evaluation.
func TestMemoryOfOneEvaluation(t *testing.T) {
	p := keeping(t, newCompiler(t, budget.Limits{}), "lists.range(params.n).map(x, [x, [x]])")
	before := heapInUse()
	e, admitted := evaluated(t, p, 460_000)
	held := heapInUse() - before
	e.Close()
	if !admitted || held > growthTakes*128<<20 || held < 128<<20 {
		t.Errorf("admitted: %t; it takes %d MiB", admitted, held>>20)
	}
	e, admitted = evaluated(t, p, 500_000)
	e.Close()
	if admitted {
		t.Error("more than Growth was built")
	}
	if left := heapInUse() - before; left > 4<<20 {
		t.Errorf("%d MiB are left", left>>20)
	}
}
