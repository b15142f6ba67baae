// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/casetest"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
)

const (
	cookbook = "../../config/samples/cookbook"
	// unreadable is the folder of the case whose objects say what a recipe cannot read: each is an error, and stays.
	unreadable = "unreadable"
)

// The recipes pass their own cases.
func TestCookbook(t *testing.T) {
	var out strings.Builder
	if code := run(t.Context(), clock.RealClock{}, []string{"test", cookbook}, strings.NewReader(""), &out, &out); code != 0 {
		t.Error(out.String())
	}
	if _, err := os.Stat(filepath.Join(cookbook, "kustomization.yaml")); err == nil {
		t.Error("nobody needs all recipes at once")
	}
}

// Nothing that is shipped is warned of because of the time: what can be foreseen is, and does not change every second. A Cleaner that does is.
func TestNothingShippedIsUnforeseen(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(contents(t, tenRules), -1)
	for i, block := range blocks {
		put(fmt.Sprintf("rule-%d", i), block[1])
	}
	var protected []string
	for _, r := range recipes(t) {
		put(r.name, r.text)
		for _, flag := range allowing.FindAllString(r.text, -1) {
			_, kinds, _ := strings.Cut(flag, "=")
			protected = append(protected, kinds)
		}
	}
	shipped, err := filepath.Glob("../../config/templates/*/template.yaml")
	if err != nil || len(shipped) < 5 {
		t.Fatalf("the templates are not where they should be: %v, %v", shipped, err)
	}
	for i, path := range shipped {
		put(fmt.Sprintf("template-%d", i), contents(t, path))
	}
	validate := func(what string, want int) {
		t.Helper()
		var out strings.Builder
		code := run(t.Context(), clock.RealClock{}, []string{"validate", "-f", what, "--allow-protected-kinds", strings.Join(protected, ",")}, strings.NewReader(""), &out, &out)
		lines := regexp.MustCompile("(?m)^.*(cannot be predicted|changes every second).*$").FindAllString(out.String(), -1)
		if code != 0 || len(lines) != want {
			t.Errorf("%s: code %d: %q, and not %d warnings\n%s", what, code, lines, want, out.String())
		}
	}
	validate(dir, 0)
	validate(put("wrong", strings.Replace(blocks[0][1], "when: ", "unless: string(time) == \"2026\"\n    when: ", 1)), 1)
}

// recipe is a folder of the cookbook.
type recipe struct {
	name, text string
	own        struct {
		Metadata struct{ Name string }
		Spec     struct{ IncludeProtected bool }
	}
	cases map[string]casetest.ExpectedPlan // by folder
}

