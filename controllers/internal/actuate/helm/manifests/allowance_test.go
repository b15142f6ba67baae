// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	yaml "go.yaml.in/yaml/v2"
)

// configMap is the head of an object.
const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

// many repeats a piece until it has about so many bytes.
func many(piece string, bytes int) string { return strings.Repeat(piece, bytes/len(piece)) }

// weighAlone says what is wrong with a document that is the only one.
func weighAlone(t *testing.T, doc string) error {
	t.Helper()
	left := NewAllowance(maxNodes)
	return left.TakeDocument(t.Context(), doc)
}

// countValues is how many values there are in one that was decoded, by keys too.
func countValues(value any) int {
	n := 1
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			n += countValues(item)
		}
	case map[any]any:
		for key, item := range v {
			n += countValues(key) + countValues(item)
		}
	}
	return n
}

// TestTheValuesOfARecordAreCounted takes the same document from one allowance until it is refused: it counts for as much as a decoder
// makes of it at least, each time.
func TestTheValuesOfARecordAreCounted(t *testing.T) {
	for name, doc := range map[string]string{
		"Few":            configMap + "b: {c: [d, e], f: 1}\n",
		"Many":           configMap + "b: [" + many("{c: d},", 10_000) + "]\n",
		"MoreThanATree":  configMap + "b: [" + many("[],", 3*40_000) + "]\n",
		"NotOfOneParser": configMap + "b: [" + many("{c: d},", 10_000) + "]\nc: ? d\n",
		"Aliases":        "b: &b [" + many("c,", 2*100) + "]\nd: [" + many("*b,", 3*100) + "]\n",
		"AliasesOfThese": "a: &a [" + many("c,", 2*10) + "]\nb: &b [" + many("*a,", 3*10) + "]\nd: [" + many("*b,", 3*10) + "]\n",
		"AliasesAsKeys":  "a: &a c\nb: [" + many("{*a : *a},", 10*500) + "]\n",
		"Merged":         "a: &a {c: d, e: f}\nb: [" + many("{<<: *a},", 9*500) + "]\n",
	} {
		t.Run(name, func(t *testing.T) {
			var value any
			_ = yaml.Unmarshal([]byte(doc), &value)
			least := countValues(value)
			left := NewAllowance(maxNodes)
			for times := 1; ; times++ {
				before := left.nodes
				err := left.TakeDocument(t.Context(), doc)
				if took := before - left.nodes; err == nil && took < least {
					t.Fatalf("it counts for %d, and a decoder makes %d of it", took, least)
				}
				if times*least > maxNodes && err == nil {
					t.Fatalf("%d of them are read, of %d values each", times, least)
				}
				if err != nil {
					if !errors.Is(err, ErrTooLarge) || times == 1 {
						t.Errorf("after %d of them: %v", times, err)
					}
					return
				}
			}
		})
	}
}

// TestDirectivesAreCounted has them after each of YAML's line breaks: a parser takes time by the square of their number.
func TestDirectivesAreCounted(t *testing.T) {
	for name, lineBreak := range map[string]string{
		"LF": "\n", "CR": "\r", "CRLF": "\r\n", "NEL": "\u0085", "LS": "\u2028", "PS": "\u2029", "Mark": "\n\ufeff",
	} {
		t.Run(name, func(t *testing.T) {
			text := func(n int) string {
				return "\ufeff" + many("%FOO a"+lineBreak, n*len("%FOO a"+lineBreak)) + "---" + lineBreak + configMap
			}
			if err := weighAlone(t, text(maxDirectives)); err != nil {
				t.Errorf("%d of them: %v", maxDirectives, err)
			}
			if err := weighAlone(t, text(maxDirectives+1)); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%d of them: got %v, want it refused", maxDirectives+1, err)
			}
		})
	}
	if err := weighAlone(t, configMap+"data:\n  a: |\n"+many("    %a\n", 9<<10)); err != nil {
		t.Errorf("a text with lines that begin with a percent sign is refused: %v", err)
	}
}

