// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import "context"

// Memory bounds what reads hold. It is safe for concurrent use.
type Memory interface {
	// TakeBytes takes so many bytes more. The error says why they may not be held.
	TakeBytes(bytes int64) error
}

type memoryKey struct{}

// WithMemory gives a context for reads that ask m before they hold what they find.
func WithMemory(ctx context.Context, m Memory) context.Context {
	return context.WithValue(ctx, memoryKey{}, m)
}

// TakeBytes takes memory for a read. Without a Memory there is enough.
func TakeBytes(ctx context.Context, bytes int64) error {
	if m, bounded := ctx.Value(memoryKey{}).(Memory); bounded {
		return m.TakeBytes(bytes)
	}
	return nil
}
