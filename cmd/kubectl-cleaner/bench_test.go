// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// manyObjects writes 20,000 Pods of 500 Nodes, every tenth of which is gone, as kubectl writes them.
func manyObjects(b *testing.B, form string) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "objects."+form)
	var out strings.Builder
	if form == "json" {
		out.WriteString(`{"apiVersion": "v1", "kind": "List", "items": [`)
	}
	write := func(i int, text string) {
		if i > 0 {
			out.WriteString(map[string]string{"json": ",\n", "yaml": "\n---\n"}[form])
		}
		out.WriteString(text)
	}
	for i := range 20_000 {
		write(i, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod-%[1]d", "namespace": "team-%[2]d", "uid": "uid-%[1]d", "resourceVersion": "%[1]d",
  "generation": 1, "creationTimestamp": "2025-12-31T00:00:00Z", "labels": {"app": "app-%[2]d", "pod-template-hash": "%[1]x"},
  "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app-%[2]d", "uid": "o", "controller": true}]},
 "spec": {"nodeName": "node-%[3]d", "containers": [{"name": "main", "image": "example.com/app:%[2]d", "env": [{"name": "A", "value": "b"}], "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]},
 "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T00:00:00Z"}]}}`, i, i%100, i%500))
	}
	for i := range 500 {
		if i%10 != 0 {
			write(1, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-%d"}}`, i))
		}
	}
	if form == "json" {
		out.WriteString("]}")
	}
	if err := os.WriteFile(path, []byte(out.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

func BenchmarkPlan(b *testing.B) {
	for _, form := range []string{"json", "yaml"} {
		b.Run(form, func(b *testing.B) {
			objects := manyObjects(b, form)
			clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			for b.Loop() {
				args := []string{"plan", "-f", "../../config/templates/podgc-orphaned/testdata/quarantine/cleaner.yaml", "--objects", objects, "--since", "2025-12-31T00:00:00Z", "-o", "json"}
				var out strings.Builder
				if code := run(b.Context(), clock, args, strings.NewReader(""), &out, io.Discard); code != 0 {
					b.Fatal(out.String())
				}
				if got := strings.Count(out.String(), `"verb": "delete"`); got != 2000 {
					b.Fatalf("%d Pods are deleted", got)
				}
			}
		})
	}
}
