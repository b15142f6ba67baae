// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
)

// memory is what this process remembers of one Cleaner. Losing it costs reads, and never deletes more. Only the pass
// that holds the Cleaner's key touches it.
type memory struct {
	uid types.UID
	// written is the resourceVersion that this process's last write gave the Cleaner; empty once the cache has it.
	written string
	run     plan.Memory
	// evaluated is when the Cleaner was evaluated last, and reported when its status was written last.
	evaluated, reported time.Time
	// disagreed is how long the next confirmation waits, after watches and live reads did not agree, and retryAt until
	// when; rested is the same after a run that left something.
	disagreed, rested time.Duration
	retryAt           time.Time
	resting           bool // it is such a run that is rested from
	// actions are the latest deeds, newest first.
	actions []v1alpha1.Action
	// tried are the versions, by UID, that a dry run has already asked about.
	tried map[types.UID]string
	// decides is the fingerprint of the spec of a generation.
	decides    string
	generation int64
	// ended takes the end of an uninstall from the pool.
	ended chan uninstallEnd
}

// uninstallEnd is how an uninstall ended.
type uninstallEnd struct {
	run     int64 // whose uninstall it was
	swept   bool  // it came to its end
	why     string
	actions []v1alpha1.Action
}

// memories holds what this process remembers of each Cleaner.
type memories struct {
	mu sync.Mutex
	m  map[types.NamespacedName]*memory
}

func (s *memories) of(key types.NamespacedName) *memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[types.NamespacedName]*memory{}
	}
	if s.m[key] == nil {
		s.m[key] = newMemory("")
	}
	return s.m[key]
}

func (s *memories) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, key)
}

func newMemory(uid types.UID) *memory {
	return &memory{uid: uid, tried: map[types.UID]string{}, ended: make(chan uninstallEnd, 1)}
}

// fingerprint is plan.Decides of a Cleaner's spec, computed once a generation.
func (m *memory) fingerprint(c *v1alpha1.Cleaner) (string, error) {
	if m.decides != "" && m.generation == c.Generation {
		return m.decides, nil
	}
	d, err := plan.Decides(&c.Spec)
	if err != nil {
		return "", err
	}
	m.decides, m.generation = d, c.Generation
	return d, nil
}

// acted remembers deeds, newest first.
func (m *memory) acted(known []v1alpha1.Action, actions ...v1alpha1.Action) {
	if m.actions == nil {
		m.actions = known
	}
	for _, a := range actions {
		m.actions = append([]v1alpha1.Action{a}, m.actions[:min(len(m.actions), maxActions-1)]...)
	}
}

// maxActions is how many deeds a status shows.
const maxActions = 20
