// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package itemtrace notes what the rules of a plan make of one object: which step leaves it out, or that it is acted on.
//
// It never decides: a plan is the same with a trace and without. A nil Trace notes nothing.
package itemtrace

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/celenv/parts"
)

// Outcome is what becomes of an item of a rule.
type Outcome string

const (
	// NotMatched is an item for which `when` is false.
	NotMatched Outcome = "NotMatched"
	// Kept is left out by `keep`, Left by `leave`, Spared by `unless`, and Waiting by `for`.
	Kept    Outcome = "Kept"
	Left    Outcome = "Left"
	Spared  Outcome = "Spared"
	Waiting Outcome = "Waiting"
	// Protected is left out because something forbids an action, Shadowed because an earlier rule acts on the object, and Deferred because an
	// action on it has failed.
	Protected Outcome = "Protected"
	Shadowed  Outcome = "Shadowed"
	Deferred  Outcome = "Deferred"
	// Unchanged is an item to which no action applies, or on which there is nothing left to do.
	Unchanged Outcome = "Unchanged"
	// LeftOut is no item of the rule, although forEach gives it: the rule uninstalls releases, and another revision stands for this one's.
	LeftOut Outcome = "LeftOut"
	// Failed is an item with an error.
	Failed Outcome = "Failed"
	// Acted is an item that is acted on.
	Acted Outcome = "Acted"
)

// Item is an item of a rule.
type Item struct {
	// Name is its key, or names its object, for people.
	Name string
	// Object identifies the object that Name names: kinds of two groups can have the same name. Empty for a key.
	Object types.UID
}

// Entry is what one rule makes of the object.
type Entry struct {
	Rule string
	Item Item
	// ByAction says that the item is another one, and that its actions are about the object.
	ByAction bool
	Outcome  Outcome
	// Because says why, for people, where the outcome does not say it all.
	Because string
	// Until is when an item that waits has waited for long enough.
	Until time.Time
	// Parts are those of `when`, and what they gave.
	Parts []parts.Part
}

// maxEntries bounds the entries of one object: rules can have several items that are about it.
const maxEntries = 200

// Trace follows one object.
type Trace struct {
	object  types.UID
	entries []Entry
}

// NewTrace returns a Trace of the object with this UID.
func NewTrace(object types.UID) *Trace { return &Trace{object: object} }

// Follows says that an object is the one.
func (t *Trace) Follows(object types.UID) bool { return t != nil && t.object == object }

// BeginPlan forgets what earlier plans made of the object.
func (t *Trace) BeginPlan() {
	if t != nil {
		t.entries = nil
	}
}

// ListEntries returns what the rules make of the object, in their order.
func (t *Trace) ListEntries() []Entry {
	if t == nil {
		return nil
	}
	return slices.Clone(t.entries)
}

// BeginItem notes an item of which it is known only what `when` gave.
func (t *Trace) BeginItem(e Entry) {
	if len(t.entries) < maxEntries {
		t.entries = append(t.entries, e)
	}
}

// NoteOutcome notes what becomes of an item.
func (t *Trace) NoteOutcome(rule string, item Item, outcome Outcome, because string) {
	if e := t.findEntry(rule, item); e != nil {
		e.Outcome, e.Because = outcome, because
	}
}

// NoteWait notes that an item waits.
func (t *Trace) NoteWait(rule string, item Item, until time.Time) {
	if e := t.findEntry(rule, item); e != nil {
		e.Outcome, e.Until = Waiting, until
	}
}

// NoteAction notes what becomes of another item, whose action is about the object.
func (t *Trace) NoteAction(rule string, item Item, outcome Outcome, because string) {
	if t.findEntry(rule, item) == nil {
		t.BeginItem(Entry{Rule: rule, Item: item, ByAction: true})
	}
	t.NoteOutcome(rule, item, outcome, because)
}

// findEntry finds the entry of an item; nil if the item is not about the object.
func (t *Trace) findEntry(rule string, item Item) *Entry {
	if t == nil {
		return nil
	}
	i := slices.IndexFunc(t.entries, func(e Entry) bool { return e.Rule == rule && e.Item == item })
	if i < 0 {
		return nil
	}
	return &t.entries[i]
}
