// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart brings charts/cleaner up to date with config/ and with its own values, and packages it: `make chart` runs
// it. Manifests that the chart shares with the other ways to install are copied into charts/cleaner/files, where its
// templates read them, and the comments in values.yaml become the table in its README.md.
//
// It decides nothing about the manifests: what the chart makes of them is in its templates.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/lint/support"
	k8syaml "sigs.k8s.io/yaml"
)

const chart = "charts/cleaner"

func main() {
	out := flag.String("package", "", "folder to write the package into; without it none is made")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	if err := copyManifests(); err != nil {
		return err
	}
	if err := copyDashboard(); err != nil {
		return err
	}
	if err := writeTable(); err != nil {
		return err
	}
	if err := lint(); err != nil {
		return err
	}
	if out == "" {
		return nil
	}
	pack := action.NewPackage()
	pack.Destination = out
	path, err := pack.Run(chart, nil)
	if err != nil {
		return fmt.Errorf("cannot package %s: %w", chart, err)
	}
	_, err = fmt.Fprintln(os.Stderr, path)
	return err
}

// copyManifests replaces files/. Each folder of it has the manifests that a pattern finds.
func copyManifests() error {
	if err := os.RemoveAll(filepath.Join(chart, "files")); err != nil {
		return fmt.Errorf("cannot remove what was copied before: %w", err)
	}
	for _, from := range []struct {
		pattern, folder string
		// kinds are what is taken; none means all.
		kinds []string
		// name says how a copy is called.
		name func(path string, m manifest) string
	}{
		{"config/crd/bases/*.yaml", "crds", nil, func(_ string, m manifest) string { return m.Metadata.Name }},
		{"config/rbac/*_*.yaml", "rbac", rbac(), kindAndName},
		{"config/rbac/role.yaml", "rbac", rbac(), kindAndName},
		{"config/components/*/role.yaml", "presets", nil, func(path string, _ manifest) string { return filepath.Base(filepath.Dir(path)) }},
		{"config/templates/*/template.yaml", "templates", nil, func(_ string, m manifest) string { return m.Metadata.Name }},
		{"config/webhook/configuration.yaml", "webhook", nil, func(string, manifest) string { return "configuration" }},
		{"config/policy/author.yaml", "policy", nil, kindAndName},
		{"config/policy/metadata.yaml", "policy", nil, kindAndName},
		{"config/policy/status.yaml", "policy", nil, kindAndName},
		{"config/webhook/author.yaml", "webhook", nil, func(string, manifest) string { return "author" }},
		{"config/webhook/role.yaml", "webhook/rbac", rbac(), kindAndName},
		{"config/components/alerts/rules.yaml", "alerts", nil, func(_ string, m manifest) string { return m.Metadata.Name }},
	} {
		paths, err := filepath.Glob(from.pattern)
		if err != nil || len(paths) == 0 {
			return errors.Join(fmt.Errorf("%s: there is no such manifest: run this in the repository's folder", from.pattern), err)
		}
		for _, path := range paths {
			if err := split(path, filepath.Join(chart, "files", from.folder), from.kinds, from.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyDashboard copies what is no manifest: a template makes one of it.
func copyDashboard() error {
	text, err := os.ReadFile("config/components/dashboard/cleaner.json")
	if err != nil {
		return fmt.Errorf("cannot read the dashboard: %w", err)
	}
	folder := filepath.Join(chart, "files", "dashboard")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("cannot make a folder for copies: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "cleaner.json"), text, 0o644); err != nil {
		return fmt.Errorf("cannot copy the dashboard: %w", err)
	}
	return nil
}

// manifest is what has to be known of one.
type manifest struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

func rbac() []string { return []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} }

func kindAndName(_ string, m manifest) string { return strings.ToLower(m.Kind) + "-" + m.Metadata.Name }

// split writes each document of a file into a file of its own: templates read one object at a time.
func split(path, folder string, kinds []string, name func(string, manifest) string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read a manifest: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("cannot make a folder for copies: %w", err)
	}
	for doc := range strings.SplitSeq(strings.TrimPrefix(string(text), "---\n"), "\n---\n") {
		m := manifest{}
		if err := k8syaml.Unmarshal([]byte(doc), &m); err != nil {
			return fmt.Errorf("cannot read %s: %w", path, err)
		}
		if len(kinds) > 0 && !slices.Contains(kinds, m.Kind) {
			continue
		}
		copied := fmt.Sprintf("# Copied from %s by make chart. Change it there.\n%s\n", filepath.ToSlash(path), strings.TrimSpace(doc))
		if err := os.WriteFile(filepath.Join(folder, name(path, m)+".yaml"), []byte(copied), 0o644); err != nil {
			return fmt.Errorf("cannot copy %s: %w", path, err)
		}
	}
	return nil
}

// What stands around the table in README.md.
const (
	tableBegin = "<!-- Written by make chart from values.yaml. -->\n"
	tableEnd   = "<!-- End of what is written. -->\n"
)

// writeTable replaces the table of values in README.md.
func writeTable() error {
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return fmt.Errorf("cannot read the values: %w", err)
	}
	var values yaml.Node
	if err := yaml.Unmarshal(text, &values); err != nil {
		return fmt.Errorf("cannot read values.yaml: %w", err)
	}
	table := &bytes.Buffer{}
	fmt.Fprint(table, tableBegin, "| Value | Default | What it says |\n|---|---|---|\n")
	if err := rows(table, "", values.Content[0]); err != nil {
		return err
	}
	path := filepath.Join(chart, "README.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read the page: %w", err)
	}
	before, rest, begins := strings.Cut(string(page), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no table of values: put it between the lines\n%s%s", path, tableBegin, tableEnd)
	}
	if err := os.WriteFile(path, []byte(before+table.String()+tableEnd+after), 0o644); err != nil {
		return fmt.Errorf("cannot write the page: %w", err)
	}
	return nil
}

// rows writes a row for each value. A mapping in one line is a value; one in many lines is a group of them.
func rows(w *bytes.Buffer, parent string, group *yaml.Node) error {
	for i := 0; i < len(group.Content); i += 2 {
		key, value := group.Content[i], group.Content[i+1]
		name := parent + key.Value
		if value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 {
			if err := rows(w, name+".", value); err != nil {
				return err
			}
			continue
		}
		says := strings.TrimSpace(strings.ReplaceAll(strings.TrimPrefix(key.HeadComment, "#"), "\n#", ""))
		if says == "" || strings.Contains(says, "\n") {
			return fmt.Errorf("values.yaml:%d: %s needs a comment in the lines above it that says what it is", key.Line, name)
		}
		shown, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("cannot show the default of %s: %w", name, err)
		}
		fmt.Fprintf(w, "| `%s` | `%s` | %s |\n", name, strings.TrimSpace(string(shown)), strings.ReplaceAll(says, "|", `\|`))
	}
	return nil
}

// lint is `helm lint --strict`, with notices taken for mistakes too.
func lint() error {
	linter := action.NewLint()
	linter.Strict = true
	var errs []error
	for _, m := range linter.Run([]string{chart}, nil).Messages {
		if m.Severity >= support.InfoSev {
			errs = append(errs, m)
		}
	}
	return errors.Join(errs...)
}
