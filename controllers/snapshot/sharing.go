// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// queryKey is equal for queries that ask for the same.
type queryKey struct {
	group, version, kind, namespace, name  string
	someNamespaces, byLabels, metadataOnly bool
	ofAnyKind, namespacedOnly, ofReleases  bool
	annotation, exceptKinds                string
	among, except, fields                  string
	namespaceLabels, labels, reads         [sha256.Size]byte
}

func (q *Query) makeKey() queryKey {
	k := queryKey{
		ofAnyKind: q.OfAnyKind, namespacedOnly: q.Kinds.NamespacedOnly, ofReleases: q.OfReleases, annotation: q.Annotations, exceptKinds: strings.Join(q.Kinds.Exclude, " "),
		group: q.Group, version: q.Version, kind: q.Kind, namespace: q.Namespace, name: q.Name,
		someNamespaces: q.Namespaces.Names != nil, byLabels: q.Namespaces.Labels != nil, metadataOnly: q.MetadataOnly,
		among: strings.Join(q.Namespaces.Names, " "), except: strings.Join(q.Namespaces.Except, " "), fields: q.Fields.String(),
		labels: CompileSelector(q.Labels).Digest(), reads: q.Reads.Digest(),
	}
	if k.byLabels {
		k.namespaceLabels = CompileSelector(q.Namespaces.Labels).Digest()
	}
	return k
}

// sharingReader answers equal queries with one read.
type sharingReader struct {
	from Reader

	mu    sync.Mutex
	reads map[queryKey]func() observed.Target
}

// ShareReads returns a Reader that reads for equal queries once, for all callers, and gives all of them the same list. It is for reads that may
// all be as old as the first one.
func ShareReads(r Reader) Reader {
	return &sharingReader{from: r, reads: map[queryKey]func() observed.Target{}}
}

// Read answers a query. Those who ask while another one reads the same wait for it.
func (r *sharingReader) Read(ctx context.Context, q Query) observed.Target {
	return r.findRead(ctx, q)()
}

func (r *sharingReader) findRead(ctx context.Context, q Query) func() observed.Target {
	key := q.makeKey()
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
