// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// maxBlind is for how long at most nobody may be able to say whether `when` holds without its hold beginning anew, and
// blindShare the share of `for` that this may be. What happens meanwhile is not seen: a break in it would be overlooked.
const (
	maxBlind   = 10 * time.Second
	blindShare = 4
)

// Holds is since when the `when` of rules holds without a break, by the name of the rule. A plan's Holds are handed to the
// next Compute; losing them makes deeds late, never early. They are never changed once they were handed out.
type Holds map[string]RuleHolds

// Blinded is the holds after an evaluation that could not say whether they go on: they neither begin nor end, and begin anew
// if that lasts.
func (h Holds) Blinded(now time.Time) Holds {
	if h == nil {
		return nil
	}
	out := make(Holds, len(h))
	for name, r := range h {
		out[name] = r.blinded(now)
	}
	return out
}

// RuleHolds are the holds of one rule.
type RuleHolds struct {
	// Text is a fingerprint of the rule and of what it reads. What was edited begins anew.
	Text string
	// Since is the beginning of each hold, by the value of forKey or key, or the UID of the object.
	Since map[string]time.Time
	// Blind is since when nobody can say whether a hold goes on; of one that was seen by the last evaluation there is none.
	Blind map[string]time.Time
}

func (r RuleHolds) blinded(now time.Time) RuleHolds {
	if len(r.Blind) == len(r.Since) {
		return r
	}
	out := RuleHolds{Text: r.Text, Since: r.Since, Blind: make(map[string]time.Time, len(r.Since))}
	for key := range r.Since {
		out.Blind[key] = r.blindSince(key, now)
	}
	return out
}

// blindSince is since when nobody can say whether a hold goes on, if now nobody can.
func (r RuleHolds) blindSince(key string, now time.Time) time.Time {
	if at, ok := r.Blind[key]; ok {
		return at
	}
	return now
}

// fingerprint tells the versions of a rule apart, and of what its expressions read besides objects.
func fingerprint(spec *v1alpha1.Work, rule *v1alpha1.Rule) string {
	text, err := json.Marshal([]any{rule, spec.Targets, spec.Variables, spec.Parameters})
	if err != nil { // all of it was JSON: this does not happen, and if it did no hold would last
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// holding is what one evaluation makes of the holds of one rule.
type holding struct {
	before RuleHolds
	after  RuleHolds
	now    time.Time
}

// holding begins an evaluation of a rule.
func (h Holds) holding(spec *v1alpha1.Work, rule *v1alpha1.Rule, now time.Time) *holding {
	out := &holding{now: now, after: RuleHolds{Text: fingerprint(spec, rule), Since: map[string]time.Time{}, Blind: map[string]time.Time{}}}
	if before := h[rule.Name]; before.Text == out.after.Text && before.Text != "" {
		out.before = before
	}
	return out
}

// holds takes that `when` holds for a key, and says since when. A beginning that lies ahead belongs to a clock that was
// set back since.
func (h *holding) holds(key string, length time.Duration) time.Time {
	since, known := h.after.Since[key]
	_, blind := h.after.Blind[key]
	if known && !blind {
		return since
	}
	since, known = h.before.Since[key]
	if !known || since.After(h.now) || h.overlooks(key, length) {
		since = h.now
	}
	h.after.Since[key] = since
	delete(h.after.Blind, key)
	return since
}

// overlooks says that nobody could say for too long whether a hold goes on.
func (h *holding) overlooks(key string, length time.Duration) bool {
	at, blind := h.before.Blind[key]
	return blind && (at.After(h.now) || h.now.Sub(at) > min(maxBlind, length/blindShare))
}

// unknown takes that nobody can say whether `when` holds for a key: its hold neither begins nor ends.
func (h *holding) unknown(key string) {
	since, known := h.before.Since[key]
	if _, seen := h.after.Since[key]; seen || !known {
		return
	}
	h.after.Since[key] = since
	h.after.Blind[key] = h.before.blindSince(key, h.now)
}
