// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/config/templates"
)

// part is what stands beneath a heading, up to the next one.
func (p page) part(t *testing.T, heading string) page {
	t.Helper()
	_, text, found := strings.Cut("\n"+p.text, "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", p.name, heading)
	}
	if at := regexp.MustCompile(`(?m)^#+ `).FindStringIndex(text); at != nil {
		text = text[:at[0]]
	}
	return page{name: p.name, text: text}
}

// Each component that gives rights has a table of them in docs/install.md, and it is said whether it is on by default.
func TestPresets(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "config", "components", "*", "role.yaml"))
	if err != nil || len(paths) < 5 {
		t.Fatalf("the presets are not where they should be: %v, %v", paths, err)
	}
	kustomization := readFile(t, "config/default/kustomization.yaml")
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		role := &rbacv1.ClusterRole{}
		if err := yaml.UnmarshalStrict([]byte(readFile(t, "config/components/"+name+"/role.yaml")), role); err != nil {
			t.Fatal(err)
		}
		want := [][]string{{"API group", "Resources", "Verbs"}}
		for _, rule := range role.Rules {
			verbs := slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool { return strings.HasPrefix(v, "impersonate-on:") })
			if len(verbs) == 0 {
				verbs = []string{strings.ReplaceAll("as a ServiceAccount: "+strings.Join(rule.Verbs, ", "), "impersonate-on:serviceaccount:", "")}
			}
			for _, group := range rule.APIGroups {
				if group == "" {
					group = "core"
				}
				want = append(want, []string{group, "`" + strings.Join(rule.Resources, "`, `") + "`", strings.Join(verbs, ", ")})
			}
		}
		p := readPage(t, "docs/install.md").part(t, "#### "+name)
		if diff := cmp.Diff(want, p.rows()); diff != "" {
			t.Errorf("%s (-role +page):\n%s", name, diff)
		}
		on := strings.Contains(kustomization, "\n- ../components/"+name+"\n")
		if says := strings.HasPrefix(strings.TrimSpace(p.text), "On by default."); says != on {
			t.Errorf("%s: docs/install.md says %t of whether it is on by default", name, says)
		}
	}
}

// Each template that is shipped has its parameters in docs/templates.md, as its file has them.
func TestTemplates(t *testing.T) {
	all, err := templates.LoadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range all {
		p := readPage(t, "docs/templates.md").part(t, "## "+template.Name)
		if description := strings.Join(strings.Fields(template.Spec.Description), " "); !strings.Contains(p.text, description) {
			t.Errorf("%s is described otherwise in its file: %s", template.Name, description)
		}
		var want [][]string
		for i, parameter := range template.Spec.Parameters {
			if i == 0 {
				want = append(want, []string{"Parameter", "Type", "Default", "What it says"})
			}
			var value any
			if err := json.Unmarshal(parameter.Default.Raw, &value); err != nil {
				t.Fatal(err)
			}
			kind := string(parameter.Type)
			for j, e := range parameter.Enum {
				kind += []string{": ", " or "}[min(j, 1)] + "`" + e + "`"
			}
			want = append(want, []string{"`" + parameter.Name + "`", kind, fmt.Sprintf("`%v`", value), strings.Join(strings.Fields(parameter.Description), " ")})
		}
		if diff := cmp.Diff(want, p.rows()); diff != "" {
			t.Errorf("%s (-template +page):\n%s", template.Name, diff)
		}
	}
}

