// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package credentials reads the values by which sinks know who has sent an event, for the author of the Cleaner and as the account
// that it names. It keeps no value, and no error of it says anything of one.
package credentials

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/signing"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Reader reads the values that identify the operator to sinks. Which Secret it reads, and with whose rights, follows from the current
// spec and its author: no record, and nothing that an earlier pass remembered, names a Secret.
type Reader struct {
	Live    client.Reader // reads Cleaners from the API server
	Keys    signing.Keys
	Clients *clients.Factory
	Own     *clients.Set // the operator's
	Authors *identity.Authors
	Policy  identity.Policy
	// Namespace is the operator's own, whose Secrets are not read.
	Namespace string
}

// ReadValue gives the value for a sink that was the Cleaner's. Its errors are for the author.
func (s *Reader) ReadValue(ctx context.Context, key types.NamespacedName, uid types.UID, sink outbox.Sink) ([]byte, error) {
	c := v1alpha1.NewOwner(key.Namespace)
	if err := s.Live.Get(ctx, key, c); err != nil {
		return nil, fmt.Errorf("cannot read the Cleaner: %w", err)
	}
	if c.GetUID() != uid || outbox.SinkOf(c) != sink { // who wrote the one has not answered for the other
		return nil, errors.New("the spec has changed")
	}
	namespace, ref := c.GetNamespace(), sink.Auth.SecretRef
	if namespace == "" {
		namespace = ref.Namespace
	}
	if namespace == s.Namespace {
		return nil, fmt.Errorf("namespace %q is the namespace of the operator, which does not read Secrets there for Cleaners", namespace)
	}
	set, err := s.Clients.SetOf(s.Policy.AccountBySpec(c, c.Work()))
	if err != nil {
		return nil, err
	}
	if missing := set.DescribeMissing(ctx, s.Own.Live); missing != "" {
		return nil, errors.New(missing)
	}
	if err := s.reviewAuthor(ctx, c, set.Account); err != nil {
		return nil, err
	}
	q := snapshot.NewObjectQuery("Secret", namespace, ref.Name)
	q.MetadataOnly = false
	return valueOf(set.Live.Read(ctx, q), namespace, ref.SecretKeyReference)
}

// reviewAuthor says why nothing may be read for the author. Its answers are as recent as those before an action.
func (s *Reader) reviewAuthor(ctx context.Context, c v1alpha1.Owner, account identity.Account) error {
	ring, err := s.Keys.CurrentRing()
	if err != nil {
		return fmt.Errorf("the author of the spec is unknown: %w", err)
	}
	who, known, refusal := s.Policy.FindAuthor(ring, c, account)
	if known {
		refusal = s.Authors.ReviewAuthor(ctx, c.GetNamespace(), who, rights.ListForDelivery(c.GetNamespace(), c.Work()))
	}
	if refusal.IsRefusal() {
		return errors.New(refusal.AsPhrase())
	}
	return nil
}

// valueOf is what a key of a Secret holds. No error says anything of it.
func valueOf(seen observed.Target, namespace string, ref v1alpha1.SecretKeyReference) ([]byte, error) {
	switch {
	case seen.State != observed.Complete:
		return nil, errors.New(seen.Detail)
	case len(seen.Objects) == 0:
		return nil, fmt.Errorf("cannot find Secret %s/%s", namespace, ref.Name)
	}
	data, _ := seen.Objects[0].Value["data"].(map[string]any)
	text, ok := data[ref.Key].(string)
	if !ok {
		return nil, fmt.Errorf("cannot find key %q in Secret %s/%s", ref.Key, namespace, ref.Name)
	}
	value, err := base64.StdEncoding.DecodeString(text)
	if err != nil { // which may hold a part of it
		return nil, fmt.Errorf("cannot decode key %q of Secret %s/%s", ref.Key, namespace, ref.Name)
	}
	return value, nil
}
