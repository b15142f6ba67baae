// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"strings"
	"testing"
)

// A function is known by its last name, however it is written.
func TestSuggestForeign(t *testing.T) {
	for function, want := range map[string]string{
		"max": "math.greatest(a, b)", "math.max": "math.greatest(a, b)", "min": "math.least(a, b)", "toLower": "x.lowerAscii()", "to_lower": "x.lowerAscii()",
		"strings.ToLower": "x.lowerAscii()", "time_now_utc": "time:", "parse_time": "timestamp(x)", "round": "math.round(x)",
	} {
		if got := SuggestForeign(function); !strings.HasPrefix(got, "write "+want) {
			t.Errorf("%s: %q", function, got)
		}
	}
	for _, function := range []string{"", "unheardOf", "max.unheardOf", "_"} {
		if got := SuggestForeign(function); got != "" {
			t.Errorf("%s: %q", function, got)
		}
	}
}

// No name has two hints: the second one would never be shown.
func TestForeignNamesAreUnique(t *testing.T) {
	hints := map[string]string{}
	for _, known := range foreignFunctions() {
		for _, name := range strings.Fields(known.names) {
			if other, twice := hints[normalizeName(name)]; twice {
				t.Errorf("%s: %q and %q", name, other, known.hint)
			}
			hints[normalizeName(name)] = known.hint
		}
	}
}

func TestSuggestMethod(t *testing.T) {
	for function, want := range map[string]string{"max": "write math.greatest(a, b), or x.max() for a list", "or": "to join conditions, write ||", "trim": "write x.trim(...)", "find": "write x.find(...)"} {
		if got := SuggestMethod(function); got != want {
			t.Errorf("%s: %q", function, got)
		}
	}
}

func TestSuggestConstant(t *testing.T) {
	for name, want := range map[string]string{"nil": "write null", "True": "write true", "False": "write false", "Math": "write math", "true": "", "pods": ""} {
		if got := SuggestConstant(name); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestSuggestSyntax(t *testing.T) {
	for _, tc := range []struct {
		source       string
		line, column int
		want         string
	}{
		{"if(true, 1, 2)", 1, 0, "write condition ? a : b"},
		{"a and b", 1, 2, "to join conditions, write &&"},
		{"a\nor b", 2, 0, "to join conditions, write ||"},
		{"ä and b", 1, 2, "to join conditions, write &&"},
		{"iffy b", 1, 0, ""},
		{"2 hours", 1, 2, `write 2h, or parseDuration("2h") in an expression`},
		{" 1 Day, 30 minutes ", 1, 3, `write 1d30m, or parseDuration("1d30m") in an expression`},
		{"1h 30m", 1, 3, `write 1h30m, or parseDuration("1h30m") in an expression`},
		{"90 secs", 1, 3, `write 90s, or parseDuration("90s") in an expression`},
		{"3 weeks", 1, 3, `write 3w, or parseDuration("3w") in an expression`},
		{"2 months", 1, 2, ""},
		{"24h", 1, 2, `write a length of time as duration("24h") or parseDuration("7d")`},
		{"2 hours ago", 1, 2, ""},
		{"age(item) > 2 hours", 1, 14, ""},
		{"a", 2, 0, ""},
		{"a", 1, 99, ""},
	} {
		if got := SuggestSyntax(tc.source, tc.line, tc.column); got != tc.want {
			t.Errorf("%q at %d:%d: %q", tc.source, tc.line, tc.column, got)
		}
	}
}

func TestSuggestLibraryFix(t *testing.T) {
	for message, want := range map[string]string{
		"comprehension exceeds nesting limit":                              "at most 7 loops",
		"found no matching overload for '_==_' applied to '(string, int)'": "both sides must be of one type",
		"found no matching overload for 'trim' applied to '(string)'":      "",
	} {
		if got := SuggestLibraryFix(message, 7); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q", message, got)
		}
	}
}
