// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

// reader writes random expressions that read nested objects in all ways that the language has. Many of them fail: a field is missing, or
// holds another type.
type reader struct {
	*rapid.T
	known []named // what can be read
	names int
}

func (r *reader) intN(n int) int { return rapid.IntRange(0, n-1).Draw(r.T, "n") }

func (r *reader) one(of ...string) string { return of[r.intN(len(of))] }

// read is something of a kind that can be read; empty if there is none, or at random.
func (r *reader) read(kind string) string {
	var all []string
	for _, n := range r.known {
		if n.kind == kind {
			all = append(all, n.name)
		}
	}
	if len(all) == 0 || r.intN(4) == 0 {
		return ""
	}
	return r.one(all...)
}

// with is what write gives while one more name can be read. In text, @ is that name and # what was written.
func (r *reader) with(kind, text string, write func(int) string, depth int) string {
	r.names++
	n := named{fmt.Sprint("v", r.names), kind}
	r.known = append(r.known, n)
	written := write(depth - 1)
	r.known = r.known[:len(r.known)-1]
	return strings.NewReplacer("@", n.name, "#", written).Replace(text)
}

// with2 is with for a key, or an index, and a value.
func (r *reader) with2(kind, text string, write func(int) string, depth int) string {
	r.names++
	key := named{fmt.Sprint("k", r.names), "text"}
	r.known = append(r.known, key)
	written := r.with(kind, text, write, depth)
	r.known = r.known[:len(r.known)-1]
	return strings.ReplaceAll(written, "~", key.name)
}

// field is a field of an object, or of a part of one. The last one is in none.
func (r *reader) field() string {
	return r.one("spec", "status", "metadata", "labels", "a", "b", "name", "list", "none")
}

func (r *reader) key() string { return `"` + r.field() + `"` }

// object writes an object, or what may be one.
func (r *reader) object(depth int) string {
	if name := r.read("object"); name != "" && (depth <= 0 || r.intN(2) == 0) {
		return name
	}
	if depth <= 0 {
		return fmt.Sprintf("%s.items[%d]", r.one("pods", "nodes"), r.intN(3))
	}
	switch r.intN(14) {
	case 0:
		return fmt.Sprintf("%s[%d]", r.objects(depth-1), r.intN(2))
	case 1:
		return fmt.Sprintf("(%s ? %s : %s)", r.one(r.truth(depth-1), "dyn("+r.value(depth-1)+")"), r.object(depth-1), r.object(depth-1))
	case 2:
		return fmt.Sprintf(`{"a": %s, %s: %s}.%s`, r.object(depth-1), r.text(depth-1), r.value(depth-1), r.one("a", "b"))
	case 3:
		return r.with("object", fmt.Sprintf("cel.bind(@, %s, #)", r.object(depth-1)), r.object, depth)
	case 4:
		return r.with2("object", fmt.Sprintf("%s.transformMapEntry(~, @, {@.name: #})[%s]", r.objects(depth-1), r.text(depth-1)), r.object, depth)
	case 5:
		return r.with("object", fmt.Sprintf("%s.indexBy(@, #)[%s]", r.objects(depth-1), r.text(depth-1)), r.text, depth)
	case 6:
		return r.with("object", fmt.Sprintf("%s.groupBy(@, #)[%s][0]", r.objects(depth-1), r.text(depth-1)), r.text, depth)
	case 7:
		return fmt.Sprintf("%s.%s().value()", r.objects(depth-1), r.one("first", "last"))
	case 8:
		return fmt.Sprintf("optional.of(%s).or(optional.of(%s)).value()", r.object(depth-1), r.object(depth-1))
	case 9:
		return fmt.Sprintf("%s.orValue(%s)", r.optional(depth-1), r.object(depth-1))
	case 10:
		return "config"
	case 11:
		return "dyn(" + r.object(depth-1) + ")"
	case 12:
		return fmt.Sprintf("%s.items[dyn(%d)]", r.one("pods", "nodes"), r.intN(2))
	default:
		return fmt.Sprintf("%s.items[%d]", r.one("pods", "nodes"), r.intN(2))
	}
}

