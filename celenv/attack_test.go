// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/celenv/budget"
)

// nested is cel.bind(v0, first, cel.bind(v1, step of v0, ... body of the last)).
func nested(depth int, first, step, body string) string {
	last := fmt.Sprintf("v%d", depth)
	text := strings.ReplaceAll(body, "V", last)
	for i := depth; i > 0; i-- {
		text = fmt.Sprintf("cel.bind(v%d, %s, %s)", i, strings.ReplaceAll(step, "V", fmt.Sprintf("v%d", i-1)), text)
	}
	return fmt.Sprintf("cel.bind(v0, %s, %s)", first, text)
}

// unsortedKeys are the entries of a JSON object with so many keys.
func unsortedKeys(n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(`"%x":0`, i*0x9e3779b1&0xffffff)
	}
	return strings.Join(entries, ",")
}

// Each of these took seconds or gigabytes, or did not return, without a meter. The bounds are generous: they tell
// "stopped" from "was allowed to run".
func TestAttacksAreStopped(t *testing.T) {
	const deadline, allocations = 10 * time.Second, 512 << 20
	numbers := make([]any, 2000)
	for i := range numbers {
		numbers[i] = int64(i)
	}
	entries := map[string]any{}
	for i := range 20_000 {
		entries[fmt.Sprint("k", i)] = true
	}
	in := Input{
		Time: at("2025-01-01T00:00:00Z"),
		Targets: map[string]any{
			"revisions": list(numbers...),
			"svc": map[string]any{
				"l":       numbers[:200],
				"s":       strings.Repeat("x", 16<<10),
				"huge":    strings.Repeat("a", 256<<10),
				"huge2":   strings.Repeat("a", 256<<10-1) + "b",
				"digits":  strings.Repeat("1", 256<<10),
				"control": strings.Repeat("\x01", 10<<10),
				"pattern": strings.Repeat("a{1000}", 36),
				"long":    strings.Repeat("(a|b)", 52),
				"map":     entries,
				"words":   strings.Join(slices.Sorted(maps.Keys(entries)), " "),
				"deep":    strings.Repeat(`{"a":`, 250) + `"` + strings.Repeat("a", 256<<10) + `"` + strings.Repeat("}", 250),
				"json":    "[" + strings.Repeat("{},", 300<<10) + "{}]",
				"tiny":    "[" + strings.Repeat("1e-310,", 40<<10) + "0]",
				"keys":    "{" + unsortedKeys(200_000) + "}",
			},
		},
	}
	const steps, growth = "more than 1000000 steps", "more than 16777216 bytes"
	cases := map[string]struct{ expression, want string }{
		"NestedLoops":          {"revisions.items.all(a, revisions.items.all(b, revisions.items.all(c, true)))", steps},
		"NestedFilters":        {"revisions.items.all(a, revisions.items.filter(b, revisions.items.exists_one(c, c == 1)).size() > 0)", steps},
		"ConcatenationDyn":     {"svc.l.map(a, svc.l.map(b, svc.s + svc.s)).size() > 0", growth},
		"ConcatenationTyped":   {"svc.l.map(a, svc.l.map(b, string(svc.s) + string(svc.s))).size() > 0", growth},
		"StringDoubling":       {nested(40, "svc.s", "V + V", "V.size() > 0"), growth},
		"ListDoubling":         {nested(40, "svc.l", "(V + V).map(x, x)", "V.size() > 0"), growth},
		"FindSimulated":        {"svc.huge.find('(a?){60}b') == ''", steps},
		"MatchesSimulated":     {"svc.huge.matches('(a?){60}b')", steps},
		"AliasEquality":        {nested(60, "[1]", "[V, V]", "V == V"), steps},
		"AliasInequality":      {nested(40, "{'a': 1}", "{'a': V, 'b': V}", "V != V"), steps},
		"AliasIn":              {nested(60, "[1]", "[V, V]", "V in [1, V]"), steps},
		"AliasMarshal":         {nested(60, "[1]", "[V, V]", "json.marshal(V) == ''"), growth},
		"AliasFormat":          {nested(60, "[1]", "[V, V]", "'%s'.format([V]) == ''"), growth},
		"AliasFlatten":         {nested(60, "[1]", "[V, V]", "V.flatten(100).size() > 0"), growth},
		"AliasDistinct":        {nested(60, "[1]", "[V, V]", "[V, V].distinct().size() > 0"), steps},
		"AliasOptional":        {nested(60, "dyn(optional.of([1]))", "dyn(optional.of([V, V]))", "V == V"), steps},
		"Range":                {"lists.range(1000).map(x, lists.range(1000000)).size() > 0", growth},
		"Join":                 {"lists.range(10000).map(x, 'a').join(svc.huge).size() > 0", growth},
		"Replace":              {"svc.huge.replace('a', svc.s).size() > 0", growth},
		"ReplaceNothing":       {"svc.huge.replace('', svc.s).size() > 0", growth},
		"RegexReplace":         {"regex.replace(svc.s.substring(0, 2000), 'x', svc.s).size() > 0", growth},
		"IndexOf":              {"svc.huge.indexOf(svc.huge.substring(100000) + 'b') == 0", steps},
		"SetsContains":         {"sets.contains(lists.range(20000), lists.range(20000))", steps},
		"Distinct":             {"lists.range(20000).distinct().size() > 0", steps},
		"InInLoop":             {"cel.bind(l, lists.range(20000), l.all(x, x in l))", steps},
		"PatternOfObject":      {"'b'.matches(svc.pattern)", "is too large: repetitions count as often as they repeat"},
		"LongPatternOfObject":  {"'b'.matches(svc.long)", "may have 256 bytes, and this one has 260"},
		"LargeText":            {"svc.huge.matches('((a?){30}){30}b')", steps},
		"AllMatches":           {"svc.huge.findAll('a*b|a').size() > 0", steps},
		"MapLiterals":          {"revisions.items.map(a, revisions.items.map(b, {'a': a, 'b': b})).size() > 0", growth},
		"GroupBy":              {"revisions.items.map(a, revisions.items.groupBy(b, b)).size() > 0", growth},
		"Unmarshal":            {"json.unmarshal(svc.json).size() > 0", growth},
		"FormatPrecision":      {"lists.range(1000000).map(x, '%.99f'.format([1.0])).size() > 0", growth},
		"BigIn":                {"cel.bind(l, lists.range(1000).map(x, svc.huge), (svc.huge2 in l) || l.exists(x, svc.huge2 in l))", steps},
		"BigMax":               {"cel.bind(l, lists.range(1000).map(x, x % 2 == 0 ? svc.huge : svc.huge2), lists.range(100).all(x, l.max() == l.min() || true))", steps},
		"BigSort":              {"cel.bind(l, lists.range(1000).map(x, x % 2 == 0 ? svc.huge : svc.huge2), lists.range(100).all(x, l.sort().isSorted()))", steps},
		"BigToSet":             {"cel.bind(l, lists.range(1000).map(x, svc.huge), lists.range(100).all(x, l.toSet().size() == 1))", steps},
		"BigIncludes":          {"cel.bind(l, lists.range(1000).map(x, svc.huge), lists.range(100).all(x, !l.includes(svc.huge2)))", steps},
		"BigEquality":          {"lists.range(100000).all(x, svc.huge + '1' != svc.huge + '2')", growth},
		"BigKeys":              {"cel.bind(m, {svc.huge: 1}, lists.range(100000).all(x, m[svc.huge] == 1))", steps},
		"BigKeysOfCalls":       {"cel.bind(m, {svc.huge: 1}, lists.range(100000).all(x, m[svc.huge.trim()] == 1))", growth},
		"BigMembership":        {"lists.range(100000).all(x, !(svc.huge in ['a', 'b']))", steps},
		"BigSize":              {"lists.range(100000).all(x, svc.huge.size() > 0)", steps},
		"BigCharAt":            {"lists.range(100000).all(x, svc.huge.charAt(1) == 'a')", growth},
		"Sum":                  {"cel.bind(l, lists.range(100000), lists.range(10000).all(x, l.sum() > 0))", steps},
		"LongQuantity":         {"isQuantity(svc.digits)", "the text is 262144 bytes long, and at most 1024 are read here"},
		"LongDuration":         {"parseDuration(svc.digits) > duration('1s')", "the text is 262144 bytes long, and at most 1024 are read here"},
		"LongSemver":           {"isSemver(svc.digits)", "the text is 262144 bytes long, and at most 1024 are read here"},
		"LongInt":              {"int(svc.digits) == 1", "the text is 262144 bytes long, and at most 1024 are read here"},
		"TimeZones":            {"lists.range(1000000).all(x, time.getHours('America/Sao_Paulo') >= 0)", steps},
		"AliasRefs":            {nested(24, "[{'metadata': {'name': 'a'}}]", "V + V", "refs(V, 'Secret').size() == 0"), growth},
		"AliasRefsOfLists":     {nested(40, "[{'metadata': {'name': 'a'}}]", "[V, V]", "refs(V, 'Secret').size() == 0"), growth},
		"LoopOverOneKey":       {"lists.range(100000).all(x, svc.map.exists(k, true))", steps},
		"ManyRefs":             {"lists.range(10000).all(x, refs([{'metadata': {'name': 'a', 'namespace': 'shop'}, 'args': [svc.words, string(x)]}], 'Secret').size() > 0)", growth},
		"EqualToAlmostNothing": {"lists.range(1000000).all(x, svc != {'a': svc.map} || svc.map == {})", steps},
		"IncludesOfNoList":     {"lists.range(1000000).all(x, !dyn(svc).includes(svc.map))", steps},
		"AliasSelects":         {nested(24, "{'a': 'b'}", "{'a': V, 'b': V}", "selects(V, V)"), growth},
		"AliasSelector":        {nested(24, "[1]", "[V, V]", "matchesSelector({'matchExpressions': V}, {})"), growth},
		"FlattenManyLevels":    {"cel.bind(l, lists.range(100000), " + strings.Repeat("[", 60) + "l" + strings.Repeat("]", 60) + ".flatten(1000).size() > 0)", growth},
		"MarshalEscapes":       {"cel.bind(t, lists.range(100).map(x, svc.control).join(), json.marshal([t, t, t, t]) == '')", growth},
		"FormatOfDeepMaps":     {"'%s'.format([json.unmarshal(svc.deep)]) == ''", steps},
		"JoinOfDeepMaps":       {"['a', dyn(json.unmarshal(svc.deep))].map(x, dyn(x)).join() == ''", "join: the elements must be strings, and this is a map"},
		"DeepMapAsKey":         {"json.marshal({dyn([json.unmarshal(svc.deep)]): 1}) == ''", "a key of a map is no string, but a list"},
		"NoOptionalElements":   {"lists.range(100000).all(x, [?dyn(svc.huge)].size() == 1 || true) && 1 / 0 == 1", "division by zero"},
		"NoOptionalEntries":    {"lists.range(50000).all(x, {?'a': dyn(svc.huge)}.size() == 1 || true) && 1 / 0 == 1", "division by zero"},
		"BigKeysOfLiterals":    {"lists.range(100000).all(x, {svc.huge: 1}.size() == 1)", steps},
		"TinyNumbers":          {"json.unmarshal(svc.tiny).size() > 0", steps},
		"ValidTinyNumbers":     {"json.valid(svc.tiny)", steps},
		"TinyNumberOfText":     {"lists.range(100000).all(x, double('1e-31' + string(x % 9)) > 0.0)", steps},
		"UnsortedKeys":         {"lists.range(9).all(x, json.unmarshal(svc.keys).size() > 0)", steps},
		"ManyRangesShared":     {"cel.bind(l, lists.range(2000).map(x, '::' + string(x)), ipsShared(lists.range(70).transformMapEntry(i, x, {'n' + string(x): l})).size() > 0 || true)", "one function would build more than 33554432 bytes"},
		"RangesOfLongNames":    {"cel.bind(m, {svc.huge + 'a': [], svc.huge + 'b': []}, lists.range(1000).all(x, ipsShared(m).size() == 0))", steps},
		"QuantityOfManyDigits": {"quantity('1e2000000000').compareTo(quantity('1.5')) == 0", "the exponent of the quantity"},
	}
	c := newCompiler(t, budget.Limits{Steps: 1_000_000, Growth: 16 << 20})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := programs(t, c, tc.expression)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			got := p.EvaluateConditions(t.Context(), in)[0]
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			if got.Err == nil || !strings.Contains(got.Err.Message, tc.want) {
				t.Fatalf("got %v, %v; want an error with %q", got.Value, got.Err, tc.want)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; took > deadline || allocated > allocations {
				t.Errorf("stopped only after %s and %d MiB allocated", took, allocated>>20)
			}
		})
	}
}

