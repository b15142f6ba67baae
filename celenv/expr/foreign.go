// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"regexp"
	"strings"
)

// SuggestForeign says what to write instead of a function that other languages have, and this one does not. Empty when none is known. A namespace
// before the name does not count, and neither do upper case and underscores: strings.ToLower and to_lower are one.
func SuggestForeign(function string) string {
	function = normalizeName(function[strings.LastIndexByte(function, '.')+1:])
	for _, known := range foreignFunctions() {
		for _, name := range strings.Fields(known.names) {
			if normalizeName(name) == function {
				return known.hint
			}
		}
	}
	return ""
}

func normalizeName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// SuggestMethod says what to write instead of a call f(x) of a function that is called on a value: x.f().
func SuggestMethod(function string) string {
	switch function {
	case "add", "format", "max", "min", "or", "sum":
		return SuggestForeign(function)
	}
	return "write x." + function + "(...)"
}

// SuggestConstant says what to write instead of a name that is a constant or a namespace of other languages. Empty when it is none.
func SuggestConstant(name string) string {
	switch name {
	case "nil", "None", "undefined":
		return "write null; where a field may be missing, write !has(x.field)"
	case "True", "TRUE":
		return "write true"
	case "False", "FALSE":
		return "write false"
	case "Math":
		return "write math, as in math.greatest(a, b)"
	}
	return ""
}

// foreign are functions of other languages, and what to write instead.
type foreign struct{ names, hint string }

