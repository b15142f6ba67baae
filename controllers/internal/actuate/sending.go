// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"sync/atomic"
	"time"

	"github.com/vtex/cleaner/controllers/plan/monotime"
)

// Sending is the time in which a batch sends requests. It begins with the first one, so that a batch that has waited for others sends some. Nil has no
// end. It is safe for concurrent use.
type Sending struct {
	limit time.Duration
	began atomic.Pointer[time.Time]
}

// NewSending returns the time of a batch that sends requests for so long.
func NewSending(limit time.Duration) *Sending { return &Sending{limit: limit} }

// IsOver reports whether no more requests should be sent. It is asked before each.
func (s *Sending) IsOver(now time.Time) bool {
	if s == nil || s.began.CompareAndSwap(nil, &now) {
		return false
	}
	return monotime.ElapsedTime(*s.began.Load(), now) >= s.limit
}
