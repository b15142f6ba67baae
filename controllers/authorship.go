// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/actionlog"
	"github.com/vtex/cleaner/controllers/internal/anykinds"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/resolvedspec"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/internal/uninstalls"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// reviewAtRest is how soon an author's rights are reviewed again while no use is made of them.
	reviewAtRest = time.Hour
	// keyRetry is how soon a Cleaner is read again while there is no signing key.
	keyRetry = 10 * time.Second
)

// authority decides what may be done for a Cleaner: which author it acts for, what that author may do, and with which account.
type authority struct{ pass *pass }

// checkRecordAndRequest verifies the signed record and handles the requestedAt annotation. If ok is false, the pass must not evaluate or act.
func (p *pass) checkRecordAndRequest(ctx context.Context) (ok bool, err error) {
	if err := p.triggers.SeeRequest(p.assignment.Version); err != nil {
		return false, err
	}
	refusal, err := p.authority.verifyRecord(ctx)
	if refusal.IsRefusal() {
		p.newReport().SetRefused(refusal)
	}
	if err != nil || refusal.IsRefusal() {
		return false, err
	}
	p.mem.resumeReads(p.assignment.Version, p.store.Draft)
	p.triggers.JudgeRequest(ctx)
	p.triggers.ReportRequest(p.newReport())
	return true, nil
}

// verifyRecord makes sure that the operator has signed the record of the Cleaner's runs, and otherwise replaces it. Nothing of a record
// is used before. It also renews the signatures of older keys, on the record and on the author.
func (a *authority) verifyRecord(ctx context.Context) (identity.Refusal, error) {
	ring, err := a.pass.r.keys.CurrentRing()
	if err != nil {
		return identity.Refusal{Reason: v1alpha1.ReasonSigningKeyMissing, Message: fmt.Sprintf("The operator cannot verify its own signatures, so it takes no action: %s.", err)}, nil
	}
	a.pass.store.Ring = ring
	switch current, err := a.pass.store.BelieveRecord(); {
	case err != nil:
		if err := a.replaceRecord(ctx); err != nil {
			return identity.Refusal{}, fmt.Errorf("cannot replace the record of runs in status, which is not the last one that this operator has signed: %w", err)
		}
	case !current:
		a.pass.store.RenewRecord(ctx)
	}
	if err := a.pass.useClients(a.pass.r.clientsForRun(a.pass.store.Draft, &a.pass.assignment, a.pass.mem)); err != nil {
		return identity.Refusal{}, err
	}
	a.pass.store.RenewAuthor(ctx)
	return identity.Refusal{}, nil
}

// replaceRecord has the record that this operator has written last take the place of another one. If this process has seen none,
// the record is dropped: nothing of it is carried out, and no event is sent of it.
func (a *authority) replaceRecord(ctx context.Context) error {
	forged, known, said := *a.pass.store.Stored.State(), a.pass.mem.persisted.Record, "the operator restored the latest one"
	if known == nil {
		said = "the operator discarded it; it had no open run"
		if forged.Run != nil && forged.Run.Result == "" {
			said = fmt.Sprintf("the operator discarded it; the outcome of run %d is unknown", forged.Run.Number)
		}
		known = &v1alpha1.CleanerStatus{
			Runs:            signedrecords.FindHighestRun(&forged),
			LastRequestedAt: a.pass.store.RequestedAt(), // otherwise a forged status could trigger an evaluation
		}
	}
	err := a.pass.journal.WriteStatus(ctx, v1alpha1.Action{
		Object: "status.run", Rule: "status.run", Action: "replace", Time: actionlog.AtSecond(a.pass.r.clock), Result: v1alpha1.ReasonRecordNotTrusted + ": " + said,
	}, func(s *v1alpha1.CleanerStatus) {
		if *s = signedrecords.CopyRecord(known); s.RecordedAt == nil {
			s.RecordedAt = &metav1.MicroTime{} // later than all that was signed before
		}
	})
	if err != nil && !cleanerstore.MayBeWritten(err) {
		return err
	}
	a.pass.store.Draft.State().LastRequestedAt = a.pass.store.Stored.State().LastRequestedAt // or the report would put it back
	logf.FromContext(ctx).Info("Replaced a record that is not the last one that this operator has signed", "runs", forged.Runs, "what", said)
	a.pass.journal.NoteEvent(corev1.EventTypeWarning, v1alpha1.ReasonRecordNotTrusted, "ReplaceRecord",
		"the record of runs in status is not the latest one that this operator signed: %s", said)
	return err
}

