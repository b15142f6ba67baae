// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/test/fullest"
)

// TestTheFullestIsShownBriefly shows that what is said of the fullest manifests goes with their size, whether they are sound or not.
func TestTheFullestIsShownBriefly(t *testing.T) {
	for _, kind := range []string{"Cleaner", "ClusterCleaner", "CleanerTemplate"} {
		for _, entries := range []int64{8, 32} {
			manifest, err := fullest.Manifest(kind, fullest.Filling{MaxEntries: entries, Leaves: func(path string) bool { return path == "spec.helm" }})
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(manifest)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "fullest.yaml")
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			objects := filepath.Join(t.TempDir(), "objects.yaml")
			if err := os.WriteFile(objects, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: web}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"validate", "-f", file}, {"plan", "-f", file, "--objects", objects}} {
				var out strings.Builder
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				code := run(t.Context(), clock.RealClock{}, args, strings.NewReader(""), &out, &out)
				runtime.ReadMemStats(&after)
				took, most := int(after.TotalAlloc-before.TotalAlloc), 32<<20+2048*len(text)
				if took > most || out.Len() > 16*len(text) {
					t.Errorf("%s of a %s of %d KiB ends with %d, takes %d KiB of at most %d, and shows %d KiB", args[0], kind, len(text)>>10, code, took>>10, most>>10, out.Len()>>10)
				}
			}
		}
	}
}
