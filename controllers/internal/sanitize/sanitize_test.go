// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package sanitize

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestWhatComesFromOutsideIsMadeFitToShow(t *testing.T) {
	if got := CleanText("a\nb\x1b[31mc\td\u009be\u202ef\u2028"); got != "a b [31mc d e f " {
		t.Errorf("got %q", got)
	}
	const notes = 1024 // how many bytes the note of an Event may have
	for _, part := range []string{"a", "ü", "€", "🧹"} {
		got := CleanText(strings.Repeat(part, 5000))
		if len(got) > notes || len(got) < notes-len(part) || !strings.HasSuffix(got, part+"…") {
			t.Errorf("a long text of %q has %d bytes, and ends with %q", part, len(got), got[len(got)-8:])
		}
	}
	for _, part := range []string{"<", "&", `"`, `\`, "a>\x01"} {
		got := CleanText(strings.Repeat(part, 5000))
		if stored, err := json.Marshal(got); err != nil || len(stored) > notes+len(`""`) || len(stored) < notes-20 {
			t.Errorf("a long text of %q takes %d bytes in JSON", part, len(stored))
		}
	}
	if got := CleanText(strings.Repeat("a", notes)); strings.HasSuffix(got, "…") {
		t.Error("a text that fits is cut")
	}
}

func TestATextIsShortened(t *testing.T) {
	for _, tc := range []struct {
		text string
		most int
		want string
	}{
		{"short", 5, "short"},
		{"too long", 7, "too …"},
		{"üü", 3, "…"},
		{"long", 2, "long"}, // there is no room to say that it was cut
	} {
		if got := ShortenToBytes(tc.text, tc.most); got != tc.want {
			t.Errorf("%q in %d bytes is %q, want %q", tc.text, tc.most, got, tc.want)
		}
	}
}

// A text that is cut ends with a whole character, and one that fits is left as it is.
func TestTextsAreCutBetweenCharacters(t *testing.T) {
	for _, tc := range []struct {
		text string
		most int
		want string
	}{
		{"short", 5, "short"},
		{"too long", 3, "too"},
		{"üü", 3, "ü"},
		{"ü", 1, ""},
		{"a\xff", 2, "a\xff"},
		{"a\xffb", 2, "a"},
	} {
		if got := CutToBytes(tc.text, tc.most); got != tc.want {
			t.Errorf("%q in %d bytes is %q, want %q", tc.text, tc.most, got, tc.want)
		}
	}
}

// A text fits by what it takes in JSON.
func TestATextFitsAsItIsStored(t *testing.T) {
	for _, tc := range []struct {
		text string
		most int
		want int
	}{
		{"abc", 3, 3},
		{"abc", 2, 2},
		{"a<b", 7, 2},
		{"a<b", 6, 1},
		{"a&b", 8, 3},
		{`a"b`, 4, 3},
		{`a\b`, 2, 1},
	} {
		if got := fitStored(tc.text, tc.most); got != tc.want {
			t.Errorf("%d bytes of %q fit into %d, want %d", got, tc.text, tc.most, tc.want)
		}
	}
}
