// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/rights"
)

const (
	// authorAllowedTTL is how old an answer may be. What begins with such an answer lasts for a minute and some seconds at most, so that
	// the operator notices within 5 minutes what an author loses.
	authorAllowedTTL = 3 * time.Minute
	// authorDeniedTTL is how often a right that is missing is asked about again.
	authorDeniedTTL = 10 * time.Second
)

// Authors knows what the authors of Cleaners may do.
type Authors struct {
	reviews  authorizationv1client.SubjectAccessReviewInterface
	accounts corev1client.ServiceAccountsGetter
	answers  *answers[authorQuestion] // by the Cleaner's namespace
	clock    clock.PassiveClock
}

// NewAuthors makes Authors that ask through the operator's clients.
func NewAuthors(reviews authorizationv1client.SubjectAccessReviewInterface, accounts corev1client.ServiceAccountsGetter, c clock.Clock) *Authors {
	return &Authors{reviews: reviews, accounts: accounts, answers: newAnswers[authorQuestion](c), clock: c}
}

// authorQuestion is a question about an author. Authors of one name may differ in their groups.
type authorQuestion struct {
	author [sha256.Size]byte
	right  rights.Right
}

// FindMissingRights returns the rights that an author does not have, by answers that are at most authorAllowedTTL old.
func (a *Authors) FindMissingRights(ctx context.Context, namespace string, who author.Author, needed []rights.Right) ([]rights.Right, error) {
	text, err := json.Marshal(who)
	if err != nil {
		return nil, fmt.Errorf("cannot write down who the author is: %w", err)
	}
	key, subject := sha256.Sum256(text), subjectOf(who)
	if err := a.checkAccountUID(ctx, who); err != nil {
		return nil, err
	}
	return rights.FindMissing(ctx, needed, func(ctx context.Context, r rights.Right) (bool, error) {
		q := authorQuestion{key, r}
		if allowed, known := a.answers.findAnswer(namespace, q); known {
			return allowed, nil
		}
		at := a.clock.Now()
		allowed, err := rights.IsAllowed(ctx, a.reviews, subject, r)
		if err != nil {
			return false, err
		}
		keeps := authorDeniedTTL
		if allowed {
			keeps = authorAllowedTTL
		}
		a.answers.keepAnswer(namespace, q, allowed, keeps-a.clock.Since(at))
		return allowed, nil
	})
}

// subjectOf is the author as the API server reviews it. The groups of a ServiceAccount follow from its name.
func subjectOf(who author.Author) rights.Subject {
	s := rights.Subject{User: who.Username, UID: who.UID, Groups: who.Groups, Extra: make(map[string]authorizationv1.ExtraValue, len(who.Extra))}
	if namespace, name, ok := who.ServiceAccount(); ok {
		_, s.Groups = Account{Namespace: namespace, Name: name}.userAndGroups()
	}
	for k, values := range who.Extra {
		s.Extra[k] = values
	}
	return s
}

// checkAccountUID fails if the author is a ServiceAccount that is gone: a new account of the same name is a different author.
func (a *Authors) checkAccountUID(ctx context.Context, who author.Author) error {
	namespace, name, ok := who.ServiceAccount()
	if !ok {
		return nil
	}
	now, err := a.accounts.ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("cannot read %s: %w", Account{namespace, name}, err)
	case now.UID != types.UID(who.UID):
		return fmt.Errorf("%s was deleted and created again", Account{namespace, name})
	}
	return nil
}
