// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Projections have the same digest if they are written in the same way, and only then.
func TestDigestsTellProjectionsApart(t *testing.T) {
	if (*Projection)(nil).Digest() == (&Projection{}).Digest() {
		t.Error("nothing has the digest of a type")
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawProjection(t, 3), drawProjection(t, 3)
		if same := cmp.Equal(withoutMore(a), withoutMore(b)); (a.Digest() == b.Digest()) != same {
			t.Fatalf("%v and %v are the same: %t", a.ListPaths(), b.ListPaths(), same)
		}
		if a.Digest() != copyOf(a).Digest() {
			t.Fatalf("a copy of %v differs", a.ListPaths())
		}
	})
}

// withoutMore is a Projection without what one that keeps all says besides.
func withoutMore(p *Projection) *Projection {
	if p == nil {
		return nil
	}
	if p.Whole {
		return All()
	}
	out := &Projection{Scalar: p.Scalar, Shape: p.Shape, References: p.References, Elements: withoutMore(p.Elements), Entries: withoutMore(p.Entries)}
	for key, kept := range p.Fields {
		if out.Fields == nil {
			out.Fields = map[string]*Projection{}
		}
		out.Fields[key] = withoutMore(kept)
	}
	for kind, kept := range p.ByType {
		if out.ByType == nil {
			out.ByType = map[string]*Projection{}
		}
		out.ByType[kind] = withoutMore(kept)
	}
	return out
}

func copyOf(p *Projection) *Projection {
	if p == nil {
		return nil
	}
	out := *p
	out.Elements, out.Entries, out.Fields, out.ByType = copyOf(p.Elements), copyOf(p.Entries), nil, nil
	for kind, kept := range p.ByType {
		if out.ByType == nil {
			out.ByType = map[string]*Projection{}
		}
		out.ByType[kind] = copyOf(kept)
	}
	for key, kept := range p.Fields {
		if out.Fields == nil {
			out.Fields = map[string]*Projection{}
		}
		out.Fields[key] = copyOf(kept)
	}
	return &out
}

func TestCountParts(t *testing.T) {
	for name, tc := range map[string]struct {
		p    *Projection
		want int
	}{
		"Nothing":  {nil, 0},
		"All":      {All(), 0},
		"Path":     {KeepPath("a", "b"), 2},
		"Branches": {Merge(KeepPath("a", "b"), KeepPath("a", "c"), KeepPath("d")), 4},
		"Inner":    {&Projection{Elements: KeepPath("a"), Entries: &Projection{}}, 3},
		"ByType":   {&Projection{ByType: map[string]*Projection{"Ready": KeepPath("status")}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.p.CountParts(); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
