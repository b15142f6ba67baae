// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// figure is one thing that was measured.
type figure struct {
	What  string `json:"what"`
	Value string `json:"value"`
	// Aim is what it should be; empty: there is none.
	Aim string `json:"aim,omitempty"`
	// Point is where it is in a plot; nil: in none.
	Point *point `json:"point,omitempty"`
}

// point is a point of a line in a plot.
type point struct {
	Plot string  `json:"plot"`
	Line string  `json:"line"`
	X    float64 `json:"x"`
	Y    float64 `json:"y"`
}

// on returns the figure as a point of a line in a plot.
func (f figure) on(plot, line string, x, y float64) figure {
	f.Point = &point{plot, line, x, y}
	return f
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
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
