// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/config/templates"
)

func newCompiler(t *testing.T) *celenv.Compiler {
	t.Helper()
	c, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each Cleaner, ClusterCleaner and CleanerTemplate on a page can be applied as it stands: it is strict, valid, compiles,
// and nobody warns of it. TestSessions applies them.
func TestCleaners(t *testing.T) {
	compiler, found := newCompiler(t), map[string]int{}
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.language != "yaml" {
				continue
			}
			for manifest := range strings.SplitSeq(b.text, "\n---\n") {
				var kind metav1.TypeMeta
				if err := yaml.Unmarshal([]byte(manifest), &kind); err != nil {
					t.Errorf("%s:%d: %v", p.name, b.line, err)
				}
				if kind.GroupVersionKind().Group != v1alpha1.GroupVersion.Group {
					continue
				}
				found[kind.Kind]++
				for _, problem := range problems(t, compiler, manifest) {
					t.Errorf("%s:%d: %s", p.name, b.line, problem)
				}
			}
		}
	}
	for _, kind := range []string{"Cleaner", "ClusterCleaner", "CleanerTemplate"} {
		if found[kind] == 0 {
			t.Errorf("no page shows a %s", kind)
		}
	}
}

// problems are what is wrong with the manifest of a Cleaner, a ClusterCleaner or a CleanerTemplate. What a shipped template
// is warned of is the business of those who wrote it; it may be used in protected namespaces.
func problems(t *testing.T, compiler *celenv.Compiler, manifest string) []string {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object, gvk, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode([]byte(manifest), nil, nil)
	switch {
	case err != nil:
		return []string{err.Error()}
	case gvk.Version != v1alpha1.GroupVersion.Version:
		return []string{"apiVersion is " + gvk.GroupVersion().String()}
	}
	if template, ok := object.(*v1alpha1.CleanerTemplate); ok {
		work, errs := templates.StandIn(template)
		if len(errs) > 0 {
			return []string{errs.ToAggregate().Error()}
		}
		programs, errs := compiler.Compile(t.Context(), work)
		return said(validation.ValidateTemplate(template, templates.Validate(template), validation.Options{Compiled: errs}), programs)
	}
	owner, ok := object.(v1alpha1.Owner)
	if !ok {
		return []string{gvk.Kind + " is no kind of ours"}
	}
	var template *v1alpha1.CleanerTemplate
	if ref := owner.Work().TemplateRef; ref != nil {
		if template, err = templates.Load(ref.Name); err != nil {
			return []string{err.Error()}
		}
	}
	work, errs := templates.Expand(owner, template)
	if len(errs) > 0 {
		return []string{errs.ToAggregate().Error()}
	}
	programs, errs := compiler.Compile(t.Context(), work)
	findings := validation.Validate(work, validation.Options{Compiled: errs})
	if template != nil {
		findings = findings.Errors()
	}
	return said(findings, programs)
}

// said are findings, and what the compiler warns of, in words.
func said(findings validation.Findings, programs *celenv.Programs) []string {
	var all []string
	for _, f := range findings {
		all = append(all, f.String())
	}
	if len(findings.Errors()) == 0 {
		for _, w := range programs.Warnings() {
			all = append(all, w.Message)
		}
	}
	return all
}

