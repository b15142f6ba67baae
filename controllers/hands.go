// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// hands are what is read and done for a Cleaner, as one identity.
type hands struct {
	account  identity.Account
	watched  snapshot.Reader // what the watches know, as far as the account may read it
	live     snapshot.Reader // what the API server says
	actuator *actuate.Actuator
	helm     *helm.Uninstaller
}

// handsMaker makes hands.
type handsMaker struct {
	config *rest.Config // the operator's
	engine *watches.Engine
	access *identity.Access
	// protection is what no hands touch.
	protection plan.Protection
	slots      actuate.Slots
	clock      clock.Clock
}

// of makes the hands of an account. They are cheap: connections are shared by all.
func (m *handsMaker) of(account identity.Account) (*hands, error) {
	config, err := account.Config(m.config)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a metadata client: %w", err)
	}
	deleting, err := dynamic.NewForConfig(actuate.Once(config))
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for deletions: %w", err)
	}
	uninstaller, err := helm.New(helm.Options{
		Config: actuate.Once(config), Discovery: m.config, ServiceAccount: types.NamespacedName(account), Protection: m.protection, Clock: m.clock,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make the uninstaller: %w", err)
	}
	return &hands{
		account: account, watched: m.access.Reader(account, m.engine), live: watches.NewLive(account.String(), dyn, meta, m.engine.Resolver()),
		actuator: actuate.New(deleting, m.slots), helm: uninstaller,
	}, nil
}

// accountOf is as whom the operator acts for a Cleaner.
func (r *CleanerReconciler) accountOf(c *v1alpha1.Cleaner) identity.Account {
	name := c.Spec.ServiceAccountName
	if name == "" {
		name = r.opts.DefaultServiceAccount
	}
	if name == "" {
		return identity.Account{}
	}
	return identity.Account{Namespace: c.Namespace, Name: name}
}

// handsFor are the hands of a Cleaner's account, kept while it has that account.
func (r *CleanerReconciler) handsFor(c *v1alpha1.Cleaner, mem *memory) (*hands, error) {
	account := r.accountOf(c)
	if account.Operator() {
		return r.own, nil
	}
	if mem.hands == nil || mem.hands.account != account {
		made, err := r.hands.of(account)
		if err != nil {
			return nil, err
		}
		mem.hands = made
	}
	return mem.hands, nil
}

// accountMissing says why nothing may be done as the Cleaner's ServiceAccount, or "". One that was deleted has no rights,
// but the RoleBindings that name it go on granting them to its name.
func (h *hands) accountMissing(ctx context.Context, operator snapshot.Reader) string {
	if h.account.Operator() {
		return ""
	}
	seen := operator.Read(ctx, object("ServiceAccount", h.account.Namespace, h.account.Name))
	switch {
	case seen.State != plan.Complete:
		return fmt.Sprintf("cannot read %s: %s", h.account, seen.Detail)
	case len(seen.Objects) == 0:
		return fmt.Sprintf("%s does not exist", h.account)
	case seen.Objects[0].Terminating:
		return fmt.Sprintf("%s is being deleted", h.account)
	}
	return ""
}

// object asks for the metadata of one object of the core group.
func object(kind, namespace, name string) snapshot.Query {
	return snapshot.Query{
		Version: "v1", Kind: kind, Namespace: namespace, Name: name,
		Labels: labels.Everything(), Fields: fields.Everything(), MetadataOnly: true,
	}
}
