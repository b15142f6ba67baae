// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
)

// referringContent draws a part of an object: mostly what may be, or be beside, a reference.
func referringContent(t *rapid.T, depth int) any {
	switch n := rapid.IntRange(0, 9).Draw(t, "content"); {
	case n < 3 || depth <= 0:
		return rapid.SampledFrom([]any{"a", "b", "ns/c", "Secret", "ConfigMap", "system:serviceaccount:ns:d", "", int64(1)}).Draw(t, "scalar")
	case n < 5:
		list := []any{}
		for range rapid.IntRange(1, 3).Draw(t, "length") {
			list = append(list, referringContent(t, depth-1))
		}
		return list
	default:
		m := map[string]any{}
		for range rapid.IntRange(1, 4).Draw(t, "size") {
			m[rapid.SampledFrom([]string{"kind", "name", "namespace", "metadata", "annotations", "items", "spec", "a", "b", "containers", "env", "secretName", "secretNamespace", "secretRef", "configMap", "serviceAccountName"}).Draw(t, "key")] = referringContent(t, depth-1)
		}
		return m
	}
}

func referringObject(t *rapid.T, name string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": "ns", "annotations": referringContent(t, 2)},
		"spec": referringContent(t, 3), "a": referringContent(t, 3), "b": referringContent(t, 2), "status": map[string]any{"conditions": []any{map[string]any{"type": "a", "secretRef": "x", "a": referringContent(t, 1)}}},
	}
}

// writeRefs draws a call of refs, on what expressions may make of objects.
func writeRefs(t *rapid.T) string {
	one := func(all ...string) string { return rapid.SampledFrom(all).Draw(t, "one") }
	kind := one(`"Secret"`, `"ConfigMap"`, `"ServiceAccount"`)
	object := one("pods.items[0]", "config", "nodes.items[0]", "pods.items[0].spec", "pods.items[0].a", "config.spec.a", "pods.items[0].spec.items", "pods.items[0].a.metadata")
	switch rapid.IntRange(0, 18).Draw(t, "form") {
	case 0:
		return fmt.Sprintf("pods.transformList(k, v, refs(v, %s)).flatten()", kind)
	case 1:
		return fmt.Sprintf(`refs(pods[dyn("items")], %s)`, kind)
	case 2:
		return fmt.Sprintf("refs(%s.merge(%s), %s)", object, one("pods.items[0].b", `dyn({"kind": "Secret"})`, `dyn({"secretName": "x"})`, `dyn({"metadata": {}})`), kind)
	case 3:
		return fmt.Sprintf("refs([%s, pods, [nodes.items, null]], %s)", object, kind)
	case 4:
		return fmt.Sprintf("%s.map(v, refs(v, %s)).flatten()", one("pods.items", "pods.items[0].spec", "pods.items[0].a.items"), kind)
	case 5:
		return fmt.Sprintf("refs({%s: %s}, %s)", one(`"spec"`, `"items"`, `"secretRef"`), object, kind)
	case 6:
		return fmt.Sprintf("refs(pods.items.indexBy(p, p.metadata.name)[?%s], %s)", one(`"a"`, `"b"`), kind)
	case 7:
		return fmt.Sprintf("refs(podSpec(%s), %s)", object, kind)
	case 8:
		return fmt.Sprintf(`refs(condition(%s, "a"), %s) + refs(%s.status.conditions, "Secret")`, object, kind, object)
	case 9:
		return fmt.Sprintf("refs(pods.items.map(p, p.%s), %s)", one("spec", "a", "b"), kind)
	case 10:
		return fmt.Sprintf("refs(pods.items.filter(p, has(p.spec.a)).reverse(), %s)", kind)
	case 11:
		return fmt.Sprintf("refs(%s.transformMap(k, v, v), %s)", one("pods", object), kind)
	case 12:
		return fmt.Sprintf("refs(cel.bind(o, %s, [o, o]), %s)", object, kind)
	case 13:
		return fmt.Sprintf(`refs(%s.transformMapEntry(k, v, {string(k): v}), %s)`, one("pods", object), kind)
	case 14:
		return fmt.Sprintf(`refs(%s.merge(%s), %s)`, one("pods", "variables.both", "variables.spec"), one("pods", `dyn({"metadata": {}})`, `dyn({"items": []})`, "pods.items[0]"), kind)
	case 15:
		return fmt.Sprintf("refs(variables.%s, %s)", one("both", "spec", "chosen"), kind)
	case 16:
		return fmt.Sprintf(`refs((pods.items[0].?spec.orValue(%s)).merge(dyn({"kind": "Secret"})), %s)`, one("dyn({})", "nodes.items[0].a", "pods.items[0].b"), kind)
	case 17:
		return fmt.Sprintf(`refs((size(pods.items[0].metadata.name) == 1 ? %s : nodes.items[0].a).merge(dyn({"secretName": "x"})), %s)`, object, kind)
	default:
		return fmt.Sprintf("refs(%s, %s)", one(object, "pods", "pods.items"), kind)
	}
}

