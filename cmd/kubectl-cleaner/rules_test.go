// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
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

// The rule that takes the oldest Pod each night takes one each night, and not all of them in the first.
func TestTheOldestPodGoesEachNight(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n([^`]*name: oldest-pod.*?)```").FindStringSubmatch(contents(t, tenRules))
	if block == nil {
		t.Fatalf("%s has no such rule", tenRules)
	}
	dir := t.TempDir()
	cleaner, objects := filepath.Join(dir, "cleaner.yaml"), filepath.Join(dir, "objects.yaml")
	var pods strings.Builder
	for _, name := range []string{"a", "b", "c"} {
		fmt.Fprintf(&pods, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %[1]s, namespace: shop, uid: %[1]s, creationTimestamp: \"2026-01-01T00:00:00Z\", labels: {app: web}}\nstatus: {phase: Running}\n", name)
	}
	for file, text := range map[string]string{cleaner: block[1], objects: pods.String()} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if code := run(t.Context(), clock.RealClock{}, []string{"forecast", "-f", cleaner, "--objects", objects, "--at", "2026-02-01T00:00:00Z", "--until", "4d"}, strings.NewReader(""), &out, &out); code != 0 {
		t.Fatal(out.String())
	}
	for _, night := range []string{"2026-02-01T03:00:00Z", "2026-02-02T03:00:00Z", "2026-02-03T03:00:00Z"} {
		if got := regexp.MustCompile(`(?m)^about `+night+`.* evict +Pod shop/`).FindAllString(out.String(), -1); len(got) != 1 {
			t.Errorf("in the night of %s %d Pods go:\n%s", night, len(got), out.String())
		}
	}
}
