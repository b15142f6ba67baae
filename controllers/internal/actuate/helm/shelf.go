// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"errors"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// shelfBytes is about how much of the memory a shelf takes, and shelfRecords how many records it keeps: each counts for its share at
	// least.
	shelfBytes   = 16 << 20
	shelfRecords = 1024
)

// Shelf keeps what was read of records, and what is wrong with those that cannot be read: each takes time to read, and may be asked for by
// many Cleaners, at each of their passes. It knows a record by the UID and the resourceVersion of its Secret. When it is full, the
// namespace that takes most of it loses what it has asked for least recently. It is safe for concurrent use.
type Shelf struct {
	mu    sync.Mutex
	kept  map[shelfKey]*keptRecord
	asked int64
}

type shelfKey struct {
	uid     types.UID
	version string
}

type keptRecord struct {
	namespace string
	record    record
	err       error
	bytes     int
	// asked is greater for one that was asked for later.
	asked int64
}

// NewShelf makes one that is empty.
func NewShelf() *Shelf { return &Shelf{kept: map[shelfKey]*keptRecord{}} }

// findRecord gives what was read of a Secret as it is.
func (s *Shelf) findRecord(secret *metav1.ObjectMeta) (_ record, _ error, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[shelfKey{secret.UID, secret.ResourceVersion}]
	if k == nil {
		return record{}, nil, false
	}
	s.asked++
	k.asked = s.asked
	return k.record, k.err, true
}

// keepRecord keeps what was read of a Secret, or why it cannot be read as it is. No other error is kept.
func (s *Shelf) keepRecord(secret *metav1.ObjectMeta, r record, err error) {
	if _, ok := errors.AsType[*BlockedError](err); err != nil && !ok || secret.UID == "" || secret.ResourceVersion == "" {
		return
	}
	k := &keptRecord{namespace: secret.Namespace, record: r, err: err, bytes: shelfBytes / shelfRecords}
	if err == nil {
		k.bytes += r.content.weigh()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.kept {
		if key.uid == secret.UID { // of one Secret there is one version
			delete(s.kept, key)
		}
	}
	s.asked++
	k.asked = s.asked
	s.kept[shelfKey{secret.UID, secret.ResourceVersion}] = k
	s.makeRoom()
}

// makeRoom drops what is too much.
func (s *Shelf) makeRoom() {
	taken, all := map[string]int{}, 0
	for _, k := range s.kept {
		taken[k.namespace] += k.bytes
		all += k.bytes
	}
	for all > shelfBytes {
		most := ""
		for namespace, bytes := range taken {
			if bytes > taken[most] || bytes == taken[most] && namespace < most {
				most = namespace
			}
		}
		var oldest shelfKey
		for key, k := range s.kept {
			if k.namespace == most && (s.kept[oldest] == nil || k.asked < s.kept[oldest].asked) {
				oldest = key
			}
		}
		taken[most] -= s.kept[oldest].bytes
		all -= s.kept[oldest].bytes
		delete(s.kept, oldest)
	}
}
