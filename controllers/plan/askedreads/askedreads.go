// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package askedreads collects the live reads that a decision asks for, those that come first, for no more items and objects than a batch may have.
// Pure: it reads nothing itself.
package askedreads

import (
	"maps"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// List is what the items of one decision need to have read live.
type List struct {
	// Items is for how many items reads are asked for, and Objects is how many objects they may depend on by their names; 0: any number.
	Items, Objects int
	// asked is how many items were asked about, and named are the objects that these depend on by their names.
	asked int
	named map[observed.Read]bool
	// stage is which of the reads of an item come next, the earliest for all items; next are these.
	stage int
	next  []observed.Read
}

// AddReads records that reads of a stage are needed.
func (l *List) AddReads(stage int, wanted []observed.Read) {
	switch {
	case len(l.next) == 0 || stage < l.stage:
		l.stage, l.next = stage, wanted
	case stage == l.stage:
		l.next = append(l.next, wanted...)
	}
}

// HasRoom says that there is room for another item.
func (l *List) HasRoom() bool { return l.asked < l.Items }

// CountItem counts an item that was asked about.
func (l *List) CountItem() { l.asked++ }

// ListNext lists the reads that come next, each once.
func (l *List) ListNext() []observed.Read {
	var out []observed.Read
	seen := map[observed.Read]bool{}
	for _, read := range l.next {
		if !seen[read] {
			seen[read] = true
			out = append(out, read)
		}
	}
	return out
}

// AddNamed records the objects that an item depends on by their names, with those that it depended on before. It is false if there is no
// room for them: then there is none for any other item.
func (l *List) AddNamed(of map[observed.Read]bool) bool {
	n := len(l.named)
	for read := range of {
		if !l.named[read] {
			n++
		}
	}
	if l.Objects > 0 && n > l.Objects {
		l.asked = l.Items
		return false
	}
	if l.named == nil {
		l.named = map[observed.Read]bool{}
	}
	maps.Copy(l.named, of)
	return true
}
