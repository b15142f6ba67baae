// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

func someValues(n int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprint("v", n-i)
	}
	return values
}

// A compiled selector selects what the one selects that it was made from, and is written the same.
func TestCompiledSelectorsSelectTheSame(t *testing.T) {
	written := func(operator string, n int) string {
		return "a " + operator + " (" + strings.Join(someValues(n), ",") + ")"
	}
	selectors := []labels.Selector{labels.Nothing(), labels.Everything()}
	for _, s := range []string{
		"a", "!a", "a=v1", "a!=v1", "a>3", "a<3", "a in (v1)", "a in (v1,,v2)", "a,b=v2,c!=v3",
		written("in", maxCompared), written("in", maxCompared+1), written("in", MaxListed+1), written("in", 1000),
		written("notin", maxCompared), written("notin", maxCompared+1), written("notin", 1000),
		written("in", 100) + ",b=v2", written("in", 100) + "," + written("notin", 50), written("notin", 100) + ",a," + written("in", 40),
		written("in", 100) + "," + strings.Replace(written("notin", 50), "a ", "b ", 1),
	} {
		selector, err := labels.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		selectors = append(selectors, selector)
	}
	random := rand.New(rand.NewPCG(1, 2))
	value := func() string {
		return []string{"", "5", "1", "v0", "v1", "v2", "v9", "v33", fmt.Sprint("v", random.IntN(1100))}[random.IntN(9)]
	}
	digests := map[[32]byte]string{}
	for _, s := range selectors {
		c := CompileSelector(s)
		if CompileSelector(c) != c || c.DeepCopySelector() != labels.Selector(c) {
			t.Errorf("%.60q is compiled or copied twice", s)
		}
		if diff := cmp.Diff(s.String(), c.String()); diff != "" || s.Empty() != c.Empty() {
			t.Errorf("%.60q is written otherwise (-want +got):\n%s", s, diff)
		}
		if other, ok := digests[c.Digest()]; ok {
			t.Errorf("%.60q and %.60q are told apart by nothing", s, other)
		}
		digests[c.Digest()] = s.String()
		for range 2000 {
			l := labels.Set{}
			for _, k := range []string{"a", "b", "c"} {
				if random.IntN(3) > 0 {
					l[k] = value()
				}
			}
			if got, want := c.Matches(l), s.Matches(l); got != want {
				t.Fatalf("%.60q: %v: got %t", s, l, got)
			}
			if s.Matches(l) && slices.ContainsFunc(c.RequiredLabels(), func(r RequiredLabel) bool {
				v, ok := l[r.Key]
				return !ok || r.Values != nil && !slices.Contains(r.Values, v)
			}) {
				t.Fatalf("%.60q: %v is selected without what is required", s, l)
			}
		}
	}
	again, err := labels.Parse(written("in", 100))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := digests[CompileSelector(again).Digest()]; ok {
		t.Error("what was never compiled has a digest")
	}
	if CompileSelector(again).Digest() != CompileSelector(again.DeepCopySelector()).Digest() {
		t.Error("the same selector has two digests")
	}
}

func TestRequiredLabels(t *testing.T) {
	for s, want := range map[string][]RequiredLabel{
		"!a,b!=c,d notin (e,f)": nil,
		"a,b>3":                 {{Key: "a"}, {Key: "b"}},
		"a=b,c in (e,d)":        {{"a", []string{"b"}}, {"c", []string{"d", "e"}}},
		"a,b in (d,e),c=f":      {{"c", []string{"f"}}, {"b", []string{"d", "e"}}, {Key: "a"}},
		"a in (" + strings.Join(someValues(MaxListed+1), ",") + ")": {{Key: "a"}},
	} {
		selector, err := labels.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		got := CompileSelector(selector).RequiredLabels()
		for _, l := range got {
			slices.Sort(l.Values)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.60q (-want +got):\n%s", s, diff)
		}
	}
}

// However many labels a selector requires, few are listed, so that few places of an index are compared.
func TestFewRequiredLabelsAreListed(t *testing.T) {
	s := labels.NewSelector()
	for n := range 64 {
		r, err := labels.NewRequirement(fmt.Sprint("l", n), selection.In, someValues(MaxListed-n%MaxListed))
		if err != nil {
			t.Fatal(err)
		}
		s = s.Add(*r)
	}
	got := CompileSelector(s).RequiredLabels()
	for n, l := range got {
		if len(l.Values) != n/2+1 {
			t.Errorf("number %d has %d values", n, len(l.Values))
		}
	}
	if len(got) != maxRequired {
		t.Errorf("%d are listed", len(got))
	}
}

func TestTermsAreCounted(t *testing.T) {
	for text, want := range map[string]int{"": 0, "a": 1, "a=b,!c": 2, "a in (1,2,3,4,5,6,7,8,9,10),b,c notin (d)": 3} {
		s, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := CompileSelector(s).CountTerms(); got != want {
			t.Errorf("%q has %d terms, want %d", text, got, want)
		}
	}
	if got := CompileSelector(labels.Nothing()).CountTerms(); got != 0 {
		t.Errorf("what selects nothing has %d terms", got)
	}
}

// An object is compared with each term of its selectors, and its place with each term about its Namespace.
func TestComparisonsAreCounted(t *testing.T) {
	parse := func(text string) labels.Selector {
		s, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	q := Query{Labels: parse("a=b,!c"), Fields: fields.OneTermEqualSelector("metadata.name", "x")}
	if object, place := q.CountComparisons(); object != 4 || place != 1 {
		t.Errorf("got %d, %d", object, place)
	}
	q.Namespaces.Labels = parse("a,b")
	if object, place := q.CountComparisons(); object != 6 || place != 3 {
		t.Errorf("with labels of Namespaces, got %d, %d", object, place)
	}
}

// However many values there are, one is compared with a few of them.
func TestAValueIsComparedWithFew(t *testing.T) {
	for _, n := range []int{maxCompared + 1, 100, 1000, 10_000, 36_000, 43_690, 43_691} {
		s := newValueSet(someValues(n))
		compared := 0
		for i := 1; i <= n; i++ {
			if !s.has(fmt.Sprint("v", i)) || s.has(fmt.Sprint("w", i)) {
				t.Fatalf("of %d values, v%d is not there, or w%d is", n, i, i)
			}
			_, is := s.find(fmt.Sprint("v", i))
			_, isNot := s.find(fmt.Sprint("w", i))
			compared += is + isNot
		}
		if each := float64(compared) / float64(2*n); each > 6 {
			t.Errorf("of %d values, %.1f are compared with one", n, each)
		}
	}
}
