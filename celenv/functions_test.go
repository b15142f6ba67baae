// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

// functionInput is what the expressions below read.
func functionInput() Input {
	pod := func(name, node string) any {
		return map[string]any{
			"metadata": map[string]any{"name": name, "namespace": "ns", "creationTimestamp": "2024-12-31T22:00:00Z"},
			"spec":     map[string]any{"nodeName": node},
		}
	}
	return Input{
		Time: at("2025-01-01T00:00:00Z"),
		Targets: map[string]any{
			"revisions": list(pod("a", "n1"), pod("b", "n2"), pod("c", "n1")),
			"svc": map[string]any{
				"metadata": map[string]any{"name": "svc", "creationTimestamp": "2024-12-31T23:00:00Z"},
				"big":      int64(9007199254740993),
				"json":     `{"b":9007199254740993,"a":[1.5,null,true,"<x>"]}`,
				"pattern":  "^n[0-9]$",
				"labels":   map[string]any{"app": "web", "tier": "front"},
				"conditions": []any{
					map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"},
					map[string]any{"type": "Other", "status": "True"},
				},
				"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
					"containers": []any{map[string]any{"name": "c", "envFrom": []any{map[string]any{"configMapRef": map[string]any{"name": "cm"}}}}},
					"volumes":    []any{map[string]any{"secret": map[string]any{"secretName": "s2"}}, map[string]any{"secret": map[string]any{"secretName": "s1"}}, map[string]any{"secret": map[string]any{"secretName": "s2"}}},
				}}},
			},
		},
		Params: map[string]any{"pem": testCertificate, "wait": "7d12h", "mixed": []any{int64(1), "a", true}},
	}
}

