// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"
	"time"
)

// TestAConfirmationDoesNotOutliveASleep shows that live reads from before the machine was suspended justify nothing.
func TestAConfirmationDoesNotOutliveASleep(t *testing.T) {
	now := time.Now()
	m := NewMemory(1, nil, now)
	if !m.IsConfirmed(now.Add(time.Second)) {
		t.Error("a confirmation of a second ago does not serve")
	}
	if m.IsConfirmed(asleep(now, time.Hour)) {
		t.Error("a confirmation of an hour ago serves")
	}
}
