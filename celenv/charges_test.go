// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/vtex/cleaner/celenv/budget"
)

// testCertificate is one for shop.example.com that has run out.
const testCertificate = "-----BEGIN CERTIFICATE-----\nMIIBAzCBtqADAgECAgEBMAUGAytlcDAbMRkwFwYDVQQDExBzaG9wLmV4YW1wbGUu\nY29tMB4XDTI0MDYwMTAwMDAwMFoXDTI1MDYwMTAwMDAwMFowGzEZMBcGA1UEAxMQ\nc2hvcC5leGFtcGxlLmNvbTAqMAUGAytlcAMhADtqJ7zOtqQtYqOo0CpvDXNlMhV3\nHeJDpjrASKGLWdopox8wHTAbBgNVHREEFDASghBzaG9wLmV4YW1wbGUuY29tMAUG\nAytlcANBABoAFYp0FBLR2bKXPMGY1FNrZ+4hSa2t41Z65g5L8/LrcJ4Upe+vO9xz\nrdMSa9L4Y49M/ihaUOEjWQyGvvgy5gI=\n-----END CERTIFICATE-----\n"

// counted is a list that counts how often an element is taken.
type counted struct {
	traits.Lister
	taken *int64
}

func (l *counted) Get(i ref.Val) ref.Val { *l.taken++; return l.Lister.Get(i) }

func (l *counted) Iterator() traits.Iterator { return &countedIterator{l.Lister.Iterator(), l.taken} }

type countedIterator struct {
	traits.Iterator
	taken *int64
}

func (i *countedIterator) Next() ref.Val { *i.taken++; return i.Iterator.Next() }

// madeOf is a map as an expression makes it.
func madeOf(m map[string]any) ref.Val {
	values := make(map[ref.Val]ref.Val, len(m))
	for key, value := range m {
		values[types.String(key)] = budget.NewAdapter(nil).NativeToValue(value)
	}
	return types.NewRefValMap(budget.NewAdapter(nil), values)
}

// deeplyMadeOf is a value as an expression makes it, with all that is in it.
func deeplyMadeOf(v any) ref.Val {
	switch v := v.(type) {
	case map[string]any:
		values := make(map[ref.Val]ref.Val, len(v))
		for key, value := range v {
			values[types.String(key)] = deeplyMadeOf(value)
		}
		return types.NewRefValMap(budget.NewAdapter(nil), values)
	case []any:
		values := make([]ref.Val, len(v))
		for i := range v {
			values[i] = deeplyMadeOf(v[i])
		}
		return types.NewRefValList(budget.NewAdapter(nil), values)
	default:
		return budget.NewAdapter(nil).NativeToValue(v)
	}
}

// nestedValues are values in values: as deep as an object can be, with long texts and many entries.
func nestedValues(n int) map[string]any {
	const most = 1000
	nest := func(v any, around func(v any) any) any {
		for range min(n, most) {
			v = around(v)
		}
		return v
	}
	inMap := func(v any) any { return map[string]any{"a": v, "b": "c"} }
	inList := func(v any) any { return []any{v, "c"} }
	entries := map[string]any{}
	for i := range min(n, most) {
		entries[fmt.Sprint("w", i)] = "a"
	}
	tree := any("a")
	for range 1 + int(math.Log2(float64(min(n, most)))) {
		tree = map[string]any{"a": tree, "b": tree}
	}
	return map[string]any{
		"nested_maps":           nest(strings.Repeat("a", n), inMap),
		"nested_lists":          nest(strings.Repeat("a", n), inList),
		"nested_maps_and_lists": nest(strings.Repeat("a", n), func(v any) any { return inMap(inList(v)) }),
		"entries_in_maps":       nest(entries, inMap),
		"entries_in_lists":      nest(entries, inList),
		"tree":                  tree,
	}
}