// findObstacle returns why the Cleaner must not start anything now: its ServiceAccount or author lacks rights, or its namespace is
// terminating.
func (a *authority) findObstacle(ctx context.Context, release *observed.Release) identity.Refusal {
	if refusal := a.findRefusal(ctx, release); refusal.IsRefusal() {
		refusal.Message = takesNoAction + refusal.Message
		return refusal
	}
	if !a.namespaceLeaves(ctx) {
		return identity.Refusal{}
	}
	return identity.Refusal{
		Reason:  v1alpha1.ReasonNamespaceTerminating,
		Message: fmt.Sprintf("Namespace %q is being deleted or cannot be read, so no cleanup starts in it.", a.pass.store.Draft.GetNamespace()),
	}
}

// namespaceLeaves reports whether the namespace of the Cleaner is terminating or cannot be read. Missing objects then prove nothing.
func (a *authority) namespaceLeaves(ctx context.Context) bool {
	if a.pass.assignment.Work.Cluster {
		return false
	}
	ns := a.pass.r.own.Live.Read(ctx, snapshot.NewNamespaceQuery(a.pass.store.Draft.GetNamespace()))
	return ns.State != observed.Complete || len(ns.Objects) == 0 || ns.Objects[0].Terminating
}

// findRefusal says why nothing may be done for the Cleaner now: the account that it acts as is not there, or its author may not
// do it. The rights that a release needs are asked about too.
func (a *authority) findRefusal(ctx context.Context, release *observed.Release) identity.Refusal {
	if missing := a.pass.clients.DescribeMissing(ctx, a.pass.r.own.Live); missing != "" {
		return identity.Refusal{Reason: v1alpha1.ReasonAccessDenied, Message: missing + "."}
	}
	return a.authorRefused(ctx, release)
}

// authorRefused says why nothing may be done for the Cleaner's author.
func (a *authority) authorRefused(ctx context.Context, release *observed.Release) identity.Refusal {
	who, known, refused := a.pass.r.opts.identityPolicy().FindAuthor(a.pass.store.Ring, a.pass.store.Stored, a.pass.clients.Account)
	if !known {
		return refused
	}
	needed, unknown := a.findNeeded(ctx, release)
	if unknown != "" {
		return identity.Refusal{Reason: v1alpha1.ReasonAuthorLacksRights, Message: unknown}
	}
	return a.pass.r.authors.ReviewAuthor(ctx, a.pass.store.Draft.GetNamespace(), who, needed)
}

// reviewUninstall asks whether the author of the spec that there is now may uninstall the release that was looked at. The author
// may have lost the rights since the run was committed, or be another one.
func (a *authority) reviewUninstall(ctx context.Context) {
	m, now := &a.pass.mem.run, a.pass.r.clock.Now()
	if reviewed, refused := a.newReviewer().ReviewRelease(ctx, m.Release, a.disablesHooks()); refused.IsRefusal() {
		m.RecordReviewRefused(refused.Reason, sanitize.CleanText(refused.Message), a.pass.r.clock.Now().Add(rights.RetryAfter))
	} else {
		m.RecordReview(reviewed, now)
	}
}

// newReviewer returns what asks whether the author may have releases uninstalled. With a ServiceAccount, also as one that the run was begun with and
// the spec names no more, the author needs the right to act as it.
func (a *authority) newReviewer() uninstalls.Reviewer {
	return uninstalls.NewReviewer(a.pass.r.authors, a.pass.r.opts.identityPolicy(), a.pass.store.Ring, a.pass.store.Stored, a.pass.r.own, a.pass.clients)
}

// disablesHooks reports whether the release is uninstalled without its hooks. After a change of the spec, hooks of an open run are never
// run.
func (a *authority) disablesHooks() bool {
	if run := a.pass.store.Draft.State().Run; run != nil && run.Result == "" && run.Helm != nil {
		return run.Helm.DisableHooks || a.pass.mem.fingerprint != run.Decides
	}
	return a.pass.assignment.Work.Helm != nil && a.pass.assignment.Work.Helm.DisableHooks
}

// findNeeded are the rights that the Cleaner makes use of now.
func (a *authority) findNeeded(ctx context.Context, release *observed.Release) (needed []rights.Right, unknown string) {
	needed, unknown = rights.ListUsed(ctx, a.pass.store.Draft.GetNamespace(), a.pass.assignment.Work, validation.Options{
		AllowProtectedKinds: a.pass.r.opts.AllowProtectedKinds, DefaultServiceAccount: a.pass.r.opts.DefaultServiceAccount,
	}, func(ctx context.Context, r *v1alpha1.Reference) (validation.ServedKind, observed.TargetState, string) {
		found, state, detail := a.pass.r.resolver.Resolve(ctx, r.APIGroup, r.Version, r.Kind)
		return validation.ServedKind{Resource: found.GVR.Resource, Namespaced: found.Namespaced}, state, detail
	})
	if unknown == "" && release != nil && a.pass.clients.Account.IsOperator() { // with a ServiceAccount, its rights decide
		needed = append(needed, release.RequiredRights(a.disablesHooks())...)
	}
	return needed, unknown
}

