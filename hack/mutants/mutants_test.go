// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tiny plants in the package of testdata what a list says, with these lines added.
func tiny(t *testing.T, o options, added string) (string, error) {
	t.Helper()
	base, err := os.ReadFile("testdata/tiny.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o.root, o.leeway, o.parallel = "../..", 2*time.Second, 2
	if !strings.Contains(added, "percent:") {
		added = "percent: 95\n" + added
	}
	o.list = filepath.Join(t.TempDir(), "list.yaml")
	if err := os.WriteFile(o.list, append(base, added...), 0o600); err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	err = run(t.Context(), o, out)
	return out.String(), err
}

const (
	path = "hack/mutants/testdata/tiny/tiny.go"
	// anyOwner is the mutant of the tiny package that lives.
	anyOwner = `  - {in: May, was: return own && !protected, now: return !protected, why: the test asks for no object of somebody else}
`
	lives = path + ":9 May (drop an operand)"
)

func TestPlant(t *testing.T) {
	before, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	out, err := tiny(t, options{verbose: true}, "")
	if err == nil || !strings.Contains(err.Error(), lives+" lives, and no entry of the list says why it may") || strings.Contains(err.Error(), "\n"+path) {
		t.Errorf("of one mutant that lives, the error is: %v", err)
	}
	for _, want := range []string{
		"LIVED   " + lives + "\n    -\treturn own && !protected\n    +\treturn !protected\n    - {in: May, was: \"return own && !protected\", now: \"return !protected\", why: }\n",
		"caught  " + path + ":9 May (swap operators): TestMay\n",
		"caught  " + path + ":9 May (drop !): TestMay\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the report lacks %q:\n%s", want, out)
		}
	}
	if want := path + ":16 Count (drop a statement): caught by the time limit\n    -\t\tsum++\n"; !strings.Contains(out, want) {
		t.Errorf("a loop that does not end is not told from others:\n%s", out)
	}
	after, err := os.ReadFile("../../" + path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed (%v)", err)
	}
}

func TestKnown(t *testing.T) {
	cases := map[string]struct {
		reason string
		o      options
		list   string
		want   []string // parts of the error; none if there is none
		shown  string
	}{
		"Known": {
			reason: "A mutant that is known to live may.",
			o:      options{at: ":9$"},
			list:   "percent: 50\nknown:\n" + anyOwner,
			shown:  "known   " + lives + ": the test asks for no object of somebody else\n",
		},
		"TooFew": {
			reason: "Known or not, it counts.",
			o:      options{at: ":9$"},
			list:   "known:\n" + anyOwner,
			want:   []string{"less than 95 % are caught"},
		},
		"NotChosen": {
			reason: "A known mutant is planted if the seed does not choose it, and does not count then.",
			o:      options{count: 1, seeded: true, seed: 4},
			list:   "known:\n" + anyOwner,
			shown:  "1 planted,    1 caught",
		},
		"Caught": {
			reason: "A known mutant that a test catches has to leave the list.",
			o:      options{at: ":9$"},
			list:   "known:\n" + anyOwner + "  - {in: May, was: \"!protected\", now: protected, why: wrong}\n",
			want:   []string{"May (drop !) is known to live, and was caught by TestMay: take it off the list"},
		},
		"Gone": {
			reason: "So has one whose code is gone.",
			list:   "known:\n  - {in: May, was: return theirs, now: return own, why: wrong}\n  - {in: Might, was: a, now: b, why: wrong}\n",
			want:   []string{`"return theirs" must occur once in May`, "no package of the list declares Might"},
		},
		"Broken": {
			reason: "And one that does not compile.",
			list:   "known:\n  - {in: May, was: return own, now: return 1, why: wrong}\n",
			want:   []string{"does not compile"},
		},
		"Always": {
			reason: "A mistake that no operator makes can be listed, and counts.",
			o:      options{count: 1, seeded: true, seed: 4},
			list:   "always:\n  - {in: May, was: own && !protected, now: own || own, why: deletes what is protected}\n",
			shown:  "2 planted,    2 caught",
		},
		"AlwaysLives": {
			reason: "And must be caught.",
			o:      options{count: 1, seeded: true, seed: 4},
			list:   "always:\n" + anyOwner,
			want:   []string{"lives, and no entry of the list says why it may", "less than 95 %"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out, err := tiny(t, c.o, c.list)
			if (err == nil) != (len(c.want) == 0) {
				t.Errorf("%s\nerror: %v\n%s", c.reason, err, out)
			}
			for _, want := range c.want {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s\nthe error lacks %q: %v", c.reason, want, err)
				}
			}
			if !strings.Contains(out, c.shown) {
				t.Errorf("%s\nthe report lacks %q:\n%s", c.reason, c.shown, out)
			}
		})
	}
}

