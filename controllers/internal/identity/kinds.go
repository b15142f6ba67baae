// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
)

// KindDeniedTTL is how soon a kind is asked about again that an author or an account may not clean.
const KindDeniedTTL = 5 * time.Minute

// KindReviews knows which of many kinds authors and accounts may clean. What it remembers is bounded, and Cleaners share it.
type KindReviews struct {
	reviews authorizationv1client.SubjectAccessReviewInterface
	answers *answers[authorQuestion] // by the Cleaner
	clock   clock.PassiveClock
}

// NewKindReviews makes KindReviews that ask through the operator's client.
func NewKindReviews(reviews authorizationv1client.SubjectAccessReviewInterface, c clock.Clock) *KindReviews {
	return &KindReviews{reviews: reviews, answers: newAnswers[authorQuestion](c), clock: c}
}

// SubjectOfAuthor is an author as the API server reviews it.
func SubjectOfAuthor(who author.Author) rights.Subject { return subjectOf(who) }

// SubjectOfAccount is a ServiceAccount as the API server reviews it.
func SubjectOfAccount(a Account) rights.Subject {
	name, groups := a.userAndGroups()
	return rights.Subject{User: name, Groups: groups}
}

// SplitKinds divides kinds into those that a subject has all these verbs on, in a namespace or in all, and the others. The owner is the Cleaner,
// and owners share what is remembered.
func (k *KindReviews) SplitKinds(ctx context.Context, owner string, who rights.Subject, kinds []anykind.Kind, namespace string, verbs []string) (may, denied []anykind.Kind, err error) {
	text, err := json.Marshal(who)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot write down whose rights are reviewed: %w", err)
	}
	return rights.SplitKinds(ctx, kinds, namespace, verbs, k.askAs(owner, sha256.Sum256(text), who))
}

// askAs returns the function that asks whether a subject has a right. An answer is used again for a while.
func (k *KindReviews) askAs(owner string, key [sha256.Size]byte, who rights.Subject) func(context.Context, observed.Right) (bool, error) {
	return func(ctx context.Context, r observed.Right) (bool, error) {
		q := authorQuestion{key, r}
		if allowed, known := k.answers.findAnswer(owner, q); known {
			return allowed, nil
		}
		at := k.clock.Now()
		allowed, err := rights.IsAllowed(ctx, k.reviews, who, r)
		if err != nil {
			return false, err
		}
		keeps := KindDeniedTTL
		if allowed {
			keeps = authorAllowedTTL
		}
		k.answers.keepAnswer(owner, q, allowed, keeps-k.clock.Since(at))
		return allowed, nil
	}
}
