// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/config/templates"
)

// yamlBlock is an example in a text.
var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// The templates can be applied to a cluster in which the operator runs, and so can what their READMEs show.
func TestTemplatesApply(t *testing.T) {
	c, _ := needCluster(t)
	if out, err := c.Kubectl(t.Context(), "apply", "--server-side", "--validate=strict", "-k", "../../config/templates"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := c.Kubectl(t.Context(), "get", "cleanertemplates", "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	all, err := templates.LoadAll()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, template := range all {
		want = append(want, "cleanertemplate.cleaner.vtex.dev/"+template.Name)
	}
	if diff := cmp.Diff(want, slices.Sorted(strings.FieldsSeq(string(out)))); diff != "" {
		t.Errorf("what is shipped and what is applied differ (-shipped +applied):\n%s", diff)
	}
	for _, template := range all {
		t.Run(template.Name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../../config/templates", template.Name, "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			block := yamlBlock.FindSubmatch(text)
			if block == nil {
				t.Fatal("its README has no ClusterCleaner")
			}
			path := filepath.Join(t.TempDir(), "cleaner.yaml")
			if err := os.WriteFile(path, block[1], 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := c.Kubectl(t.Context(), "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", path); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			for _, p := range template.Spec.Parameters {
				if !strings.Contains(string(text), "| `"+p.Name+"` | "+shownDefault(p.Default.Raw)+" |") {
					t.Errorf("its README does not say that %s is %s", p.Name, p.Default.Raw)
				}
			}
		})
	}
}

// shownDefault is a JSON value as tables show it: text without quotes, and lists with commas.
func shownDefault(raw []byte) string {
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, ", ")
	}
	return strings.Trim(string(raw), `"`)
}