// objects writes a list of objects.
func (r *reader) objects(depth int) string {
	if depth > 0 {
		switch r.intN(12) {
		case 0:
			return r.with("object", r.objects(depth-1)+".filter(@, #)", r.truth, depth)
		case 1:
			return r.with("object", r.objects(depth-1)+".map(@, #)", r.object, depth)
		case 2:
			return fmt.Sprintf("(%s + %s)", r.objects(depth-1), r.objects(depth-1))
		case 3:
			return r.with("object", r.objects(depth-1)+".sortBy(@, #)", r.text, depth)
		case 4:
			return fmt.Sprintf("[%s, %s]", r.object(depth-1), r.object(depth-1))
		case 5:
			return fmt.Sprintf("[?%s, %s]", r.optional(depth-1), r.object(depth-1))
		case 6:
			return r.objects(depth-1) + r.one(".reverse()", ".slice(0, 1)", ".distinct()")
		case 7:
			return fmt.Sprintf("[%s, dyn(%s)].flatten()", r.objects(depth-1), r.one(r.objects(depth-1), r.object(depth-1)))
		case 8:
			return r.with2("object", r.objects(depth-1)+".transformList(~, @, #)", r.object, depth)
		case 9:
			return r.with("object", r.objects(depth-1)+".map(@, optional.of(@)).unwrapOpt()", r.object, depth)
		}
	}
	return r.one("pods.items", "nodes.items", "pods.items", "nodes.items", "variables.both")
}

// value writes any part of an object.
func (r *reader) value(depth int) string {
	if name := r.read("value"); name != "" && (depth <= 0 || r.intN(2) == 0) {
		return name
	}
	if depth <= 0 {
		return r.object(0) + "." + r.field()
	}
	switch r.intN(18) {
	case 17:
		return fmt.Sprintf("dyn([%s, %s])", r.value(depth-1), r.value(depth-1))
	case 16:
		return fmt.Sprintf("%s[%s]", r.value(depth-1), r.one("dyn(0)", "size("+r.value(depth-1)+") - 1", r.value(depth-1)))
	case 0, 1, 2:
		return r.value(depth-1) + "." + r.field()
	case 3:
		return fmt.Sprintf("%s[%s]", r.value(depth-1), r.key())
	case 4:
		return fmt.Sprintf("%s[%s]", r.value(depth-1), r.text(depth-1))
	case 5:
		return fmt.Sprintf("%s[%d]", r.value(depth-1), r.intN(2))
	case 6:
		return r.optional(depth-1) + r.one(".value()", `.orValue(dyn("a"))`, ".orValue(dyn([]))", ".orValue(dyn({}))")
	case 7:
		return r.with("value", fmt.Sprintf("dyn(%s.map(@, #))", r.value(depth-1)), r.value, depth)
	case 8:
		return r.with("value", fmt.Sprintf("dyn(%s.filter(@, #))", r.value(depth-1)), r.truth, depth)
	case 9:
		return fmt.Sprintf("dyn(%s + %s)", r.value(depth-1), r.value(depth-1))
	case 10:
		return r.with2("value", fmt.Sprintf("dyn(%s.transformMap(~, @, #))", r.value(depth-1)), r.value, depth)
	case 11:
		return r.with("value", fmt.Sprintf("cel.bind(@, %s, #)", r.value(depth-1)), r.value, depth)
	case 12:
		return "dyn(" + r.call(depth-1) + ")"
	case 13:
		return fmt.Sprintf("dyn({%s: %s, ?%s: %s})", r.key(), r.value(depth-1), r.key(), r.optional(depth-1))
	default:
		return r.object(depth-1) + "." + r.field()
	}
}

