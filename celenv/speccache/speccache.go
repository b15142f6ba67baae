// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package speccache remembers what the specs of Cleaners compile to, as long as there is room. It compiles nothing itself.
package speccache

import (
	ordered "container/list"
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
)

// How much memory a Cache takes, about: in all, and for the Cleaners of one namespace.
const (
	maxCacheBytes     = 128 << 20
	maxNamespaceBytes = maxCacheBytes / 4
)

// Cache compiles a version of a Cleaner once, and also remembers compile errors, as long as there is room. When there is none, the
// namespace with most entries loses the one that was not used for longest. It is safe for concurrent use.
type Cache struct {
	compiler *celenv.Compiler
	// maxBytes and maxNamespaceBytes are how many bytes are remembered in all and of one namespace.
	maxBytes, maxNamespaceBytes int64

	mu             sync.Mutex
	entries        map[types.UID]*ordered.Element
	recent         ordered.List // *cached, what was asked for last first
	namespaceBytes map[string]int64
	totalBytes     int64
}

// cacheEntry is the newest version of one Cleaner that was asked for.
type cacheEntry struct {
	namespace string
	uid       types.UID
	version   string
	compiling chan struct{} // holds one token during compilation
	compiled  bool
	programs  *celenv.Programs
	errs      field.ErrorList
	bytes     int64 // what it is counted with, once it is done
}

// NewCache makes an empty Cache of what c compiles.
func NewCache(c *celenv.Compiler) *Cache {
	return &Cache{compiler: c, maxBytes: maxCacheBytes, maxNamespaceBytes: maxNamespaceBytes, entries: map[types.UID]*ordered.Element{}, namespaceBytes: map[string]int64{}}
}

// Get gives what Compile gives; what the context has cut short is not remembered. The version distinguishes the specs of a Cleaner: it is
// made of its generation and its template's. An object without a UID is not remembered.
func (c *Cache) Get(ctx context.Context, namespace string, uid types.UID, version string, spec *v1alpha1.Work) (*celenv.Programs, field.ErrorList) {
	if uid == "" {
		return c.compiler.Compile(ctx, spec)
	}
	entry := c.ensureEntry(namespace, uid, version)
	select { // outside the lock: compiling one Cleaner delays no other
	case entry.compiling <- struct{}{}:
	case <-ctx.Done():
		return nil, nil
	}
	defer func() { <-entry.compiling }()
	if !entry.compiled {
		entry.programs, entry.errs = c.compiler.Compile(ctx, spec)
		if entry.compiled = entry.programs != nil || len(entry.errs) > 0; entry.compiled {
			c.admitEntry(entry, celenv.SumFootprint(entry.programs, entry.errs))
		}
	}
	return entry.programs, entry.errs
}

func (c *Cache) ensureEntry(namespace string, uid types.UID, version string) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.entries[uid]; at != nil {
		if entry := unwrapEntry(at); entry.version == version {
			c.recent.MoveToFront(at)
			return entry
		}
		c.evictEntry(at)
	}
	entry := &cacheEntry{namespace: namespace, uid: uid, version: version, compiling: make(chan struct{}, 1)}
	c.entries[uid] = c.recent.PushFront(entry)
	return entry
}

func unwrapEntry(at *ordered.Element) *cacheEntry {
	entry, _ := at.Value.(*cacheEntry)
	return entry
}

// admitEntry counts what was compiled, and makes room for it.
func (c *Cache) admitEntry(entry *cacheEntry, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.entries[entry.uid]; at == nil || unwrapEntry(at) != entry {
		return // dropped meanwhile
	}
	entry.bytes = bytes
	c.addBytes(entry.namespace, bytes)
	for c.namespaceBytes[entry.namespace] > c.maxNamespaceBytes {
		c.evictEntry(c.findOldest(entry.namespace))
	}
	for c.totalBytes > c.maxBytes {
		c.evictEntry(c.findOldest(c.findLargestNamespace()))
	}
}

func (c *Cache) addBytes(namespace string, bytes int64) {
	c.totalBytes += bytes
	if c.namespaceBytes[namespace] += bytes; c.namespaceBytes[namespace] == 0 {
		delete(c.namespaceBytes, namespace)
	}
}

// evictEntry forgets an entry. Its current users can continue to use it.
func (c *Cache) evictEntry(at *ordered.Element) {
	entry := unwrapEntry(at)
	c.recent.Remove(at)
	delete(c.entries, entry.uid)
	c.addBytes(entry.namespace, -entry.bytes)
}

// findOldest finds what was not asked for longest of a namespace that has something.
func (c *Cache) findOldest(namespace string) *ordered.Element {
	at := c.recent.Back()
	for unwrapEntry(at).namespace != namespace || unwrapEntry(at).bytes == 0 {
		at = at.Prev()
	}
	return at
}

// findLargestNamespace returns the namespace with the most bytes.
func (c *Cache) findLargestNamespace() string {
	largest := ""
	for namespace, bytes := range c.namespaceBytes {
		if bytes > c.namespaceBytes[largest] || bytes == c.namespaceBytes[largest] && namespace > largest {
			largest = namespace
		}
	}
	return largest
}

// Forget drops what is known of a Cleaner that is gone.
func (c *Cache) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.entries[uid]; at != nil {
		c.evictEntry(at)
	}
}
