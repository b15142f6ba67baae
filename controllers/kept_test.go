// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"testing"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// What a process remembers of the objects that it has changed is what its Cleaner reads of them. A Cleaner that is edited to read more does not
// decide on what was not kept: it decides on what the watches and live reads show.
func TestWhatIsRememberedIsWhatIsRead(t *testing.T) {
	c := done(v1alpha1.RuleAction{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"metadata": {"annotations": {"seen": "yes"}}}`}})
	c.Spec.Rules[0].When += ` && !("seen" in item.metadata.?annotations.orValue({}))`
	pod := aPod("a", "Succeeded")
	pod.Object["status"].(map[string]any)["message"] = "long"
	r := newRig(t, c, pod)
	r.pods.freeze()
	r.pass()
	if sent := r.pods.took(); len(sent) != 1 || sent[0] != "patch a" {
		t.Fatalf("sent was %v", sent)
	}
	remembered := r.memories.memoryOf(r.key()).Overlay["uid-a"]
	status, _ := remembered.Now.Value["status"].(map[string]any)
	metadata, _ := remembered.Now.Value["metadata"].(map[string]any)
	if status["phase"] != "Succeeded" || status["message"] != nil || metadata["annotations"] == nil || metadata["name"] != "a" {
		t.Errorf("remembered is %v", remembered.Now.Value)
	}
	r.clock.Step(time.Minute)
	if r.pass(); len(r.pods.took()) > 0 {
		t.Error("the patch is sent twice")
	}
	edited := r.cleaner()
	edited.Generation++
	edited.Spec.Rules[0].When = `item.status.?message.orValue("") != "long"`
	must(t, r.store.Update(t.Context(), edited))
	r.clock.Step(time.Minute)
	if r.pass(); len(r.pods.took()) > 0 {
		t.Error("a field that was not kept is taken for one that is not there")
	}
	if _, still := r.memories.memoryOf(r.key()).Overlay["uid-a"]; still {
		t.Error("less is remembered than is read, and is believed")
	}
}

// What is asked of the watches is what the expressions read, and it stays so until the spec changes.
func TestQueriesReadWhatExpressionsRead(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	r := newRig(t, c, aPod("a", "Running"))
	r.pass()
	queried := r.memories.memoryOf(r.key()).queried
	paths := queried.queries[0].Reads.Projection().ListPaths()
	if !slices.Contains(paths, "status.phase") || !slices.Contains(paths, "metadata.resourceVersion") || slices.Contains(paths, "spec") || len(paths) != 10 {
		t.Errorf("read is %v", paths)
	}
	if !queried.reads.Covers(queried.queries[0].Reads.Projection()) {
		t.Errorf("remembered would be %v", queried.reads.ListPaths())
	}
}