func recipes(t *testing.T) []recipe {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(cookbook, "*", casetest.FileCleaner))
	if err != nil || len(paths) < 10 {
		t.Fatalf("the recipes are not where they should be: %v, %v", paths, err)
	}
	var all []recipe
	for _, path := range paths {
		dir := filepath.Dir(path)
		r := recipe{name: filepath.Base(dir), text: contents(t, path), cases: map[string]casetest.ExpectedPlan{}}
		if err := yaml.Unmarshal([]byte(r.text), &r.own); err != nil {
			t.Fatal(err)
		}
		folders, err := filepath.Glob(filepath.Join(dir, "testdata", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, folder := range folders {
			var plan casetest.ExpectedPlan
			if err := yaml.Unmarshal([]byte(contents(t, filepath.Join(folder, casetest.FilePlan))), &plan); err != nil {
				t.Fatal(err)
			}
			r.cases[folder] = plan
		}
		all = append(all, r)
	}
	return all
}

func contents(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each recipe is called as its folder is, and has a case in which it does something, and one in which it does nothing
// although there are objects of the kind.
func TestRecipesHaveCasesThatMustAndMustNotMatch(t *testing.T) {
	for _, r := range recipes(t) {
		t.Run(r.name, func(t *testing.T) {
			if r.own.Metadata.Name != r.name {
				t.Errorf("it is called %q", r.own.Metadata.Name)
			}
			if !strings.HasPrefix(r.text, "# ") {
				t.Error("it does not say what it is for: begin with a comment")
			}
			kinds := map[string]bool{}
			for _, plan := range r.cases {
				for _, step := range plan.Steps {
					kinds[step.Kind] = true
				}
			}
			if len(kinds) == 0 {
				t.Error("in no case it does something")
			}
			quiet := map[string]bool{}
			for folder, plan := range r.cases {
				if wrong := filepath.Base(folder) == unreadable; (len(plan.Errors) > 0) != wrong {
					t.Errorf("%s has errors: %v", folder, plan.Errors)
				}
				if len(plan.Steps) > 0 || len(plan.Withheld) > 0 {
					continue
				}
				documents, err := manifests.Input{}.ReadDocuments(filepath.Join(folder, casetest.FileObjects))
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range documents {
					kind, _ := d.Object["kind"].(string)
					quiet[kind] = true
				}
			}
			for kind := range kinds {
				if !quiet[kind] {
					t.Errorf("there is no case with a %s in which it does nothing", kind)
				}
			}
		})
	}
}

var allowing = regexp.MustCompile(`--allow-protected-kinds=[a-z0-9.,]*[a-z0-9]`)

// What a recipe does only with a switch it does not do without, and it says which switch that is; so does the table.
func TestRecipesThatNeedASwitch(t *testing.T) {
	table := contents(t, filepath.Join(cookbook, "README.md"))
	for _, r := range recipes(t) {
		t.Run(r.name, func(t *testing.T) {
			row := regexp.MustCompile(`(?m)^\| \[` + r.name + `\]\(` + r.name + `/` + casetest.FileCleaner + `\) \|.*$`).FindString(table)
			if row == "" {
				t.Fatal("the table has no row of it")
			}
			asked := map[string]bool{}
			for folder, plan := range r.cases {
				if _, err := os.Stat(filepath.Join(folder, casetest.FileAllowedKinds)); err != nil {
					continue
				}
				for _, which := range without(t, r, folder, plan) {
					asked[which] = true
				}
			}
			said := map[string]bool{}
			for _, which := range allowing.FindAllString(r.text, -1) {
				said[which] = true
			}
			if diff := cmp.Diff(asked, said); diff != "" {
				t.Errorf("which switches it needs, and which it says (-needs +says):\n%s", diff)
			}
			for which := range asked {
				if !strings.Contains(row, "`"+which+"`") {
					t.Errorf("the table does not say that it needs %s", which)
				}
			}
			if !r.own.Spec.IncludeProtected {
				return
			}
			if !strings.Contains(row, "`includeProtected`") {
				t.Error("the table does not say that it has includeProtected")
			}
			if !slices.ContainsFunc(slices.Collect(maps.Keys(r.cases)), func(folder string) bool {
				patch, err := os.ReadFile(filepath.Join(folder, casetest.FilePatch))
				return err == nil && strings.Contains(string(patch), "includeProtected: false") &&
					slices.ContainsFunc(slices.Collect(maps.Values(plainly(r.cases[folder]))), func(because string) bool { return strings.HasSuffix(because, "is protected") })
			}) {
				t.Error("no case shows what it leaves alone without includeProtected")
			}
		})
	}
	for _, m := range regexp.MustCompile(`(?m)^\| \[([a-z-]+)\]\(`).FindAllStringSubmatch(table, -1) {
		if _, err := os.Stat(filepath.Join(cookbook, m[1], casetest.FileCleaner)); err != nil {
			t.Errorf("the table has a recipe that is not there: %v", err)
		}
	}
}

// plainly is what a plan withholds, and why.
func plainly(plan casetest.ExpectedPlan) map[string]string {
	out := map[string]string{}
	for _, w := range plan.Withheld {
		out[w.Kind+" "+w.Namespace+"/"+w.Name] = w.Because
	}
	return out
}

// without plans a case that has protected kinds allowed with none allowed, wants nothing to be done, and returns which
// switches were asked for.
func without(t *testing.T, r recipe, folder string, plan casetest.ExpectedPlan) []string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{casetest.FileCleaner, casetest.FilePatch, casetest.FileObjects, casetest.FileAt} {
		path := filepath.Join(folder, name)
		if name == casetest.FileCleaner {
			path = filepath.Join(cookbook, r.name, name)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue // not each case has all files
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if run(t.Context(), clock.RealClock{}, []string{"test", "--update", dir}, strings.NewReader(""), &out, &out) != 0 {
		return allowing.FindAllString(out.String(), -1) // it is refused
	}
	var bare casetest.ExpectedPlan
	if err := yaml.Unmarshal([]byte(contents(t, filepath.Join(dir, casetest.FilePlan))), &bare); err != nil {
		t.Fatal(err)
	}
	if len(bare.Steps) > 0 && len(bare.Steps) == len(plan.Steps) {
		t.Errorf("%s: nothing is different without the switch", folder)
	}
	var asked []string
	for _, because := range plainly(bare) {
		asked = append(asked, allowing.FindAllString(because, -1)...)
	}
	return asked
}

// TestShippedRulesHaveItems shows that no rule of a template, a recipe or a sample is told to act on nothing, because an earlier one deletes
// its items.
func TestShippedRulesHaveItems(t *testing.T) {
	args := []string{"validate", "-f", "../../config/samples"}
	templates, err := filepath.Glob("../../config/templates/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range templates {
		args = append(args, "-f", file)
	}
	if out, errs := command(t, args...); strings.Count(out, " is valid") < 30 || strings.Contains(errs, "acts on no item") {
		t.Errorf("%s%s", out, errs)
	}
}