// What refs finds is the same in objects and in what is kept of them, whatever else is read of them.
func TestRefsFindTheSameInProjectedObjects(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	rounds := 10
	var found, drawn, whole, readings int
	if testing.Short() {
		rounds = 1
	}
	check := func(t *rapid.T) {
		w := podWork(nil)
		w.Targets[2].Reference.Name = "config"
		w.CloudEventData = fmt.Sprintf(`{"a": %s}`, writeRefs(t))
		w.Conditions = []string{"(" + writeRefs(t) + ").size() > 1", rapid.SampledFrom([]string{"true", "pods.items.exists(p, p.spec.a == 1)", "size(pods.items[0].a) > 0", "pods.items[0].a.exists(x, x.b == 1)"}).Draw(t, "beside")}
		w.Variables = []v1alpha1.Variable{
			{Name: "both", Expression: `dyn({"items": [pods.items[0], nodes.items[0]]})`},
			{Name: "spec", Expression: "pods.items[0].spec"},
			{Name: "chosen", Expression: "config.a == 1 ? dyn(pods.items) : dyn(config)"},
		}
		p, errs := c.Compile(t.Context(), w)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for range 5 {
			list := func(names ...string) map[string]any {
				items := []any{}
				for _, name := range names {
					items = append(items, referringObject(t, name))
				}
				return map[string]any{"items": items}
			}
			all := map[string]any{"pods": list("a", "b"), "nodes": list("c"), "config": referringObject(t, "d")}
			want, got := dataOf(t, p, all), dataOf(t, p, projectTargets(p, all))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s\n%v\nkept: %v\n(-whole +projected):\n%s", w.CloudEventData, w.Conditions, listKept(p), diff)
			}
			drawn++
			if data := fmt.Sprint(want[len(want)-1]); strings.Contains(data, "/") {
				found++
			}
		}
		for _, reading := range p.FindReadings() {
			readings++
			if reading.Projection.Whole {
				whole++
			}
		}
	}
	for range rounds {
		rapid.Check(t, check)
	}
	if t.Logf("%d of %d times something is found, and %d of %d readings are whole", found, drawn, whole, readings); found < drawn/5 || whole > readings/3 {
		t.Error("that shows little")
	}
}

// dataOf is what the conditions and the data give.
func dataOf(t *rapid.T, p *Programs, targets map[string]any) []any {
	e, problem := p.BeginEvaluation(t.Context(), Input{Targets: targets, Time: midsummer})
	if problem != nil {
		t.Fatal(problem)
	}
	defer e.Close()
	var out []any
	for _, r := range e.EvaluateConditions() {
		out = append(out, r.Value, r.Err != nil)
	}
	data, problem := e.EvaluateData()
	if problem != nil {
		return append(out, "error")
	}
	return append(out, data)
}