// call writes a call of a function that looks at parts of objects, or of one that is not known to the analysis.
func (r *reader) call(depth int) string {
	o := r.object(depth)
	switch r.intN(9) {
	case 0:
		return fmt.Sprintf(`condition(%s, %s).value()`, o, r.text(depth))
	case 1:
		return fmt.Sprintf("controller(%s).value()", o)
	case 2:
		return fmt.Sprintf("podSpec(%s).value()", o)
	case 3:
		return fmt.Sprintf("podLabels(%s)", o)
	case 4:
		return fmt.Sprintf(`podRefs(%s, %s)`, r.one("podSpec("+o+")", r.value(depth)), r.one(`"Secret"`, `"ConfigMap"`, `"ServiceAccount"`, `"PersistentVolumeClaim"`))
	case 5:
		return r.refs(depth)
	case 6:
		return fmt.Sprintf("matchesSelector(%s, %s)", r.value(depth), r.value(depth))
	case 7:
		return fmt.Sprintf("json.marshal(%s)", r.value(depth))
	default:
		return fmt.Sprintf("setCondition(%s, %s)", r.value(depth), r.value(depth))
	}
}

// refs writes a call of refs.
func (r *reader) refs(depth int) string {
	kind := r.one(`"Secret"`, `"ConfigMap"`, `"ServiceAccount"`, `"PersistentVolumeClaim"`)
	switch r.intN(6) {
	case 0:
		return fmt.Sprintf("refs(%s, %s)", r.value(depth), kind)
	case 1:
		return r.with2("value", fmt.Sprintf("pods.transformList(~, @, refs(#, %s))", kind), r.value, depth+1)
	case 2:
		return fmt.Sprintf("refs(%s.merge(%s), %s)", r.value(depth), r.one(r.value(depth), fmt.Sprintf(`dyn({"kind": %s})`, kind), `dyn({"secretName": "x"})`), kind)
	case 3:
		return fmt.Sprintf("refs(pods[dyn(%s)], %s)", r.one(`"items"`, r.text(depth)), kind)
	case 4:
		return fmt.Sprintf("refs([%s, %s], %s)", r.object(depth), r.one("pods", "nodes.items", "config"), kind)
	default:
		return fmt.Sprintf(`refs(%s, %s)`, r.one(r.object(depth), "pods", r.objects(depth)), kind)
	}
}

// optional writes an optional value.
func (r *reader) optional(depth int) string {
	switch r.intN(8) {
	case 0:
		return fmt.Sprintf("%s[?%s]", r.value(depth-1), r.text(depth-1))
	case 1:
		return fmt.Sprintf("%s[?%s]", r.value(depth-1), r.key())
	case 2:
		return fmt.Sprintf("optional.ofNonZeroValue(%s)", r.value(depth-1))
	case 3:
		return r.with("value", fmt.Sprintf("%s.?%s.optMap(@, #)", r.value(depth-1), r.field()), r.value, depth)
	case 4:
		return fmt.Sprintf("optional.of(%s)", r.value(depth-1))
	case 5:
		return fmt.Sprintf("%s.?%s.%s", r.object(depth-1), r.field(), r.field())
	default:
		return fmt.Sprintf("%s.?%s", r.value(depth-1), r.field())
	}
}

// text writes what should be a text.
func (r *reader) text(depth int) string {
	if name := r.read("text"); name != "" && r.intN(2) == 0 {
		return name
	}
	if depth <= 0 {
		return r.one(r.key(), r.object(0)+".metadata.name", `("na" + "me")`)
	}
	switch r.intN(10) {
	case 9:
		return fmt.Sprintf("json.marshal(dyn([%s]))", r.value(depth-1))
	case 0:
		return r.key()
	case 1:
		return fmt.Sprintf("(%s + %s)", r.text(depth-1), r.text(depth-1))
	case 2:
		return fmt.Sprintf(`%s.orValue("z")`, r.optional(depth-1))
	case 3:
		return fmt.Sprintf("string(dyn(%s))", r.value(depth-1))
	case 4:
		return r.object(depth-1) + ".metadata.name"
	case 5:
		return fmt.Sprintf("key(%s)", r.object(depth-1))
	default:
		return r.value(depth - 1)
	}
}