// TestLinesAreCounted: what blocks and comments a text has at most.
func TestLinesAreCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want lines
	}{
		"Empty":     {want: lines{depth: 2}},
		"Plain":     {text: "a: b#c\n", want: lines{depth: 2}},
		"Trailing":  {text: "a: b # c\nd\t# '#\n", want: lines{comments: 2, depth: 2}},
		"Indented":  {text: "a:\n    b: c\n", want: lines{depth: 6}},
		"Compact":   {text: "- - ? - a - - - - - b\n", want: lines{depth: 10}},
		"Comments":  {text: "#\r  #\u0085- #\u2028\ufeff# #\u2029 a #", want: lines{comments: 6, depth: 4}},
		"Percent":   {text: "%\n %\na %", want: lines{directives: 1, depth: 3}},
		"Directive": {text: "%TAG a b\r%ab", want: lines{directives: 2, directiveText: 9, depth: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := countLines(tc.text); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// userTime is how much of the processor this process has had.
func userTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano())
}

// TestReadingTakesTimeByTheLength reads documents about as long as any may be, of what parsers of YAML are slow at: others wait meanwhile. One
// that took time by the square of its length took hundreds of times as long as a plain text.
func TestReadingTakesTimeByTheLength(t *testing.T) {
	const long, deep, metadata = 2900 << 10, 9_000, "metadata:\n annotations:\n  a: "
	numbered := func(format string, bytes int) string {
		var b strings.Builder
		for n := 0; b.Len() < bytes; n++ {
			fmt.Fprintf(&b, format, n)
		}
		return b.String()
	}
	measure := func(doc string) time.Duration {
		before := userTime(t)
		_, _ = ExtractHeads(t.Context(), []string{"z: [&b x, *b]\n" + doc}) // by both parsers
		return userTime(t) - before
	}
	plain := max(measure("b: "+many("a ", long)), 50*time.Millisecond)
	for name, doc := range map[string]string{
		"Digits":           metadata + "1" + many("1", long),
		"Underscores":      metadata + "1" + many("_1", long),
		"BinaryDigits":     metadata + "-0b1" + many("1", long),
		"HexDigits":        metadata + "0x" + many("f", long),
		"HexFraction":      metadata + "0x1." + many("f", long) + "p1",
		"Fraction":         metadata + "." + many("0", long) + "1e5",
		"Exponent":         metadata + "1e1" + many("0", long),
		"Sexagesimal":      metadata + "190" + many(":20", long) + ".15",
		"Sexagesimals":     metadata + "[" + many("190:20:30,", 95_000*10) + "]",
		"Time":             metadata + "2001-01-01T00:00:00." + many("1", long) + "Z",
		"Times":            metadata + "[" + many("2001-01-01T00:00:00Z,", 95_000*21) + "]",
		"SpacesInTime":     metadata + "2001-01-01 " + many(" ", long) + "00:00:00Z",
		"Bytes":            metadata + "!!binary " + many("QUFB", long),
		"TaggedNumber":     metadata + "!!float " + many("1", long),
		"LongKey":          "metadata:\n annotations: {? " + many("1", long) + " : b}",
		"Keys":             "metadata:\n annotations:\n" + numbered("  k%d: a\n", 1200<<10),
		"NumberedKeys":     "metadata:\n name: {" + numbered("%d: b,", 600<<10) + "}",
		"KeysThatAreNoKey": "metadata:\n name: {" + many(".nan: b,", 500<<10) + "}",
		"ListsAsKeys":      "metadata:\n annotations: {" + many("[a]: b,", 300<<10) + "}",
		"NoObjects":        "items: [" + many("a,", 2*95_000) + "]",
		"MergedAsList":     "x: &a {k: v}\nmetadata: {name: {<<: [" + many("*a,", 280<<10) + "]}}",
		"MergedLarge":      "x: &a {" + numbered("k%d: v,", 300<<10) + "}\nmetadata: {name: {<<: [*a,*a,*a]}}",
		"Anchors":          "b: [" + numbered("&a%d a,", 900<<10) + "]",
		"Aliases":          "b: [" + numbered("&a%d a,", 450<<10) + numbered("*a%d,", 400<<10) + "]",
		"LongAnchor":       "b: &" + many("a", long) + " b",
		"LongTag":          "b: !" + many("%41", long) + " b",
		"Tags":             "b: [" + many("!a%41 b,", 8*95_000) + "]",
		"Literal":          "b: |\n" + many("  a\n", long),
		"LiteralIndented":  "b: |9\n" + many(many(" ", 1000)+"\n", long),
		"Folded":           "b: >\n  a\n" + many("   a\n\n", long),
		"Blank":            "b: >\n  a\n" + many("\n", long),
		"Quoted":           "b: '" + many("a\n ", long) + "'",
		"QuotedQuotes":     "b: '" + many("''", long) + "'",
		"Escapes":          "b: \"" + many("\\u0041", long) + "\"",
		"EscapedLines":     "b: \"" + many("a\\\n ", long) + "\"",
		"Open":             "b: \"" + many("a ", long),
		"Flow":             "b: " + many("[", deep) + many("a\n", long) + many("]", deep),
		"FlowOfItems":      "b: " + many("[", deep) + many("a,", 150_000) + many("]", deep),
		"FlowOfPairs":      "b: " + many("[", deep) + many("a: a,", 5*50_000) + many("]", deep),
		"FlowOfTexts":      "b: " + many("[", deep) + many(`""`, long) + many("]", deep),
		"FlowOfColons":     "b: " + many("[", deep) + many(":a", long) + many("]", deep),
		"Blocks":           "b:\n" + many("- ", 2*deep) + "a\n" + many(many(" ", 2*deep)+"a\n", long),
		"BlocksInRows":     many(many("- ", 200)+"a\n", 290<<10),
		"Questions":        "b:\n" + many(" ? a\n", 5*145_000),
		"Ends":             "a: b\n" + many("...\n", long),
		"Starts":           many("---\r", 290<<10),
		"Marks":            many("\ufeff", long),
		"LineBreaks":       "b: a" + many("\u2028 a", long),
		"Directives":       numbered("%%TAG !%d! a\r", long) + "---\rkind: [&b x, *b]\r",
		"Comments":         "b:\n" + many(" - a\n #\n", 19_000*8),
	} {
		t.Run(name, func(t *testing.T) {
			took := measure(doc)
			t.Logf("%s, and a plain text %s", took, plain)
			if took > 20*plain {
				t.Errorf("it takes %s, and a plain text %s", took, plain)
			}
		})
	}
}