// One function makes nothing larger than a bound, however much the evaluation may build.
func TestOneValueIsBounded(t *testing.T) {
	in := Input{Targets: map[string]any{"svc": map[string]any{"huge": strings.Repeat("a", 512<<10)}}}
	for _, expression := range []string{
		"svc.huge.replace('a', '0123456789012345678901234567890123456789012345678901234567890123456789').size() > 0",
		"cel.bind(l, lists.range(1000000), (l + l + l).size() > 0)",
		"cel.bind(l, lists.range(1000000), [l, l, l].flatten().size() > 0)",
		"cel.bind(l, lists.range(1000000), (l + l).toSet().size() > 0)",
		"cel.bind(t, svc.huge + svc.huge + svc.huge + svc.huge, (t + t + t + t + t).reverse() == '')",
	} {
		got := programs(t, newCompiler(t, budget.Limits{}), expression).EvaluateConditions(t.Context(), in)[0]
		if want := "one function would build more than 33554432 bytes"; got.Err == nil || got.Err.Message != want {
			t.Errorf("%s gives %v, %v", expression, got.Value, got.Err)
		}
	}
}

func TestPatternsThatAreTooLargeDoNotCompile(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	for name, pattern := range map[string]string{
		"Long":   strings.Repeat("a{1000}", 2000),
		"Nested": strings.Repeat("((a{10}){10}){10}", 100),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, errs := c.Compile(t.Context(), spec(fmt.Sprintf("'b'.matches(%q)", pattern)))
			if len(errs) != 1 || !strings.Contains(errs[0].Detail, "is too large") || time.Since(start) > time.Second {
				t.Errorf("got %v after %s", errs, time.Since(start))
			}
		})
	}
}

func TestPatternSize(t *testing.T) {
	cases := map[string]int64{
		"":            1,
		"abc":         4,
		"a{10}":       30,
		"(a{10}){10}": 320,
		"a*|[b-d]":    7,
		"(":           1,
	}
	got := map[string]int64{}
	for pattern := range cases {
		got[pattern] = budget.MeasurePattern(pattern)
	}
	if diff := cmp.Diff(cases, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
