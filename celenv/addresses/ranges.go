// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// maxShared bounds how many names FindShared gives in all.
const maxShared = 100_000

// Range is all addresses from First to Last, both of one family.
type Range struct{ First, Last netip.Addr }

// ParseRange reads an address, such as 10.0.0.1, the first and the last of several, such as 10.0.0.1-10.0.0.9, or a prefix,
// such as 10.0.0.0/24.
func ParseRange(text string) (Range, error) {
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return Range{}, errNoRange
		}
		return Range{p.Masked().Addr(), lastOf(p)}, nil
	}
	first, last, several := strings.Cut(text, "-")
	if !several {
		last = first
	}
	var r Range
	var err error
	if r.First, err = netip.ParseAddr(first); err != nil {
		return Range{}, errNoRange
	}
	if r.Last, err = netip.ParseAddr(last); err != nil {
		return Range{}, errNoRange
	}
	if r.First.Zone()+r.Last.Zone() != "" || r.First.BitLen() != r.Last.BitLen() || r.Last.Less(r.First) {
		return Range{}, errNoRange
	}
	return r, nil
}

var errNoRange = errors.New("this is no range of addresses")

// lastOf is the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := range bytes {
		switch set := p.Bits() - 8*i; {
		case set <= 0:
			bytes[i] = 0xff
		case set < 8:
			bytes[i] |= 0xff >> set
		}
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// String writes the range as ParseRange reads it.
func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// touchesNext says that a range which does not begin before this one overlaps it or follows it without a gap.
func (r Range) touchesNext(next Range) bool {
	return !r.Last.Less(next.First) || r.Last.BitLen() == next.First.BitLen() && r.Last.Next() == next.First
}

// mergeRanges gives the same addresses in as few ranges as there can be, in their order: those of IPv4 first.
func mergeRanges(ranges []Range) []Range {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b Range) int { return a.First.Compare(b.First) })
	out := sorted[:0]
	for _, r := range sorted {
		if n := len(out) - 1; n >= 0 && out[n].touchesNext(r) {
			if out[n].Last.Less(r.Last) {
				out[n].Last = r.Last
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

// SubtractRanges gives the addresses of some ranges that are in none of others, in as few ranges as there can be.
func SubtractRanges(ranges, without []Range) []Range {
	var out []Range
	less := mergeRanges(without)
	for _, r := range mergeRanges(ranges) {
		for len(less) > 0 && less[0].Last.Less(r.First) {
			less = less[1:]
		}
		left := true // whether there is anything of r beyond what was looked at
		for _, l := range less {
			if r.Last.Less(l.First) {
				break
			}
			if r.First.Less(l.First) {
				out = append(out, Range{r.First, l.First.Prev()})
			}
			if left = l.Last.Less(r.Last); !left {
				break
			}
			r.First = l.Last.Next()
		}
		if left {
			out = append(out, r)
		}
	}
	return out
}

// Shared are addresses that are in the ranges of several names.
type Shared struct {
	Range Range
	Names []string // sorted
}

// edge is where a range of a name begins, or what comes after it.
type edge struct {
	at    netip.Addr
	name  int
	opens bool
}

// listEdges lists the edges of the ranges of names, in their order.
func listEdges(all map[string][]Range, names []string) []edge {
	ranges := 0
	for _, of := range all {
		ranges += len(of)
	}
	edges := make([]edge, 0, 2*ranges)
	for n, name := range names {
		for _, r := range mergeRanges(all[name]) {
			edges = append(edges, edge{r.First, n, true})
			if after := r.Last.Next(); after.IsValid() {
				edges = append(edges, edge{after, n, false})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return a.at.Compare(b.at) })
	return edges
}

// openNames are the names in whose ranges an address is.
type openNames struct {
	names map[int]bool
	most  int // how many there were since the map was made: going through it takes as long
}

// change adds or removes the name of an edge.
func (o *openNames) change(e edge) {
	const few = 16
	if !e.opens {
		if delete(o.names, e.name); o.most > few && len(o.names) < o.most/4 {
			o.names, o.most = maps.Collect(maps.All(o.names)), len(o.names)
		}
		return
	}
	if o.names == nil {
		o.names = map[int]bool{}
	}
	o.names[e.name] = true
	o.most = max(o.most, len(o.names))
}

// FindShared gives the addresses that are in the ranges of more than one name, in their order. It is an error if there are too many
// of them to be named.
func FindShared(all map[string][]Range) ([]Shared, error) {
	names := slices.Sorted(maps.Keys(all))
	edges := listEdges(all, names)
	var out []Shared
	open := openNames{}
	named := 0
	for i := 0; i < len(edges); {
		at := edges[i].at
		if i > 0 && edges[i-1].at.BitLen() != at.BitLen() {
			open = openNames{} // the last addresses of IPv4 have none after them
		}
		for ; i < len(edges) && edges[i].at == at; i++ {
			open.change(edges[i])
		}
		if len(open.names) < 2 {
			continue
		}
		if named += len(open.names); named > maxShared {
			return nil, fmt.Errorf("the ranges that are shared have more than %d names", maxShared)
		}
		s := Shared{Range: Range{First: at, Last: lastOf(netip.PrefixFrom(at, 0))}}
		if i < len(edges) && edges[i].at.BitLen() == at.BitLen() {
			s.Range.Last = edges[i].at.Prev()
		}
		for _, n := range slices.Sorted(maps.Keys(open.names)) {
			s.Names = append(s.Names, names[n])
		}
		out = append(out, s)
	}
	return out, nil
}