func TestProblemsAreFound(t *testing.T) {
	const good = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
spec:
  ttl: 1d
  targets:
  - {name: pods, reference: {version: v1, kind: Pod, matchLabels: {a: b}}, delete: true}
  conditions: ['pods.items.size() > 0']`
	const cluster = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: ClusterCleaner
spec: {lifecycle: Recurring, templateRef: {name: podgc-orphaned, parameters: {quarantine: 1m}}}`
	const template = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: CleanerTemplate
spec:
  parameters: [{name: after, type: duration}]
  template:
    targets: [{name: pods, reference: {version: v1, kind: Pod}}]
    rules: [{name: all, forEach: pods.items, when: "true", for: params.after, actions: [{delete: {}}]}]`
	cases := map[string]struct {
		manifest, old, new string
		bad                bool
	}{
		"good":                       {"", "", "", false},
		"unknown field":              {"", "ttl: 1d", "tll: 1d", true},
		"invalid":                    {"", "ttl: 1d", "ttl: 1x", true},
		"does not compile":           {"", "pods.items", "pod.items", true},
		"is warned of":               {"", "size() > 0", `exists(p, p.metadata.labels.other == "b")`, true},
		"another version":            {"", "v1alpha1", "v1", true},
		"good ClusterCleaner":        {cluster, "", "", false},
		"template that is not there": {cluster, "orphaned", "orphans", true},
		"unknown parameter":          {cluster, "quarantine", "quarantines", true},
		"wrong value":                {cluster, "1m", "true", true},
		"good template":              {template, "", "", false},
		"parameter without a type":   {template, ", type: duration", "", true},
		"rule that does not compile": {template, "pods.items", "pod.items", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := problems(t, newCompiler(t), strings.Replace(cmp.Or(tc.manifest, good), tc.old, tc.new, 1))
			if bad := len(got) > 0; bad != tc.bad {
				t.Errorf("got %v", got)
			}
		})
	}
}

// Each example of docs/cel.md gives what is written beside it.
func TestExpressions(t *testing.T) {
	p := readPage(t, "docs/cel.md")
	e := newExamples(t, p)
	found := p.examples()
	for _, x := range found {
		if err := e.check(t, x.expression, x.gives); err != nil {
			t.Errorf("%s: %v", x.expression, err)
		}
	}
	if len(found) < 150 {
		t.Errorf("only %d examples were found", len(found))
	}
}

// example is an expression, and what is written beside it.
type example struct{ expression, gives string }

// examples are those of all tables: each cell that says what is given stands behind its expression.
func (p page) examples() []example {
	var all []example
	for _, row := range p.rows() {
		for i, cell := range row {
			if gives, ok := strings.CutPrefix(strings.Trim(cell, "`"), "=> "); ok && i > 0 {
				all = append(all, example{strings.Trim(row[i-1], "`"), gives})
			}
		}
	}
	return all
}

// Each function, operator and macro of the language has an example. functions.txt lists them: a test of celenv holds it to
// the environment.
func TestEveryFunctionHasAnExample(t *testing.T) {
	var expressions []string
	for _, x := range readPage(t, "docs/cel.md").examples() {
		expressions = append(expressions, x.expression)
	}
	language := readFile(t, "celenv/testdata/functions.txt")
	if missing := notCalled(language, expressions); len(missing) > 0 {
		t.Errorf("docs/cel.md has no example of %s", strings.Join(missing, ", "))
	}
	for _, name := range []string{"indexBy:2", "cidrUsable", "_[?_]", "@in", "transformMap:4"} {
		without := slices.DeleteFunc(slices.Clone(expressions), func(e string) bool { return calls(e, name) })
		if !slices.Contains(notCalled(language, without), name) {
			t.Errorf("nobody would notice that %s has no example", name)
		}
	}
}

// notCalled are the functions, the operators, and the macros with the number of their arguments, that no expression calls.
// What only the compiler calls, for a macro, has an @ in its name or is in underscores.
func notCalled(language string, expressions []string) []string {
	var names []string
	for line := range strings.Lines(language) {
		kind, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name, _, _ = strings.Cut(name, " "); kind == "macro" {
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, ":true"), ":false"), ":*")
		}
		internal := name != "@in" && strings.Contains(name, "@") || strings.HasPrefix(name, "__") || name == "in" || name == "_in_"
		if !internal && !slices.ContainsFunc(expressions, func(e string) bool { return calls(e, name) }) {
			names = append(names, name)
		}
	}
	return slices.Compact(names)
}