// docs/cli.md has each command, and those of its flags that are not kubectl's.
func TestCommands(t *testing.T) {
	program := plugin(t)
	help := func(command ...string) string {
		out, err := exec.CommandContext(t.Context(), program, append(command, "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	p := readPage(t, "docs/cli.md")
	_, list, _ := strings.Cut(help(), "\nWrite Cleaners:\n")
	list, _, _ = strings.Cut(list, "\nFlags:\n")
	commands := 0
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z-]+) `).FindAllStringSubmatch(list, -1) {
		command := m[1]
		if command == "help" {
			continue
		}
		commands++
		if !slices.Contains(spans(p.text), command) {
			t.Errorf("docs/cli.md has no command %s", command)
			continue
		}
		_, flags, _ := strings.Cut(help(command), "\nFlags:\n")
		flags, _, _ = strings.Cut(flags, "\n\n")
		var want []string
		for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[\w-]+)`).FindAllStringSubmatch(flags, -1) {
			if m[1] != "--help" {
				want = append(want, m[1])
			}
		}
		if len(want) == 0 {
			continue
		}
		var got []string
		for _, row := range p.part(t, "## "+command).rows() {
			if names := spans(row[0]); len(names) > 0 && strings.HasPrefix(row[0], "`-") {
				got = append(got, names[len(names)-1])
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("flags of %s (-program +page):\n%s", command, diff)
		}
	}
	if commands < 5 {
		t.Errorf("only %d commands were found", commands)
	}
}

// The table of Events in docs/troubleshooting.md has each reason that the operator emits, and no others.
func TestEvents(t *testing.T) {
	want := map[string]bool{}
	ast.Inspect(parse(t, "api/v1alpha1/conditions.go"), func(n ast.Node) bool { // reasons that only Events have
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "EventReason") {
			want[text(t, spec.Values[0])] = true
		}
		return true
	})
	own := len(want)
	collect := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr: // p.NoteEvent(kind, reason, ...)
			if s, ok := n.Fun.(*ast.SelectorExpr); !ok || s.Sel.Name != "NoteEvent" {
				return true
			}
			switch reason := n.Args[1].(type) {
			case *ast.BasicLit:
				t.Errorf("the reason %s of an Event is no constant", reason.Value)
			case *ast.SelectorExpr: // one that conditions have, too
				if shared, ok := strings.CutPrefix(reason.Sel.Name, "Reason"); ok {
					want[shared] = true
				}
			}
		case *ast.SelectorExpr:
			switch {
			case n.Sel.Name == "ReasonDryRun": // what a variable is set to
				want["DryRun"] = true
			case strings.HasPrefix(n.Sel.Name, "EventReason"):
				own--
			}
		}
		return true
	}
	for _, file := range []string{"controllers/internal/actionlog/actionlog.go", "controllers/authorship.go"} {
		ast.Inspect(parse(t, file), collect)
	}
	if own != 0 {
		t.Errorf("%d reasons of Events more than are used", own)
	}
	ast.Inspect(parse(t, "api/v1alpha1/status_types.go"), func(n ast.Node) bool { // the result of a run is one, too
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Result") {
			want[text(t, spec.Values[0])] = true
		}
		return true
	})
	got := map[string]bool{}
	for _, row := range readPage(t, "docs/troubleshooting.md").part(t, "## Events").rows()[1:] {
		for _, reason := range spans(row[0]) {
			got[reason] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Events (-code +page):\n%s", diff)
	}
}

// Each message of the webhook in docs/troubleshooting.md is one that a test of validation, or of the webhook, sees.
func TestMessages(t *testing.T) {
	seen := ""
	for _, name := range []string{
		"api/validation/testdata/invalid.yaml", "webhooks/cleaner.go", "webhooks/anykind.go", "webhooks/author.go", "test/webhook/template_test.go", "config/templates/expand_test.go",
	} {
		seen += readFile(t, name)
	}
	gaps := regexp.MustCompile(`…`)
	rows := readPage(t, "docs/troubleshooting.md").part(t, "## Messages of the webhook").rows()
	found := 0
	for _, row := range rows {
		names := spans(row[0])
		if row[0] == "Message" {
			if found > 0 {
				break // the messages of others
			}
			continue
		}
		found++
		for _, part := range gaps.Split(names[0], -1) {
			for _, words := range strings.Split(part, ": ") {
				if words = strings.Trim(words, ` ":`); !strings.Contains(seen, words) {
					t.Errorf("nobody says %q", words)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d messages were found", found)
	}
}