func foreignFunctions() []foreign {
	return []foreign{
		{"now today currentTime date timeNow timeNowUtc utcNow", "write time: it is the moment of the evaluation"},
		{"since timeSince elapsed", "write age(x) of an object, or time - timestamp(x)"},
		{"timeDiff timeBetween", "write timestamp(a) - timestamp(b)"},
		{"timeAdd addDate", `write timestamp(x) + duration("1h")`},
		{"timeBefore before isBefore timeAfter after isAfter", "compare moments with < and >, as in timestamp(x) < time"},
		{"parse", "write timestamp(x), duration(x) or json.unmarshal(x)"},
		{"parseTime timeParse parseDate toDate toTime strptime fromIsoFormat", "write timestamp(x)"},
		{"len length count", "write size(x) or x.size()"},
		{"max", "write math.greatest(a, b), or x.max() for a list"},
		{"min", "write math.least(a, b), or x.min() for a list"},
		{"sum", "write x.sum()"},
		{"avg average mean", "write double(x.sum()) / double(x.size())"},
		{"reduce fold", "write x.map(e, ...).sum(), or .min(), or .max()"},
		{"round", "write math.round(x), where x is a double"},
		{"ceil ceiling", "write math.ceil(x), where x is a double"},
		{"floor", "write math.floor(x), where x is a double"},
		{"trunc", "write math.trunc(x), where x is a double"},
		{"abs", "write math.abs(x)"},
		{"sqrt", "write math.sqrt(x)"},
		{"add plus", "write a + b"},
		{"subtract minus", "write a - b"},
		{"multiply", "write a * b"},
		{"divide", "write a / b"},
		{"modulo mod", "write a % b"},
		{"eq equal equals", "to compare, write =="},
		{"ne neq notEqual", "to compare, write !="},
		{"lt le lte gt ge gte", "to compare, write <, <=, > or >="},
		{"and", "to join conditions, write &&"},
		{"or", "to join conditions, write ||"},
		{"not", `write !(...), as in !("a" in x)`},
		{"iff ternary cond", "write condition ? a : b"},
		{"exists any some", "write x.exists(e, ...)"},
		{"all every allMatch", "write x.all(e, ...)"},
		{"filter where select", "write x.filter(e, ...)"},
		{"map forEach", "write x.map(e, ...)"},
		{"flatMap", "write x.map(e, ...).flatten()"},
		{"find", "write x.filter(e, ...)[0], or x.exists(e, ...)"},
		{"head", "write x[0], or x.first(), which is optional"},
		{"sorted", "write x.sort()"},
		{"unique uniq dedupe", "write x.distinct()"},
		{"assign combine union mergeMaps", "write a.merge(b) for maps, or (a + b).distinct() for lists"},
		{"append push concat", "write x + y, or x + [y] for a list"},
		{"range", "write lists.range(n)"},
		{"contains includes", "write x.contains(y) for a text, or y in x for a list"},
		{"hasPrefix", "write x.startsWith(y)"},
		{"hasSuffix", "write x.endsWith(y)"},
		{"match test regexMatch regexpMatch patternMatch", `write x.matches("...")`},
		{"get getOrDefault", `write x[?"key"].orValue("")`},
		{"has hasKey containsKey", `write "key" in x; or has(x.key)`},
		{"hasField isSet defined isDefined", "write has(x.field)"},
		{"label labels getLabel getLabels", `write x.metadata.?labels[?"key"].orValue("")`},
		{"annotation annotations getAnnotation getAnnotations", `write x.metadata.?annotations[?"key"].orValue("")`},
		{"keys", `a map goes through its keys: write "key" in x, or x.exists(k, ...)`},
		{"values", "write x.transformList(k, v, v)"},
		{"lower toLower toLowerCase downcase", "write x.lowerAscii()"},
		{"upper toUpper toUpperCase upcase", "write x.upperAscii()"},
		{"strip trimSpace", "write x.trim()"},
		{"substr", "write x.substring(from, to)"},
		{"replaceAll", "write x.replace(a, b)"},
		{"format sprintf printf", `write "%s and %s".format([a, b])`},
		{"isEmpty empty", "write x.size() == 0"},
		{"isNull", "write !has(x.field)"},
		{"typeOf isInstance", "write type(x) == string, as for other types"},
		{"str toString", "write string(x)"},
		{"parseInt toInt toNumber number", "write int(x)"},
		{"parseFloat float toFloat", "write double(x)"},
		{"parseQuantity toQuantity", "write quantity(x)"},
		{"parseJson jsonParse fromJson loads unmarshal", "write json.unmarshal(x)"},
		{"toJson jsonEncode stringify dumps marshal", "write json.marshal(x)"},
		{"days getDays weeks getWeeks timedelta", `write a duration, as in age(x) > parseDuration("7d")`},
		{"hours minutes", `write a duration, as in duration("3h")`},
		{"coalesce default ifNull notNull", "write x.?field.orValue(...)"},
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
		{regexp.MustCompile(`^if\b`), "write condition ? a : b"},
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
	if short := shortenDuration(source); short != "" && short != source {
		return fmt.Sprintf("write %[1]s, or parseDuration(%[1]q) in an expression", short)
	}
	return suggestSyntaxAt(source, at)
}

// suggestSyntaxAt is SuggestSyntax for what stands around a place of a line.
func suggestSyntaxAt(source string, at int) string {
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

// numberOfUnits matches a number of units of time.
var numberOfUnits = regexp.MustCompile(`^\s*(\d+)\s*([a-zA-Z]+)[\s,]*`)

// shortenDuration writes a duration in words, such as "2 hours", as a duration, such as 2h; empty for any other text.
func shortenDuration(text string) string {
	var short strings.Builder
	for text != "" {
		m := numberOfUnits.FindStringSubmatch(text)
		if m == nil {
			return ""
		}
		unit := ""
		switch strings.TrimSuffix(strings.ToLower(m[2]), "s") {
		case "", "sec", "second":
			unit = "s"
		case "m", "min", "minute":
			unit = "m"
		case "h", "hr", "hour":
			unit = "h"
		case "d", "day":
			unit = "d"
		case "w", "week":
			unit = "w"
		default:
			return ""
		}
		short.WriteString(m[1] + unit)
		text = text[len(m[0]):]
	}
	return short.String()
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

// suggestDurationFix says what to write instead of an operator that a duration does not have.
func suggestDurationFix(message string) string {
	if strings.Contains(message, "'_*_'") || strings.Contains(message, "'_/_'") {
		return `a duration can be multiplied by a whole number, and not divided, as in duration("30m") * 3; instead of a > b / 2 write a * 2 > b`
	}
	return `a number has no unit: write a duration, as in duration("1h")`
}

// SuggestLibraryFix says what to write instead of what cel-go itself found wrong, where so many loops may stand in one another. Empty when that is
// not known.
func SuggestLibraryFix(message string, loops int) string {
	switch {
	case strings.Contains(message, "token recognition error at: '="):
		return "to compare, write =="
	case strings.HasPrefix(message, "invalid duration"):
		return `write it with the units h, m, s and ms; parseDuration("15d") knows days and weeks too`
	case strings.HasPrefix(message, "invalid timestamp"):
		return `write it as in timestamp("2006-01-02T15:04:05Z")`
	case strings.Contains(message, "nesting limit"):
		return fmt.Sprintf("at most %d loops may stand in one another: make a map with indexBy, groupBy or toSet instead", loops)
	case strings.HasPrefix(message, "found no matching overload for '") && strings.Contains(message, "optional_type("):
		return `a field after .? is optional: add .orValue(...), as in item.?status.phase.orValue("") == "Failed"`
	case strings.HasPrefix(message, "found no matching overload for '_") && strings.Contains(message, "duration"):
		return suggestDurationFix(message)
	case strings.HasPrefix(message, "found no matching overload for '@in' applied to") && strings.HasSuffix(message, ", string)'"):
		return `in looks into a list or a map: write x == "a", or x.contains("a") for a part of a text`
	case strings.Contains(message, "invalid argument to has() macro"):
		return `has() takes a field: for a key, write "a/b" in x`
	case strings.HasPrefix(message, "found no matching overload for '_"):
		return "both sides must be of one type: convert one, with int(), double(), string() or timestamp()"
	}
	return ""
}