// An expression must give true. What it costs is pinned: a change means that limits mean something else.
func TestFunctions(t *testing.T) {
	cases := map[string]struct {
		expression string
		cost       int64
	}{
		"json.unmarshal":                 {`json.unmarshal(svc.json).b == svc.big`, 452},
		"json.unmarshal a double":        {`json.unmarshal("1.5") == 1.5 && type(json.unmarshal("1")) == int && type(json.unmarshal("1e2")) == double`, 452},
		"json.unmarshal beyond int":      {`type(json.unmarshal("9223372036854775808")) == double`, 130},
		"json.unmarshal iterates sorted": {`json.unmarshal('{"c":1,"a":2,"b":3}').map(k, k) == ["a", "b", "c"]`, 329},
		"json.marshal":                   {`json.marshal(json.unmarshal(svc.json)) == '{"a":[1.5,null,true,"<x>"],"b":9007199254740993}'`, 729},
		"json.marshal times":             {`json.marshal([time, duration("90s"), 1u, b"x"]) == '["2025-01-01T00:00:00Z","90s",1,"eA=="]'`, 289},
		"json.marshal empty":             {`json.marshal([[], {}, null, ""]) == '[[],{},null,""]'`, 80},
		"json.valid":                     {`json.valid("{}") && !json.valid("{") && !json.valid("{} x") && !json.valid("")`, 4},
		"json.unmarshal, deep":           {`["[]", "{}"].all(l, json.unmarshal(lists.range(255).map(x, "[").join() + l + lists.range(255).map(x, "]").join()).size() == 1) && !json.valid(lists.range(257).map(x, "[").join() + lists.range(257).map(x, "]").join())`, 154550},
		"no option after two":            {`{dyn("a"): 1, "a": 2, ?"a": svc.?nope} == {}`, 446},
		"literals with options":          {`[1, ?svc.?nope, ?svc.?pattern].size() == 2 && {"a": 1, ?"a": svc.?nope, ?"b": svc.?pattern, svc.pattern: 2} == {"b": svc.pattern, svc.pattern: 2}`, 1064},
		"indexBy":                        {`revisions.items.indexBy(p, p.spec.nodeName)["n1"].metadata.name == "a"`, 300},
		"indexBy order":                  {`revisions.items.indexBy(p, p.spec.nodeName).map(k, k) == ["n1", "n2"]`, 401},
		"indexBy in":                     {`"n2" in revisions.items.indexBy(p, p.spec.nodeName) && !("n3" in revisions.items.indexBy(p, p.spec.nodeName))`, 600},
		"indexBy optional":               {`!revisions.items.indexBy(p, p.spec.nodeName)[?"n3"].hasValue()`, 300},
		"groupBy":                        {`revisions.items.groupBy(p, p.spec.nodeName)["n1"].map(p, p.metadata.name) == ["a", "c"]`, 739},
		"groupBy two variables":          {`revisions.items.groupBy(p, p.spec.nodeName).transformList(k, v, k + string(v.size())) == ["n12", "n21"]`, 777},
		"countBy":                        {`revisions.items.countBy(p, p.spec.nodeName) == {"n1": 2, "n2": 1}`, 233},
		"toSet":                          {`"b" in ["a", "b", "a"].toSet() && ["a", "b", "a"].toSet().size() == 2`, 306},
		"toSet mixed":                    {`params.mixed.toSet().map(k, k) == [1, "a", true]`, 440},
		"parseDuration":                  {`parseDuration(params.wait) == duration("180h")`, 0},
		"parseDuration of a duration":    {`parseDuration(duration("1h")) == duration("60m")`, 0},
		"seconds":                        {`seconds(90) == duration("1m30s") && seconds(-1) < duration("0s")`, 0},
		"age":                            {`age(svc) == duration("1h") && revisions.items.all(p, age(p) == duration("2h"))`, 7},
		"certificates":                   {`certificates(params.pem)[0].notAfter == timestamp("2025-06-01T00:00:00Z") && certificates(bytes(params.pem)).map(c, c.dnsNames[0]) == ["shop.example.com"] && certificates("") == []`, 7263},
		"parseTimestamp":                 {`["2025-01-31", "2025-01-31T00:00", "2025-01-31T000000Z", "2025-01-31T00:00:00Z", "2025-01-31T02:00:00+02:00"].all(t, parseTimestamp(t) == timestamp("2025-01-31T00:00:00Z"))`, 9},
		"condition":                      {`condition({"status": {"conditions": svc.conditions}}, "Ready").status.orValue("") == "True" && condition({"status": {"conditions": svc.conditions}}, "Ready").?reason.orValue("none") == "none"`, 356},
		"condition, none":                {`!condition({"status": {"conditions": svc.conditions}}, "No").hasValue() && !condition({"status": {"conditions": null}}, "Ready").hasValue() && !condition(svc, "Ready").hasValue()`, 178},
		"controller":                     {`controller({"metadata": {"ownerReferences": [{"kind": "A"}, {"kind": "B", "controller": false}, {"kind": "C", "controller": true}]}}).kind.orValue("") == "C"`, 3},
		"controller, none":               {`!controller(svc).hasValue() && !controller({"metadata": {"ownerReferences": [{"kind": "A"}]}}).hasValue()`, 1},
		"podSpec":                        {`podSpec(svc).containers[0].name.orValue("") == "c" && !podSpec(revisions.items[0]).hasValue() && podSpec({"spec": {"containers": []}}).hasValue()`, 0},
		"podSpec of a CronJob":           {`podSpec({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": []}}}}}}).hasValue() && podSpec({"template": {"spec": {"containers": []}}}).hasValue()`, 0},
		"podRefs":                        {`podRefs(podSpec(svc), "ConfigMap") == ["cm"] && podRefs(podSpec(svc).value(), "Secret") == ["s1", "s2"]`, 219},
		"podRefs of nothing":             {`podRefs(podSpec({}), "Secret") == [] && podRefs(null, "ServiceAccount") == [] && podRefs({}, "ServiceAccount") == ["default"]`, 279},
		"podRefs in a map":               {`"cm" in podRefs(podSpec(svc), "ConfigMap").toSet() && !("cm" in podRefs({"volumes": []}, "ConfigMap"))`, 475},
		"podLabels":                      {`podLabels({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}) == {"a": "b"} && podLabels({"template": {"spec": {"containers": []}}}) == {} && podLabels(svc) == {}`, 9},
		"podLabels of a Deployment":      {`podLabels({"metadata": {"labels": {"a": "own"}}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}}}).a == "b"`, 0},
		"podLabels of no Pod":            {`podLabels({"metadata": {"labels": {"a": "own"}}, "spec": {}}) == {}`, 1},
		"podLabels of a CronJob":         {`podLabels({"spec": {"jobTemplate": {"spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}}}}}).a == "b"`, 0},
		"refs":                           {`refs(svc, "Secret") == ["s1", "s2"] && refs([svc, svc], "ConfigMap") == ["cm"]`, 395},
		"refs of targets":                {`refs([revisions, null, svc.?nope, {"items": [svc]}], "Secret") == ["s1", "s2"] && refs([], "Secret") == [] && refs(revisions, "ServiceAccount") == []`, 769},
		"matchesSelector":                {`matchesSelector({"matchLabels": {"app": "web"}}, svc.labels) && !matchesSelector({"matchLabels": {"app": "db"}}, svc.labels)`, 451},
		"matchesSelector, {} and null":   {`matchesSelector({}, svc.labels) && matchesSelector({}, null) && !matchesSelector(null, svc.labels) && !matchesSelector(svc.?nope, svc.labels)`, 36},
		"matchesSelector, In":            {`matchesSelector({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "web"]}]}, svc.?labels) && !matchesSelector({"matchExpressions": [{"key": "none", "operator": "In", "values": ["x"]}]}, svc.labels)`, 964},
		"matchesSelector, NotIn":         {`matchesSelector({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["x"]}]}, svc.labels) && !matchesSelector({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, svc.labels)`, 953},
		"matchesSelector, Exists":        {`matchesSelector({"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "none", "operator": "DoesNotExist"}]}, svc.labels) && !matchesSelector({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, svc.labels) && !matchesSelector({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, svc.?nope)`, 1313},
		"matchesSelector, both":          {`!matchesSelector({"matchLabels": {"app": "db"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}, svc.labels)`, 566},
		"selects":                        {`selects({"app": "web"}, svc.labels) && !selects({"app": "web", "x": "y"}, svc.labels) && !selects({}, svc.labels) && !selects(null, svc.labels) && !selects(svc.?nope, svc.labels) && !selects({"a": "b"}, null)`, 470},
		"setCondition, appended":         {`setCondition(svc.conditions, {"type": "New", "status": "True"}).map(c, c.type) == ["Ready", "Other", "New"]`, 330},
		"setCondition, no list":          {`setCondition(null, {"type": "New", "status": "True"}).size() == 1 && setCondition(svc.?nope, {"type": "New", "status": "True"}) == [{"type": "New", "status": "True"}]`, 305},
		"setCondition, same status":      {`setCondition(svc.conditions, {"type": "Ready", "status": "True", "reason": "x", "lastTransitionTime": string(time)})[0] == {"type": "Ready", "status": "True", "reason": "x", "lastTransitionTime": "2024-01-01T00:00:00Z"}`, 560},
		"setCondition, another status":   {`setCondition(svc.conditions, {"type": "Ready", "status": "False", "lastTransitionTime": string(time)})[0] == {"type": "Ready", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z"}`, 449},
		"setCondition, no time":          {`setCondition(svc.conditions, {"type": "Other", "status": "True", "reason": "y"})[1] == {"type": "Other", "status": "True", "reason": "y"}`, 263},
		"cidrUsable":                     {`cidrUsable("10.0.0.0/24", 3) == 253 && cidrUsable("10.0.0.0/31", 3) == 0 && cidrUsable("10.0.0.1/32", 0) == 1 && cidrUsable("fd00::/112", 2) == 65534`, 0},
		"cidrUsable, large":              {`cidrUsable("fd00::/48", 2) == 9223372036854775807 && cidrUsable("::/65", 1) == 9223372036854775807 && cidrUsable("::/65", 2) == 9223372036854775806 && cidrUsable("::/64", 9223372036854775807) == 9223372036854775807`, 0},
		"ipsWithout":                     {`ipsWithout(["10.0.0.1-10.0.0.9", "10.0.1.0/30"], ["10.0.0.5", "10.0.0.9"]) == ["10.0.0.1-10.0.0.4", "10.0.0.6-10.0.0.8", "10.0.1.0-10.0.1.3"] && ipsWithout(["10.0.0.1"], ["10.0.0.0/8"]) == []`, 351},
		"ipsValid":                       {`ipsValid(["10.0.0.1", "10.0.0.1-10.0.0.9", "fd00::/64"]) && ipsValid([]) && !ipsValid(["10.0.0.9-10.0.0.1"]) && !ipsValid(["10.0.0.1", "a"])`, 8},
		"ipsShared":                      {`ipsShared({"b": ["10.0.0.1-10.0.0.9"], "a": ["10.0.0.8/29"], "c": ["fd00::1"]}) == [{"ips": "10.0.0.8-10.0.0.9", "names": ["a", "b"]}] && ipsShared({"a": ["10.0.0.1", "10.0.0.1"]}) == []`, 513},
		"key":                            {`key(svc) == "svc" && revisions.items.map(p, key(p)) == ["ns/a", "ns/b", "ns/c"]`, 167},
		"has":                            {`has(svc.metadata.name) && !has(svc.metadata.labels) && !has(params.other)`, 0},
		"maps iterate sorted":            {`svc.map(k, k) == ["big", "conditions", "json", "labels", "metadata", "pattern", "spec"]`, 353},
		"mixed literals":                 {`{"a": 1, "b": "x", "c": [1, "y", {}]}.size() == 3`, 0},
		"optional chain":                 {`svc.metadata.?labels[?"a"].orValue("none") == "none"`, 0},
		"cross-type numbers":             {`svc.big > 1.5 && 2u < 3`, 0},
		"backticks":                      {"{'a-b': 1}.`a-b` == 1", 0},
		"UTC":                            {`time.getHours() == 0`, 0},

		"+ of strings":      {`svc.metadata.name + "x" == "svcx"`, 4},
		"+ of lists":        {`(revisions.items + revisions.items).size() == 6`, 176},
		"== of scalars":     {`svc.metadata.name == "svc"`, 0},
		"== of maps":        {`svc.metadata == svc.metadata && svc.metadata != {}`, 16},
		"in a list":         {`1 in params.mixed && !([1] in params.mixed)`, 7},
		"in a literal list": {`svc.metadata.name in ["svc", "x"]`, 0},
		"maps in a literal": {`!(svc.metadata in ["a"]) && !(json.unmarshal("{}") in ["a"]) && !(dyn(["a"].toSet()) in ["a"])`, 290},
		"in a map":          {`"big" in svc`, 0},
		"format":            {`"%s-%d".format([svc.metadata.name, 1]) == "svc-1"`, 1213},
		"indexOf string":    {`svc.metadata.name.indexOf("c") == 2 && svc.metadata.name.lastIndexOf("s") == 0`, 8},
		"indexOf list":      {`params.mixed.indexOf("a") == 1 && params.mixed.lastIndexOf(true) == 2`, 6},
		"includes":          {`params.mixed.includes("a")`, 3},
		"join":              {`["a", "b"].join(", ") == "a, b"`, 54},
		"split":             {`"a,b".split(",") == ["a", "b"]`, 51},
		"replace":           {`"aXbX".replace("X", "--") == "a--b--"`, 8},
		"flatten":           {`[[1], [2, [3]]].flatten() == [1, 2, [3]]`, 342},
		"lists.range":       {`lists.range(3) == [0, 1, 2]`, 52},
		"distinct":          {`[1, 2, 1].distinct() == [1, 2]`, 127},
		"sort":              {`[3, 1, 2].sort() == [1, 2, 3]`, 138},
		"sortBy":            {`revisions.items.sortBy(p, p.spec.nodeName)[2].metadata.name == "b"`, 377},
		"take":              {`[1, 2, 3].take(2) == [1, 2] && [1].take(2) == [1] && [].take(1) == [] && [1].take(0) == []`, 215},
		"minBy, maxBy":      {`revisions.items.minBy(p, p.spec.nodeName).value().metadata.name == "a" && [[1, 2], [3]].maxBy(l, l.size()).value() == [1, 2] && ![].minBy(x, x).hasValue()`, 672},
		"sum of quantities": {`["1Gi", "512Mi"].map(q, quantity(q)).sum() == quantity("1536Mi") && ["100m", "1"].map(q, quantity(q)).sum() == quantity("1100m") && dyn([quantity("1"), quantity("2")]).sum() == quantity("3")`, 1284},
		"sum of anything":   {`[dyn(1), 2].sum() == 3 && dyn([1.5, 1.0]).sum() == 2.5 && dyn([duration("1h"), duration("2h")]).sum() == duration("3h") && dyn([]).sum() == 0 && [quantity("1")].filter(q, false).sum() == quantity("0")`, 281},
		"merge":             {`svc.labels.merge({"tier": "back", "new": "x"}) == {"app": "web", "tier": "back", "new": "x"} && {"b": 1}.merge({"a": 2, "b": 3}).map(k, k) == ["b", "a"] && {}.merge({}) == {}`, 1146},
		"durations, times":  {`duration("30m") * 3 == duration("90m") && 3 * duration("30m") == duration("90m") && dyn(-1) * duration("1h") == duration("-1h") && duration("1h") * 0 == duration("0s") && 2 * 3 == 6 && 2.0 * 1.5 == 3.0`, 0},
		"glob":              {`"preview-42.x".glob("preview-*.?") && !"a-preview-1".glob("preview-*") && !"previewx42".glob("preview.42") && "".glob("*") && "a\nb".glob("a*b") && !"ab".glob("a")`, 21},
		"slice":             {`[1, 2, 3].slice(1, 2) == [2]`, 98},
		"sets":              {`sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])`, 21},
		"quantity":          {`quantity("1500m").isGreaterThan(quantity("1")) && quantity("1e3") == quantity("1k") && isQuantity("1Gi")`, 384},
		"matches":           {`"n1".matches("^n[0-9]$") && matches("n1", svc.pattern)`, 12},
		"find":              {`"pod n1".find("n[0-9]") == "n1" && "n1 n2".findAll("n[0-9]") == ["n1", "n2"] && "n1 n2".findAll("n[0-9]", 1) == ["n1"]`, 215},
		"regex":             {`regex.replace("n1 n2", "n([0-9])", "\\1") == "1 2" && regex.extract("n1", "n([0-9])") == optional.of("1") && regex.extractAll("n1 n2", "n[0-9]") == ["n1", "n2"]`, 141},
		"base64":            {`base64.encode(b"x") == "eA==" && base64.decode("eA==") == b"x"`, 5},
		"strings":           {`" A ".trim().lowerAscii() == "a" && "ab".reverse() == "ba" && "abc".substring(1, 2) == "b" && strings.quote("a") == '"a"'`, 16},
		"conversions":       {`string(svc.big) == "9007199254740993" && bytes("a") == b"a"`, 16},
		"transformMap":      {`{"a": 1}.transformMap(k, v, v + 1) == {"a": 2}`, 328},
		"transformMapEntry": {`["a"].transformMapEntry(i, v, {v: i}) == {"a": 0}`, 408},
		"exists_one":        {`revisions.items.exists_one(p, p.metadata.name == "b")`, 3},
		"bind":              {`cel.bind(n, svc.metadata.name, n + n) == "svcsvc"`, 6},
		"optMap":            {`svc.?metadata.optMap(m, m.name).orValue("") == "svc"`, 0},
		"math":              {`math.greatest([1, 2]) == 2 && math.ceil(1.2) == 2.0`, 0},
		"IP and CIDR":       {`cidr("10.0.0.0/8").containsIP("10.1.2.3") && ip("10.1.2.3").family() == 4`, 0},
		"URL":               {`url("http://a/b?c=d").getHost() == "a"`, 121},
		"semver":            {`semver("1.2.3").isLessThan(semver("1.10.0"))`, 456},
		"k8s format":        {`!format.dns1123Label().validate("a-b").hasValue()`, 112},
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := programs(t, c, tc.expression).EvaluateConditions(t.Context(), functionInput())
			if got[0].Err != nil {
				t.Logf("%s", got[0].Err.Snippet)
			}
			if diff := cmp.Diff([]Result{{Value: true, Cost: tc.cost}}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.expression, diff)
			}
		})
	}
}

