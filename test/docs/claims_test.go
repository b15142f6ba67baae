// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// evidence is the end of a claim: one test or some, or that it is a limit, which no test can show.
var (
	evidence  = regexp.MustCompile("\\((\\[`Test\\w+`\\]\\([^()]+\\)(, \\[`Test\\w+`\\]\\([^()]+\\))*)\\)$")
	testNamed = regexp.MustCompile("\\[`(Test\\w+)`\\]\\(([^()]+)\\)")
)

// limit ends a claim that says what is not stopped.
const limit = "(a limit)"

// claims are the bullets of a text, each in one line, and the rows of its tables that have a column "Shown by".
func claims(text string) (bullets []string, shown [][]string) {
	inBullet, inTable := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "- "):
			bullets, inBullet = append(bullets, line), true
		case inBullet && strings.HasPrefix(line, "  "):
			bullets[len(bullets)-1] += " " + strings.TrimSpace(line)
		default:
			inBullet = false
		}
		if !strings.HasPrefix(line, "|") {
			inTable = false
			continue
		}
		row := cells(line)
		switch last := row[len(row)-1]; {
		case last == "Shown by":
			inTable = true
		case inTable && !strings.HasPrefix(line, "|---"):
			shown = append(shown, row)
		}
	}
	return bullets, shown
}

// unshown are what is wrong with the claims of a text; read reads a file by its path from docs/.
func unshown(text string, read func(string) (string, error)) []string {
	bullets, shown := claims(text)
	var wrong []string
	check := func(claim, by string) {
		if strings.HasSuffix(by, limit) {
			return
		}
		named := testNamed.FindAllStringSubmatch(by, -1)
		if len(named) == 0 {
			wrong = append(wrong, fmt.Sprintf("no test shows it: end it with ([`TestName`](path)), or with %s: %s", limit, claim))
		}
		for _, n := range named {
			if file, err := read(n[2]); err != nil || !strings.Contains(file, "\nfunc "+n[1]+"(t *testing.T)") {
				wrong = append(wrong, fmt.Sprintf("%s is not in %s: %s", n[1], n[2], claim))
			}
		}
	}
	for _, bullet := range bullets {
		by := evidence.FindString(bullet)
		if strings.HasSuffix(bullet, limit) {
			by = limit
		}
		check(bullet, by)
	}
	for _, row := range shown {
		check(row[0], row[len(row)-1])
	}
	return wrong
}

// Each claim of docs/security.md names the test that shows it, and where that is, or says that it is a limit.
func TestClaimsAreShown(t *testing.T) {
	p := readPage(t, "docs/security.md")
	for _, wrong := range unshown(p.text, func(name string) (string, error) {
		return readFile(t, path.Join("docs", name)), nil
	}) {
		t.Error(wrong)
	}
	// So it is where a paragraph names one.
	for _, n := range testNamed.FindAllStringSubmatch(p.text, -1) {
		if !strings.Contains(readFile(t, path.Join("docs", n[2])), "\nfunc "+n[1]+"(t *testing.T)") {
			t.Errorf("%s is not in %s", n[1], n[2])
		}
	}
	for _, heading := range []string{"## In short", "## Who may write status", "## What the operator's token can do", "## The network", "## What is protected", "## Sinks", "## Threats"} {
		if bullets, shown := claims(p.part(t, heading).text); len(bullets)+len(shown) == 0 {
			t.Errorf("%q claims nothing", heading)
		}
	}
}

// What must hold of each actor in SECURITY.md names its tests too.
func TestActorsAreShown(t *testing.T) {
	const heading = "### Actors"
	p := readPage(t, "SECURITY.md").part(t, heading)
	if _, shown := claims(p.text); len(shown) < 5 {
		t.Errorf("%q has %d actors", heading, len(shown))
	}
	for _, wrong := range unshown(p.text, func(name string) (string, error) { return readFile(t, name), nil }) {
		t.Error(wrong)
	}
}

// So does each guarantee.
func TestGuaranteesAreShown(t *testing.T) {
	p := readPage(t, "docs/guarantees.md")
	if _, shown := claims(p.text); len(shown) < 30 {
		t.Errorf("the page has %d guarantees", len(shown))
	}
	text, _, _ := strings.Cut(p.text, "## What is not guaranteed")
	for _, wrong := range unshown(text, func(name string) (string, error) {
		return readFile(t, path.Join("docs", name)), nil
	}) {
		t.Error(wrong)
	}
}