// calls says whether an expression calls a function, an operator, or a macro with so many arguments.
func calls(expression, name string) bool {
	symbols := map[string]string{"_?_:_": " ? ", "_[_]": "[", "_[?_]": "[?", "_?._": ".?", "-_": "-p", "!_": "!", "@in": " in "}
	if symbol, ok := symbols[name]; ok {
		return strings.Contains(expression, symbol)
	}
	if operator := strings.Trim(name, "_"); operator != name {
		return strings.Contains(expression, " "+operator+" ")
	}
	name, count, counted := strings.Cut(name, ":")
	for _, at := range regexp.MustCompile(`(^|\W)`+regexp.QuoteMeta(name)+`\(`).FindAllStringIndex(expression, -1) {
		if !counted || count == strconv.Itoa(arguments(expression[at[1]:])) {
			return true
		}
	}
	return false
}

// arguments is how many there are up to the bracket that ends them.
func arguments(text string) int {
	n, depth := 1, 0
	for _, r := range text {
		switch {
		case strings.ContainsRune("([{", r):
			depth++
		case strings.ContainsRune(")]}", r):
			if depth--; depth < 0 {
				return n
			}
		case r == ',' && depth == 0:
			n++
		}
	}
	return n
}

func TestWrongExamplesAreFound(t *testing.T) {
	e := newExamples(t, readPage(t, "docs/cel.md"))
	for expression, want := range map[string]string{
		`1 + 1`:                 `3`,
		`params.keep`:           `error: no such key`,
		`params.none`:           `1`,
		`params.nothing`:        `error: no such key: none`,
		`pods.items.indexOf(`:   `1`,
		`pods.items[0].metdata`: `error: labels`,
	} {
		if e.check(t, expression, want) == nil {
			t.Errorf("%s => %s passes", expression, want)
		}
	}
}

// examples is what the examples see.
type examples struct {
	compiler *celenv.Compiler
	input    celenv.Input
	spec     v1alpha1.CleanerSpec
}

// newExamples reads the first yaml block of the page: time, params, and targets.
func newExamples(t *testing.T, p page) *examples {
	t.Helper()
	at := slices.IndexFunc(p.blocks, func(b block) bool { return b.language == "yaml" })
	if at < 0 {
		t.Fatalf("%s does not say what its examples see", p.name)
	}
	text, err := yaml.YAMLToJSON([]byte(p.blocks[at].text))
	if err != nil {
		t.Fatal(err)
	}
	var seen map[string]any
	if err := json.Unmarshal(text, &seen); err != nil { // of apimachinery: integers stay such
		t.Fatal(err)
	}
	moment, _ := seen["time"].(string)
	e := &examples{compiler: newCompiler(t)}
	if e.input.Time, err = time.Parse(time.RFC3339, moment); err != nil {
		t.Fatal(err)
	}
	e.input.Params, _ = seen["params"].(map[string]any)
	delete(seen, "time")
	delete(seen, "params")
	e.input.Targets = seen
	for name := range seen {
		e.spec.Targets = append(e.spec.Targets, v1alpha1.Target{Name: name})
	}
	return e
}

// check says how an example differs from what is written beside it: a value, or "error: " and a part of the message.
func (e *examples) check(t *testing.T, expression, want string) error {
	t.Helper()
	message, isError := strings.CutPrefix(want, "error: ")
	condition := fmt.Sprintf("dyn(%s) == dyn(%s)", expression, want)
	if isError {
		condition = fmt.Sprintf("[%s].size() == 1", expression)
	}
	got, err := e.evaluate(t, condition)
	switch {
	case isError && err == nil:
		return fmt.Errorf("gives no error; want one with %q", message)
	case isError && strings.Contains(err.Error(), message):
		return nil
	case err != nil:
		return err
	case !got:
		return fmt.Errorf("does not give %s", want)
	}
	return nil
}

func (e *examples) evaluate(t *testing.T, condition string) (bool, error) {
	t.Helper()
	e.spec.Conditions = []string{condition}
	programs, errs := e.compiler.Compile(t.Context(), e.spec.Work())
	if len(errs) > 0 {
		return false, errs.ToAggregate()
	}
	result := programs.EvaluateConditions(t.Context(), e.input)[0]
	if result.Err != nil {
		return false, result.Err
	}
	return result.Value, nil
}
