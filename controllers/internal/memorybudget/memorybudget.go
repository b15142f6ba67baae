// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memorybudget notices that the operator is about to take more memory than it may have, and says when something must be given up. It does
// not know what, and gives nothing up itself. It also chooses how often garbage is collected, and gives memory back to the system
// that was needed for a while only.
package memorybudget

import (
	"cmp"
	"context"
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"time"

	"k8s.io/utils/clock"
)

const (
	// fullPercent is how much of the limit live objects may take. The rest is for garbage, which the collector needs room for, and for what comes
	// between two looks.
	fullPercent = 80
	// roomPercent is how much of the limit may be taken after something has come back, so that it does not go again at once.
	roomPercent = 70
	// sharePercent is how much of the limit one namespace may take when too much is in use. Who takes more gives up first.
	sharePercent = 25
	// largePercent is how much of the limit something must hold, or giving it up does not help.
	largePercent = 2
	// lookEvery is the time between two looks.
	lookEvery = time.Second
	// settleFor is the wait after something was given up: who is reading it holds it for a while.
	settleFor = 5 * time.Second
	// restFor is the wait after a look that found too much memory in use, and nothing to give up, unless growthPercent of the limit more is.
	restFor       = time.Minute
	growthPercent = 3
)

// Budget is the memory that the operator may have. The zero value has no limit. It is safe for concurrent use.
type Budget struct {
	limit int64
	// measure returns how many bytes live objects took when garbage was last collected, and collect collects garbage.
	measure func() int64
	collect func()
}

// New makes a Budget of so many bytes; 0 or less stands for the limit that Go has (GOMEMLIMIT), and if it has none there is no limit. A limit that
// is given is Go's from then on.
func New(limit int64) *Budget {
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	} else if limit = debug.SetMemoryLimit(-1); limit == math.MaxInt64 {
		limit = 0
	}
	return NewMeasured(limit, measureLive, runtime.GC)
}

// NewMeasured makes a Budget of so many bytes. measure says how many of them are in use. 0 is no limit.
func NewMeasured(limit int64, measure func() int64, collect func()) *Budget {
	return &Budget{limit: limit, measure: measure, collect: collect}
}

// measureLive returns how many bytes live objects took when garbage was last collected.
func measureLive() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(min(sample[0].Value.Uint64(), math.MaxInt64))
}

// Limit is how many bytes the operator may have; 0: there is no limit.
func (b *Budget) Limit() int64 { return b.limit }

// NamespaceShare is how many bytes one namespace may have when too much is in use, before what it has is given up first. It is without bound if there is
// no limit.
func (b *Budget) NamespaceShare() int64 {
	if b.limit <= 0 {
		return math.MaxInt64
	}
	return b.partOfLimit(sharePercent)
}

// HasRoom reports whether so many bytes more can be taken.
func (b *Budget) HasRoom(bytes int64) bool {
	return b.limit <= 0 || b.measure()+bytes <= b.partOfLimit(roomPercent)
}

// isFull reports whether live objects take too much.
func (b *Budget) isFull() bool { return b.measure() > b.partOfLimit(fullPercent) }

func (b *Budget) partOfLimit(percent int64) int64 { return b.limit / 100 * percent }

// ChooseLargest chooses what a caller gives up: the largest, if it takes so many bytes, or else the largest ones that do together, largest first; nil if
// all take less.
func ChooseLargest[T comparable](sizes map[T]int64, atLeast int64) (chosen []T) {
	bytes := int64(0)
	for _, each := range slices.SortedFunc(maps.Keys(sizes), func(a, b T) int { return cmp.Compare(sizes[b], sizes[a]) }) {
		chosen = append(chosen, each)
		if bytes += sizes[each]; bytes >= atLeast {
			return chosen
		}
	}
	return nil
}

// Run looks again and again, until ctx is done, whether too much memory is in use. If so, it calls giveUp, which gives up what holds most, unless
// that is less than atLeast bytes, and says whether it has. What was given up has until the next look to go.
func (b *Budget) Run(ctx context.Context, c clock.WithTicker, giveUp func(atLeast int64) bool) {
	if b.limit <= 0 {
		return
	}
	var rest time.Time // until then no look is worth its collection, unless more is in use than enough
	var enough int64
	for wait := lookEvery; ; {
		t := c.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C():
		}
		wait = lookEvery
		if !b.isFull() || c.Now().Before(rest) && b.measure() <= enough {
			continue
		}
		b.collect() // what was measured may be garbage by now
		switch {
		case !b.isFull():
		case giveUp(b.partOfLimit(largePercent)):
			wait = settleFor
		default:
			rest, enough = c.Now().Add(restFor), b.measure()+b.partOfLimit(growthPercent)
		}
	}
}
