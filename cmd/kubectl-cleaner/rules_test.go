// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/casetest"
)

const tenRules = "../../docs/rules.md"

// The ten rules of the page, and the variant of one, do what the page says: each has objects, and the plan that it makes of them.
func TestTenRules(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(contents(t, tenRules), -1)
	if len(blocks) != 11 {
		t.Fatalf("%s has %d rules", tenRules, len(blocks))
	}
	for _, block := range blocks {
		c := &v1alpha1.Cleaner{}
		if err := yaml.UnmarshalStrict([]byte(block[1]), c); err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "rules", c.Name))); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, casetest.FileCleaner), []byte(block[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if code := run(t.Context(), clock.RealClock{}, []string{"test", dir}, strings.NewReader(""), &out, &out); code != 0 {
				t.Fatal(out.String())
			}
		})
	}
}