// truth writes what should be a bool.
func (r *reader) truth(depth int) string {
	if depth <= 0 {
		return fmt.Sprintf("%s == %s", r.text(0), r.text(0))
	}
	switch r.intN(25) {
	case 24:
		return fmt.Sprintf(`(%s.%s + "b") == "ab"`, r.object(depth-1), r.one("metadata.name", "a", "spec.a"))
	case 23:
		return fmt.Sprintf("[%s] == [%s]", r.value(depth-1), r.value(depth-1))
	case 22:
		test := r.one("@.spec in @.list", "@.a in @.list", `"a" in @.list`, "@.spec == @.list[0]", "@.a != @.list[1]", fmt.Sprintf(`(%s + "") in @.%s`, r.key(), r.field()))
		return r.with("object", fmt.Sprintf("cel.bind(@, %s, %s)", r.object(depth-1), test), r.object, depth)
	case 0, 1:
		return r.with("object", fmt.Sprintf("%s.%s(@, #)", r.objects(depth-1), r.one("exists", "all", "exists_one")), r.truth, depth)
	case 2, 3:
		return r.with("value", fmt.Sprintf("%s.%s(@, #)", r.value(depth-1), r.one("exists", "all", "exists_one")), r.truth, depth)
	case 4, 5:
		return r.with2("value", fmt.Sprintf("%s.%s(~, @, #)", r.value(depth-1), r.one("exists", "all", "existsOne")), r.truth, depth)
	case 6, 7:
		return fmt.Sprintf("has(%s.%s)", r.value(depth-1), r.field())
	case 8:
		return fmt.Sprintf("%s in %s", r.one(r.text(depth-1), r.key()), r.value(depth-1))
	case 9:
		return fmt.Sprintf("%s in %s", r.value(depth-1), r.one(r.value(depth-1), r.objects(depth-1)))
	case 10:
		return fmt.Sprintf("size(%s) > %d", r.one(r.objects(depth-1), r.value(depth-1)), r.intN(3))
	case 11:
		return fmt.Sprintf("%s == %s", r.value(depth-1), r.value(depth-1))
	case 12:
		return fmt.Sprintf("%s %s %s", r.value(depth-1), r.one("==", "!="), r.one("null", `dyn("a")`, "dyn(1)", `"a"`, "true", "dyn([])", "dyn({})"))
	case 13:
		return fmt.Sprintf("(%s && %s)", r.truth(depth-1), r.truth(depth-1))
	case 14:
		return fmt.Sprintf("(%s || %s)", r.truth(depth-1), r.one(r.truth(depth-1), "dyn("+r.value(depth-1)+")"))
	case 15:
		return fmt.Sprintf("!(%s)", r.one(r.truth(depth-1), "dyn("+r.value(depth-1)+")"))
	case 16:
		return r.optional(depth-1) + ".hasValue()"
	case 17:
		return fmt.Sprintf("type(%s) == %s", r.value(depth-1), r.one("map", "list", "string", "int", "bool"))
	case 18:
		return r.with("object", fmt.Sprintf("%s in %s.map(@, #)", r.text(depth-1), r.objects(depth-1)), r.text, depth)
	case 19:
		return r.with("object", fmt.Sprintf("%s.%s(@, #)[%s] > 0", r.objects(depth-1), r.one("countBy", "countBy"), r.text(depth-1)), r.text, depth)
	case 20:
		return r.with("object", fmt.Sprintf("%s in %s.map(@, #).toSet()", r.text(depth-1), r.objects(depth-1)), r.text, depth)
	default:
		return fmt.Sprintf("%s %s %s", r.value(depth-1), r.one("<", ">=", "=="), r.one(r.value(depth-1), r.text(depth-1)))
	}
}

