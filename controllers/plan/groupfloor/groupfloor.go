// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package groupfloor counts how many items of each group remain when a plan is carried out, and says which items may still go, so that as
// many remain as `leave` asks for.
//
// It reads no object and makes no step. What a plan wants and may not be done in the end counts as gone.
package groupfloor

import "k8s.io/apimachinery/pkg/types"

// Floors are the groups of the rules with `leave`.
type Floors struct {
	// gone are the objects that the plan removes.
	gone map[types.UID]bool
	// taken are the items that rules act on, whatever they do with them.
	taken  map[item]bool
	groups map[types.UID][]*group
}

// item is an item of a rule, by its object or what stands for it.
type item struct {
	rule   string
	object types.UID
}

// group is a group of a rule.
type group struct {
	rule string
	// spare is how many of its items may still go; never negative.
	spare int
}

// NewFloors returns Floors without groups.
func NewFloors() *Floors {
	return &Floors{gone: map[types.UID]bool{}, taken: map[item]bool{}, groups: map[types.UID][]*group{}}
}

// RemoveObject notes that an object goes, whatever groups it is in.
func (f *Floors) RemoveObject(object types.UID) {
	if f.gone[object] {
		return
	}
	f.gone[object] = true
	for _, g := range f.groups[object] {
		g.spare = max(0, g.spare-1)
	}
}

// AddGroup adds a group of a rule, of which so many members are to remain. A member that is named twice counts once.
func (f *Floors) AddGroup(rule string, members []types.UID, leave int) {
	g, remain, seen := &group{rule: rule}, 0, make(map[types.UID]bool, len(members))
	for _, m := range members {
		if seen[m] || f.gone[m] {
			continue
		}
		seen[m] = true
		remain++
		f.groups[m] = append(f.groups[m], g)
	}
	g.spare = max(0, remain-leave)
}

// TakeItem notes that a rule acts on an item, and removes these objects. It says whether that may be: if one group would have too few items,
// the item stays, and nothing is noted. Groups of other rules lose only what is removed.
func (f *Floors) TakeItem(rule string, member types.UID, removed []types.UID) bool {
	lose := f.countLosses(rule, member, removed)
	for g, n := range lose {
		if n > g.spare {
			return false
		}
	}
	for g, n := range lose {
		g.spare -= n
	}
	f.taken[item{rule, member}] = true
	for _, object := range removed {
		f.gone[object] = true
	}
	return true
}

// countLosses counts what each group would lose.
func (f *Floors) countLosses(rule string, member types.UID, removed []types.UID) map[*group]int {
	lose := map[*group]int{}
	counted := map[types.UID]bool{}
	for _, object := range removed {
		if f.gone[object] || counted[object] {
			continue
		}
		counted[object] = true
		for _, g := range f.groups[object] {
			if g.rule != rule || !f.taken[item{rule, object}] {
				lose[g]++
			}
		}
	}
	if own := (item{rule, member}); !counted[member] && !f.gone[member] && !f.taken[own] {
		for _, g := range f.groups[member] {
			if g.rule == rule {
				lose[g]++
			}
		}
	}
	return lose
}
