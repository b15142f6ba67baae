// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package meter

import "github.com/vtex/cleaner/celenv/expr"

// Memory is what evaluations share.
type Memory interface {
	// HoldBytes says whether the evaluation may hold so many bytes now.
	HoldBytes(bytes int64) bool
	// KeepBytes takes that the evaluation has ended, and that its caller holds on to so many bytes.
	KeepBytes(bytes int64)
}

const (
	// builtFactor is how many bytes of memory a byte of Limits.Growth takes, about.
	builtFactor = 2
	// holdStep is how many bytes more are asked for at once.
	holdStep = 1 << 20
)

// holding is how much memory an evaluation holds.
type holding struct {
	memory Memory // nil: nobody shares it
	// lasting is held until the evaluation ends, and passing until the next item; granted is what may be held without asking.
	lasting, passing, granted int64
	refused                   bool
}

// ShareMemory has the meter ask before more memory is held. It is false if nothing may be.
func (m *Meter) ShareMemory(memory Memory) bool {
	m.holding = holding{memory: memory, refused: memory != nil && !memory.HoldBytes(0)}
	return !m.refused
}

// EndItem takes that what was built for an item is let go of.
func (m *Meter) EndItem() { m.passing = 0 }

// TakeRetained counts bytes that the caller holds on to. It is false if it may not.
func (m *Meter) TakeRetained(n int64) bool {
	m.lasting = AddCapped(m.lasting, n)
	return m.mayHold()
}

// takeBuilt counts bytes of Limits.Growth.
func (m *Meter) takeBuilt(n int64, passing bool) bool {
	n = MultiplyCapped(builtFactor, n)
	if passing {
		m.passing = AddCapped(m.passing, n)
	} else {
		m.lasting = AddCapped(m.lasting, n)
	}
	return m.mayHold()
}

// mayHold asks, once more is held than was asked for.
func (m *Meter) mayHold() bool {
	held := AddCapped(m.lasting, m.passing)
	if m.memory == nil || held <= m.granted {
		return true
	}
	wanted := (held + holdStep - 1) / holdStep * holdStep
	if m.refused = m.refused || !m.memory.HoldBytes(wanted); m.refused {
		return false
	}
	m.granted = wanted
	return true
}

// NewMemoryError is why an evaluation ends that may not hold what it needs.
func NewMemoryError() *expr.Error {
	return &expr.Error{
		Kind: expr.Exhausted, Message: "the evaluation needs much memory, which only one Cleaner at a time may take: it waits for its turn",
		Hint: "let targets select fewer objects, build less in variables, or act on fewer items at once",
	}
}
