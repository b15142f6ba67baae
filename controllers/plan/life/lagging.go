// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/plan"
)

// Lagging is the items of rules with `for` that wait because the watches have shown an object of theirs at an outdated version. The states
// of the object in between are unknown, so it is unknown whether `when` stayed true.
type Lagging map[plan.ItemKey]Lag

// Lag names the outdated versions of an object.
type Lag struct {
	UID types.UID
	Old []string
}

// NoteLag records that the items of a step wait until the watches show another version of its object than these.
func (l Lagging) NoteLag(s *plan.Step, old ...string) {
	for _, item := range s.ListItems() {
		lag := l[item]
		if lag.UID != s.Object.UID {
			lag = Lag{UID: s.Object.UID}
		}
		for _, version := range old {
			if version != "" && !slices.Contains(lag.Old, version) {
				lag.Old = append(slices.Clone(lag.Old), version)
			}
		}
		l[item] = lag
	}
}

// ListItems lists the items for which a snapshot of the watches still shows an old version, and forgets the others. While a target is not
// known, none is forgotten.
func (l Lagging) ListItems(s plan.Snapshot) map[plan.ItemKey]bool {
	if len(l) == 0 {
		return nil
	}
	shown, complete := map[types.UID]string{}, true
	for _, lag := range l {
		shown[lag.UID] = ""
	}
	for t := range s {
		complete = complete && s[t].State == plan.Complete
		for i := range s[t].Objects {
			o := &s[t].Objects[i]
			if _, awaited := shown[o.UID]; awaited {
				shown[o.UID] = o.ResourceVersion
			}
		}
	}
	maps.DeleteFunc(l, func(_ plan.ItemKey, lag Lag) bool {
		version := shown[lag.UID]
		return version != "" && !slices.Contains(lag.Old, version) || version == "" && complete
	})
	items := make(map[plan.ItemKey]bool, len(l))
	for item := range l {
		items[item] = true
	}
	return items
}

// CountBytes is about how much memory is taken.
func (l Lagging) CountBytes() (n int64) {
	for item, lag := range l {
		n += laggingBytes + int64(len(item.Key)+64*len(lag.Old))
	}
	return n
}

// laggingBytes is about how much memory one of them takes, without its texts.
const laggingBytes = 200
