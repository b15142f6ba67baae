// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clients creates the API clients of a Cleaner: one set of clients for each identity. It shows no Secrets of
// the operator's namespace, and decides nothing.
package clients

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/freshness"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/live"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Set is what is read and done for a Cleaner, as one identity.
type Set struct {
	Account identity.Account
	Watched snapshot.Reader // what the watches know, as far as the account may read it
	Live    snapshot.Reader // what the API server says, or watches that are proved to know all that it does
	// Definitions reads CustomResourceDefinitions live, as the operator, whatever the account may read.
	Definitions snapshot.Reader
	Actuator    *actuate.Actuator
	Helm        *helm.Uninstaller
}

// Config is what sets are made of.
type Config struct {
	// Operator is the operator's own configuration.
	Operator *rest.Config
	Watches  *watches.Engine
	Access   *identity.Access
	Metrics  freshness.Metrics
	// Protection is what no set touches.
	Protection plan.Protection
	// Slots are those of requests that change something.
	Slots *fair.Slots
	// Ahead is by how much Clock is ahead of the API server's.
	Ahead func() time.Duration
	Clock clock.Clock
}

// Factory makes sets, the same one for all Cleaners of an account.
type Factory struct {
	config Config
	// shelf is shared by all uninstallers, and prover by all readers.
	shelf    *helm.Shelf
	prover   *freshness.Prover
	operator *live.Reader

	mu   sync.Mutex
	made map[identity.Account]weak.Pointer[Set]
}

// New returns a factory of clients, and the operator's own set.
func New(c Config) (*Factory, *Set, error) {
	factory, err := NewFactory(c)
	if err != nil {
		return nil, nil, err
	}
	own, err := factory.SetOf(identity.Account{})
	return factory, own, err
}

// NewFactory makes a factory.
func NewFactory(config Config) (*Factory, error) {
	operator, err := live.NewReader(identity.Account{}.String(), config.Operator, config.Clock, config.Watches.Resolver())
	if err != nil {
		return nil, err
	}
	return &Factory{
		config: config, shelf: helm.NewShelf(), prover: freshness.NewProver(config.Watches, operator, config.Metrics, config.Clock), operator: operator,
		made: map[identity.Account]weak.Pointer[Set]{},
	}, nil
}

// SetOf returns the set of clients of an account. The set is kept as long as a caller holds it.
func (f *Factory) SetOf(account identity.Account) (*Set, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.made[account].Value(); s != nil {
		return s, nil
	}
	s, err := f.makeSet(account)
	if err != nil {
		return nil, err
	}
	f.made[account] = weak.Make(s)
	runtime.AddCleanup(s, f.forgetAccount, account)
	return s, nil
}

// MaxSets is how many accounts there may be whose sets are kept for Cleaners at rest.
const MaxSets = 256

// AreMany reports whether there are so many sets that a Cleaner at rest must give up its set, and gets a new one when it is evaluated.
func (f *Factory) AreMany() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.made) > MaxSets
}

// forgetAccount removes the entry of a set that no caller holds.
func (f *Factory) forgetAccount(account identity.Account) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.made[account].Value() == nil {
		delete(f.made, account)
	}
}

func (f *Factory) makeSet(account identity.Account) (*Set, error) {
	config, err := account.NewConfig(f.config.Operator)
	if err != nil {
		return nil, err
	}
	reader, err := live.NewReader(account.String(), config, f.config.Clock, f.config.Watches.Resolver())
	if err != nil {
		return nil, err
	}
	actuator, err := actuate.New(config, f.config.Slots)
	if err != nil {
		return nil, err
	}
	uninstaller, err := helm.New(helm.Options{
		Config: actuate.WithoutRetries(config), Discovery: f.config.Operator, ServiceAccount: types.NamespacedName(account), Protection: f.config.Protection, Clock: f.config.Clock,
		Ahead: f.config.Ahead, Shelf: f.shelf,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make the uninstaller: %w", err)
	}
	return &Set{
		Account:     account,
		Watched:     withoutOwnSecrets{f.config.Access.NewReader(account, f.config.Watches), f.config.Protection.Own},
		Live:        withoutOwnSecrets{freshness.Reader{Proven: f.config.Access.NewReader(account, f.prover), Live: reader}, f.config.Protection.Own},
		Definitions: f.operator, Actuator: actuator, Helm: uninstaller,
	}, nil
}

// withoutOwnSecrets shows all but the Secrets of the operator's own namespace: with the keys in them anybody could sign what
// the operator believes, and a status shows what expressions see.
type withoutOwnSecrets struct {
	snapshot.Reader
	namespace string
}

// Read answers a query without those Secrets.
func (r withoutOwnSecrets) Read(ctx context.Context, q snapshot.Query) observed.Target {
	t := r.Reader.Read(ctx, q)
	if (t.Resource.GroupResource() != schema.GroupResource{Resource: "secrets"}) || r.namespace == "" {
		return t
	}
	t.At = nil // what changes of them is not asked for
	own := func(o observed.Object) bool { return o.Namespace == r.namespace }
	if slices.ContainsFunc(t.Objects, own) {
		t.Objects = slices.DeleteFunc(slices.Clone(t.Objects), own) // others read the same list
	}
	return t
}

// DescribeMissing says why nothing may be done as the ServiceAccount, or "". One that was deleted has no rights, but the
// RoleBindings that name it still grant them to its name.
func (s *Set) DescribeMissing(ctx context.Context, operator snapshot.Reader) string {
	if s.Account.IsOperator() {
		return ""
	}
	seen := operator.Read(ctx, snapshot.NewObjectQuery("ServiceAccount", s.Account.Namespace, s.Account.Name))
	switch {
	case seen.State != observed.Complete:
		return fmt.Sprintf("cannot read %s: %s", s.Account, seen.Detail)
	case len(seen.Objects) == 0:
		return fmt.Sprintf("%s does not exist", s.Account)
	case seen.Objects[0].Terminating:
		return fmt.Sprintf("%s is being deleted", s.Account)
	}
	return ""
}
