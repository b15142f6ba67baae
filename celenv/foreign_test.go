// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"strings"
	"testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
)

// Whoever writes what other languages have is told what to write here.
func TestForeignLanguages(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	const (
		optional = `a field after .? is optional: add .orValue(...)`
		length   = `write a length of time as duration("24h") or parseDuration("7d")`
	)
	for source, want := range map[string]string{
		`item.?status.phase == "Failed"`:                     optional,
		`item.?status.?phase != "Failed"`:                    optional,
		`"Failed" == item.?status.phase`:                     optional,
		`item.?status.phase in ["Failed"]`:                   optional,
		`item.?status.restarts > 3`:                          optional,
		`now() > timestamp(item.metadata.creationTimestamp)`: "write time: it is the moment of the evaluation",
		`today() > time`:                                     "write time: it is the moment of the evaluation",
		`item.metadata.name.match("a.*")`:                    `write x.matches("...")`,
		`item.metadata.name =~ "a.*"`:                        `write x.matches("...")`,
		`len(item.metadata.name) > 1`:                        "write size(x) or x.size()",
		`item.metadata.name.length() > 1`:                    "write size(x) or x.size()",
		`item.spec.containers.count() > 1`:                   "write size(x) or x.size()",
		`nodes.items.any(n, n.metadata.name == "a")`:         "write x.exists(e, ...)",
		`item.spec.containers.some(c, true)`:                 "write x.exists(e, ...)",
		`item.spec.containers.every(c, true)`:                "write x.all(e, ...)",
		`item.metadata.labels.get("app") == "x"`:             `write x[?"key"].orValue("")`,
		`item.metadata.labels.has("a")`:                      `write "key" in x; or has(x.key)`,
		`"a" in item.metadata.labels.keys()`:                 "a map goes through its keys",
		`item.metadata.name.toLowerCase() == "a"`:            "write x.lowerAscii()",
		`has(item.metadata.annotations["a/b"])`:              `has() takes a field: for a key, write "a/b" in x`,
		`age(item).getDays() > 3`:                            `write a duration, as in age(x) > parseDuration("7d")`,
		`hours(3) < age(item)`:                               `write a duration, as in duration("3h")`,
		`age(item) > 3600`:                                   `a number has no unit: write a duration, as in duration("1h")`,
		`age(item) > duration("1h") * 1.5`:                   "a duration can be multiplied by a whole number, and not divided",
		`age(item) > duration("1h") / 2`:                     "a duration can be multiplied by a whole number, and not divided",
		`merge(item.a, item.b) == {}`:                        "write x.merge(...)",
		`item.a.union(item.b) == {}`:                         "write a.merge(b) for maps",
		`item.?metadata.?labels.merge({}) == {}`:             optional,
		`age(item) > 24h`:                                    length,
		`age(item) > 7d`:                                     length,
		`item.status.phase == "a" and true`:                  "to join conditions, write &&",
		`item.status.phase == "a" or true`:                   "to join conditions, write ||",
		"item.status.phase == \"ä\"\n  and true":             "to join conditions, write &&",
		`not item.x`:                         `write !(...), as in !("a" in x)`,
		`"a" not in item.x`:                  `write !(...), as in !("a" in x)`,
		`item.status.phase is "a"`:           "to compare, write ==",
		`item.status.phase = "a"`:            "to compare, write ==",
		`item.status.phase <> "a"`:           "to compare, write !=",
		`item.status.phase in "Failed"`:      `in looks into a list or a map`,
		`item.status.phase in ("a", "b")`:    `write a list in brackets, as in x in ["a", "b"]`,
		`item.status?.phase == "x"`:          "a field that may be missing is written .?field",
		`max(1, 2) > 1`:                      "write math.greatest(a, b), or x.max() for a list",
		`min(1, 2) > 1`:                      "write math.least(a, b), or x.min() for a list",
		`math.max(1, 2) > 1`:                 "write math.greatest(a, b), or x.max() for a list",
		`Math.min(1, 2) > 1`:                 "write math, as in math.greatest(a, b)",
		`sum([1, 2]) > 1`:                    "write x.sum()",
		`round(1.5) > 1.0`:                   "write math.round(x), where x is a double",
		`abs(-1) > 1`:                        "write math.abs(x)",
		`sqrt(4.0) > 1.0`:                    "write math.sqrt(x)",
		`contains("abc", "a")`:               "write x.contains(...)",
		`strings.Contains("abc", "a")`:       "write x.contains(y) for a text, or y in x for a list",
		`trim("a") == "a"`:                   "write x.trim(...)",
		`format("a", 1) == "a"`:              `write "%s and %s".format([a, b])`,
		`parse_time("x") > time`:             "write timestamp(x)",
		`time_now() > time`:                  "write time: it is the moment of the evaluation",
		`time_since("", "x", "") == "y"`:     "write age(x) of an object, or time - timestamp(x)",
		`to_upper("a") == "A"`:               "write x.upperAscii()",
		`lower("a") == "a"`:                  "write x.lowerAscii()",
		`"a".hasPrefix("b")`:                 "write x.startsWith(y)",
		`json.loads("1") == 1`:               "write json.unmarshal(x)",
		`or(true, false)`:                    "to join conditions, write ||",
		`if(true, 1, 2) == 1`:                "write condition ? a : b",
		`exists(item.metadata)`:              "write x.exists(e, ...)",
		`item.status == None`:                "write null; where a field may be missing, write !has(x.field)",
		`True`:                               "write true",
		`size(item, 1) > 1`:                  "",
		`item.metadata.name.contain("a")`:    `did you mean "contains"?`,
		`item.metadata.name.startswith("a")`: `did you mean "startsWith"?`,
	} {
		_, errs := c.Compile(t.Context(), podWork(nil, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: source}))
		if len(errs) == 0 {
			t.Errorf("%s is valid", source)
			continue
		}
		first, _, _ := strings.Cut(errs[0].Detail, "\n")
		if _, hint, _ := strings.Cut(first, "; "); !strings.HasPrefix(hint, want) || want == "" && hint != "" {
			t.Errorf("%s: it says %q, want %q", source, first, want)
		}
	}
}

