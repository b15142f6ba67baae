// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memoryquota shares out memory: for evaluations, see Turns, and for what the operator remembers of Cleaners from one evaluation to
// the next, which grows with what their authors write. It bounds the memory of one Cleaner, of one namespace and of all. ClusterCleaners,
// which administrators write, have a part of their own, so that tenants cannot use it up.
package memoryquota

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Bounds are how many bytes may be taken.
type Bounds struct {
	// Cleaner is for one Cleaner or ClusterCleaner, Namespace for the Cleaners of one namespace, Namespaces for those of all
	// namespaces, and Cluster for all ClusterCleaners.
	Cleaner, Namespace, Namespaces, Cluster int64
}

// DefaultBounds are those of an operator that may have 1 GiB.
func DefaultBounds() Bounds {
	return Bounds{Cleaner: 16 << 20, Namespace: 32 << 20, Namespaces: 128 << 20, Cluster: 64 << 20}
}

// Modest is how many bytes a Cleaner can always have, even if its namespace has used up its share: a larger Cleaner of that namespace then
// loses its memory. It is enough for a thousand `for` timers.
const Modest = 256 << 10

// Book is how much memory is taken, and for whom. It is safe for concurrent use.
type Book struct {
	bounds Bounds
	modest int64

	mu    sync.Mutex
	taken map[string]map[string]int64 // by namespace and name
	sums  map[string]int64            // by namespace; of ClusterCleaners that is empty
	total int64                       // of all namespaces
}

// NewBook makes an empty Book.
func NewBook(bounds Bounds) *Book {
	return &Book{bounds: bounds, modest: Modest, taken: map[string]map[string]int64{}, sums: map[string]int64{}}
}

// FindRoom says how many bytes may be remembered of a Cleaner now, with those that are. Where the namespaces have taken all there is,
// one may still come to have as much as any other; and where a namespace has, so may each of its Cleaners that is modest.
func (b *Book) FindRoom(key types.NamespacedName) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	others := b.sums[key.Namespace] - b.taken[key.Namespace][key.Name]
	room := min(b.bounds.Cleaner, b.limitOf(key.Namespace)-others)
	if key.Namespace != "" {
		free := b.bounds.Namespaces - b.total + b.sums[key.Namespace]
		room = min(room, max(free, largestBut(key.Namespace, b.sums))-others)
	}
	if modest := min(b.modest, b.bounds.Cleaner); room < modest {
		room = max(room, min(modest, largestBut(key.Name, b.taken[key.Namespace])))
	}
	return max(room, 0)
}

// ChargeBytes records how many bytes are remembered of a Cleaner. It returns the Cleaners whose memory the caller must drop to make room,
// which may include this one; their bytes no longer count.
func (b *Book) ChargeBytes(key types.NamespacedName, bytes int64) (forget []types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setBytes(key, bytes)
	drop := func(victim types.NamespacedName) {
		b.setBytes(victim, 0)
		forget = append(forget, victim)
	}
	for b.sums[key.Namespace] > b.limitOf(key.Namespace) {
		if bytes > b.modest { // several took what was left at the same time
			drop(key)
			break
		}
		drop(types.NamespacedName{Namespace: key.Namespace, Name: findMost(b.taken[key.Namespace])})
	}
	for b.total > b.bounds.Namespaces {
		namespace := b.findLargest()
		drop(types.NamespacedName{Namespace: namespace, Name: findMost(b.taken[namespace])})
	}
	return forget
}

func (b *Book) limitOf(namespace string) int64 {
	if namespace == "" {
		return b.bounds.Cluster
	}
	return b.bounds.Namespace
}

func (b *Book) setBytes(key types.NamespacedName, bytes int64) {
	more := bytes - b.taken[key.Namespace][key.Name]
	if b.sums[key.Namespace] += more; key.Namespace != "" {
		b.total += more
	}
	if bytes > 0 && b.taken[key.Namespace] == nil {
		b.taken[key.Namespace] = map[string]int64{}
	}
	if bytes > 0 {
		b.taken[key.Namespace][key.Name] = bytes
		return
	}
	if delete(b.taken[key.Namespace], key.Name); len(b.taken[key.Namespace]) == 0 {
		delete(b.taken, key.Namespace)
		delete(b.sums, key.Namespace)
	}
}

// largestBut is how much the one has taken that has most, of all but one, and of all but ClusterCleaners together.
func largestBut(but string, taken map[string]int64) (bytes int64) {
	for name, n := range taken {
		if name != "" && name != but {
			bytes = max(bytes, n)
		}
	}
	return bytes
}

// findLargest finds the namespace that has taken most.
func (b *Book) findLargest() string {
	sums := maps.Clone(b.sums)
	delete(sums, "")
	return findMost(sums)
}

// findMost finds who has most; of several the first by name.
func findMost(bytes map[string]int64) string {
	most := ""
	for name, n := range bytes {
		if most == "" || n > bytes[most] || n == bytes[most] && name < most {
			most = name
		}
	}
	return most
}