// The function cidrUsable counts like all code that counts addresses: by the cases of celenv/addresses.
func TestCidrUsableOfTheSharedCases(t *testing.T) {
	text, err := os.ReadFile("addresses/testdata/ranges.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		CIDR             string
		Reserved, Usable int64
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) < 20 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	c := newCompiler(t, budget.Limits{})
	for _, tc := range cases {
		expression := fmt.Sprintf("cidrUsable(%q, %d) == %d", tc.CIDR, tc.Reserved, tc.Usable)
		if got := programs(t, c, expression).EvaluateConditions(t.Context(), functionInput()); got[0].Err != nil || !got[0].Value {
			t.Errorf("%s: %+v", expression, got[0])
		}
	}
}

func TestFunctionErrors(t *testing.T) {
	cases := map[string]struct{ expression, want string }{
		"unmarshal truncated":  {`json.unmarshal("{") == 1`, "json.unmarshal: the text ends before the value does"},
		"unmarshal trailing":   {`json.unmarshal("1 2") == 1`, "json.unmarshal: there is more text after the value"},
		"unmarshal a map":      {`json.unmarshal(svc.metadata) == 1`, "no such overload: json.unmarshal(map)"},
		"unmarshal too large":  {`json.unmarshal("1e999") == 1`, "json.unmarshal: the number 1e999 is too large"},
		"marshal a number key": {`json.marshal({1: 2}) == ""`, "json.marshal: a key of a map is no string, but a int"},
		"unmarshal too deep":   {`json.unmarshal(lists.range(257).map(x, "[").join() + lists.range(257).map(x, "]").join()) == []`, "json.unmarshal: lists and maps are nested more than 256 deep"},
		"join of no text":      {`["a", dyn([1])].map(x, dyn(x)).join() == ""`, "join: the elements must be strings, and this is a list"},
		"no optional element":  {`[?dyn(svc)].size() == 1`, "what follows the ? must be an optional value, and this is a map"},
		"key that is no key":   {`{dyn(bytes(svc.metadata.name)): svc}.size() == 1`, "a key of a map cannot be a bytes"},
		"no optional entry":    {`{?"a": dyn(1)}.size() == 1`, "what follows the ? must be an optional value, and this is a int"},
		"marshal a quantity":   {`json.marshal(quantity("1")) == ""`, "json.marshal: a value of type kubernetes.Quantity cannot be written"},
		"indexBy a map":        {`revisions.items.indexBy(p, p.metadata).size() == 1`, "indexBy: a key must be a string, an int or a bool, not map"},
		"groupBy null":         {`[1].groupBy(x, null).size() == 1`, "groupBy: a key must be a string, an int or a bool, not null_type"},
		"toSet of doubles":     {`[1.5].toSet().size() == 1`, "toSet: a key must be a string, an int or a bool, not double"},
		"parseDuration":        {`parseDuration("7 days") > duration("1h")`, `"7 days" is not a duration: write numbers with the units ns, us, ms, s, m, h, d or w, such as "360h" or "1h30m"`},
		"parseTimestamp":       {`parseTimestamp("31.1.2026") < time`, `"31.1.2026" is not a time: write one such as "2026-01-31T10:30:00Z", "2026-01-31T10:30", "2026-01-31" or, in a label, "2026-01-31T103000Z"`},
		"no such day":          {`parseTimestamp("2026-02-30") < time`, `"2026-02-30" is not a time: write one such as "2026-01-31T10:30:00Z", "2026-01-31T10:30", "2026-01-31" or, in a label, "2026-01-31T103000Z"`},
		"no such year":         {`parseTimestamp("0000-01-01") < time`, `"0000-01-01" is not a time: write one such as "2026-01-31T10:30:00Z", "2026-01-31T10:30", "2026-01-31" or, in a label, "2026-01-31T103000Z"`},
		"condition of a list":  {`condition([], "Ready").hasValue()`, "condition: this is no object, but a list"},
		"controller of a list": {`controller([]).hasValue()`, "controller: this is no object with metadata"},
		"seconds":              {`seconds(9223372036854775807) > duration("1h")`, "seconds(9223372036854775807) is longer than a duration can be (292 years)"},
		"certificates":         {`certificates("x") == []`, "certificates: the text is not in PEM form: it begins with -----BEGIN CERTIFICATE-----"},
		"podSpec of a string":  {`podSpec("x").hasValue()`, "podSpec: this is no object, but a string"},
		"podRefs of a list":    {`podRefs([], "Secret").size() == 0`, "podRefs: this is no pod spec, but a list"},
		"podRefs of a kind":    {`podRefs({}, "Service").size() == 0`, `podRefs knows ConfigMap, Secret, PersistentVolumeClaim and ServiceAccount, and not "Service"`},
		"podLabels of a list":  {`podLabels([]) == {}`, "podLabels: this is no object, but a list"},
		"refs of a string":     {`refs([["x"]], "Secret") == []`, "refs: this is no object, but a string"},
		"refs of a kind":       {`refs(svc, "secret") == []`, `refs knows ConfigMap, Secret, PersistentVolumeClaim and ServiceAccount, and not "secret"`},
		"selector of Service":  {`matchesSelector({"app": "x"}, {})`, "matchesSelector: a label selector has matchLabels and matchExpressions only; for a plain map of labels write selects(...)"},
		"selector of nothing":  {`matchesSelector([], {})`, "matchesSelector: a selector is a map, and this is a list"},
		"labels of nothing":    {`selects({}, "x")`, "selects: labels are a map, and these are a string"},
		"matchLabels":          {`matchesSelector({"matchLabels": []}, {})`, "matchesSelector: matchLabels is no map"},
		"matchExpressions":     {`matchesSelector({"matchExpressions": {}}, {})`, "matchesSelector: matchExpressions is no list"},
		"no key":               {`matchesSelector({"matchExpressions": [{"operator": "Exists"}]}, {})`, "matchesSelector: an entry of matchExpressions has no key"},
		"no values":            {`matchesSelector({"matchExpressions": [{"key": "a", "operator": "NotIn"}]}, {})`, `matchesSelector: NotIn of "a" has no values`},
		"no operator":          {`matchesSelector({"matchExpressions": [{"key": "a", "operator": "Gt"}]}, {})`, `matchesSelector: Gt of "a" is no operator: In, NotIn, Exists and DoesNotExist are`},
		"no condition":         {`setCondition([], {"type": "Ready"}).size() == 1`, "setCondition: a condition is a map with the strings type and status"},
		"no conditions":        {`setCondition({}, {"type": "Ready", "status": "True"}).size() == 1`, "setCondition: the conditions are no list, but a map"},
		"no CIDR":              {`cidrUsable("10.0.0.0", 0) == 0`, `cidrUsable: "10.0.0.0" is no range of addresses: write one such as 10.0.0.0/24`},
		"reserved":             {`cidrUsable("10.0.0.0/24", -1) == 0`, "cidrUsable: -1 addresses cannot be reserved"},
		"no range":             {`ipsWithout(["10.0.0.9-10.0.0.1"], []) == []`, `ipsWithout: "10.0.0.9-10.0.0.1" is no range of addresses: write one such as 10.0.0.1, 10.0.0.1-10.0.0.9 or 10.0.0.0/24`},
		"no range to leave":    {`ipsWithout([], ["a"]) == []`, `ipsWithout: "a" is no range of addresses: write one such as 10.0.0.1, 10.0.0.1-10.0.0.9 or 10.0.0.0/24`},
		"ranges of a name":     {`ipsShared({"a": ["10.0.0"]}) == []`, `ipsShared: "10.0.0" is no range of addresses: write one such as 10.0.0.1, 10.0.0.1-10.0.0.9 or 10.0.0.0/24`},
		"no list of ranges":    {`ipsShared(json.unmarshal('{"a": ["10.0.0.1"], "b": 1}')) == []`, `ipsShared: the ranges are no list, but a int`},
		"no text of a range":   {`ipsWithout([dyn("10.0.0.1"), dyn(1)], []) == []`, `ipsWithout: a range is a string, and this is a int`},
		"key of no object":     {`key({}) == ""`, "key: this is no object with metadata.name"},
		"quantity exponent":    {`quantity("1e1000000000").isGreaterThan(quantity("1.5"))`, `the exponent of the quantity "1e1000000000" is too large`},
		"negative exponent":    {`isQuantity("1.5E-999999999")`, `the exponent of the quantity "1.5E-999999999" is too large`},
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := programs(t, c, tc.expression).EvaluateConditions(t.Context(), functionInput())[0]
			if got.Err == nil {
				t.Fatalf("%s gave %v", tc.expression, got.Value)
			}
			if diff := cmp.Diff(expr.Error{Kind: expr.Runtime, Message: tc.want}, expr.Error{Kind: got.Err.Kind, Message: got.Err.Message}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.expression, diff)
			}
		})
	}
}

