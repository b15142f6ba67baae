// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func TestRows(t *testing.T) {
	for name, tc := range map[string]struct{ values, want, err string }{
		"Values": {
			values: "# How many.\nreplicas: 1\n# Said of the group.\n\nimage:\n  # Which | one.\n  tag: \"\"\n  # All: {a: b}.\n  resources: {limits: {cpu: 1}}\n  # Some.\n  list: [a]\n  # None.\n  none: null\n",
			want: "| `replicas` | `1` | How many. |\n| `image.tag` | `\"\"` | Which \\| one. |\n| `image.resources` | `{limits: {cpu: 1}}` | All: {a: b}. |\n" +
				"| `image.list` | `[a]` | Some. |\n| `image.none` | `null` | None. |\n",
		},
		"LongComment": {values: "# One.\n# Two.\nreplicas: 1\n", want: "| `replicas` | `1` | One. Two. |\n"},
		"NoComment":   {values: "image:\n  tag: a\n", err: "values.yaml:2: image.tag needs a comment"},
	} {
		t.Run(name, func(t *testing.T) {
			var values yaml.Node
			if err := yaml.Unmarshal([]byte(tc.values), &values); err != nil {
				t.Fatal(err)
			}
			got := &bytes.Buffer{}
			err := rows(got, "", values.Content[0])
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v", err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got.String()); diff != "" || err != nil {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
		})
	}
}
