// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"slices"

	"github.com/vtex/cleaner/celenv/references"
)

// applyLooking is Apply for a value in which searches for references look as well. It reports whether the value has to be kept for them.
func applyLooking(p *Projection, value any, look references.Look) (kept any, needed bool) {
	if look.IsWhole() || p != nil && (p.Whole || look.IsInside() && len(p.References) > 0) { // what two searches look at in different ways is kept as a whole
		return value, true
	}
	if p != nil && len(p.References) > 0 { // an element of what another search is given
		look = look.WithKinds(mergeKinds(look.Kinds(), p.References))
	}
	switch v := value.(type) {
	case map[string]any:
		return mapLooking(p, v, look)
	case []any:
		return listLooking(p, v, look)
	case string:
		if look.KeepsText(v) {
			return v, true
		}
	}
	if p != nil && p.Scalar {
		return value, false
	}
	return (*Projection)(nil).Apply(value), false
}

// mapLooking is applyLooking for a map.
func mapLooking(p *Projection, m map[string]any, look references.Look) (out map[string]any, needed bool) {
	out = map[string]any{}
	for key, value := range m {
		each, kept := p.ofKey(key)
		field, present := look.Field(m, key)
		switch {
		case field.IsEmpty():
			if kept {
				out[key] = each.Apply(value)
			}
			continue
		case present:
			needed = true
		}
		inner, found := applyLooking(each, value, field)
		if needed = needed || found; kept || present || found {
			out[key] = inner
		}
	}
	return out, needed
}

// ofKey returns what is kept of the value of a key of a map, and whether it is.
func (p *Projection) ofKey(key string) (each *Projection, kept bool) {
	if p == nil {
		return nil, false
	}
	each, kept = p.Fields[key]
	if p.Shape || p.Entries != nil {
		return mergeTwo(p.Entries, each), true
	}
	return each, kept
}

// listLooking is applyLooking for a list.
func listLooking(p *Projection, list []any, look references.Look) (out []any, needed bool) {
	out = make([]any, 0, len(list))
	for _, value := range list {
		var each *Projection
		kept := false
		if p != nil {
			each, kept = p.OfElement(value)
		}
		inner, found := applyLooking(each, value, look)
		if needed = needed || found; kept || found || look.NeedsElements() {
			out = append(out, inner)
		}
	}
	return slices.Clip(out), needed
}
