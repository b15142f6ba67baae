// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
)

func newCompiler(t *testing.T) *celenv.Compiler {
	t.Helper()
	c, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each Cleaner on a page can be applied as it stands: it is strict, valid, compiles, and nobody warns of it.
func TestCleaners(t *testing.T) {
	compiler, found := newCompiler(t), 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.language != "yaml" {
				continue
			}
			var kind struct{ Kind string }
			if err := yaml.Unmarshal([]byte(b.text), &kind); err != nil {
				t.Errorf("%s:%d: %v", p.name, b.line, err)
			}
			if kind.Kind != "Cleaner" {
				continue
			}
			found++
			for _, problem := range problems(compiler, b.text) {
				t.Errorf("%s:%d: %s", p.name, b.line, problem)
			}
		}
	}
	if found == 0 {
		t.Error("no page shows a Cleaner")
	}
}

// problems are what is wrong with the manifest of a Cleaner.
func problems(compiler *celenv.Compiler, manifest string) []string {
	c := &v1alpha1.Cleaner{}
	if err := yaml.UnmarshalStrict([]byte(manifest), c); err != nil {
		return []string{err.Error()}
	}
	var found []string
	if c.APIVersion != v1alpha1.GroupVersion.String() {
		found = append(found, "apiVersion is "+c.APIVersion)
	}
	programs, errs := compiler.Compile(c.Work())
	for _, f := range validation.Validate(c.Work(), validation.Options{Compiled: errs}) {
		found = append(found, f.String())
	}
	if len(errs) == 0 {
		for _, w := range programs.Warnings() {
			found = append(found, w.Message)
		}
	}
	return found
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
	cases := map[string]struct {
		old, new string
		bad      bool
	}{
		"good":             {"", "", false},
		"unknown field":    {"ttl: 1d", "tll: 1d", true},
		"invalid":          {"ttl: 1d", "ttl: 1x", true},
		"does not compile": {"pods.items", "pod.items", true},
		"is warned of":     {"size() > 0", `exists(p, p.metadata.labels.a == "b")`, true},
		"another version":  {"v1alpha1", "v1", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := problems(newCompiler(t), strings.Replace(good, tc.old, tc.new, 1))
			if bad := len(got) > 0; bad != tc.bad {
				t.Errorf("got %v", got)
			}
		})
	}
}

// Each example of docs/expressions.md gives what is written beside it.
func TestExpressions(t *testing.T) {
	p := readPage(t, "docs/expressions.md")
	e := newExamples(t, p)
	found := 0
	for _, row := range p.rows() {
		if len(row) != 2 {
			continue
		}
		want, ok := strings.CutPrefix(strings.Trim(row[1], "`"), "=> ")
		if !ok {
			continue
		}
		found++
		if err := e.check(t, strings.Trim(row[0], "`"), want); err != nil {
			t.Errorf("%s: %v", row[0], err)
		}
	}
	if found < 40 {
		t.Errorf("only %d examples were found", found)
	}
}

func TestWrongExamplesAreFound(t *testing.T) {
	e := newExamples(t, readPage(t, "docs/expressions.md"))
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
	programs, errs := e.compiler.Compile(e.spec.Work())
	if len(errs) > 0 {
		return false, errs.ToAggregate()
	}
	result := programs.Conditions(t.Context(), e.input)[0]
	if result.Err != nil {
		return false, result.Err
	}
	return result.Value, nil
}
