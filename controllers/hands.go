// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// handsMaker makes hands, the same ones for all Cleaners of an account.
type handsMaker struct {
	mu   sync.Mutex
	made map[identity.Account]weak.Pointer[hands]

	config *rest.Config // the operator's
	engine *watches.Engine
	access *identity.Access
	// protection is what no hands touch.
	protection plan.Protection
	slots      actuate.Slots
	// ahead is by how much clock is ahead of the API server's.
	ahead func() time.Duration
	clock clock.Clock
}

// handsOf gives the hands of an account, which are kept for as long as somebody holds them.
func (m *handsMaker) handsOf(account identity.Account) (*hands, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.made[account].Value(); h != nil {
		return h, nil
	}
	h, err := m.makeHands(account)
	if err != nil {
		return nil, err
	}
	if m.made == nil {
		m.made = map[identity.Account]weak.Pointer[hands]{}
	}
	m.made[account] = weak.Make(h)
	runtime.AddCleanup(h, m.forgetAccount, account)
	return h, nil
}

// maxHands is how many accounts there may be whose hands are kept for Cleaners at rest.
const maxHands = 256

// areMany says that there are so many hands that those of a Cleaner at rest are made anew when it is looked at.
func (m *handsMaker) areMany() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.made) > maxHands
}

// forgetAccount drops what is left of hands that nobody holds any more.
func (m *handsMaker) forgetAccount(account identity.Account) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made[account].Value() == nil {
		delete(m.made, account)
	}
}

func (m *handsMaker) makeHands(account identity.Account) (*hands, error) {
	config, err := account.NewConfig(m.config)
	if err != nil {
		return nil, err
	}
	live, err := watches.NewLive(account.String(), config, m.engine.Resolver())
	if err != nil {
		return nil, err
	}
	actuator, err := actuate.New(config, m.slots)
	if err != nil {
		return nil, err
	}
	uninstaller, err := helm.New(helm.Options{
		Config: actuate.WithoutRetries(config), Discovery: m.config, ServiceAccount: types.NamespacedName(account), Protection: m.protection, Clock: m.clock,
		Ahead: m.ahead,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make the uninstaller: %w", err)
	}
	return &hands{
		account:  account,
		watched:  withoutOwnSecrets{m.access.NewReader(account, m.engine), m.protection.Own},
		live:     withoutOwnSecrets{live, m.protection.Own},
		actuator: actuator, helm: uninstaller,
	}, nil
}

// withoutOwnSecrets shows all but the Secrets of the operator's own namespace: with the keys in them anybody could sign what
// the operator believes, and a status shows what expressions see.
type withoutOwnSecrets struct {
	snapshot.Reader
	namespace string
}

// Read answers a query without those Secrets.
func (r withoutOwnSecrets) Read(ctx context.Context, q snapshot.Query) plan.Target {
	t := r.Reader.Read(ctx, q)
	if (t.Resource.GroupResource() != schema.GroupResource{Resource: "secrets"}) || r.namespace == "" {
		return t
	}
	own := func(o plan.Object) bool { return o.Namespace == r.namespace }
	if slices.ContainsFunc(t.Objects, own) {
		t.Objects = slices.DeleteFunc(slices.Clone(t.Objects), own) // others read the same list
	}
	return t
}

// serviceAccount is the one as which the operator acts for somebody's work; nil: it acts as itself.
func (o *Options) serviceAccount(work *v1alpha1.Work) *v1alpha1.ServiceAccountReference {
	if work.ServiceAccount == nil && !work.Cluster && o.DefaultServiceAccount != "" {
		return &v1alpha1.ServiceAccountReference{Name: o.DefaultServiceAccount}
	}
	return work.ServiceAccount
}

// fingerprintWork is the fingerprint of somebody's work, and of as whom it is carried out: another default is an edit too.
func (o *Options) fingerprintWork(work *v1alpha1.Work) (string, error) {
	as := *work
	as.ServiceAccount = o.serviceAccount(work)
	return plan.FingerprintWork(&as)
}

// accountName is how an account stands in a run: by its name, if it is of the Cleaner's namespace.
func accountName(c v1alpha1.Owner, a identity.Account) string {
	if a.IsOperator() || a.Namespace == c.GetNamespace() {
		return a.Name
	}
	return a.Namespace + "/" + a.Name
}

// recordedAccount reads what recorded wrote.
func recordedAccount(c v1alpha1.Owner, s string) identity.Account {
	if namespace, name, ok := strings.Cut(s, "/"); ok && c.GetNamespace() == "" {
		return identity.Account{Namespace: namespace, Name: name}
	}
	if s == "" {
		return identity.Account{}
	}
	return identity.Account{Namespace: c.GetNamespace(), Name: s}
}

// accountBySpec is the account as which the operator acts for a Cleaner, by its spec as it is now.
func (o *Options) accountBySpec(c v1alpha1.Owner, a *assignment) identity.Account {
	as := o.serviceAccount(a.work)
	if as == nil {
		return identity.Account{}
	}
	return identity.Account{Namespace: cmp.Or(as.Namespace, c.GetNamespace()), Name: as.Name}
}

// handsBySpec are the hands of the account by the spec. Nothing is evaluated and nothing is begun with any others: whoever
// wrote the spec has not answered for the account that a run was begun with.
func (r *CleanerReconciler) handsBySpec(c v1alpha1.Owner, a *assignment, mem *memory) (*hands, error) {
	return r.handsOf(r.opts.accountBySpec(c, a), mem)
}

// handsForRun are the hands with which an open run is carried on: those of the account by the spec, or, for a run that is
// stopped, those with which it was begun.
func (r *CleanerReconciler) handsForRun(c v1alpha1.Owner, a *assignment, mem *memory) (*hands, error) {
	account := r.opts.accountBySpec(c, a)
	if run := c.State().Run; run != nil && run.Result == "" {
		decides, err := mem.fingerprintWork(a, &r.opts)
		if err != nil {
			return nil, err
		}
		if decides != run.Decides {
			account = recordedAccount(c, run.ServiceAccountName)
		}
	}
	return r.handsOf(account, mem)
}

// handsOf are the hands of an account. They are kept while they are the same.
func (r *CleanerReconciler) handsOf(account identity.Account, mem *memory) (*hands, error) {
	if account.IsOperator() {
		return r.own, nil
	}
	if mem.hands == nil || mem.hands.account != account {
		made, err := r.hands.handsOf(account)
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
	if h.account.IsOperator() {
		return ""
	}
	seen := operator.Read(ctx, objectQuery("ServiceAccount", h.account.Namespace, h.account.Name))
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

// objectQuery asks for the metadata of one object of the core group.
func objectQuery(kind, namespace, name string) snapshot.Query {
	return snapshot.Query{
		Version: "v1", Kind: kind, Namespace: namespace, Name: name,
		Labels: labels.Everything(), Fields: fields.Everything(), MetadataOnly: true,
	}
}
