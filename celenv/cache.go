// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Cache compiles each version of a Cleaner once, and remembers what does not compile too. It is safe for concurrent
// use.
type Cache struct {
	compiler *Compiler
	mu       sync.Mutex
	entries  map[types.UID]*cached
}

// cached is the newest version of one Cleaner that was asked for.
type cached struct {
	version  string
	compiles chan struct{} // holds one token while somebody compiles it
	done     bool
	programs *Programs
	errs     field.ErrorList
}

// NewCache makes an empty Cache of what c compiles.
func NewCache(c *Compiler) *Cache {
	return &Cache{compiler: c, entries: map[types.UID]*cached{}}
}

// Get gives what Compile gives; what the context has cut short is not remembered. The version tells one spec of a Cleaner from another: its generation, and that of its
// template. An object without a UID is not remembered.
func (c *Cache) Get(ctx context.Context, uid types.UID, version string, spec *v1alpha1.Work) (*Programs, field.ErrorList) {
	if uid == "" {
		return c.compiler.Compile(ctx, spec)
	}
	entry := c.entry(uid, version)
	select { // outside the lock: compiling one Cleaner delays no other
	case entry.compiles <- struct{}{}:
	case <-ctx.Done():
		return nil, nil
	}
	defer func() { <-entry.compiles }()
	if !entry.done {
		entry.programs, entry.errs = c.compiler.Compile(ctx, spec)
		entry.done = entry.programs != nil || len(entry.errs) > 0
	}
	return entry.programs, entry.errs
}

func (c *Cache) entry(uid types.UID, version string) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.entries[uid]
	if entry == nil || entry.version != version {
		entry = &cached{version: version, compiles: make(chan struct{}, 1)}
		c.entries[uid] = entry
	}
	return entry
}

// Forget drops what is known of a Cleaner that is gone.
func (c *Cache) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, uid)
}
