// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"crypto/sha256"
	"runtime"
	"strings"
	"sync"
	"weak"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/celenv/usage"
)

// Reads is what is read of an object, besides its metadata. Nil is all of it. It never changes.
type Reads struct {
	projection *projection.Projection
	digest     [sha256.Size]byte
}

// NewReads returns the Reads of a projection, which must not change from then on. Those of projections that are written in the same way are one.
func NewReads(p *projection.Projection) *Reads {
	if p != nil && p.Whole {
		return nil
	}
	return allReads.shareReads(&Reads{p, p.Digest()})
}

// allReads shares what many Cleaners read alike.
var allReads = sharedReads{known: map[[sha256.Size]byte]weak.Pointer[Reads]{}} //nolint:gochecknoglobals // it keeps nothing alive

// sharedReads are the Reads that are in use, by their digests.
type sharedReads struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]weak.Pointer[Reads]
}

// shareReads returns the Reads that are known by the digest of others; these, if there are none.
func (s *sharedReads) shareReads(r *Reads) *Reads {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shared := s.known[r.digest].Value(); shared != nil {
		return shared
	}
	s.known[r.digest] = weak.Make(r)
	runtime.AddCleanup(r, s.forgetReads, r.digest)
	return r
}

// forgetReads forgets Reads that are no longer in use.
func (s *sharedReads) forgetReads(digest [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[digest].Value() == nil { // else there are others by now
		delete(s.known, digest)
	}
}

// Projection returns the projection that keeps what is read.
func (r *Reads) Projection() *projection.Projection {
	if r == nil {
		return projection.All()
	}
	return r.projection
}

// Digest is the same for Reads of projections that are written in the same way.
func (r *Reads) Digest() [sha256.Size]byte {
	if r == nil {
		return [sha256.Size]byte{}
	}
	return r.digest
}

// KeepParts returns what is read of the content of an object, and what FromUnstructured needs. It changes nothing.
func (r *Reads) KeepParts(content map[string]any) map[string]any {
	return projection.Merge(r.Projection(), ofObjects).ApplyToMap(content)
}

// ofObjects is what FromUnstructured needs.
var ofObjects = projection.Merge( //nolint:gochecknoglobals // it never changes
	projection.Identity(), projection.KeepPath("metadata", "labels"), projection.KeepPath("metadata", "finalizers"),
	projection.KeepPath("metadata", "annotations", v1alpha1.ProtectKey),
)

// KeepReadings has each query read no more of its objects than the expressions of its spec do, its field selector, and who acts on them.
// Queries that ask for the same read the same.
func (qs Queries) KeepReadings(spec *v1alpha1.Work, readings map[string]usage.Reading) {
	all := make([]*projection.Projection, len(qs))
	for i := range qs {
		reading, seen := readings[spec.Targets[i].Name]
		if !seen && !qs[i].MetadataOnly {
			reading.Projection = projection.All()
		}
		n := qs[i].same
		all[n] = projection.Merge(all[n], reading.Projection, projection.Identity(), projectSelected(qs[i].Fields))
	}
	for i := range qs {
		if n := qs[i].same; n < i {
			qs[i].Reads = qs[n].Reads
		} else {
			qs[i].Reads = NewReads(all[i])
		}
	}
}

// MergeReads returns what any of the queries reads of an object.
func (qs Queries) MergeReads() *projection.Projection {
	var merged *projection.Projection
	for i := range qs {
		if !qs[i].MetadataOnly || qs[i].OfAnyKind {
			merged = projection.Merge(merged, qs[i].Reads.Projection())
		}
	}
	return NewReads(merged).Projection()
}

// projectSelected returns what a field selector compares, of objects of any kind: a label is the path of a field, but for a few.
func projectSelected(s fields.Selector) *projection.Projection {
	var merged *projection.Projection
	if s == nil || !NeedsValue(s) {
		return merged
	}
	for _, q := range s.Requirements() {
		for _, path := range append(otherPaths(q.Field), q.Field) {
			merged = projection.Merge(merged, projection.KeepPath(strings.Split(path, ".")...))
		}
	}
	return merged
}

// otherPaths lists the fields that a label of BuiltinFieldLabels compares, where it is not named after them.
func otherPaths(label string) []string {
	switch label {
	case "spec.host":
		return []string{"spec.nodeName"}
	case "status.podIP":
		return []string{"status.podIPs"}
	case "source":
		return []string{"reportingComponent"} // besides source.component
	case "status.successful":
		return []string{"status.succeeded"}
	default:
		return nil
	}
}
