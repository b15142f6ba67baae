// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	ordered "container/list"
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// How much memory a Cache takes, about: in all, and for the Cleaners of one namespace.
const (
	cachedInAll       = 128 << 20
	cachedOfNamespace = cachedInAll / 4
)

// Cache compiles a version of a Cleaner once, and remembers what does not compile too, as long as there is room: what was
// not asked for longest goes first, that of the namespace that has most. It is safe for concurrent use.
type Cache struct {
	compiler *Compiler
	// most and share are how many bytes are remembered in all and of one namespace.
	most, share int64

	mu      sync.Mutex
	entries map[types.UID]*ordered.Element
	recent  ordered.List // *cached, what was asked for last first
	held    map[string]int64
	all     int64
}

// cached is the newest version of one Cleaner that was asked for.
type cached struct {
	namespace string
	uid       types.UID
	version   string
	compiles  chan struct{} // holds one token while somebody compiles it
	done      bool
	programs  *Programs
	errs      field.ErrorList
	bytes     int64 // what it is counted with, once it is done
}

// NewCache makes an empty Cache of what c compiles.
func NewCache(c *Compiler) *Cache {
	return &Cache{compiler: c, most: cachedInAll, share: cachedOfNamespace, entries: map[types.UID]*ordered.Element{}, held: map[string]int64{}}
}

// Get gives what Compile gives; what the context has cut short is not remembered. The version tells one spec of a Cleaner
// from another: its generation, and that of its template. An object without a UID is not remembered.
func (c *Cache) Get(ctx context.Context, namespace string, uid types.UID, version string, spec *v1alpha1.Work) (*Programs, field.ErrorList) {
	if uid == "" {
		return c.compiler.Compile(ctx, spec)
	}
	entry := c.entry(namespace, uid, version)
	select { // outside the lock: compiling one Cleaner delays no other
	case entry.compiles <- struct{}{}:
	case <-ctx.Done():
		return nil, nil
	}
	defer func() { <-entry.compiles }()
	if !entry.done {
		entry.programs, entry.errs = c.compiler.Compile(ctx, spec)
		if entry.done = entry.programs != nil || len(entry.errs) > 0; entry.done {
			c.keep(entry, footprintOf(entry.programs, entry.errs))
		}
	}
	return entry.programs, entry.errs
}

func (c *Cache) entry(namespace string, uid types.UID, version string) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.entries[uid]; at != nil {
		if entry := entryAt(at); entry.version == version {
			c.recent.MoveToFront(at)
			return entry
		}
		c.drop(at)
	}
	entry := &cached{namespace: namespace, uid: uid, version: version, compiles: make(chan struct{}, 1)}
	c.entries[uid] = c.recent.PushFront(entry)
	return entry
}

func entryAt(at *ordered.Element) *cached {
	entry, _ := at.Value.(*cached)
	return entry
}

// keep counts what was compiled, and makes room for it.
func (c *Cache) keep(entry *cached, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.entries[entry.uid]; at == nil || entryAt(at) != entry {
		return // dropped meanwhile
	}
	entry.bytes = bytes
	c.count(entry.namespace, bytes)
	for c.held[entry.namespace] > c.share {
		c.drop(c.oldest(entry.namespace))
	}
	for c.all > c.most {
		c.drop(c.oldest(c.largest()))
	}
}

func (c *Cache) count(namespace string, bytes int64) {
	c.all += bytes
	if c.held[namespace] += bytes; c.held[namespace] == 0 {
		delete(c.held, namespace)
	}
}

// drop forgets an entry. Whoever uses it goes on.
func (c *Cache) drop(at *ordered.Element) {
	entry := entryAt(at)
	c.recent.Remove(at)
	delete(c.entries, entry.uid)
	c.count(entry.namespace, -entry.bytes)
}

// oldest is what was not asked for longest of a namespace that has something.
func (c *Cache) oldest(namespace string) *ordered.Element {
	at := c.recent.Back()
	for entryAt(at).namespace != namespace || entryAt(at).bytes == 0 {
		at = at.Prev()
	}
	return at
}

// largest is the namespace of which most is remembered.
func (c *Cache) largest() string {
	largest := ""
	for namespace, bytes := range c.held {
		if bytes > c.held[largest] || bytes == c.held[largest] && namespace > largest {
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
		c.drop(at)
	}
}
