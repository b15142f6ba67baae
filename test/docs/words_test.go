// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// bannedWords are regular expressions of words that sound translated or name nothing, with what to write instead.
func bannedWords() map[string]string {
	return map[string]string{
		`\banew\b`:                           `"again"; an object that was made anew is "recreated"`,
		`\bany ?more\b`:                      `"no longer"`,
		`\bare told\b|\bis told\b`:           `say who receives what: "the sink receives one CloudEvent"`,
		`\bas whom\b`:                        `"as which account", or "with whose rights"`,
		`\bbesides the schedule\b`:           `"outside the schedule"`,
		`\bcleans? once\b`:                   `"a Once Cleaner"`,
		`\bdeeds?\b`:                         `"action", or "request"`,
		`\bforesee[ns]?\b|\bforesight\b`:     `"predict"`,
		`\bfor who\b`:                        `say who: "for callers that"`,
		`\bgoe?s? on\b|\bwent on\b`:          `"continue"`,
		`\bhold(s|ing)? up\b|\bheld up\b`:    `"delay", or "block"`,
		`\b(is|are|was|were) to be\b`:        `say who does it: "the operator deletes"`,
		`\bnobody (can know|can say|knows)`:  `say what cannot be determined: "the operator cannot tell whether"`,
		`\bof which\b`:                       `begin a new sentence, and repeat the noun`,
		`\bso many (go|remain|stay)\b`:       `name the field: "the last keep items are kept"`,
		`\bstop(s|ped)? to\b`:                `"stops matching"`,
		`\bthat of\b`:                        `repeat the noun: "the age of a Pod"`,
		`\bthat stays?\b`:                    `"a Recurring Cleaner"`,
		`\bwhat (is|was) \w+ (is|was|are)\b`: `name it: "the objects that are left"`,
		`\bwho(ever|m?soever)\b`:             `"a user who", "anyone who", or "the administrator"`,
	}
}

// findBannedWords lists the banned words of a page's text, with what to write instead. Code spans and the targets of links may have them.
func findBannedWords(text string) []string {
	return findWords(span.ReplaceAllString(link.ReplaceAllString(text, "$1"), ""), bannedWords())
}

// findWords lists where a text matches regular expressions, with what to write instead.
func findWords(text string, banned map[string]string) []string {
	text = strings.Join(strings.Fields(text), " ")
	var found []string
	for pattern, instead := range banned {
		for _, at := range regexp.MustCompile("(?i)"+pattern).FindAllStringIndex(text, -1) {
			around := text[max(0, at[0]-40):min(len(text), at[1]+40)]
			found = append(found, fmt.Sprintf("%q in %q: write %s", text[at[0]:at[1]], around, instead))
		}
	}
	return found
}

// Pages are written for a reader in a hurry.
func TestPagesHaveNoBannedWords(t *testing.T) {
	for _, p := range pages(t) {
		for _, found := range findBannedWords(p.text) {
			t.Errorf("%s: %s", p.name, found)
		}
	}
}

func TestFindBannedWords(t *testing.T) {
	for text, want := range map[string]int{
		"The object is made anew.":                                           1,
		"A Cleaner that\ncleans once, and one that stays.":                   2,
		"Whoever may write it, may.":                                         1,
		"What is left is kept.":                                              1,
		"[`TestMadeAnew`](that-of/anew.go), `of which`.":                     0,
		"[made anew](run.go)":                                                1,
		"The operator decides again.":                                        0,
		"A Recurring Cleaner stays. Anyone who can reach it stops matching.": 0,
	} {
		if found := findBannedWords(text); len(found) != want {
			t.Errorf("%q: got %q, want %d", text, found, want)
		}
	}
}
