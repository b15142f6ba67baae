// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package keptparts

import (
	"crypto/sha256"
	"sync"

	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// maxParts is how many parts of an object a store tells apart. If there are more, it keeps all.
	maxParts = 4000
	// maxAnswers is how many answers of Covers are remembered.
	maxAnswers = 10_000
)

// digest tells reads apart.
type digest = [sha256.Size]byte

// Wants are the reads of queries, each once, however many queries have it. The zero value has none. The caller guards them.
type Wants struct{ of map[digest]*counted }

// counted are reads, and how many queries have them.
type counted struct {
	reads   *snapshot.Reads
	queries int
}

// AddQuery counts a query.
func (w *Wants) AddQuery(r *snapshot.Reads) {
	if w.of == nil {
		w.of = map[digest]*counted{}
	}
	c := w.of[r.Digest()]
	if c == nil {
		c = &counted{reads: r}
		w.of[r.Digest()] = c
	}
	c.queries++
}

// DropQuery forgets a query.
func (w *Wants) DropQuery(r *snapshot.Reads) {
	c := w.of[r.Digest()]
	if c == nil {
		return
	}
	if c.queries--; c.queries == 0 {
		delete(w.of, r.Digest())
	}
}

// ListReads returns the reads of all queries, each once.
func (w *Wants) ListReads() []*snapshot.Reads {
	all := make([]*snapshot.Reads, 0, len(w.of))
	for _, c := range w.of {
		all = append(all, c.reads)
	}
	return all
}

// AreLessThan says that all queries together read less than Parts have. It compares no more than 1000 reads, which takes milliseconds: of more
// it does not say so.
func (w *Wants) AreLessThan(p *Parts) bool {
	const most = 1000
	if len(w.of) > most {
		return false
	}
	all := MergeReads(w.ListReads())
	return p.Covers(all.reads) && !all.Covers(p.Reads())
}

// AreCoveredBy says that Parts have what all queries read.
func (w *Wants) AreCoveredBy(p *Parts) bool {
	for _, c := range w.of {
		if !p.Covers(c.reads) {
			return false
		}
	}
	return true
}

// Parts are the parts of an object that a store keeps. Nil has all of them. They never change, and are safe for concurrent use.
type Parts struct {
	reads *snapshot.Reads

	mu      sync.Mutex
	answers map[digest]bool // of Covers
}

// KeepAll returns the Parts that have all.
func KeepAll() *Parts { return &Parts{} }

// MergeReads returns the Parts that have what all of these reads read.
func MergeReads(all []*snapshot.Reads) *Parts {
	p := &Parts{answers: make(map[digest]bool, len(all))}
	merging := make([]*projection.Projection, len(all))
	for n, r := range all {
		merging[n] = r.Projection()
		if len(p.answers) < maxAnswers {
			p.answers[r.Digest()] = true
		}
	}
	p.reads = snapshot.NewReads(mergeAll(merging))
	return p
}

// mergeAll merges projections in pairs: so a part is copied as often as there are rounds, and not as often as there are projections.
func mergeAll(all []*projection.Projection) *projection.Projection {
	for len(all) > 1 {
		var next []*projection.Projection
		for ; len(all) > 1; all = all[2:] {
			merged := projection.Merge(all[0], all[1])
			if merged.Whole || merged.CountParts() > maxParts {
				return projection.All()
			}
			next = append(next, merged)
		}
		all = append(next, all...)
	}
	if len(all) == 0 {
		return &projection.Projection{}
	}
	return all[0]
}

// Reads returns what objects are kept with.
func (p *Parts) Reads() *snapshot.Reads {
	if p == nil {
		return nil
	}
	return p.reads
}

// IsSameAs says that other Parts are the same, as far as that shows at once.
func (p *Parts) IsSameAs(other *Parts) bool { return p.Reads().Digest() == other.Reads().Digest() }

// Covers says that what reads read is kept.
func (p *Parts) Covers(r *snapshot.Reads) bool {
	switch {
	case p.Reads() == nil:
		return true
	case r == nil:
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	covers, known := p.answers[r.Digest()]
	if !known {
		covers = p.reads.Projection().Covers(r.Projection())
		if len(p.answers) >= maxAnswers {
			clear(p.answers)
		}
		p.answers[r.Digest()] = covers
	}
	return covers
}
