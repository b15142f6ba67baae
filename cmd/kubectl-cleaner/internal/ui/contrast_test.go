// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/timeline"
)

// readColours returns the colours of the style sheets, in light and in dark.
func readColours(t *testing.T) map[string]map[string]string {
	t.Helper()
	style, err := assetFiles.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]string{"light": {}, "dark": {}}
	colour := regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6})`)
	for _, sheet := range []string{timeline.Style(), string(style)} {
		root, rest, _ := strings.Cut(sheet, "}\n")
		_, dark, _ := strings.Cut(rest, "prefers-color-scheme: dark) {")
		dark, _, _ = strings.Cut(dark, "}\n")
		for _, m := range colour.FindAllStringSubmatch(root, -1) {
			out["light"][m[1]], out["dark"][m[1]] = m[2], m[2]
		}
		for _, m := range colour.FindAllStringSubmatch(dark, -1) {
			out["dark"][m[1]] = m[2]
		}
	}
	return out
}

// luminance is the relative luminance of WCAG 2.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

// Texts have at least the contrast of level AA of WCAG 2, in light and in dark.
func TestContrast(t *testing.T) {
	for scheme, colours := range readColours(t) {
		for _, pair := range []string{
			"text card", "text canvas", "muted card", "muted canvas", "muted track", "text track", "accent card", "accent canvas", "accent-ink accent", "bad card", "bad canvas", "good good-soft", "text good-soft", "bad bad-soft", "busy busy-soft", "busy card",
			"still still-soft", "delete card", "uninstall card", "evict card", "finalizer card", "patch card", "report card",
		} {
			front, back, _ := strings.Cut(pair, " ")
			if colours[front] == "" || colours[back] == "" {
				t.Fatalf("%s: there is no %s", scheme, pair)
			}
			a, b := luminance(t, colours[front]), luminance(t, colours[back])
			if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
				t.Errorf("%s: %s on %s has a contrast of %.2f", scheme, front, back, ratio)
			}
		}
	}
}