// Tests that fail without a mutant would catch all of them.
func TestFailsWithoutMutant(t *testing.T) {
	o := options{root: "../..", list: "testdata/failing.yaml", parallel: 1}
	if err := run(t.Context(), o, io.Discard); err == nil || !strings.Contains(err.Error(), "fail without a mutant") || !strings.Contains(err.Error(), "TestSlow") {
		t.Errorf("the error is %v", err)
	}
}

// read reads a package of one file.
func read(t *testing.T, source string) *code {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &code{fset: token.NewFileSet()}
	if err := c.read(listed{ImportPath: "p", Dir: dir, GoFiles: []string{"p.go"}}); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOperators(t *testing.T) {
	cases := map[string]struct {
		source string
		want   []string
	}{
		"Condition": {
			source: "func f(a int) int {\n\tif a < 2 {\n\t\treturn a\n\t}\n\treturn 0\n}",
			want:   []string{"negate: if !(a < 2) {", "swap operators: if a <= 2 {", "drop an early leave: if a < 2 { }", "return nothing: return 0", "swap 0 and 1: return 1"},
		},
		"Equality": {
			source: "func f(a int) (b int) {\n\tfor a == 2 {\n\t\ta += 2\n\t}\n\treturn\n}",
			want:   []string{"swap operators: for a != 2 {", "drop a statement:", "swap operators: a -= 2", "assign: a = 2"},
		},
		"And": {
			source: "func f(a, b bool) bool {\n\treturn a && !b\n}",
			want: []string{
				"return nothing: return !(a && !b)", "swap operators: return a || !b", "drop an operand: return a", "drop an operand: return !b", "drop !: return a && b",
			},
		},
		"Constants": {
			source: "type kind string\nconst (\n\tone kind = \"1\"\n\ttwo kind = \"2\"\n)\nfunc f() (kind, bool) {\n\treturn two, true\n}",
			want:   []string{"return nothing: return \"\", true", "swap constants: return one, true", "swap constants: return two, false"},
		},
		"Cases": {
			source: "func f(a int) (b int) {\n\tswitch a {\n\tcase 2, 3:\n\t\tb = 2\n\tdefault:\n\t\tb++\n\t}\n\treturn\n}",
			want: []string{
				"drop of a case: case 3:", "drop of a case: case 2:", "drop a case:", "drop a statement:", "drop a statement:", "swap ++ and --: b--",
			},
		},
		"Conditions": {
			source: "func f(a bool) {\n\tswitch {\n\tcase a:\n\t\tpanic(2)\n\t}\n}",
			want:   []string{"drop a case:", "negate: case !(a):", "drop a statement:"},
		},
		"Elements": {
			source: "type s struct{ a, b int }\nfunc f(x []s) []s {\n\tx = append(x, s{a: 2, b: 3}, s{})\n\treturn x\n}",
			want: []string{
				"drop a statement:", "drop an element: x = append(x, s{})", "drop an element: x = append(x, s{a: 2, b: 3})",
				"drop an element: x = append(x, s{b: 3}, s{})", "drop an element: x = append(x, s{a: 2}, s{})", "return nothing: return nil",
			},
		},
		"ZeroElement": {
			source: "type s struct{ a int; b *int; c string }\nvar x = s{a: 0, b: nil, c: \"\"}",
			want:   []string{"swap 0 and 1: var x = s{a: 1, b: nil, c: \"\"}"},
		},
		"OnlyElement": {
			source: "func f(x []int) {\n\tx = append(x, 2)\n\t_ = []int{2}\n\t_ = x\n}",
			want:   []string{"drop a statement:", "drop an element: x = append(x)", "drop an element: _ = []int{}"},
		},
		"Lines": {
			source: "var x = []int{\n\t2,\n\t3,\n}",
			want:   []string{"drop an element: 3,", "drop an element: 2,"},
		},
		"Calls": {
			source: "func g(a string) string { return a }\nfunc f(a string) string {\n\treturn g(a)\n}\nfunc h() int {\n\treturn min(2, 3)\n}",
			want: []string{
				"return nothing: func g(a string) string { return \"\" }", "return nothing: return \"\"", "drop a call: return a",
				"return nothing: return 0", "swap min and max: return max(2, 3)",
			},
		},
		"Leave": {
			source: "func f(x []int) {\n\tfor range x {\n\t\tcontinue\n\t}\n}",
			want:   []string{"drop a statement:", "swap break and continue: break"},
		},
		"Errors": {
			source: "func f(err error) (*int, error) {\n\treturn nil, err\n}",
			want:   []string{"return nothing: return nil, nil"},
		},
		"Nothing": {
			source: "type mutex struct{}\nfunc (mutex) Lock() {}\nconst limit = 1\nfunc f(m mutex) {\n\tm.Lock()\n\t_ = make([]int, 0, 1)\n}",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, m := range findMutants(read(t, "package p\n\n"+c.source+"\n")) {
				if _, _, _, now := m.lines(); m.code.compiles(m) {
					got = append(got, strings.TrimSpace(m.operator+": "+strings.Join(strings.Fields(now), " ")))
				}
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

const twoFunctions = `package p

func f(a, b bool) bool {
	return a && !b
}

func g(a, b int) int {
	if a < b {
		return a
	}
	if b < 2 {
		return a
	}
	return b
}
`

// chosen are the mutants that a seed chooses in a source.
func chosen(t *testing.T, source string, seed int64, count int) []string {
	t.Helper()
	var out []string
	for _, m := range choose(findMutants(read(t, source)), seed, count) {
		out = append(out, m.in.name+" "+m.operator+m.diff())
	}
	return out
}

// A seed always chooses the same, and goes on to do so when code around it changes.
func TestChoose(t *testing.T) {
	one := chosen(t, twoFunctions, 1, 5)
	if len(one) != 5 {
		t.Fatalf("%d were chosen, want 5: %q", len(one), one)
	}
	if again := chosen(t, twoFunctions, 1, 5); !slices.Equal(one, again) {
		t.Errorf("the same seed chooses others: %s", cmp.Diff(one, again))
	}
	if two := chosen(t, twoFunctions, 2, 5); slices.Equal(one, two) {
		t.Errorf("another seed chooses the same: %q", two)
	}
	moved := strings.Replace(twoFunctions, "func f", "// A comment.\nfunc h() {}\n\nfunc f", 1)
	if same := chosen(t, moved, 1, 5); !slices.Equal(one, same) {
		t.Errorf("code that has moved changes the choice: %s", cmp.Diff(one, same))
	}
}

// What the report says of a mutant can be copied into the list.
func TestEdits(t *testing.T) {
	c := read(t, twoFunctions)
	for _, m := range choose(findMutants(c), 1, 100) {
		e := m.edit()
		found, err := e.find([]*code{c})
		if err != nil || !found.same(m) {
			t.Errorf("%s: %q to %q is not found again: %v", m, e.Was, e.Now, err)
		}
	}
}

// Code that moves takes its entries of the list with it.
func TestListFitsTheCode(t *testing.T) {
	l, err := readList("mutants.yaml")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := readPackages(t.Context(), root, l.Packages)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan(l, packages, options{count: 1}); err != nil {
		t.Error(err)
	}
}

// The list of the repository asks for as many mutants as it should.
func TestList(t *testing.T) {
	l, err := readList("mutants.yaml")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, r := range l.Packages {
		total += r.Mutants
	}
	if total < 200 || l.Percent < 95 {
		t.Errorf("%d mutants are planted, want at least 200; %d %% have to be caught, want at least 95", total, l.Percent)
	}
}
