// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/binary"
	"fmt"
)

// MarkItems tell what a plan would do for its items: while an item has the same mark in a later plan, the same is to be done to the same
// versions of objects. A patch that stands for several items counts without its body, which another item may change.
func (p *Plan) MarkItems() map[Sum]uint64 {
	out := make(map[Sum]uint64, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		text := fmt.Sprint(s.Action, " ", s.Verb, " ", s.Object.objectID(), " ", s.Object.ResourceVersion, " ", s.Finalizer)
		if s.IsAlone() { // another reason is another report
			text += " " + s.Reason
		}
		if s.Patch != nil && len(s.Keys) == 1 {
			text += " " + string(s.Patch.Body)
		}
		sum := SumOf(text)
		for _, item := range s.ListItems() {
			key := item.Sum()
			out[key] = out[key]*31 + binary.LittleEndian.Uint64(sum[:])
		}
	}
	return out
}
