// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// Lagging is the items of rules with `for` for which the watches have shown an object at an outdated version. The states of the object in
// between are unknown, so it is unknown whether `when` stayed true.
type Lagging map[LaggingKey]Lag

// LaggingKey is an item, and one of the objects that it is about: each of them lags by its own versions.
type LaggingKey struct {
	Item plan.ItemKey
	UID  types.UID
}

// Lag is how far the watches were behind for an object.
type Lag struct {
	// Old are the versions that are known to be outdated.
	Old []string
	// Live is the version that a live read returned, and Read a time before that read.
	Live string
	Read time.Time
	// CaughtUp says that the watches have shown Live or a later version: they hide nothing that happened before Read.
	CaughtUp bool
}

// NoteLag records that the items of a step wait until the watches show the live version of its object, which was read after a time, or a later
// one. Old are the versions that the watches have shown, or that were decided on.
func (l Lagging) NoteLag(s *plan.Step, live string, read time.Time, old ...string) {
	for _, item := range s.ListItems() {
		key := LaggingKey{item, s.Object.UID}
		lag := l[key]
		if lag.CaughtUp {
			lag = Lag{}
		}
		for _, version := range old {
			if version != "" && version != live && !slices.Contains(lag.Old, version) {
				lag.Old = append(slices.Clone(lag.Old), version)
			}
		}
		lag.Live, lag.Read = live, read
		l[key] = lag
	}
}

// ListItems lists the items for which a snapshot of the watches still shows an old version, and since when that is known. It forgets those
// whose objects are gone, and those that have caught up and that IsBlind no longer needs. While a target is not known, none is forgotten.
func (l Lagging) ListItems(s observed.Snapshot, now time.Time) map[plan.ItemKey]time.Time {
	if len(l) == 0 {
		return nil
	}
	shown, complete := map[types.UID]string{}, true
	for key := range l {
		shown[key.UID] = ""
	}
	for t := range s {
		complete = complete && s[t].State == observed.Complete
		objects := s[t].Objects
		for i := range objects {
			if _, awaited := shown[objects[i].UID]; awaited {
				shown[objects[i].UID] = objects[i].ResourceVersion
			}
		}
	}
	maps.DeleteFunc(l, func(key LaggingKey, lag Lag) bool {
		version := shown[key.UID]
		if version == "" {
			return complete
		}
		lag.CaughtUp = lag.CaughtUp || lag.hasCaughtUp(version)
		l[key] = lag
		return lag.CaughtUp && !isWithin(lag.Read, now, fortimers.MaxBlind)
	})
	items := make(map[plan.ItemKey]time.Time, len(l))
	for key, lag := range l {
		if !lag.CaughtUp {
			items[key.Item] = monotime.ChooseEarlier(items[key.Item], lag.Read)
		}
	}
	return items
}

// hasCaughtUp says that a version which the watches show is not older than the live one. Where versions have no order, any will do that is not
// known to be outdated.
func (lag *Lag) hasCaughtUp(version string) bool {
	order, err := resourceversion.CompareResourceVersion(version, lag.Live)
	if err != nil {
		return !slices.Contains(lag.Old, version)
	}
	return order >= 0
}

// IsBlind says that the watches may have hidden a change of the object of a step for longer than the holds of its items may be blind. It is
// asked when a live read has shown that the object has changed. What the watches showed at an earlier live read, and have shown since, bounds
// for how long.
func (l Lagging) IsBlind(s *plan.Step, now time.Time) bool {
	return slices.ContainsFunc(s.ListItems(), func(item plan.ItemKey) bool {
		lag, known := l[LaggingKey{item, s.Object.UID}]
		return !known || !lag.CaughtUp || !isWithin(lag.Read, now, s.BlindFor)
	})
}

// isWithin says that a time is not ahead of now, and at most so long ago.
func isWithin(at, now time.Time, most time.Duration) bool {
	return !at.After(now) && monotime.ElapsedTime(at, now) <= most
}

// CountBytes is about how much memory is taken.
func (l Lagging) CountBytes() (n int64) {
	for key, lag := range l {
		n += laggingBytes + int64(len(key.Item.Key)+64*len(lag.Old))
	}
	return n
}

// laggingBytes is about how much memory one of them takes, without its texts.
const laggingBytes = 300