// content draws a part of an object: mostly what is there in Kubernetes' own, and now and then anything else.
func content(t *rapid.T, depth int) any {
	n := rapid.IntRange(0, 9).Draw(t, "content")
	if depth <= 0 {
		n %= 5
	}
	switch n {
	case 0:
		return rapid.SampledFrom([]string{"", "a", "b", "name", "spec", "list"}).Draw(t, "text")
	case 1:
		return int64(rapid.IntRange(0, 2).Draw(t, "number"))
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return rapid.SampledFrom([]any{nil, 1.5, "a", int64(0)}).Draw(t, "other")
	case 4:
		return rapid.SampledFrom([]any{map[string]any{}, []any{}, []any{"a", "name"}, map[string]any{"a": "b"}}).Draw(t, "small")
	case 5, 6:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, content(t, depth-1))
		}
		return list
	case 7:
		return map[string]any{"kind": rapid.SampledFrom([]string{"Secret", "ConfigMap"}).Draw(t, "kind"), "name": content(t, 0), "a": content(t, depth-1)}
	default:
		return mapContent(t, depth)
	}
}

func mapContent(t *rapid.T, depth int) map[string]any {
	m := map[string]any{}
	for range rapid.IntRange(0, 5).Draw(t, "size") {
		m[rapid.SampledFrom([]string{"spec", "status", "metadata", "labels", "a", "b", "name", "list", "secretName", "configMap"}).Draw(t, "key")] = content(t, depth-1)
	}
	return m
}

// objectContent draws an object.
func objectContent(t *rapid.T, name string) map[string]any {
	o := mapContent(t, 4)
	metadata := mapContent(t, 2)
	metadata["name"], metadata["namespace"] = name, "ns"
	metadata["ownerReferences"] = []any{map[string]any{"controller": rapid.Bool().Draw(t, "controls"), "name": content(t, 1)}}
	o["apiVersion"], o["kind"], o["metadata"] = "v1", "Pod", metadata
	o["list"] = []any{o["spec"], o["a"], "a"}
	if rapid.Bool().Draw(t, "is a pod") {
		volumes := []any{map[string]any{"secret": map[string]any{"secretName": content(t, 0)}, "a": content(t, 1)}, map[string]any{"configMap": map[string]any{"name": content(t, 0)}}}
		o["spec"] = map[string]any{"containers": []any{content(t, 2)}, "volumes": volumes, "a": content(t, 2), "serviceAccountName": content(t, 0), "template": mapContent(t, 2)}
		o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "a", "status": content(t, 1)}, mapContent(t, 1)}, "a": content(t, 2)}
	}
	return o
}

// targetsOf draws what there is.
func targetsOf(t *rapid.T) map[string]any {
	list := func(names ...string) map[string]any {
		items := []any{}
		for _, name := range names[:rapid.IntRange(0, len(names)).Draw(t, "objects")] {
			items = append(items, objectContent(t, name))
		}
		return map[string]any{"items": items}
	}
	return map[string]any{"pods": list("a", "b", "name"), "nodes": list("a", "spec"), "config": objectContent(t, "config")}
}

// projectTargets keeps of the targets what is read, and nothing that nothing reads.
func projectTargets(p *Programs, all map[string]any) map[string]any {
	out := map[string]any{}
	for name, reading := range p.FindReadings() {
		target := all[name].(map[string]any)
		if items, many := target["items"].([]any); many {
			kept := []any{}
			for _, o := range items {
				kept = append(kept, reading.Projection.Apply(o))
			}
			out[name] = map[string]any{"items": kept}
			continue
		}
		out[name] = reading.Projection.Apply(target)
	}
	return out
}

// identify returns what tells an object from others.
func identify(o map[string]any) []any {
	metadata, _ := o["metadata"].(map[string]any)
	return []any{o["apiVersion"], o["kind"], metadata["name"], metadata["namespace"], metadata["uid"]}
}

