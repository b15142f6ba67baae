// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fortimers tells since when the `when` of a rule holds without a break, for each item that waits for its `for`.
//
// What it does not know begins anew: it makes actions late, never early. It keeps no clock, and does not say what is done to an item whose
// hold has lasted.
package fortimers

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

// MaxBlind is the longest time for which the result of `when` may be unknown before a `for` timer must start again, and blindShare
// the longest share of `for`. During that time, an interruption could go unnoticed.
const (
	MaxBlind   = 10 * time.Second
	blindShare = 4
)

// Holds is since when the `when` of rules holds without a break, by the name of the rule. A plan's Holds are handed to the
// next Compute; losing them makes actions late, never early. They are never changed once they were handed out.
type Holds map[string]RuleHolds

// BlindAll is the holds after an evaluation that could not say whether they go on: they neither begin nor end, and begin anew
// if that lasts.
func (h Holds) BlindAll(now time.Time) Holds {
	if h == nil {
		return nil
	}
	out := make(Holds, len(h))
	for name, r := range h {
		out[name] = r.blindAll(now)
	}
	return out
}

// RuleHolds are the holds of one rule.
type RuleHolds struct {
	// Text is a fingerprint of the rule and of what it reads. What was edited begins anew.
	Text string
	// Since is each hold, by the value of forKey or key, or the UID of the object.
	Since map[stringhash.Sum]Hold
}

// Hold is since when `when` holds for something.
type Hold struct {
	Since time.Time
	// Blind is since when nobody can say whether the hold goes on; zero if the last evaluation saw that it does.
	Blind time.Time
}

// HoldBytes is about how much memory one hold takes.
const HoldBytes = 160

// Bytes is about how much memory the holds take.
func (h Holds) Bytes() int64 { return HoldBytes * int64(h.CountHolds()) }

// CountHolds is how many there are.
func (h Holds) CountHolds() (n int) {
	for _, r := range h {
		n += len(r.Since)
	}
	return n
}

// BeganAt is the holds as if all of them had begun at one moment.
func (h Holds) BeganAt(since time.Time) Holds {
	out := make(Holds, len(h))
	for rule, r := range h {
		moved := RuleHolds{Text: r.Text, Since: make(map[stringhash.Sum]Hold, len(r.Since))}
		for key := range r.Since {
			moved.Since[key] = Hold{Since: since}
		}
		out[rule] = moved
	}
	return out
}

func (r RuleHolds) blindAll(now time.Time) RuleHolds {
	out := RuleHolds{Text: r.Text, Since: make(map[stringhash.Sum]Hold, len(r.Since))}
	for key, hold := range r.Since {
		out.Since[key] = hold.blindHold(now)
	}
	return out
}

// blindHold marks a hold whose `when` could not be evaluated since then. It may turn out later that this was so even earlier.
func (h Hold) blindHold(since time.Time) Hold {
	h.Blind = monotime.ChooseEarlier(h.Blind, since)
	return h
}

// fingerprintRule tells the versions of a rule apart, and of what its expressions read besides objects.
func fingerprintRule(spec *v1alpha1.Work, rule *v1alpha1.Rule) string {
	text, err := json.Marshal([]any{rule, spec.Targets, spec.Variables, spec.Parameters})
	if err != nil { // all of it was JSON: this does not happen, and if it did no hold would last
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Holding is what one evaluation makes of the holds of one rule.
type Holding struct {
	before RuleHolds
	after  RuleHolds
	now    time.Time
}

// BeginRule begins an evaluation of a rule.
func (h Holds) BeginRule(spec *v1alpha1.Work, rule *v1alpha1.Rule, now time.Time) *Holding {
	out := &Holding{now: now, after: RuleHolds{Text: fingerprintRule(spec, rule), Since: map[stringhash.Sum]Hold{}}}
	if before := h[rule.Name]; before.Text == out.after.Text && before.Text != "" {
		out.before = before
	}
	return out
}

// RecordHold takes that `when` holds for a key, and says since when. A beginning that lies ahead belongs to a clock that was
// set back since. It is not ok if there is no room for one more hold: then none begins.
func (h *Holding) RecordHold(key string, length time.Duration, room func() bool) (since time.Time, ok bool) {
	sum := stringhash.SumOf(key)
	if hold, known := h.after.Since[sum]; known && hold.Blind.IsZero() {
		return hold.Since, true
	}
	hold, known := h.before.Since[sum]
	if !known && !room() {
		return h.now, false
	}
	if !known || hold.Since.After(h.now) || h.hasBlindGap(hold, length) {
		hold.Since = h.now
	}
	h.after.Since[sum] = Hold{Since: hold.Since}
	return hold.Since, true
}

// hasBlindGap says that nobody could say for too long whether a hold goes on.
func (h *Holding) hasBlindGap(hold Hold, length time.Duration) bool {
	return !hold.Blind.IsZero() && (hold.Blind.After(h.now) || h.now.Sub(hold.Blind) > BlindFor(length))
}

// BlindFor is for how long at most nobody may be able to say whether a hold of a length goes on.
func BlindFor(length time.Duration) time.Duration { return min(MaxBlind, length/blindShare) }

// RecordUnknown takes that nobody can say whether `when` holds for a key: its hold neither begins nor ends.
func (h *Holding) RecordUnknown(key string) { h.RecordUnknownSince(key, h.now) }

// RecordUnknownSince is RecordUnknown where nobody could say so since an earlier moment.
func (h *Holding) RecordUnknownSince(key string, since time.Time) {
	sum := stringhash.SumOf(key)
	hold, known := h.before.Since[sum]
	if _, seen := h.after.Since[sum]; seen || !known {
		return
	}
	h.after.Since[sum] = hold.blindHold(since)
}

// DropHolds takes that nobody knows for which items these keys hold: they begin anew.
func (h *Holding) DropHolds(keys map[string]bool) {
	for key := range keys {
		delete(h.after.Since, stringhash.SumOf(key))
	}
}

// ListHolds are the holds of the rule as this evaluation found them.
func (h *Holding) ListHolds() RuleHolds { return h.after }

// ListUnknown are the holds of the rule when this evaluation could not say whether they go on.
func (h *Holding) ListUnknown() RuleHolds { return h.before.blindAll(h.now) }