// findAskerLacks returns the rights that a user lacks to ask for an evaluation of another author's Cleaner.
func (a *authority) findAskerLacks(ctx context.Context, who author.Author) ([]rights.Right, error) {
	needed, unknown := a.findNeeded(ctx, nil)
	if unknown != "" {
		return nil, errors.New(unknown)
	}
	needed = append(needed, rights.ListForAllKinds(a.pass.assignment.Work)...)
	if work := a.pass.assignment.Work; work.Helm != nil && work.Helm.Delete || work.UninstallsForRules() {
		needed = append(needed, rights.NewRightToEverything())
	}
	return a.pass.r.authors.FindMissingRights(ctx, a.pass.store.Draft.GetNamespace(), who, needed)
}

// identityPolicy returns with which accounts the operator acts, and for which Cleaners.
func (o *Options) identityPolicy() identity.Policy {
	return identity.Policy{DefaultServiceAccount: o.DefaultServiceAccount, ActWithoutAuthor: o.ActWithoutAuthor}
}

// fingerprintWork returns the fingerprint of a spec with the account that carries it out: another default account counts as an edit.
func (o *Options) fingerprintWork(work *v1alpha1.Work) (string, error) {
	as := *work
	as.ServiceAccount = o.identityPolicy().ServiceAccountOf(work)
	return life.FingerprintWork(&as)
}

// assignments reads what Cleaners are to do.
func (r *CleanerReconciler) assignments() resolvedspec.Reader {
	return resolvedspec.Reader{Client: r.client}
}

// fingerprintOf is the fingerprint of what a Cleaner is to do now.
func (r *CleanerReconciler) fingerprintOf(ctx context.Context, c v1alpha1.Owner) (string, error) {
	now, err := r.assignments().ReadAssignment(ctx, c)
	if err != nil {
		return "", err
	}
	return r.opts.fingerprintWork(now.Work)
}

// clientsBySpec returns the clients of the account in the current spec. Nothing is evaluated and nothing begins with any others: the
// author has not answered for the account that an open run was begun with.
func (r *CleanerReconciler) clientsBySpec(c v1alpha1.Owner, a *resolvedspec.Assignment, mem *memory) (*clients.Set, error) {
	return r.clientsOf(r.opts.identityPolicy().AccountBySpec(c, a.Work), mem)
}

// clientsForRun are the clients with which an open run is carried on: those of the account by the spec, or, for a run that is
// stopped, those with which it was begun.
func (r *CleanerReconciler) clientsForRun(c v1alpha1.Owner, a *resolvedspec.Assignment, mem *memory) (*clients.Set, error) {
	account := r.opts.identityPolicy().AccountBySpec(c, a.Work)
	if run := c.State().Run; run != nil && run.Result == "" {
		fingerprint, err := mem.fingerprintWork(a, &r.opts)
		if err != nil {
			return nil, err
		}
		if fingerprint != run.Decides {
			account = identity.ParseRecorded(c, run.ServiceAccountName)
		}
	}
	return r.clientsOf(account, mem)
}

// useClients has the pass read and act with clients. They read targets of all kinds as those kinds that the author and the account may clean.
func (p *pass) useClients(set *clients.Set, err error) error {
	if p.clients, p.kinds = set, nil; err != nil || len(p.assignment.Work.ListAnyKind()) == 0 {
		return err
	}
	s := anykinds.Subjects{Cleaner: p.store.Key, Account: set.Account, Verbs: rights.ListKindVerbs(p.assignment.Work)}
	if who, known, _ := p.r.opts.identityPolicy().FindAuthor(p.store.Ring, p.store.Stored, set.Account); known {
		s.Author = new(identity.SubjectOfAuthor(who.Author))
	}
	p.kinds = p.r.kinds.Begin(s)
	expanded := *set
	expanded.Watched, expanded.Live = snapshot.ExpandKinds(set.Watched, p.kinds), snapshot.ExpandKinds(set.Live, p.kinds)
	p.clients = &expanded
	return nil
}

// clientsOf are the clients of an account. They are kept while they are the same.
func (r *CleanerReconciler) clientsOf(account identity.Account, mem *memory) (*clients.Set, error) {
	if account.IsOperator() {
		return r.own, nil
	}
	if mem.clients == nil || mem.clients.Account != account {
		made, err := r.clients.SetOf(account)
		if err != nil {
			return nil, err
		}
		mem.clients = made
	}
	return mem.clients, nil
}
