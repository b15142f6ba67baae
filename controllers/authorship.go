// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/shown"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/signing"
)

const (
	// atRest is how soon an author's rights are reviewed again while no use is made of them.
	atRest = time.Hour
	// authorRetry is how soon it is asked again whether an author may do what was missing.
	authorRetry = 30 * time.Second
	// shownRights is how many missing rights a status lists.
	shownRights = 5
)

// refusal says why nothing may be done for a Cleaner. The zero refusal lets it be done.
type refusal struct{ reason, message string }

func (f refusal) isRefusal() bool { return f.reason != "" }

// asPhrase is the message as a part of another one.
func (f refusal) asPhrase() string { return strings.TrimSuffix(f.message, ".") }

// authority says what may be done for a Cleaner: by whose word, what its author may do, and as whom.
type authority struct {
	*sight
	*journal
	mem *memory
}

// checkOwnership makes sure that what the operator reads back about the Cleaner is its own words: the record of its runs, and its
// author. Nothing of a record is used before.
func (p *authority) checkOwnership(ctx context.Context) (refusal, error) {
	ring, err := p.r.keys.CurrentRing()
	if err != nil {
		return refusal{v1alpha1.ReasonSigningKeyMissing, fmt.Sprintf("The operator cannot verify its own records and does nothing: %s.", err)}, nil
	}
	p.ring = ring
	switch current, err := p.believeRecord(); {
	case err != nil:
		if err := p.replaceRecord(ctx); err != nil {
			return refusal{}, fmt.Errorf("cannot replace the record of runs in status, which is not the last one that this operator has signed: %w", err)
		}
	case !current:
		p.renewRecord(ctx)
	}
	if p.hands, err = p.r.handsForRun(p.c, &p.assignment, p.mem); err != nil {
		return refusal{}, err
	}
	p.renewAuthor(ctx)
	return refusal{}, nil
}

// findRefusal says why nothing may be done for the Cleaner now: the account that it acts as is not there, or its author may not
// do it. The rights that a release needs are asked about too.
func (p *authority) findRefusal(ctx context.Context, release *plan.Release) refusal {
	if missing := p.hands.accountMissing(ctx, p.r.own.live); missing != "" {
		return refusal{v1alpha1.ReasonAccessDenied, missing + "."}
	}
	return p.authorRefused(ctx, release)
}

// authorRefused says why nothing may be done for the Cleaner's author.
func (p *authority) authorRefused(ctx context.Context, release *plan.Release) refusal {
	who, known, refused := findAuthor(p.ring, p.read, p.hands.account, &p.r.opts)
	if !known {
		return refused
	}
	needed, unknown := p.findNeeded(ctx, release)
	if unknown != "" {
		return refusal{v1alpha1.ReasonAuthorLacksRights, unknown}
	}
	return reviewAuthor(ctx, p.r.authors, who, needed)
}

// reviewUninstall asks whether the author of the spec that there is now may uninstall the release that was looked at. The author
// may have lost the rights since the run was committed, or be another one.
func (p *authority) reviewUninstall(ctx context.Context) {
	m, now := &p.mem.run, p.r.clock.Now()
	var reviewed []rights.Right
	who, known, refused := findAuthor(p.ring, p.read, p.hands.account, &p.r.opts)
	missing := p.hands.accountMissing(ctx, p.r.own.live)
	switch {
	case missing != "":
		refused = refusal{v1alpha1.ReasonAccessDenied, missing + "."}
	case known:
		reviewed = p.uninstallNeeds(m.Release)
		refused = reviewAuthor(ctx, p.r.authors, who, reviewed)
	}
	switch {
	case refused.isRefusal():
		m.AuthorRefused(refused.reason, shown.CleanText(refused.message), p.r.clock.Now().Add(authorRetry))
	case p.hands.account.IsOperator():
		m.AuthorReviewed(reviewed, now)
	default: // the API server judges each request
		m.AuthorReviewed(nil, now)
	}
}

// uninstallNeeds are the rights that the author needs for the uninstall of the run's release. With a ServiceAccount, its rights
// decide, and the author needs the right to act as it: also as one that the run was begun with and the spec names no more.
func (p *authority) uninstallNeeds(release *plan.Release) []rights.Right {
	if a := p.hands.account; !a.IsOperator() {
		return []rights.Right{{Verb: "impersonate", Resource: "serviceaccounts", Namespace: a.Namespace, Name: a.Name}}
	}
	return release.RequiredRights(p.disablesHooks())
}

