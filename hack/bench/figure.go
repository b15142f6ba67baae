// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"
)

// figure is one thing that was measured.
type figure struct {
	What, Value string
	// Aim is what it should be; empty: there is none.
	Aim string
}

// String is the figure as a line.
func (f figure) String() string {
	s := fmt.Sprintf("%-78s %s", f.What, f.Value)
	if f.Aim != "" {
		s += "   (aim: " + f.Aim + ")"
	}
	return s
}

// percentile is the smallest of the durations that at least that part of them does not exceed.
func percentile(sorted []time.Duration, part float64) time.Duration {
	i := int(part*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// counted lists requests, the most frequent ones first.
func counted(count map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		if count[a] != count[b] {
			return count[b] - count[a]
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, k := range keys {
		parts = append(parts, fmt.Sprintf("%d %s", count[k], k))
	}
	return strings.Join(parts, ", ")
}

//go:embed performance.md.tmpl
var page string

// render is the page with the figures.
func render(figures []figure) ([]byte, error) {
	t, err := template.New("page").Parse(page)
	if err != nil {
		return nil, fmt.Errorf("cannot read the template of the page: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, figures); err != nil {
		return nil, fmt.Errorf("cannot write the page: %w", err)
	}
	return b.Bytes(), nil
}