// outcome is what a spec gives: each result, without the text of errors, which may name what else there is.
func outcome(t *rapid.T, p *Programs, targets map[string]any) []any {
	e, problem := p.BeginEvaluation(t.Context(), Input{Targets: targets, Time: midsummer})
	if problem != nil {
		t.Fatal(problem)
	}
	defer e.Close()
	var out []any
	add := func(result any, problem *expr.Error) {
		if problem != nil {
			result = "error"
		}
		out = append(out, result)
	}
	for _, r := range e.EvaluateConditions() {
		add(r.Value, r.Err)
	}
	add(e.EvaluateData())
	r := e.SelectRule(0)
	listed, problem := r.EvaluateItems()
	items, orders := listItems(listed), []Order(nil)
	add(len(items), problem)
	for _, item := range items {
		o := item.AsObject()
		add(identify(o), nil)
		add(item.EvaluateWhen())
		add(item.EvaluateKey())
		add(item.EvaluateGroup())
		add(item.EvaluateUnless())
		add(item.EvaluateForKey())
		add(item.EvaluateFor())
		add(item.EvaluateReason())
		names, namespace, problem := item.EvaluateConfirm(0)
		add([]any{names, namespace}, problem)
		add(item.EvaluateActionWhen(0))
		other, problem := item.EvaluateActionObject(0)
		add(identify(other), problem)
		for _, object := range []map[string]any{o, other, targets["config"].(map[string]any)} {
			if object != nil {
				add(r.EvaluatePatch(0, object, []*Item{item}))
			}
		}
		order, problem := item.EvaluateOrder()
		if add(true, problem); problem == nil {
			orders = append(orders, order)
		}
	}
	for i, a := range orders {
		for _, b := range orders[i+1:] {
			add(r.CompareOrders(a, b))
		}
	}
	add(r.EvaluateKeep(items))
	if problem := e.AbortReason(); problem != nil {
		t.Skip("too large")
	}
	return out
}

// isStable reports whether a spec gives the same each time: the keys of a map that an expression has made come in any order.
func isStable(t *rapid.T, p *Programs, targets map[string]any, want []any) bool {
	for range 20 {
		if !cmp.Equal(want, outcome(t, p, targets)) {
			return false
		}
	}
	return true
}

// Expressions have the same results on objects and on what is kept of them. These mistakes were planted one by one, and a longer run found
// each: arguments of unknown functions are not read; a computed index keeps no keys, or no elements; what a turn of a loop makes does not
// reach what the loop collects, or reaches it once only; a loop keeps no keys; size keeps no length; a comparison reads scalars only; "in"
// does not read the elements of a list, the value that it looks for, or keys; has() drops the field; flatten, indexBy, groupBy, +, ?:, or
// and orValue lose what goes through them; a condition or a key of a map is not read; ofNonZeroValue keeps no length; what comes into a list
// after that was read is not read; the items do not reach keep; the object of a patch is the item alone; an item has no identity; for, forKey, unless, orderBy, reason, object or when of an
// action is not read.
func TestProjectedObjectsGiveTheSameResults(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	reads, whole := 0, 0
	check := func(t *rapid.T) {
		r := &reader{T: t}
		variables := []v1alpha1.Variable{{Name: "both", Expression: r.one("pods.items + nodes.items", "[pods.items, nodes.items].flatten()", "pods.items")}}
		w := podWork(nil, v1alpha1.Rule{Name: "a", Keep: &intstr.IntOrString{Type: intstr.String}, Actions: []v1alpha1.RuleAction{{Patch: &v1alpha1.PatchAction{}}}})
		w.Targets[2].Reference.Name = "config"
		w.Variables = variables
		w.Conditions = []string{r.truth(5), r.truth(4), r.truth(3)}
		if r.intN(4) == 0 {
			w.CloudEventData = r.value(3)
		}
		rule := &w.Rules[0]
		rule.ForEach = r.one(r.objects(3), r.value(2))
		r.known = append(r.known, named{"item", "object"}, named{"object", "object"}, named{"variables.own", "value"})
		rule.When, rule.Key, rule.GroupBy = r.truth(4), r.text(3), r.value(2)
		rule.Unless, rule.ForKey, rule.Reason = r.truth(3), r.text(2), r.text(2)
		rule.For = fmt.Sprintf(`%s ? duration("1m") : duration(%s)`, r.truth(3), r.text(1))
		rule.OrderBy = []v1alpha1.OrderBy{{Expression: r.one(r.text(3), r.value(2), "item."+r.field()+"."+r.field())}}
		rule.Confirm = []v1alpha1.Confirm{{Target: "nodes", Name: r.one(r.text(2), r.value(2))}}
		rule.Actions[0].When, rule.Actions[0].Object = r.truth(3), r.object(2)
		rule.Actions[0].Patch.Expression = fmt.Sprintf(`{"x": %s}`, r.value(2))
		r.known = r.known[:2]
		rule.Variables = []v1alpha1.Variable{{Name: "own", Expression: r.value(3)}}
		r.known = nil
		rule.Keep.StrVal = r.with("object", "items.filter(@, #).size()", r.truth, 3)
		p := compileSome(t, c, w)
		reads++
		for range 3 {
			all := targetsOf(t)
			want, got := outcome(t, p, all), outcome(t, p, projectTargets(p, all))
			if diff := cmp.Diff(want, got); diff != "" && isStable(t, p, all, want) {
				t.Fatalf("%v\n%v\nvariables: %v\nkept: %v\n(-whole +projected):\n%s", w.Conditions, rule, w.Variables, listKept(p), diff)
			}
		}
		for _, reading := range p.FindReadings() {
			if reading.WholeFor != "" {
				whole++
			}
		}
	}
	rounds := 10
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		rapid.Check(t, check)
	}
	t.Logf("%d specs, %d targets of them as a whole", reads, whole)
}

