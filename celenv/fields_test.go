// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/objectschema"
	"github.com/vtex/cleaner/celenv/usage"
)

// kindsOfTargets are the kinds of the targets of podWork.
func kindsOfTargets() map[string]usage.Kind {
	kinds := map[string]usage.Kind{}
	for target, gvk := range map[string]schema.GroupVersionKind{
		"pods": {Version: "v1", Kind: "Pod"}, "nodes": {Version: "v1", Kind: "Node"}, "config": {Version: "v1", Kind: "ConfigMap"},
		"deployments": {Group: "apps", Version: "v1", Kind: "Deployment"},
	} {
		kinds[target] = usage.Kind{Name: gvk.Kind, Schema: objectschema.OfBuiltIn(scheme.Scheme, gvk)}
	}
	return kinds
}

// checkFields says what is wrong with the fields of a rule over Pods, without snippets.
func checkFields(t *testing.T, rule v1alpha1.Rule, variables ...string) (errs, likely []string) {
	t.Helper()
	w := podWork(variables, rule)
	w.Targets = append(w.Targets, v1alpha1.ClusterTarget{Name: "deployments"})
	wrong, warnings := compileWork(t, budget.Limits{}, w).CheckFields(field.NewPath("spec"), kindsOfTargets())
	for _, e := range wrong {
		text, _, _ := strings.Cut(e.Detail, "\n")
		errs = append(errs, strings.TrimPrefix(e.Field, "spec.")+" at "+text)
	}
	for _, w := range warnings {
		likely = append(likely, w.Path+": "+w.Message+"; "+w.Hint)
	}
	return errs, likely
}

func TestFieldsThatDoNotExist(t *testing.T) {
	for when, want := range map[string]string{
		`item.status.phse == "Failed"`:                                         `1:13: Pod has no field status.phse; did you mean "phase"?`,
		`item.?status.?phse.orValue("") == "Failed"`:                           `1:13: Pod has no field status.phse; did you mean "phase"?`,
		`has(item.status.phse)`:                                                `1:4: Pod has no field status.phse; did you mean "phase"?`,
		`item[?"status"][?"phse"].hasValue()`:                                  `1:16: Pod has no field status.phse; did you mean "phase"?`,
		`"phse" in item.status`:                                                `1:8: Pod has no field status.phse; did you mean "phase"?`,
		`item.?status.orValue({}).?phse.orValue("") == "x"`:                    `1:25: Pod has no field status.phse; did you mean "phase"?`,
		`item.labels.x == "y"`:                                                 `1:6: Pod has no field labels; it is metadata.labels`,
		`item.spec.containers.exists(c, c.imag == "")`:                         `1:34: Pod has no field spec.containers[*].imag; did you mean "image"?`,
		`item.spec.containers.map(c, c.env).flatten().exists(e, e.nam == "")`:  `1:58: Pod has no field spec.containers[*].env[*].nam; did you mean "name"?`,
		`item.spec.containers.image == "x"`:                                    `1:22: spec.containers of a Pod is a list, and has no field "image"; use exists() or filter() to look at its elements`,
		`item.status.phase.name == "x"`:                                        `1:19: status.phase of a Pod is a string, and has no field "name"`,
		`pods.items.filter(p, p.spec.node == "").size() > 0`:                   `1:29: Pod has no field spec.node; did you mean "nodeName" or "nodeSelector"?`,
		`variables.byNode[?item.spec.nodeName].?metadata.?label.hasValue()`:    `1:48: Node has no field metadata.label; did you mean "labels"?`,
		`cel.bind(s, item.status, s.phse == "")`:                               `1:28: Pod has no field status.phse; did you mean "phase"?`,
		`{"a": item}.a.status.phse == ""`:                                      `1:22: Pod has no field status.phse; did you mean "phase"?`,
		`(pods.items + nodes.items).exists(o, o.status.phse == "")`:            `1:47: Node has no field status.phse; did you mean "phase"?`,
		`deployments.items.exists(d, d.spec.template.spec.contaners.size()>0)`: `1:50: Deployment has no field spec.template.spec.contaners; did you mean "containers"?`,
		`item.spec.containers[0].resources.limit.cpu == "1"`:                   `1:35: Pod has no field spec.containers[*].resources.limit; did you mean "limits"?`,
		`config.items[0].dat["x"] == "y"`:                                      `1:17: ConfigMap has no field dat; did you mean "data"?`,
		`pods.itms.size() > 0`:                                                 `1:6: target pods has no field itms; did you mean "items"?`,
		`pods.items.metadata.name == ""`:                                       `1:12: items of target pods is a list, and has no field "metadata"; use exists() or filter() to look at its elements`,
		`controller(item).orValue({"kind": ""}).kind == ""`:                    ``,
	} {
		errs, likely := checkFields(t, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: when}, `byNode: nodes.items.indexBy(n, n.metadata.name)`)
		if got := strings.Join(errs, "\n"); got != strings.TrimSpace(strings.TrimSuffix("rules[0].when at "+want, "rules[0].when at ")) || len(likely) > 0 {
			t.Errorf("%s:\n got %s\nwant %s\n and %q", when, got, want, likely)
		}
	}
}

