// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// maxAnswers is how many answers are kept, of about 400 bytes each. When there are more, the namespace that has most of them loses the one
// that it has used least recently.
const maxAnswers = 16384

// answers keep what the API server has answered, for as long as it serves. What is asked for a namespace answers no other one, so that a
// namespace with many questions drops no answer of others. It is safe for concurrent use.
type answers[Q comparable] struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	shares map[string]*share[Q] // by namespace
	kept   int
}

// share is what was answered for one namespace.
type share[Q comparable] struct {
	answers map[Q]*list.Element
	recent  list.List // *answer[Q], the one that was used last first
}

// answer says whether something is allowed.
type answer[Q comparable] struct {
	question Q
	allowed  bool
	until    time.Time
}

func newAnswers[Q comparable](c clock.PassiveClock) *answers[Q] {
	return &answers[Q]{clock: c, shares: map[string]*share[Q]{}}
}

// findAnswer gives the answer to a question of a namespace, if there is one that serves still.
func (a *answers[Q]) findAnswer(namespace string, q Q) (allowed, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shares[namespace]
	if s == nil || s.answers[q] == nil {
		return false, false
	}
	at := s.answers[q]
	kept := unwrapAnswer[Q](at)
	if !a.clock.Now().Before(kept.until) {
		a.dropAnswer(namespace, at)
		return false, false
	}
	s.recent.MoveToFront(at)
	return kept.allowed, true
}

// keepAnswer keeps an answer for a while.
func (a *answers[Q]) keepAnswer(namespace string, q Q, allowed bool, serves time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shares[namespace]
	if s == nil {
		s = &share[Q]{answers: map[Q]*list.Element{}}
		a.shares[namespace] = s
	}
	if at := s.answers[q]; at != nil {
		s.recent.Remove(at)
		a.kept--
	}
	s.answers[q] = s.recent.PushFront(&answer[Q]{q, allowed, a.clock.Now().Add(serves)})
	if a.kept++; a.kept > maxAnswers {
		most := a.findLargestShare()
		a.dropAnswer(most, a.shares[most].recent.Back())
	}
}

func unwrapAnswer[Q comparable](at *list.Element) *answer[Q] {
	kept, _ := at.Value.(*answer[Q])
	return kept
}

func (a *answers[Q]) dropAnswer(namespace string, at *list.Element) {
	s := a.shares[namespace]
	s.recent.Remove(at)
	delete(s.answers, unwrapAnswer[Q](at).question)
	if a.kept--; s.recent.Len() == 0 {
		delete(a.shares, namespace)
	}
}

// findLargestShare finds the namespace that has most answers.
func (a *answers[Q]) findLargestShare() string {
	largest, most := "", 0
	for namespace, s := range a.shares {
		if n := s.recent.Len(); n > most || n == most && namespace < largest {
			largest, most = namespace, n
		}
	}
	return largest
}
