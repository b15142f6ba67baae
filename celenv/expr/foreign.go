// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"regexp"
	"strings"
)

// SuggestForeign says what to write instead of a function that other languages have, and this one does not. Empty when none is known.
func SuggestForeign(function string) string {
	function = strings.ToLower(function)
	for _, known := range foreignFunctions() {
		for _, name := range strings.Fields(known.names) {
			if strings.ToLower(name) == function {
				return known.hint
			}
		}
	}
	return ""
}

// foreign are functions of other languages, and what to write instead.
type foreign struct{ names, hint string }

func foreignFunctions() []foreign {
	return []foreign{
		{"now today currentTime date", "write time: it is the moment of the evaluation"},
		{"len length count", "write size(x) or x.size()"},
		{"any some", "write x.exists(e, ...)"},
		{"every allMatch", "write x.all(e, ...)"},
		{"find", "write x.filter(e, ...)[0], or x.exists(e, ...)"},
		{"match test regexMatch", `write x.matches("...")`},
		{"get getOrDefault", `write x[?"key"].orValue("")`},
		{"has hasKey containsKey", `write "key" in x; or has(x.key)`},
		{"keys", `a map goes through its keys: write "key" in x, or x.exists(k, ...)`},
		{"values", "write x.transformList(k, v, v)"},
		{"lower toLower toLowerCase downcase", "write x.lowerAscii()"},
		{"upper toUpper toUpperCase upcase", "write x.upperAscii()"},
		{"strip", "write x.trim()"},
		{"isEmpty empty", "write x.size() == 0"},
		{"isNull", "write !has(x.field)"},
		{"str toString", "write string(x)"},
		{"parseInt toInt toNumber number", "write int(x)"},
		{"parseFloat float toFloat", "write double(x)"},
		{"days getDays weeks getWeeks", `write a duration, as in age(x) > parseDuration("7d")`},
		{"hours minutes", `write a duration, as in duration("3h")`},
		{"coalesce default ifNull", "write x.?field.orValue(...)"},
	}
}

// foreignSyntax are texts of other languages that are no expressions, and what to write instead.
type foreignSyntax struct {
	text *regexp.Regexp
	hint string
}

func foreignSyntaxes() []foreignSyntax {
	return []foreignSyntax{
		{regexp.MustCompile(`^and\b`), "to join conditions, write &&"},
		{regexp.MustCompile(`^or\b`), "to join conditions, write ||"},
		{regexp.MustCompile(`^(is|eq)\b`), "to compare, write =="},
		{regexp.MustCompile(`^(not in|not)\b`), `write !(...), as in !("a" in x)`},
		{regexp.MustCompile(`^=~`), `write x.matches("...")`},
		{regexp.MustCompile(`^~`), `write x.matches("...")`},
	}
}

// lengthOfTime is a length of time as other languages write it.
var lengthOfTime = regexp.MustCompile(`\d(ms|s|m|h|d|w)\b`)

// SuggestSyntax says what to write instead of a text that is no expression, by what stands at the place of the error: a line, counted from 1, and a
// column, counted in characters from 0. Empty when that is not known.
func SuggestSyntax(source string, line, column int) string {
	lines := strings.Split(source, "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	source = lines[line-1]
	characters := []rune(source)
	at := min(len(string(characters[:min(column, len(characters))])), len(source)) // what is no character counts for more
	for _, known := range foreignSyntaxes() {
		if known.text.MatchString(source[at:]) {
			return known.hint
		}
	}
	before := strings.TrimRight(source[:at], " \t\n")
	switch {
	case strings.HasSuffix(source[:at], "<") && strings.HasPrefix(source[at:], ">"):
		return "to compare, write !="
	case strings.HasSuffix(before, "not"):
		return `write !(...), as in !("a" in x)`
	case at > 0 && lengthOfTime.MatchString(source[at-1:]) && lengthOfTime.FindStringIndex(source[at-1:])[0] == 0:
		return `write a length of time as duration("24h") or parseDuration("7d")`
	case strings.Contains(source, "?."):
		return "a field that may be missing is written .?field, as in item.status.?phase"
	case strings.HasPrefix(source[at:], ",") && tuple.MatchString(before):
		return `write a list in brackets, as in x in ["a", "b"]`
	}
	return ""
}

// tuple is the beginning of a list as other languages write it.
var tuple = regexp.MustCompile(`\bin\s*\([^()]*$`)

// IsOptionalMetadata says that a field of metadata is missing from most objects, or from many: its name is not mistyped then.
func IsOptionalMetadata(field string) bool {
	switch field {
	case "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers", "ownerReferences", "labels", "annotations", "generateName":
		return true
	default:
		return false
	}
}
