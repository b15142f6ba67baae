// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "10.0.0.1-10.0.0.9": "10.0.0.1-10.0.0.9", "10.0.0.7-10.0.0.7": "10.0.0.7", "10.0.0.5/24": "10.0.0.0-10.0.0.255", "10.0.0.8/29": "10.0.0.8-10.0.0.15", "10.0.0.1/32": "10.0.0.1",
		"0.0.0.0/0": "0.0.0.0-255.255.255.255", "fd00:0::1": "fd00::1", "fd00::1-fd00::ff": "fd00::1-fd00::ff", "fd00::/125": "fd00::-fd00::7",
		"": "", "10.0.0": "", "10.0.0.1-": "", "-": "", "10.0.0.9-10.0.0.1": "", "10.0.0.1-fd00::1": "", "fe80::1%eth0": "", "fe80::1-fe80::2%eth0": "", "10.0.0.0/33": "", "10.0.0.1 - 10.0.0.2": "", "10.0.0.1-10.0.0.2-10.0.0.3": "", "010.0.0.1": "",
	} {
		r, err := ParseRange(text)
		got := ""
		if err == nil {
			got = r.String()
		}
		if got != want {
			t.Errorf("%q is read as %q, %v; want %q", text, got, err, want)
		}
	}
}

func parse(t *testing.T, texts ...string) []Range {
	t.Helper()
	var out []Range
	for _, text := range texts {
		r, err := ParseRange(text)
		if err != nil {
			t.Fatal(text, err)
		}
		out = append(out, r)
	}
	return out
}

func written(ranges []Range) string {
	var out []string
	for _, r := range ranges {
		out = append(out, r.String())
	}
	return strings.Join(out, " ")
}