// compileSome compiles a spec, in which something simple takes the place of each expression that does not compile.
func compileSome(t *rapid.T, c *Compiler, w *v1alpha1.Work) *Programs {
	for {
		p, errs := c.Compile(t.Context(), w)
		if len(errs) == 0 {
			return p
		}
		for _, err := range errs {
			rule := &w.Rules[0]
			switch field := strings.TrimPrefix(err.Field, "spec."); field {
			case "conditions[0]", "conditions[1]", "conditions[2]":
				w.Conditions[field[len("conditions[")]-'0'] = "pods.items.exists(p, p.spec.a == \"a\")"
			case "cloudEventData":
				w.CloudEventData = ""
			case "rules[0].forEach":
				rule.ForEach = "pods.items"
			case "rules[0].when":
				rule.When = "true"
			case "rules[0].key":
				rule.Key = "string(item.metadata.name)"
			case "rules[0].groupBy":
				rule.GroupBy = "1"
			case "rules[0].keep":
				rule.Keep.StrVal = "0"
			case "rules[0].unless":
				rule.Unless = "false"
			case "rules[0].for":
				rule.For = "1m"
			case "rules[0].forKey":
				rule.ForKey = "string(item.metadata.name)"
			case "rules[0].orderBy[0].expression":
				rule.OrderBy[0].Expression = "string(item.metadata.name)"
			case "rules[0].reason":
				rule.Reason = ""
			case "rules[0].confirm[0].name":
				rule.Confirm[0].Name = "string(item.metadata.name)"
			case "rules[0].actions[0].when":
				rule.Actions[0].When = "true"
			case "rules[0].actions[0].object":
				rule.Actions[0].Object = "pods.items[0]"
			case "rules[0].variables[0].expression":
				rule.Variables[0].Expression = "1"
			case "rules[0].actions[0].patch.expression":
				rule.Actions[0].Patch.Expression = "{}"
			default:
				t.Fatal(err)
			}
		}
	}
}

func listKept(p *Programs) map[string][]string {
	kept := map[string][]string{}
	for name, reading := range p.FindReadings() {
		kept[name] = reading.Projection.ListPaths()
	}
	return kept
}