// A conversion takes what value() gives, and what optMap passes on, whatever that is.
func TestConversionsOfOptionals(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	note := func(key string) string { return `svc.?notes[?"` + key + `"]` }
	for _, expression := range []string{
		`timestamp(` + note("since") + `.value()) == timestamp("2024-01-01T00:00:00Z")`,
		`timestamp(svc.notes[?"since"].value()) < time`,
		`timestamp(svc.?notes.?since.value()) < time`,
		note("since") + `.optMap(s, timestamp(s) < time).orValue(false)`,
		note("since") + `.optFlatMap(s, optional.of(timestamp(s))).value() < time`,
		`duration(` + note("for") + `.value()) == duration("90s")`,
		`int(` + note("number") + `.value()) == 7 && double(` + note("number") + `.value()) == 7.0 && uint(` + note("number") + `.value()) == 7u`,
		`bool(` + note("yes") + `.value())`,
		`string(` + note("count") + `.value()) == "3" && int(` + note("count") + `.value()) == 3 && bytes(` + note("for") + `.value()) == b"90s"`,
		`timestamp(time) == time && timestamp(1) == timestamp("1970-01-01T00:00:01Z")`,
	} {
		in := Input{Time: at("2025-01-01T00:00:00Z"), Targets: map[string]any{"svc": map[string]any{"notes": map[string]any{
			"since": "2024-01-01T00:00:00Z", "for": "90s", "number": "7", "yes": "true", "count": int64(3),
		}}}}
		if got := programs(t, c, expression).EvaluateConditions(t.Context(), in)[0]; got.Err != nil || !got.Value {
			t.Errorf("%s gives %v, %v", expression, got.Value, got.Err)
		}
	}
}
