// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstalls

import (
	"context"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/signing"
)

// Reviewer asks whether the author of a Cleaner may have releases uninstalled. It is of the author and the account that there were when it was
// made, and safe for concurrent use.
type Reviewer struct {
	authors      *identity.Authors
	own, clients *clients.Set
	namespace    string
	who          author.Stored
	known        bool
	refused      identity.Refusal
}

// NewReviewer makes a Reviewer for a Cleaner as it was read, for whom the operator acts with a set of clients.
func NewReviewer(authors *identity.Authors, policy identity.Policy, ring signing.Ring, c v1alpha1.Owner, own, set *clients.Set) Reviewer {
	v := Reviewer{authors: authors, own: own, clients: set, namespace: c.GetNamespace()}
	v.who, v.known, v.refused = policy.FindAuthor(ring, c, set.Account)
	return v
}

// Author returns the author; the zero value if none is known.
func (v Reviewer) Author() author.Author { return v.who.Author }

// ReviewRelease says why a release must not be uninstalled for the author. Else it returns the rights that the uninstall is held to; none where
// the API server judges each request.
func (v Reviewer) ReviewRelease(ctx context.Context, release *observed.Release, disableHooks bool) ([]rights.Right, identity.Refusal) {
	if missing := v.clients.DescribeMissing(ctx, v.own.Live); missing != "" {
		return nil, identity.Refusal{Reason: v1alpha1.ReasonAccessDenied, Message: missing + "."}
	}
	if !v.known {
		return nil, v.refused
	}
	needed := ListNeeded(v.clients.Account, release, disableHooks)
	if refused := v.authors.ReviewAuthor(ctx, v.namespace, v.who, needed); refused.IsRefusal() {
		return nil, refused
	}
	if !v.clients.Account.IsOperator() {
		return nil, identity.Refusal{}
	}
	return needed, identity.Refusal{}
}

// ListNeeded lists the rights that the author needs for the uninstall of a release. With a ServiceAccount, its rights decide, and the author needs
// the right to act as it.
func ListNeeded(account identity.Account, release *observed.Release, disableHooks bool) []rights.Right {
	if !account.IsOperator() {
		return []rights.Right{{Verb: "impersonate", Resource: "serviceaccounts", Namespace: account.Namespace, Name: account.Name}}
	}
	return release.RequiredRights(disableHooks)
}
