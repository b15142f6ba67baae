// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limits counts what a Cleaner does against the limits of its spec, and remembers what it has done for as long as they count it.
//
// It keeps no clock and changes no plan. What it had to forget counts as over a limit, never as room for more.
package limits

import (
	"hash/maphash"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// DefaultPer is limits.per where a spec gives none.
const DefaultPer = time.Hour

// MaxDoneBytes bounds the memory for the actions of one Cleaner. At the bound, limits count as reached, because forgetting actions would
// allow more of them.
const MaxDoneBytes = 8 << 20

// Done are actions of this process, oldest first.
type Done []Action

// Action is something that was done to an object.
type Action struct {
	At  time.Time
	UID types.UID
	// Rule and Action are those that wanted it.
	Rule   string
	Action int
	// Uninstall says that it uninstalls a release.
	Uninstall bool
	// Items are those that it stood for; none are remembered where limits.maxActions, which counts them, is not set.
	Items []ItemSum
	// Groups are those of its items, each once; none are remembered where limits.perGroup, which counts by them, is not set.
	Groups []ItemSum
	// Targets are the names of the targets that the object was in.
	Targets []string
	// Forgotten says that it stands for actions that were forgotten, and is the last of them: limits count as reached.
	Forgotten bool
}

// countBytes is about how much memory the action takes after another one. Equal names of targets are remembered once.
func (d *Action) countBytes(before *Action) int64 {
	const size, perItem, perTarget = 248, 8, 96
	n := int64(size + perItem*(len(d.Items)+len(d.Groups)))
	if before == nil || !d.sharesTargets(before) {
		n += perTarget * int64(len(d.Targets))
	}
	return n
}

func (d *Action) sharesTargets(with *Action) bool {
	return len(d.Targets) == 0 || len(d.Targets) == len(with.Targets) && &d.Targets[0] == &with.Targets[0]
}

// CountBytes is about how much memory the actions take.
func (d Done) CountBytes() (n int64) {
	for i := range d {
		n += d[i].countBytes(d.actionBefore(i))
	}
	return n
}

func (d Done) actionBefore(i int) *Action {
	if i == 0 {
		return nil
	}
	return &d[i-1]
}

// ForgetActions is the actions when there is no memory for them: what they have used up of limits stays used up.
func (d Done) ForgetActions() Done {
	if len(d) == 0 {
		return nil
	}
	return Done{{At: d[len(d)-1].At, Forgotten: true}}
}

// ItemSum stands for the key of an item of a rule: actions are remembered for as long as limits.per says, and keys may be long.
type ItemSum uint64

// itemSeed is another one in each process, so that no author makes keys of one sum.
var itemSeed = maphash.MakeSeed() //nolint:gochecknoglobals // chosen once, and never changed

// SumItems are the sums of the keys of items.
func SumItems(keys []string) []ItemSum {
	out := make([]ItemSum, len(keys))
	for i, key := range keys {
		out[i] = ItemSum(maphash.String(itemSeed, key))
	}
	return out
}

// AddAction is the actions and one more. What an action of a rule did for several items of one object is one of them, with all items
// and the last time, so that what is remembered does not grow with how often it is done.
func (d Done) AddAction(one Action) Done {
	if n := len(d); n > 0 && slices.Equal(d[n-1].Targets, one.Targets) {
		one.Targets = d[n-1].Targets
	}
	if len(one.Items) < 2 {
		return append(d, one)
	}
	same := func(e Action) bool { return e.UID == one.UID && e.Rule == one.Rule && e.Action == one.Action }
	if i := slices.IndexFunc(d, same); i >= 0 {
		one.Items, one.Groups = joinSums(d[i].Items, one.Items), joinSums(d[i].Groups, one.Groups)
		d = slices.Delete(slices.Clone(d), i, i+1)
	}
	return append(d, one)
}

// joinSums are two lists of sums, each sum once.
func joinSums(a, b []ItemSum) []ItemSum {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// DropOlder is what is left of the actions when those are dropped that lie as long ago as a limit counts, or longer.
func (d Done) DropOlder(now time.Time, per time.Duration) Done {
	all := len(d)
	for len(d) > 0 && !d[0].At.After(now.Add(-per)) {
		d = d[1:]
	}
	if len(d) < all/2 {
		return slices.Clone(d) // or the memory of the others would stay
	}
	return d
}

// selectActions are the actions that count.
func (d Done) selectActions(counts func(a *Action) bool) (out Done) {
	for i := range d {
		if counts(&d[i]) {
			out = append(out, d[i])
		}
	}
	return out
}

// objectsOf are the objects of a target that were acted on.
func (d Done) objectsOf(target string) map[types.UID]bool {
	out, among := map[types.UID]bool{}, false
	for i := range d {
		if before := d.actionBefore(i); before == nil || !d[i].sharesTargets(before) || len(d[i].Targets) == 0 {
			among = slices.Contains(d[i].Targets, target)
		}
		if among {
			out[d[i].UID] = true
		}
	}
	return out
}
