// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

// TestExplainErrors shows how explain names the items that have an error, and a rule that failed as a whole.
func TestExplainErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		of   v1alpha1.ItemError
		want string
	}{
		"OneItem":   {v1alpha1.ItemError{Rule: "old", Key: "b", Field: "rules[0].when", Message: "no such key", Count: 1}, "error in rule old, b: rules[0].when no such key (1 item)"},
		"Items":     {v1alpha1.ItemError{Rule: "old", Key: "b", Field: "rules[0].when", Message: "no such key", Count: 3}, "error in rule old, b: rules[0].when no such key (3 items)"},
		"Unknown":   {v1alpha1.ItemError{Rule: "old", Key: "b", Field: "rules[0].when", Message: "no such key"}, "error in rule old, b: rules[0].when no such key (1 item)"},
		"WholeRule": {v1alpha1.ItemError{Rule: "old", Field: "rules[0].forEach", Message: "not a list", Count: 1}, "error in rule old: rules[0].forEach not a list"},
		"Others":    {v1alpha1.ItemError{Rule: "old", Message: "other errors", Count: 9}, "error in rule old: other errors (9 items)"},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			screen := output.Screen{To: &text, ColourMode: new(output.ColourMode)}
			printEvaluation(screen, screen.NewPainter(), &v1alpha1.Evaluation{Errors: []v1alpha1.ItemError{tc.of}}, "")
			if lines := strings.Split(strings.TrimSpace(text.String()), "\n"); strings.TrimSpace(lines[len(lines)-1]) != tc.want {
				t.Errorf("got %q, want %q", text.String(), tc.want)
			}
		})
	}
}