func TestComparisonsThatNeverHold(t *testing.T) {
	for when, want := range map[string]string{
		`item.status.phase == "Faild"`:                                        `1:19: status.phase of a Pod is never "Faild"; did you mean "Failed"?`,
		`item.?status.?phase.orValue("") == "Done"`:                           `1:33: status.phase of a Pod is never "Done"; it is one of Failed, Pending, Running, Succeeded, Unknown`,
		`item.status.phase in ["faild"]`:                                      `1:19: status.phase of a Pod is never "faild"; did you mean "Failed"?`,
		`"faild" != item.status.phase`:                                        `1:9: status.phase of a Pod is never "faild"; did you mean "Failed"?`,
		`deployments.items.exists(d, d.spec.replicas == "0")`:                 `1:45: spec.replicas of a Deployment is an integer, and never a string; write it without quotes`,
		`deployments.items.exists(d, d.spec.?replicas.orValue(1) == "0")`:     `1:57: spec.replicas of a Deployment is an integer, and never a string; write it without quotes`,
		`deployments.items.exists(d, d.spec.?replicas.orValue("") == "0")`:    `1:58: spec.replicas of a Deployment is an integer, and never a string; write it without quotes`,
		`deployments.items.exists(d, d.spec.?replicas.orValue("") == "")`:     ``,
		`deployments.items.exists(d, d.spec.replicas > "0")`:                  `1:45: spec.replicas of a Deployment is an integer, and never a string; write it without quotes`,
		`item.metadata.labels.keep == true`:                                   `1:27: metadata.labels.keep of a Pod is a string, and never a bool; write "true", in quotes`,
		`item.metadata.?labels.keep.orValue(false) == true`:                   `1:43: metadata.labels.keep of a Pod is a string, and never a bool; write "true", in quotes`,
		`true == item.metadata.?annotations[?"x/keep"].orValue(false)`:        `1:6: metadata.annotations["x/keep"] of a Pod is a string, and never a bool; write "true", in quotes`,
		`item.metadata.?labels.?keep.orValue(false) != true`:                  `1:44: metadata.labels.keep of a Pod is a string, and never a bool; write "true", in quotes`,
		`has(item.metadata.labels.keep) && item.metadata.labels.keep == true`: `1:61: metadata.labels.keep of a Pod is a string, and never a bool; write "true", in quotes`,
		`item.metadata.?labels.weight.orValue(0) == 3`:                        `1:41: metadata.labels.weight of a Pod is a string, and never a number; write "3", in quotes`,
		`item.metadata.?labels.keep.orValue(true) == true`:                    ``,
		`item.metadata.?labels["keep"].orValue("") == "true"`:                 ``,
		`item.spec.hostNetwork == "true"`:                                     `1:23: spec.hostNetwork of a Pod is a bool, and never a string; write it without quotes`,
		`item.spec.containers == "x"`:                                         `1:22: spec.containers of a Pod is a list, and never a string; use exists() to look at its elements, or size()`,
		`item.spec.containers.exists(c, c.resources.limits.cpu == "1")`:       ``,
		`item.spec.containers.exists(c, c.ports.exists(p, p.name == "web"))`:  ``,
		`item.status.phase == ""`:                                             ``,
	} {
		errs, likely := checkFields(t, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: when})
		if got := strings.Join(errs, "\n"); got != strings.TrimSpace(strings.TrimSuffix("rules[0].when at "+want, "rules[0].when at ")) || len(likely) > 0 {
			t.Errorf("%s:\n got %s\nwant %s\n and %q", when, got, want, likely)
		}
	}
}

func TestComparisonsThatHardlyHold(t *testing.T) {
	for when, want := range map[string]string{
		`condition(item, "Raedy").?status.orValue("") == "True"`:                                        `rules[0].when: status.conditions[*].type of a Pod is hardly ever "Raedy"; did you mean "Ready"?`,
		`item.status.phase in ["Succeeded", "faild"]`:                                                   `rules[0].when: status.phase of a Pod is hardly ever "faild"; did you mean "Failed"?`,
		`condition(item, "Ready").?status.orValue("") == "true"`:                                        `rules[0].when: status.conditions[*].status of a Pod is hardly ever "true"; did you mean "True"?`,
		`item.?status.?conditions.orValue([]).exists(c, c.type == "Raedy")`:                             `rules[0].when: status.conditions[*].type of a Pod is hardly ever "Raedy"; did you mean "Ready"?`,
		`condition(item, "example.com/HasVolume").hasValue()`:                                           ``,
		`item.?status.?conditions.orValue([]).exists(c, c.type == "PodScheduled" && c.status=="False")`: ``,
	} {
		errs, likely := checkFields(t, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: when})
		if got := strings.Join(likely, "\n"); got != want || len(errs) > 0 {
			t.Errorf("%s:\n got %s\nwant %s\n and %q", when, got, want, errs)
		}
	}
}

