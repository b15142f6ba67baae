// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/shards"
)

// tenures have a number; 0: another process owns all.
type tenures struct {
	shards.Alone
	number int64
}

func (t *tenures) FindTenure(types.NamespacedName) shards.Tenure {
	if t.number == 0 {
		return shards.Tenure{}
	}
	return shards.NewTenure(t.number, func() bool { return true })
}

// TestNothingOutlivesATenure shows that a process forgets what it remembered of a Cleaner that another process may have owned since.
func TestNothingOutlivesATenure(t *testing.T) {
	r := newRig(t, done(deletes()), aPod("a", "Succeeded"))
	owned := &tenures{number: 1}
	r.opts.Shards = owned
	first, ok := r.memoryInTenure(r.key())
	if !ok {
		t.Fatalf("owned: %t", ok)
	}
	r.memories.settleMemory(r.key(), first)
	if again, ok := r.memoryInTenure(r.key()); !ok || again != first {
		t.Error("what is remembered is forgotten within a tenure")
	}
	r.memories.settleMemory(r.key(), first)
	owned.number = 2
	second, ok := r.memoryInTenure(r.key())
	if !ok || second == first {
		t.Error("what was remembered outlives its tenure")
	}
	r.memories.settleMemory(r.key(), second)
	owned.number = 0
	if mem, ok := r.memoryInTenure(r.key()); ok || mem != nil {
		t.Error("a Cleaner of another process is owned")
	}
	r.pass()
	if did := r.did(); len(did) > 0 {
		t.Errorf("a Cleaner of another process acts: %v", did)
	}
	owned.number = 3
	r.pass()
	if did := r.did(); len(did) == 0 {
		t.Error("a Cleaner that is owned does not act")
	}
	if third, ok := r.memoryInTenure(r.key()); !ok || third == second {
		t.Error("what was remembered outlives the tenure of another process")
	}
}