// argumentsOf are arguments of a type, by what they are: as many items or bytes.
func argumentsOf(t *testing.T, c *Compiler, kind *cel.Type, n int, taken *int64) map[string]ref.Val {
	t.Helper()
	native := func(v any) ref.Val { return budget.NewAdapter(nil).NativeToValue(v) }
	eval := func(expression string) ref.Val {
		a, issues := c.env.Compile(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		p, err := c.env.Program(a)
		if err != nil {
			t.Fatal(err)
		}
		v, _, err := p.Eval(map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	long := func(part string) string { return strings.Repeat(part, n/len(part)+1)[:n] }
	numbered := func(begin, part, between, end string) string {
		parts := make([]string, n/(len(part)+len(between))+1)
		for i := range parts {
			parts[i] = strings.ReplaceAll(part, "#", fmt.Sprint(i))
		}
		return begin + strings.Join(parts, between) + end
	}
	texts := map[string]ref.Val{}
	for name, text := range map[string]string{
		"letters": long("a"), "digits": long("1"), "commas": long("a,"), "control": long("\x01"), "runes": long("\u00e9"), "clauses": long("%d"), "clause": "%s",
		"words": numbered("", "w#", " ", ""), "JSON": numbered("[", "{}", ",", "]"), "maps": numbered("[", `{"a":{}}`, ",", "]"), "entries": numbered("{", `"k#":0`, ",", "}"),
		"query": numbered("https://h/?", "k#=v", "&", ""), "path": "/" + long("a/"), "address": "10.0.0.1", "range": "10.0.0.0/24", "number": "1", "duration": "1h", "moment": "2025-01-01T00:00:00Z", "version": "1.2.3",
		"pattern": "a*b|a", "groups": "(a)(a)", "none": "", "PEM": strings.Repeat(testCertificate, n/len(testCertificate)+1), "Secret": "Secret", "ServiceAccount": "ServiceAccount",
	} {
		texts[name] = types.String(text)
	}
	words := make([]any, n)
	for i := range words {
		words[i] = fmt.Sprint("w", i)
	}
	each := func(of func(word string) any) []any {
		out := make([]any, n)
		for i := range out {
			out[i] = of(words[i].(string))
		}
		return out
	}
	entries := map[string]any{}
	for _, w := range words {
		entries[w.(string)] = w
	}
	secret := func(w string) any { return map[string]any{"name": w, "secret": map[string]any{"secretName": w}} }
	pod := func(name string, containers, volumes []any) map[string]any {
		return map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": "shop"},
			"spec": map[string]any{"containers": containers, "volumes": volumes},
		}
	}
	text := long("w1 a/b ")
	objects := map[string]any{
		"pod of volumes":  pod("a", nil, each(secret)),
		"pods":            each(func(w string) any { return pod(w, []any{map[string]any{"name": w}}, []any{secret(w)}) }),
		"pod of words":    pod("a", []any{map[string]any{"command": []any{string(texts["words"].(types.String)), text}}}, nil),
		"long namespace":  map[string]any{"metadata": map[string]any{"name": "a", "namespace": long("n")}, "spec": map[string]any{"args": []any{string(texts["words"].(types.String)[:min(n, 10_000)])}}},
		"long names":      map[string]any{"metadata": map[string]any{"name": long("n"), "namespace": long("n")}},
		"conditions":      map[string]any{"status": map[string]any{"conditions": each(func(w string) any { return map[string]any{"type": w, "status": "True"} })}},
		"owners":          map[string]any{"metadata": map[string]any{"name": "a", "ownerReferences": each(func(w string) any { return map[string]any{"kind": w} })}},
		"selector":        map[string]any{"matchLabels": entries, "matchExpressions": each(func(w string) any { return map[string]any{"key": w, "operator": "In", "values": []any{w}} })},
		"selector of one": map[string]any{"matchExpressions": []any{map[string]any{"key": "w1", "operator": "In", "values": words}}},
		"labels":          entries,
		"one condition":   map[string]any{"type": long("a"), "status": "True"},
		"spec of volumes": map[string]any{"containers": []any{}, "volumes": each(secret), "serviceAccountName": long("a")},
	}
	nested := map[types.Kind]map[string]ref.Val{types.ListKind: {}, types.MapKind: {}}
	if n != 10_000 { // 100,000 show what these would
		for name, v := range nestedValues(n) {
			for how, v := range map[string]any{"": v, "one_of_": []any{v}, "last_of_": []any{"c", v}} {
				kind := nested[budget.TypeOf(native(v)).Kind()]
				kind[how+name], kind["made_"+how+name] = native(v), deeplyMadeOf(v)
			}
		}
	}
	lists := map[string]ref.Val{
		"words": native(words), "zeros": types.DefaultTypeAdapter.NativeToValue(make([]int64, n)), "no list": types.NewDynamicList(types.DefaultTypeAdapter, []any{}),
		"one text": native([]any{long("a")}), "counted": &counted{types.NewDynamicList(types.DefaultTypeAdapter, words), taken},
		"lists": native(each(func(w string) any { return []any{w} })), "maps": native(each(secret)), "numbers": types.DefaultTypeAdapter.NativeToValue(slices.Repeat([]float64{1.5}, n)),
		"values": types.NewRefValList(types.DefaultTypeAdapter, slices.Repeat([]ref.Val{texts["letters"]}, min(n, 100))),
	}
	mappings := map[string]ref.Val{"entries": native(entries), "values": madeOf(entries), "pod": native(objects["pod of volumes"])}
	out := map[string]ref.Val{}
	add := func(more map[string]ref.Val) { maps.Copy(out, more) }
	prefixed := func(prefix string, more map[string]ref.Val) {
		for name, v := range more {
			out[prefix+name] = v
		}
	}
	one := func(v ref.Val) { out["constant"] = v }
	switch kind.Kind() {
	case types.StringKind:
		add(texts)
	case types.BytesKind:
		for name, v := range texts {
			out[name] = types.Bytes(v.(types.String))
		}
	case types.IntKind:
		out["n"], out["one"] = types.Int(n), types.Int(1)
	case types.UintKind:
		one(types.Uint(n))
	case types.DoubleKind:
		one(types.Double(n))
	case types.BoolKind:
		one(types.True)
	case types.ListKind:
		add(lists)
		add(nested[types.ListKind])
	case types.MapKind:
		add(mappings)
		add(nested[types.MapKind])
	case types.TimestampKind:
		one(types.Timestamp{Time: at("2025-01-01T00:00:00Z")})
	case types.DurationKind:
		one(types.Duration{Duration: 3600e9})
	case types.NullTypeKind:
		one(types.NullValue)
	case types.TypeKind:
		one(types.StringType)
	case types.DynKind, types.AnyKind, types.TypeParamKind:
		prefixed("text_", texts)
		prefixed("list_of_", lists)
		for name, o := range objects {
			out["object:_"+name] = native(o)
			if m, ok := o.(map[string]any); ok {
				out["made:_"+name] = madeOf(m)
			}
		}
		prefixed("", nested[types.ListKind])
		prefixed("", nested[types.MapKind])
	case types.OpaqueKind, types.StructKind:
		switch name := kind.TypeName(); name {
		case "optional_type":
			for name, o := range objects {
				out[name] = types.OptionalOf(native(o))
			}
			for name, l := range lists {
				out["list of "+name] = types.OptionalOf(l)
			}
		case "kubernetes.URL":
			if text := string(texts["query"].(types.String)); len(text) <= budget.MaxURLText {
				one(eval(fmt.Sprintf("url(%q)", text)))
			}
		case "net.IP":
			one(eval("ip('10.0.0.1')"))
		case "net.CIDR":
			one(eval("cidr('10.0.0.0/24')"))
		case "kubernetes.Quantity":
			one(eval("quantity('1.5Gi')"))
		case "kubernetes.Semver":
			one(eval("semver('1.2.3')"))
		case "kubernetes.NamedFormat":
			for _, f := range []string{"dns1123Label", "uuid", "uri", "datetime", "qualifiedName", "byte"} {
				out[f] = eval("format." + f + "()")
			}
		default:
			t.Fatalf("make an argument of type %s", name)
		}
	default:
		t.Fatalf("make an argument of type %s", kind)
	}
	return out
}

// workOf calls an overload of a function, and returns what that has allocated, in bytes, an element that was taken counting as
// much as one that is held; and what was paid for it before the call, in the same bytes.
func workOf(t *testing.T, c *Compiler, function, overload string, args []ref.Val, taken *int64) (work, paid int64) {
	t.Helper()
	const steps, growth = 50_000, 4 << 20
	all := int64(math.MaxInt64)
	left := budget.NewBudget("the call", steps, growth, &all)
	m := &budget.Meter{Clock: budget.Clock{Ctx: t.Context(), Ended: &budget.Ending{}}, Budget: &left, Limits: budget.Limits{}.WithDefaults(0)}
	places := make([]interpreter.InterpretableV2, len(args))
	for i, arg := range args {
		places[i] = &budget.EvaluatedArgument{Value: arg}
	}
	node := interpreter.NewCall(1, function, overload, places, nil)
	do := func() { c.calls.BindFunction(node, len(args))(args) }
	if charge := c.calls.Charges[function]; !charge.IsFree() {
		before := charge
		charge.AfterCall = nil
		c.calls.Charges[function] = charge
		made, err := c.calls.MeterCall(node, m)
		c.calls.Charges[function] = before
		if err != nil {
			t.Fatal(err)
		}
		do = func() { made.Exec(nil) }
	}
	*taken = 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	func() {
		defer func() {
			if r := recover(); r != nil {
				if _, stopped := r.(interpreter.EvalCancelledError); !stopped {
					panic(r)
				}
			}
		}()
		do()
	}()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc-before.TotalAlloc) + budget.ValueSize**taken, budget.MultiplyCapped(budget.ReadStep, steps-left.Steps) + growth - left.Growth
}

// What a call of any function does is at most a few times what is paid for before it, whatever its arguments are and however
// large.
func TestNoCallDoesMoreThanItPaysFor(t *testing.T) {
	const times, rest = 16, 64 << 10
	c := newCompiler(t, budget.Limits{})
	var taken int64
	made := map[string]map[string]ref.Val{}
	arguments := func(kind *cel.Type, n int) map[string]ref.Val {
		key := fmt.Sprint(kind.Kind(), kind.TypeName(), n)
		if made[key] == nil {
			made[key] = argumentsOf(t, c, kind, n, &taken)
		}
		return made[key]
	}
	calls := 0
	for _, name := range slices.Sorted(maps.Keys(c.env.Functions())) {
		if slices.Contains(strings.Fields(planned), name) {
			continue
		}
		for _, o := range c.env.Functions()[name].OverloadDecls() {
			for _, sizes := range sizesOf(len(o.ArgTypes())) {
				all := map[string][]ref.Val{"": nil}
				for i, kind := range o.ArgTypes() {
					next := map[string][]ref.Val{}
					for before, args := range all {
						for what, arg := range arguments(kind, sizes[i]) {
							if sizes[i] == slices.Max(sizes) && i == slices.Index(sizes, sizes[i]) || slices.Contains(strings.Fields(beside), what) || strings.HasSuffix(before, ", "+what) {
								next[before+", "+what] = append(slices.Clone(args), arg)
							}
						}
					}
					all = next
				}
				for what, args := range all {
					calls++
					if work, paid := workOf(t, c, name, o.ID(), args, &taken); work > times*paid+rest {
						t.Errorf("%s(%s) of %d does %d and pays for %d", o.ID(), strings.TrimPrefix(what, ", "), sizes, work, paid)
					}
				}
			}
		}
	}
	if calls < 10_000 {
		t.Errorf("only %d calls were made", calls)
	}
}

// planned are the functions that are no calls when an expression is evaluated, or whose arguments are what a macro makes.
const planned = `_[_] _?._ _[?_] _&&_ _||_ _?_:_ !_ @not_strictly_false __not_strictly_false__ cel.@mapInsert @sortByAssociatedKeys`

// beside are the arguments that are tried beside each first one.
const beside = `constant n one clause nested_lists nested_maps made_nested_maps none letters pattern groups commas words Secret text_letters text_words list_of_words object:_labels made:_labels entries`

// sizesOf are sizes of so many arguments: of all, and of each alone.
func sizesOf(arguments int) [][]int {
	var out [][]int
	for _, n := range []int{1, 100, 10_000} {
		out = append(out, slices.Repeat([]int{n}, arguments))
	}
	for i := range arguments {
		sizes := slices.Repeat([]int{1}, arguments)
		sizes[i] = 100_000
		out = append(out, sizes)
	}
	return out
}