// Nothing is said of a value that may be something else as well.
func TestNothingIsSaidOfWhatMayBeRight(t *testing.T) {
	for _, when := range []string{
		`bytes(item.metadata.name) == b"a" || b"a" == b"b" || bytes(item.metadata.name) in [b"a"]`,
		`item.metadata.?annotations[?"a"].optMap(c, json.unmarshal(c)).orValue(item).spec.oldField == "x"`,
		`params.?overrides.orValue(item).spec.x == 1`,
		`(item.spec.containers + json.unmarshal("[]")).exists(c, c.foo == 1)`,
		`(item.metadata.?finalizers.orValue([]) + params.list).exists(c, c == 2)`,
		`1 in item.?metadata.?finalizers.orValue(params.list)`,
		`"Odd" in (pods.items.map(p, p.status.phase) + params.list)`,
		`(item.metadata.name == "a" ? json.unmarshal("{}") : item).status.phse == "x"`,
		`item.status.phase in ["Succeeded", "SomethingOfALaterVersion"] || item.status.phase in ["Failed", "Running", "Fialed-With-Another-Name"]`,
		`[item, json.unmarshal("{}")].exists(o, has(o.extra))`,
		`{"a": item, "b": json.unmarshal("{}")}[item.metadata.name].phse == "x"`,
		`item.metadata.labels[item.metadata.name].startsWith("a")`,
		`item.metadata.labels.exists(k, k == "a") && item.metadata.labels.exists(k, v, v == "a")`,
		`item.spec.containers.exists(i, c, i == 1 && c.image == "a")`,
		`item.spec.containers.transformList(i, c, c.image).exists(x, x == "a")`,
		`item.metadata.labels.transformMap(k, v, {"key": k, "value": v}).a.key == "a"`,
		`[item, deployments.items[0]].exists(o, o.status.phase == "Failed" || o.status.replicas == 1)`,
		`pods.items.groupBy(p, p.status.phase).Failed.size() > 1`,
		`item.spec.containers.sortBy(c, c.name)[0].image == "a"`,
	} {
		errs, likely := checkFields(t, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "dyn(" + when + ") == true"})
		if len(errs)+len(likely) > 0 {
			t.Errorf("%s: %q %q", when, errs, likely)
		}
	}
	for _, forEach := range []string{`pods.items + params.list`, `params.list + pods.items`, `[pods.items, params.list].flatten()`} {
		if errs, likely := checkFields(t, v1alpha1.Rule{Name: "r", ForEach: forEach, When: "has(item.extra)"}); len(errs)+len(likely) > 0 {
			t.Errorf("%s: %q %q", forEach, errs, likely)
		}
	}
}

// Whatever is named, what is said of it is short, and not said more often than people read it.
func TestWhatIsSaidOfFieldsIsBounded(t *testing.T) {
	long := strings.Repeat("k", 4_000)
	errs, _ := checkFields(t, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: `item.metadata.labels["` + long + `"].x == "" || has(item.` + long + `) || item.status.phase == "` + long + `"`})
	if len(errs) != 3 {
		t.Errorf("got %d errors", len(errs))
	}
	for _, e := range errs {
		if len(e) > 1000 {
			t.Errorf("an error of %d bytes", len(e))
		}
	}
	var many []string
	for n := range 100 {
		many = append(many, fmt.Sprintf("has(item.x%d)", n))
	}
	if errs, _ := checkFields(t, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: strings.Join(many, " || ")}); len(errs) != 50 {
		t.Errorf("got %d errors", len(errs))
	}
	labels := make([]string, 400)
	for n := range labels {
		labels[n] = fmt.Sprintf(`nodes.items[0].metadata.labels.l%d`, n)
	}
	rule := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "variables.all.exists(l, l in [" + strings.Join(slices.Repeat([]string{`"a"`}, 2000), ",") + "])"}
	if _, likely := checkFields(t, rule, "all: ["+strings.Join(labels, ", ")+"]"); len(likely) != 1 || !strings.Contains(likely[0], "not all checked") {
		t.Errorf("got %q", likely)
	}
}
