// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import "k8s.io/apimachinery/pkg/types"

// memoryInTenure returns what this process remembers of a Cleaner that it owns: nothing of an earlier tenure, because another process may have
// owned the Cleaner since. What it remembers of a Cleaner that another one owns is forgotten.
func (r *CleanerReconciler) memoryInTenure(key types.NamespacedName) (mem *memory, owned bool) {
	tenure := r.opts.Shards.FindTenure(key)
	mem = r.memories.memoryOf(key)
	if mem.tenure.Exists() && !mem.tenure.IsSame(tenure) {
		if mem.stopUninstall != nil {
			mem.stopUninstall()
		}
		r.forgetCleaner(key, mem.uid)
		mem = r.memories.memoryOf(key)
	}
	if !tenure.Exists() {
		r.memories.ForgetCleaner(key)
		r.memories.settleMemory(key, mem)
		return nil, false
	}
	mem.tenure = tenure
	return mem, true
}
