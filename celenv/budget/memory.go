// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import "github.com/vtex/cleaner/celenv/expr"

// Memory is what evaluations share.
type Memory interface {
	// HoldBytes says whether the evaluation may hold so many bytes now.
	HoldBytes(bytes int64) bool
	// KeepBytes records that the evaluation has ended, and how many of its bytes the caller keeps.
	KeepBytes(bytes int64)
}

const (
	// builtFactor is how many bytes of memory a byte of Limits.Growth takes, about.
	builtFactor = 2
	// holdStep is how many bytes more are asked for at once.
	holdStep = 1 << 20
)

// Holding is how much memory an evaluation holds.
type Holding struct {
	memory Memory // nil: it is not shared
	// lasting is held until the evaluation ends, and passing until the next item; granted is what may be held without asking.
	lasting, passing, granted int64
	refused                   bool
}

// ShareMemory has the evaluation ask before more memory is held. It is false if nothing may be.
func (h *Holding) ShareMemory(memory Memory) bool {
	*h = Holding{memory: memory, refused: memory != nil && !memory.HoldBytes(0)}
	return !h.refused
}

// CountLasting returns about how many bytes are held until the evaluation ends.
func (h *Holding) CountLasting() int64 { return h.lasting }

// EndItem records that what was built for an item is released.
func (h *Holding) EndItem() { h.passing = 0 }

// TakeRetained counts bytes that the caller holds on to. It is false if it may not.
func (h *Holding) TakeRetained(n int64) bool {
	h.lasting = AddCapped(h.lasting, n)
	return h.mayHold()
}

// takeBuilt counts bytes of Limits.Growth.
func (h *Holding) takeBuilt(n int64, passing bool) bool {
	n = MultiplyCapped(builtFactor, n)
	if passing {
		h.passing = AddCapped(h.passing, n)
	} else {
		h.lasting = AddCapped(h.lasting, n)
	}
	return h.mayHold()
}

// mayHold asks, once more is held than was asked for.
func (h *Holding) mayHold() bool {
	held := AddCapped(h.lasting, h.passing)
	if h.memory == nil || held <= h.granted {
		return true
	}
	wanted := (held + holdStep - 1) / holdStep * holdStep
	if h.refused = h.refused || !h.memory.HoldBytes(wanted); h.refused {
		return false
	}
	h.granted = wanted
	return true
}

// NewMemoryError is why an evaluation ends that may not hold what it needs.
func NewMemoryError() *expr.Error {
	return &expr.Error{
		Kind: expr.Exhausted, Message: "the evaluation needs much memory, which only one Cleaner at a time may take: it waits for its turn",
		Hint: "let targets select fewer objects, build less in variables, or act on fewer items at once",
	}
}
