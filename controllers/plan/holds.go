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

// Holds is since when the `when` of rules holds without a break, by the name of the rule. A plan's Holds are handed to the
// next Compute; losing them makes deeds late, never early. They are never changed once they were handed out.
type Holds map[string]RuleHolds

// RuleHolds are the holds of one rule.
type RuleHolds struct {
	// Text is a fingerprint of the rule. A rule that was edited begins anew.
	Text string
	// Since is the beginning of each hold, by the value of forKey or key, or the UID of the object.
	Since map[string]time.Time
}

// fingerprint tells the versions of a rule apart.
func fingerprint(rule *v1alpha1.Rule) string {
	text, err := json.Marshal(rule)
	if err != nil { // a Rule is strings and numbers: this does not happen, and if it did no hold would last
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
func (h Holds) holding(rule *v1alpha1.Rule, now time.Time) *holding {
	out := &holding{now: now, after: RuleHolds{Text: fingerprint(rule), Since: map[string]time.Time{}}}
	if before := h[rule.Name]; before.Text == out.after.Text && before.Text != "" {
		out.before = before
	}
	return out
}

// holds takes that `when` holds for a key, and says since when. A beginning that lies ahead belongs to a clock that was
// set back since.
func (h *holding) holds(key string) time.Time {
	if since, ok := h.after.Since[key]; ok {
		return since
	}
	since, ok := h.before.Since[key]
	if !ok || since.After(h.now) {
		since = h.now
	}
	h.after.Since[key] = since
	return since
}

// unknown takes that nobody can say whether `when` holds for a key: its hold neither begins nor ends.
func (h *holding) unknown(key string) {
	if since, ok := h.before.Since[key]; ok {
		h.after.Since[key] = since
	}
}
