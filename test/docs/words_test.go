// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
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

// findMessageWords lists the banned words in the messages of a Go file: its texts of more than one word.
func findMessageWords(name string, text []byte) ([]string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		message, err := strconv.Unquote(literal.Value)
		if err != nil || !strings.Contains(message, " ") {
			return true
		}
		for _, one := range findWords(span.ReplaceAllString(message, ""), commentWords()) {
			found = append(found, fset.Position(n.Pos()).String()+": "+one)
		}
		return true
	})
	return found, nil
}

// Messages are for the same reader.
func TestMessagesHaveNoBannedWords(t *testing.T) {
	files := 0
	for _, top := range []string{"api", "celenv", "cmd", "config", "controllers", "scheduler", "webhooks"} {
		err := fs.WalkDir(os.DirFS(root), top, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := fs.ReadFile(os.DirFS(root), name)
			if err != nil {
				return err
			}
			files++
			found, err := findMessageWords(name, text)
			for _, one := range found {
				t.Error(one)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("only %d files have messages", files)
	}
}

func TestFindMessageWords(t *testing.T) {
	text := "package p\n\n// nobody\nvar a, b, c = \"anew\", \"it was made anew for somebody\", `of which`\n"
	found, err := findMessageWords("p.go", []byte(text))
	if err != nil || len(found) != 3 {
		t.Errorf("found %q, %v", found, err)
	}
}