// A field that most objects do not have is not mistyped: to take another one for it would turn the meaning round.
func TestAMissingTimestampIsNoTypo(t *testing.T) {
	e := begin(t, compileWork(t, budget.Limits{}, podWork(nil, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "item.metadata.deletionTimestamp == null"})), podInput())
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a", "creationTimestamp": "2025-01-01T00:00:00Z"}}
	e.Close()
	in := podInput()
	in.Targets["pods"] = list(pod)
	e = begin(t, e.p, in)
	_, problem := items(t, e.SelectRule(0))[0].EvaluateWhen()
	if problem == nil || !strings.HasPrefix(problem.Hint, "test has(item.metadata.deletionTimestamp) first") {
		t.Errorf("it says %v", problem)
	}
}

// Who takes a target for the list of its objects is warned: the expression is valid, and never means that.
func TestTargetsAreNoLists(t *testing.T) {
	for source, want := range map[string]int{
		`nodes.exists(n, n == "a")`:                           1,
		`nodes.size() > 1`:                                    1,
		`size(nodes) > size(pods)`:                            2,
		`nodes.indexBy(n, n).size() > 0`:                      1,
		`nodes[0] == item`:                                    1,
		`nodes.items.exists(n, n.metadata.name == "a")`:       0,
		`nodes.items.size() > 1 && size(nodes.items[0]) > 1`:  0,
		`nodes["items"].size() > 1`:                           0,
		`size(refs([nodes], "Secret")) > 1`:                   0,
		`config.exists(k, k == "data") && size(config) > 1`:   0, // it is one object
		`cel.bind(n, nodes, n.items.size() > 1)`:              0,
		`pods.items.exists(nodes, nodes.exists(k, k == "a"))`: 0, // it is a variable of the loop
	} {
		w := podWork(nil, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: source})
		for i := range w.Targets {
			if w.Targets[i].Name == "config" {
				w.Targets[i].Reference.Name = "one"
			}
		}
		p := compileWork(t, budget.Limits{}, w)
		found := 0
		for _, w := range p.Warnings() {
			if strings.Contains(w.Message, "is no list: it has the objects in its field items") && strings.HasSuffix(w.Hint, ".items") && w.Line == 1 {
				found++
			}
		}
		if found != want {
			t.Errorf("%s: %d warnings, want %d: %+v", source, found, want, p.Warnings())
		}
	}
}
