// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/signing"
)

// credentials reads the values that show sinks who has sent an event. What is read, and as whom, follows from the spec as it
// is now and from whoever wrote that: no record, and nothing that a pass knew, names a Secret.
type credentials struct {
	live    client.Reader // reads Cleaners from the API server
	keys    signing.Keys
	hands   *handsMaker
	own     *hands // the operator's
	authors *identity.Authors
	opts    *Options
}

// readValue gives the value for a sink that was the Cleaner's. Its errors are for the author.
func (s *credentials) readValue(ctx context.Context, key types.NamespacedName, uid types.UID, sink outbox.Sink) ([]byte, error) {
	c := emptyOwner(key)
	if err := s.live.Get(ctx, key, c); err != nil {
		return nil, fmt.Errorf("cannot read the Cleaner: %w", err)
	}
	if c.GetUID() != uid || sinkOf(c) != sink { // who wrote the one has not answered for the other
		return nil, errors.New("the spec was changed meanwhile")
	}
	namespace, ref := c.GetNamespace(), sink.Auth.SecretRef
	if namespace == "" {
		namespace = ref.Namespace
	}
	if namespace == s.opts.Namespace {
		return nil, fmt.Errorf("no Secret of %q is read, which is the namespace of the operator", namespace)
	}
	hands, err := s.handsFor(c)
	if err != nil {
		return nil, err
	}
	if missing := hands.accountMissing(ctx, s.own.live); missing != "" {
		return nil, errors.New(missing)
	}
	if err := s.reviewAuthor(ctx, c, hands.account); err != nil {
		return nil, err
	}
	q := objectQuery("Secret", namespace, ref.Name)
	q.MetadataOnly = false
	return valueOf(hands.live.Read(ctx, q), namespace, ref.SecretKeyReference)
}

// handsFor are those of the account by the spec: what was begun as another one is over.
func (s *credentials) handsFor(c v1alpha1.Owner) (*hands, error) {
	as := s.opts.serviceAccount(c.Work())
	if as == nil {
		return s.own, nil
	}
	return s.hands.handsOf(identity.Account{Namespace: cmp.Or(as.Namespace, c.GetNamespace()), Name: as.Name})
}

// reviewAuthor says why nothing may be read for the author, by answers that are as young as those before deeds.
func (s *credentials) reviewAuthor(ctx context.Context, c v1alpha1.Owner, account identity.Account) error {
	ring, err := s.keys.CurrentRing()
	if err != nil {
		return fmt.Errorf("the author of the spec is unknown: %w", err)
	}
	who, known, refusal := findAuthor(ring, c, account, s.opts)
	if known {
		refusal = reviewAuthor(ctx, s.authors, who, rights.ListForDelivery(c.GetNamespace(), c.Work()))
	}
	if refusal.isRefusal() {
		return errors.New(refusal.asPhrase())
	}
	return nil
}

// sinkOf is where the events of a Cleaner go by its spec. What shows the sink who has sent them is never a template's.
func sinkOf(c v1alpha1.Owner) outbox.Sink {
	sink := outbox.Sink{URL: c.Common().CloudEventSink}
	if auth := c.Work().CloudEventSinkAuth; auth != nil {
		sink.Auth = *auth
	}
	return sink
}

// valueOf is what a key of a Secret holds. No error says anything of it.
func valueOf(seen plan.Target, namespace string, ref v1alpha1.SecretKeyReference) ([]byte, error) {
	switch {
	case seen.State != plan.Complete:
		return nil, errors.New(seen.Detail)
	case len(seen.Objects) == 0:
		return nil, fmt.Errorf("there is no Secret %q in namespace %q", ref.Name, namespace)
	}
	data, _ := seen.Objects[0].Value["data"].(map[string]any)
	text, ok := data[ref.Key].(string)
	if !ok {
		return nil, fmt.Errorf("no key %q is in Secret %q in namespace %q", ref.Key, ref.Name, namespace)
	}
	value, err := base64.StdEncoding.DecodeString(text)
	if err != nil { // which may hold a part of it
		return nil, fmt.Errorf("key %q of Secret %q in namespace %q cannot be read", ref.Key, ref.Name, namespace)
	}
	return value, nil
}
