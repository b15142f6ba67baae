// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	for text, tc := range map[string]struct {
		bytes int64
		wrong string
	}{
		"":      {0, ""},
		"0":     {0, ""},
		"680Mi": {680 << 20, ""},
		"1G":    {1e9, ""},
		"63Mi":  {0, "--memory-limit must be at least 64 MiB, or 0 for GOMEMLIMIT: the operator itself needs so much"},
		"-1Gi":  {0, "--memory-limit must be at least 64 MiB"},
		"680MB": {0, `invalid argument "680MB" for "--memory-limit" flag`},
	} {
		t.Run(text, func(t *testing.T) {
			args := []string{"--namespace=cleaner-system"}
			if text != "" {
				args = append(args, "--memory-limit="+text)
			}
			f, err := parseFlags(args)
			if tc.wrong != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.wrong) {
					t.Errorf("got %v, want %s", err, tc.wrong)
				}
				return
			}
			if err != nil || f.options.MemoryLimit != tc.bytes {
				t.Errorf("got %+v, %v", f, err)
			}
		})
	}
}