// disablesHooks says that no hooks of the release are run. Those of a spec that is not the author's any more are not.
func (p *authority) disablesHooks() bool {
	if run := p.c.State().Run; run != nil && run.Result == "" && run.Helm != nil {
		return run.Helm.DisableHooks || p.mem.decides != run.Decides
	}
	return p.work.Helm != nil && p.work.Helm.DisableHooks
}

// findAuthor says who has to have the rights. While that is not known, it says why nothing may be done, if so.
func findAuthor(ring signing.Ring, c v1alpha1.Owner, account identity.Account, o *Options) (who author.Stored, known bool, f refusal) {
	who, err := author.Read(ring, c)
	switch {
	case err == nil, errors.Is(err, author.ErrKeyLost) && !account.IsOperator() && !o.ActWithoutAuthor:
		// The rights of the account decide what is done. Whether the author may name it is asked of the one whom the annotation
		// names, for whom only the policy vouches where the key is lost.
		return who, true, refusal{}
	case o.ActWithoutAuthor:
	default:
		f = refusal{v1alpha1.ReasonAuthorMissing, withoutAuthor(c, err)}
	}
	return who, false, f
}

// reviewAuthor says why nothing may be done for an author, if some rights are missing.
func reviewAuthor(ctx context.Context, authors *identity.Authors, who author.Stored, needed []rights.Right) refusal {
	missing, err := authors.FindMissingRights(ctx, who.Author, needed)
	switch {
	case err != nil:
		return refusal{v1alpha1.ReasonAuthorLacksRights, fmt.Sprintf("Cannot determine the rights of the author, %s: %s.", who, err)}
	case len(missing) > 0:
		return refusal{v1alpha1.ReasonAuthorLacksRights, describeLack(who, missing)}
	}
	return refusal{}
}

// withoutAuthor says what to do about a spec whose author is not known.
func withoutAuthor(c v1alpha1.Owner, why error) string {
	kind := strings.ToLower(v1alpha1.KindOf(c))
	where := ""
	if ns := c.GetNamespace(); ns != "" {
		where = " -n " + ns
	}
	begin := "The author of the spec is unknown: "
	switch {
	case errors.Is(why, author.ErrForeign):
		begin += "the author annotation is not signed for it"
	case errors.Is(why, author.ErrKeyLost):
		begin += "the author annotation is signed with a key that is lost"
	default:
		begin += "no author is stored"
	}
	return fmt.Sprintf(`%s. To become its author, review it and run "kubectl cleaner run %s/%s%s".`, begin, kind, c.GetName(), where)
}

// describeLack says in words what an author may not do.
func describeLack(who author.Stored, missing []rights.Right) string {
	var lines []string
	for _, r := range missing[:min(len(missing), shownRights)] {
		lines = append(lines, r.String())
	}
	if more := len(missing) - shownRights; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("The author of the spec, %s, may not %s.", who, strings.Join(lines, "; "))
}

// findNeeded are the rights that the Cleaner makes use of now. Of kinds that are not served nothing can be used.
func (p *authority) findNeeded(ctx context.Context, release *plan.Release) (needed []rights.Right, unknown string) {
	served := make([]validation.ServedKind, len(p.work.Targets))
	for i := range p.work.Targets {
		r := &p.work.Targets[i].Reference
		found, state, detail := p.r.resolver.Resolve(ctx, r.APIGroup, r.Version, r.Kind)
		switch state {
		case plan.Complete:
			served[i] = validation.ServedKind{Resource: found.GVR.Resource, Namespaced: found.Namespaced}
		case plan.NoSuchKind:
		default:
			return nil, fmt.Sprintf("Cannot check the rights of the author: %s.", detail)
		}
	}
	all := rights.ListRequired(p.c.GetNamespace(), p.work, validation.Options{
		AllowProtectedKinds: p.r.opts.AllowProtectedKinds, DefaultServiceAccount: p.r.opts.DefaultServiceAccount, Served: served,
	})
	if release != nil && p.hands.account.IsOperator() { // with a ServiceAccount, its rights decide
		all = append(all, release.RequiredRights(p.disablesHooks())...)
	}
	for _, r := range all {
		if r.Resource != plan.AllResources {
			needed = append(needed, r)
		}
	}
	return needed, ""
}