func TestSubtract(t *testing.T) {
	for name, tc := range map[string]struct {
		from, without []string
		want          string
	}{
		"Nothing":    {[]string{"10.0.0.1-10.0.0.9"}, nil, "10.0.0.1-10.0.0.9"},
		"FromNone":   {nil, []string{"10.0.0.1"}, ""},
		"Middle":     {[]string{"10.0.0.1-10.0.0.9"}, []string{"10.0.0.5"}, "10.0.0.1-10.0.0.4 10.0.0.6-10.0.0.9"},
		"Edges":      {[]string{"10.0.0.1-10.0.0.9"}, []string{"10.0.0.1", "10.0.0.9"}, "10.0.0.2-10.0.0.8"},
		"All":        {[]string{"10.0.0.1-10.0.0.9"}, []string{"10.0.0.0/24"}, ""},
		"OneByOne":   {[]string{"10.0.0.1-10.0.0.2"}, []string{"10.0.0.2", "10.0.0.1"}, ""},
		"Merged":     {[]string{"10.0.0.3-10.0.0.4", "10.0.0.1-10.0.0.2", "10.0.0.2"}, []string{"10.0.0.9"}, "10.0.0.1-10.0.0.4"},
		"AcrossTwo":  {[]string{"10.0.0.1-10.0.0.4", "10.0.0.8-10.0.0.9"}, []string{"10.0.0.3-10.0.0.8"}, "10.0.0.1-10.0.0.2 10.0.0.9"},
		"Families":   {[]string{"fd00::1-fd00::3", "10.0.0.1"}, []string{"fd00::2", "0.0.0.0/0"}, "fd00::1 fd00::3"},
		"TheLast":    {[]string{"255.255.255.254-255.255.255.255"}, []string{"255.255.255.255"}, "255.255.255.254"},
		"BeyondLast": {[]string{"255.255.255.255", "::"}, []string{"255.255.255.255"}, "::"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := written(SubtractRanges(parse(t, tc.from...), parse(t, tc.without...))); got != tc.want {
				t.Errorf("left is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestShare(t *testing.T) {
	for name, tc := range map[string]struct {
		all  map[string][]string
		want string
	}{
		"None":        {map[string][]string{"a": {"10.0.0.1-10.0.0.9"}, "b": {"10.0.0.10"}, "c": nil}, ""},
		"Itself":      {map[string][]string{"a": {"10.0.0.1-10.0.0.9", "10.0.0.5"}}, ""},
		"One":         {map[string][]string{"a": {"10.0.0.1-10.0.0.9"}, "b": {"10.0.0.9-10.0.0.12"}}, "10.0.0.9 a,b"},
		"Within":      {map[string][]string{"b": {"10.0.0.0/24"}, "a": {"10.0.0.7", "10.0.1.7"}}, "10.0.0.7 a,b"},
		"Three":       {map[string][]string{"a": {"10.0.0.1-10.0.0.5"}, "b": {"10.0.0.3-10.0.0.9"}, "c": {"10.0.0.5-10.0.0.6"}}, "10.0.0.3-10.0.0.4 a,b 10.0.0.5 a,b,c 10.0.0.6 b,c"},
		"TheLast":     {map[string][]string{"a": {"255.255.255.254-255.255.255.255"}, "b": {"255.255.255.255"}, "c": {"::1"}, "d": {"::1-::2"}}, "255.255.255.255 a,b ::1 c,d"},
		"TheVeryLast": {map[string][]string{"a": {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}, "b": {"ffff::/16"}}, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string][]Range{}
			for name, texts := range tc.all {
				all[name] = parse(t, texts...)
			}
			shared, err := FindShared(all)
			var got []string
			for _, s := range shared {
				got = append(got, s.Range.String()+" "+strings.Join(s.Names, ","))
			}
			if err != nil || strings.Join(got, " ") != tc.want {
				t.Errorf("shared are %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

// What many small pools share is named.
func TestShareNamesMany(t *testing.T) {
	const pools, shared = 60, 200
	all := map[string][]Range{}
	for i := range pools {
		for n := range shared {
			all[fmt.Sprint(i)] = append(all[fmt.Sprint(i)], parse(t, fmt.Sprintf("10.0.0.%d", n), fmt.Sprintf("10.0.1.%d", n))[n%2])
		}
	}
	got, err := FindShared(all)
	if err != nil || len(got) != shared {
		t.Fatalf("%d ranges are shared, %v; want %d", len(got), err, shared)
	}
	for _, s := range got {
		if len(s.Names) != pools {
			t.Errorf("%s has the names %q", s.Range, s.Names)
		}
	}
}

// What is shared by too many is said to be too much, and not written.
func TestShareIsBounded(t *testing.T) {
	all := map[string][]Range{}
	for i := range 600 {
		all[fmt.Sprint(i)] = parse(t, fmt.Sprintf("10.0.%d.%d-10.1.%d.%d", i/256, i%256, i/256, i%256))
	}
	if _, err := FindShared(all); err == nil {
		t.Error("all of it is written")
	}
}

// Of small ranges each address can be looked at by itself.
func TestRangesByCounting(t *testing.T) {
	for _, base := range []string{"10.0.0.0", "255.255.255.224", "fd00::"} {
		rapid.Check(t, func(t *rapid.T) {
			addresses := []netip.Addr{netip.MustParseAddr(base)}
			for range 31 {
				addresses = append(addresses, addresses[len(addresses)-1].Next())
			}
			draw := func(label string) []Range {
				var out []Range
				for range rapid.IntRange(0, 4).Draw(t, label) {
					from := rapid.IntRange(0, 31).Draw(t, "from")
					out = append(out, Range{addresses[from], addresses[rapid.IntRange(from, 31).Draw(t, "to")]})
				}
				return out
			}
			has := func(ranges []Range, a netip.Addr) bool {
				return slices.ContainsFunc(ranges, func(r Range) bool { return !a.Less(r.First) && !r.Last.Less(a) })
			}
			a, b, c := draw("a"), draw("b"), draw("c")
			left := SubtractRanges(a, b)
			for i := 1; i < len(left); i++ {
				if !left[i-1].Last.Next().Less(left[i].First) {
					t.Fatalf("%s could be fewer", written(left))
				}
			}
			shared, err := FindShared(map[string][]Range{"a": a, "b": b, "c": c})
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range addresses {
				if got, want := has(left, at), has(a, at) && !has(b, at); got != want {
					t.Fatalf("%s less %s is %s: wrong at %s", written(a), written(b), written(left), at)
				}
				var want, got []string
				for name, ranges := range map[string][]Range{"a": a, "b": b, "c": c} {
					if has(ranges, at) {
						want = append(want, name)
					}
				}
				slices.Sort(want)
				for _, s := range shared {
					if has([]Range{s.Range}, at) {
						got = append(got, s.Names...)
					}
				}
				if len(want) < 2 {
					want = nil
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s is of %v, and %v are said to share it", at, want, got)
				}
			}
		})
	}
}
