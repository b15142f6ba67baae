// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// Digest is the same for queries that ask for the same.
func (q *Query) Digest() [sha256.Size]byte {
	h := sha256.New()
	n := &q.Namespaces
	fmt.Fprintf(h, "%q %q %q %q %q %t %q %q %t %x", q.Group, q.Version, strings.ToLower(q.Kind), q.Namespace, q.Name, n.Names == nil, n.Names, n.Except, q.MetadataOnly,
		CompileSelector(q.Labels).Digest())
	if n.Labels != nil {
		fmt.Fprintf(h, " %x", CompileSelector(n.Labels).Digest())
	}
	fmt.Fprintf(h, " %s %x %t %t %s %t %q", q.Fields, q.Reads.Digest(), q.OfAnyKind, q.OfReleases, q.Annotations, q.Kinds.NamespacedOnly, q.Kinds.Exclude)
	return [sha256.Size]byte(h.Sum(nil))
}

// sharingReader answers equal queries with one read.
type sharingReader struct {
	from Reader

	mu    sync.Mutex
	reads map[[sha256.Size]byte]func() observed.Target
}

// ShareReads returns a Reader that reads for equal queries once, for all callers, and gives all of them the same list. It is for reads that may
// all be as old as the first one.
func ShareReads(r Reader) Reader {
	return &sharingReader{from: r, reads: map[[sha256.Size]byte]func() observed.Target{}}
}

// Read answers a query. Those who ask while another one reads the same wait for it.
func (r *sharingReader) Read(ctx context.Context, q Query) observed.Target {
	return r.findRead(ctx, q)()
}

func (r *sharingReader) findRead(ctx context.Context, q Query) func() observed.Target {
	key := q.Digest()
	r.mu.Lock()
	defer r.mu.Unlock()
	read := r.reads[key]
	if read == nil {
		read = sync.OnceValue(func() observed.Target {
			t := r.from.Read(ctx, q)
			t.Objects = slices.Clip(t.Objects) // a caller that appends gets a list of its own
			return t
		})
		r.reads[key] = read
	}
	return read
}