// So does each row of the comparison with the originals.
func TestComparisonsAreShown(t *testing.T) {
	const heading = "## Beside the originals"
	p := readPage(t, "docs/templates.md").part(t, heading)
	if _, shown := claims(p.text); len(shown) < 5 {
		t.Errorf("%q compares %d originals", heading, len(shown))
	}
	for _, wrong := range unshown(p.text, func(name string) (string, error) {
		return readFile(t, path.Join("docs", name)), nil
	}) {
		t.Error(wrong)
	}
}

// And one that is not is found.
func TestClaimsWithoutATestAreFound(t *testing.T) {
	read := func(name string) (string, error) {
		if name != "a_test.go" {
			return "", fmt.Errorf("there is no %s", name)
		}
		return "package a\n\nfunc TestA(t *testing.T) {}\n", nil
	}
	for text, want := range map[string]int{
		"- So it is. ([`TestA`](a_test.go))\n":                                   0,
		"- So it\n  is. ([`TestA`](a_test.go), [`TestA`](a_test.go))\n":          0,
		"- So it is. (a limit)\n":                                                0,
		"- So it is.\n":                                                          1,
		"- So [`TestA`](a_test.go) it is.\n":                                     1,
		"- So it is. ([`TestB`](a_test.go))\n":                                   1,
		"- So it is. ([`TestA`](b_test.go))\n":                                   1,
		"| Threat | Shown by |\n|---|---|\n| a | [`TestA`](a_test.go) |\n":       0,
		"| Threat | Shown by |\n|---|---|\n| a | nobody |\n| b | (a limit) |\n":  1,
		"| Setting | Why |\n|---|---|\n| a | b |\n\n- So it is. (not a limit)\n": 1,
	} {
		if got := unshown(text, read); len(got) != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// The table of what the operator's token can do has each preset, with the verbs that its role gives on what matters most, and
// whether it is on by default.
func TestTokenTable(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "config", "components", "*", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kustomization := readFile(t, "config/default/kustomization.yaml")
	want := [][]string{{"Preset", "By default", "Secrets", "Roles and RoleBindings", "ServiceAccounts", "Nodes", "Pods"}}
	for _, on := range []bool{true, false} {
		for _, file := range paths {
			name := filepath.Base(filepath.Dir(file))
			if strings.Contains(kustomization, "\n- ../components/"+name+"\n") != on {
				continue
			}
			role := &rbacv1.ClusterRole{}
			if err := yaml.UnmarshalStrict([]byte(readFile(t, "config/components/"+name+"/role.yaml")), role); err != nil {
				t.Fatal(err)
			}
			row := []string{"`" + name + "`", map[bool]string{true: "on", false: "off"}[on]}
			for _, resources := range [][]string{{"secrets"}, {"roles", "rolebindings", "clusterroles", "clusterrolebindings"}, {"serviceaccounts"}, {"nodes"}, {"pods", "pods/status", "pods/eviction"}} {
				row = append(row, granted(role.Rules, resources))
			}
			want = append(want, row)
		}
	}
	var got [][]string
	got = append(got, readPage(t, "docs/security.md").part(t, "## What the operator's token can do").rows()...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-roles +page):\n%s", diff)
	}
}

// granted are the verbs that rules give on resources: in the operator's own name, or else only as a ServiceAccount.
func granted(rules []rbacv1.PolicyRule, resources []string) string {
	var own, as []string
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			if !slices.Contains(resources, resource) {
				continue
			}
			_, subresource, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				into, verb := &own, verb
				if impersonated, ok := strings.CutPrefix(verb, "impersonate-on:serviceaccount:"); ok {
					into, verb = &as, impersonated
				}
				if subresource == "eviction" {
					verb = "evict"
				}
				if !slices.Contains(*into, verb) {
					*into = append(*into, verb)
				}
			}
		}
	}
	switch {
	case len(own) > 0:
		return strings.Join(own, ", ")
	case len(as) > 0:
		return "as an account: " + strings.Join(as, ", ")
	}
	return "–"
}
