// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestErrorTellsAll(t *testing.T) {
	cases := map[string]struct {
		problem Error
		want    string
	}{
		"Message alone": {Error{Message: "no such key"}, "no such key"},
		"Path":          {Error{Path: "conditions[0]", Message: "no such key"}, "conditions[0]: no such key"},
		"Place":         {Error{Path: "conditions[0]", Line: 2, Column: 3, Message: "no such key"}, "conditions[0] at 2:3: no such key"},
		"Object":        {Error{Message: "no such key", Object: "pods.items[1] (a/b)"}, "no such key on pods.items[1] (a/b)"},
		"Hint":          {Error{Message: "no such key", Hint: "write ?"}, "no such key; write ?"},
		"All": {
			Error{Path: "rules[0].when", Line: 1, Column: 7, Message: "no such key", Object: "pods.items[1]", Hint: "write ?", Snippet: "not here"},
			"rules[0].when at 1:7: no such key on pods.items[1]; write ?",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.problem.Error(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// The message for a field of the spec does not repeat its path.
func TestDescribe(t *testing.T) {
	for want, problem := range map[string]Error{
		"no such key": {Path: "conditions[0]", Object: "pods.items[1]", Message: "no such key"},
		"2:3: no such key; write ?\n  | a\n  | ^": {Line: 2, Column: 3, Message: "no such key", Hint: "write ?", Snippet: "  | a\n  | ^"},
	} {
		if got := problem.Describe(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The error of a variable is told at each place that reads it, and stays what it was at the others.
func TestWithPath(t *testing.T) {
	e := &Error{Path: "variables[0]", Message: "no"}
	if other := e.WithPath("conditions[1]"); other.Path != "conditions[1]" || other.Message != "no" || e.Path != "variables[0]" {
		t.Errorf("got %v of %v", other, e)
	}
}

func TestMakeSnippet(t *testing.T) {
	cases := map[string]struct {
		source       string
		line, column int
		want         string
	}{
		"First":             {"a == b", 1, 1, "  | a == b\n  | ^"},
		"Later":             {"a == b", 1, 6, "  | a == b\n  |      ^"},
		"Second line":       {"a ==\r\nb", 2, 1, "  | b\n  | ^"},
		"Carriage return":   {"a ==\r\nb", 1, 3, "  | a ==\n  |   ^"},
		"Tab":               {"\ta == b", 1, 2, "  | \ta == b\n  | \t^"},
		"Characters":        {"'ü' == b", 1, 8, "  | 'ü' == b\n  |        ^"},
		"Behind the end":    {"a", 1, 9, "  | a\n  |  ^"},
		"No such line":      {"a", 2, 1, ""},
		"No line":           {"a", 0, 1, ""},
		"No column":         {"a", 1, 0, ""},
		"Long on the right": {strings.Repeat("a", 300), 1, 1, "  | " + strings.Repeat("a", 60) + "…\n  | ^"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := MakeSnippet(tc.source, tc.line, tc.column); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// The caret stands below the place however long the line is.
func TestSnippetOfALongLine(t *testing.T) {
	source := strings.Repeat("x", 500) + "Y" + strings.Repeat("z", 500)
	shown, below, _ := strings.Cut(MakeSnippet(source, 1, 501), "\n")
	if len([]rune(shown)) > 200 || !strings.HasPrefix(shown, "  | …") || !strings.HasSuffix(shown, "…") {
		t.Errorf("the line is not cut: %s", shown)
	}
	if at := len([]rune(below)) - 1; []rune(below)[at] != '^' || []rune(shown)[at] != 'Y' {
		t.Errorf("the caret is elsewhere:\n%s\n%s", shown, below)
	}
}

func TestTruncateText(t *testing.T) {
	cases := map[string]struct {
		text string
		most int
		want string
	}{
		"Short":          {"abc", 3, "abc"},
		"Long":           {"abcd", 3, "abc…"},
		"In a character": {"aü", 2, "a…"},
		"Empty":          {"", 0, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := TruncateText(tc.text, tc.most); got != tc.want || !utf8.ValidString(got) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestSuggestName(t *testing.T) {
	cases := map[string]struct {
		name       string
		candidates []string
		want       string
	}{
		"Letter missing":  {"pod", []string{"pods", "nodes"}, `did you mean "pods"?`},
		"Letters swapped": {"revisoins", []string{"revisions", "routes"}, `did you mean "revisions"?`},
		"Case":            {"Pods", []string{"nodes", "pods"}, `did you mean "pods"?`},
		"Nothing near":    {"services", []string{"pods", "nodes"}, ""},
		"No candidates":   {"pods", nil, ""},
		"Short name":      {"a", []string{"b"}, ""},
		"The same":        {"pods", []string{"pods"}, ""},
		"Short, swapped":  {"itme", []string{"item", "time"}, `did you mean "item"?`},
		"Short, another":  {"now", []string{"or", "not_"}, ""},
		"Four letters":    {"keys", []string{"last"}, ""},
		"First of equals": {"poda", []string{"podb", "pode"}, `did you mean "podb"?`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := SuggestName(tc.name, tc.candidates); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWithHint(t *testing.T) {
	first := &Error{Path: "conditions[0]", Message: "no such key"}
	second := first.WithHint("write a")
	if first.Hint != "" || second.Hint != "write a" || second.Path != first.Path || second.WithHint("or b").Hint != "write a; or b" {
		t.Errorf("the hints are %q, %q and %q", first.Hint, second.Hint, second.WithHint("or b").Hint)
	}
}
