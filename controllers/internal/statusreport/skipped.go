// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package statusreport

import (
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/cachetrim"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// maxReason is how long the reason is for which a kind is skipped, in bytes.
const maxReason = 256

// setSkippedKinds says which kinds targets of all kinds skip. While a target is not known, what is said of it stays.
func setSkippedKinds(r Report, s observed.Snapshot) {
	var skipped *v1alpha1.SkippedKinds
	for t := range s {
		if s[t].Kinds == nil && r.Work.Targets[t].IsOfAnyKind() || s[t].Kinds != nil && s[t].State == observed.Unsynced {
			return
		}
		for _, k := range s[t].ListSkipped() {
			if skipped == nil {
				skipped = &v1alpha1.SkippedKinds{}
			}
			if skipped.Count++; len(skipped.Kinds) < cachetrim.MaxListed {
				skipped.Kinds = append(skipped.Kinds, v1alpha1.SkippedKind{
					Target: r.Work.Targets[t].Name, Kind: k.Resource.GroupResource().String(), Reason: sanitize.ShortenToBytes(sanitize.CleanText(k.Detail), maxReason),
				})
			}
		}
	}
	r.Of.Draft.State().SkippedKinds = skipped
}
