// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package anykinds finds out which kinds the targets of kind "*" of a Cleaner stand for now: of those that the API server serves, the ones that
// the operator may watch, and that the operator, the author and the ServiceAccount may clean.
//
// It reads no object and never acts.
package anykinds

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// lookAgain is how soon the kinds of a Cleaner are found out again, if nothing changes: no event announces a right.
	lookAgain = identity.KindDeniedTTL
	// ownServes is for how long the operator's own rights are used again, and maxOwn of how many namespaces they are kept.
	ownServes = time.Minute
	maxOwn    = 1024
)

// Options are what a Finder is made of.
type Options struct {
	// Namespace is the operator's own: its rights there are a superset of those that it has in all namespaces.
	Namespace string
	Kinds     *served.Directory
	// Watched says which CustomResourceDefinitions there are.
	Watched snapshot.Reader
	Reviews *identity.KindReviews
	Own     rights.RulesReviews
	Clock   clock.PassiveClock
}

// Finder finds kinds for all Cleaners. It is safe for concurrent use.
type Finder struct {
	Options
	selections *selections

	mu  sync.Mutex
	own map[string]ownRights
}

type ownRights struct {
	*rights.Own
	until time.Time
}

// NewFinder makes a Finder.
func NewFinder(o Options) *Finder {
	return &Finder{Options: o, selections: newSelections(o.Clock), own: map[string]ownRights{}}
}

// Subjects are those who must be allowed what a Cleaner does, besides the operator.
type Subjects struct {
	// Cleaner is whose targets they are.
	Cleaner types.NamespacedName
	// Author is nil where none is needed.
	Author  *rights.Subject
	Account identity.Account
	// Verbs are what is done with each kind.
	Verbs []string
}

// Begin returns what finds the kinds of the targets of one Cleaner, each once, for one pass.
func (f *Finder) Begin(s Subjects) *Kinds {
	return &Kinds{finder: f, subjects: s, found: map[string]*found{}}
}

// Kinds are those of one Cleaner in one pass.
type Kinds struct {
	finder   *Finder
	subjects Subjects

	mu    sync.Mutex
	found map[string]*found
	bound anykind.Bound
	until time.Time
}

var _ snapshot.KindsFinder = (*Kinds)(nil)

type found struct {
	kinds   []anykind.Kind
	skipped []anykind.Skipped
	err     error
}

// FindKinds returns the kinds that a query of a target stands for, and which are skipped.
func (k *Kinds) FindKinds(ctx context.Context, q *snapshot.Query) ([]anykind.Kind, []anykind.Skipped, error) {
	key := makeKey(q)
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.found[key]
	if known == nil {
		known = &found{}
		known.kinds, known.skipped, known.err = k.findKinds(ctx, q)
		if known.err == nil {
			k.finder.selections.keep(k, key, known.kinds)
		}
		if ctx.Err() == nil {
			k.found[key] = known
		}
	}
	return known.kinds, known.skipped, known.err
}

// makeKey names a query among those of a Cleaner.
func makeKey(q *snapshot.Query) string {
	return strings.Join([]string{q.Namespace, strings.Join(q.Namespaces.Names, " "), fmt.Sprint(q.Kinds.NamespacedOnly), strings.Join(q.Kinds.Exclude, " "), q.Labels.String(), q.Annotations}, "\n")
}

// ExpandQuery returns what the operator watches for the query of a target: of all kinds a query for each, and the definitions of kinds, so that the
// Cleaner hears of those that come and go; otherwise the query.
func (k *Kinds) ExpandQuery(ctx context.Context, q *snapshot.Query) []snapshot.Query {
	if q.Kind != v1alpha1.AnyKind || k == nil {
		return []snapshot.Query{*q}
	}
	all := []snapshot.Query{served.NewDefinitionQuery("")}
	kinds, _, err := k.FindKinds(ctx, q)
	if err != nil { // the read of the target says so, and what is watched stays
		kinds = k.finder.selections.findLast(k, makeKey(q))
	}
	for i := range kinds {
		all = append(all, q.OfKind(&kinds[i]))
	}
	return all
}

// NextCheck returns when the kinds should be found out again; zero if no target asked for them.
func (k *Kinds) NextCheck() time.Time {
	if k == nil {
		return time.Time{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.until
}

// findKinds narrows the kinds that are served step by step: what costs no request comes first.
func (k *Kinds) findKinds(ctx context.Context, q *snapshot.Query) (kinds []anykind.Kind, skipped []anykind.Skipped, err error) {
	f := k.finder
	all, unknown, until, err := f.Kinds.ListKinds(ctx, f.Watched.Read(ctx, served.NewDefinitionQuery("")))
	k.until = monotime.ChooseEarlier(k.until, monotime.ChooseEarlier(until, f.Clock.Now().Add(lookAgain)))
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			k.until = monotime.ChooseEarlier(k.until, f.Clock.Now().Add(rights.RetryAfter))
		}
	}()
	namespace := q.Kinds.FindReviewedNamespace()
	kinds, denied, err := f.splitByOwn(ctx, anykind.SelectKinds(all, q.Kinds), namespace, k.listOwnVerbs())
	if err != nil {
		return nil, nil, err
	}
	kinds, others := k.bound.Take(kinds, q.Kinds)
	others = append(others, anykind.Skip(denied, "the operator is not allowed to "+rights.DescribeVerbs(k.listOwnVerbs()))...)
	for _, group := range unknown {
		others = append(others, anykind.Skipped{GroupResource: group, Reason: "the API server cannot say now which kinds the group has; those that were known stay"})
	}
	if who := k.subjects.Author; who != nil {
		if kinds, denied, err = f.Reviews.SplitKinds(ctx, k.subjects.Cleaner.String(), *who, kinds, namespace, k.subjects.Verbs); err != nil {
			return nil, nil, err
		}
		skipped = append(skipped, anykind.Skip(denied, "the author is not allowed to "+rights.DescribeVerbs(k.subjects.Verbs))...)
	}
	if a := k.subjects.Account; !a.IsOperator() {
		if kinds, denied, err = f.Reviews.SplitKinds(ctx, k.subjects.Cleaner.String(), identity.SubjectOfAccount(a), kinds, namespace, k.subjects.Verbs); err != nil {
			return nil, nil, err
		}
		skipped = append(skipped, anykind.Skip(denied, fmt.Sprintf("%s is not allowed to %s", a, rights.DescribeVerbs(k.subjects.Verbs)))...)
	}
	return kinds, append(skipped, others...), nil // first what the author can do something about
}

// listOwnVerbs lists the verbs that the operator itself needs.
func (k *Kinds) listOwnVerbs() []string {
	return rights.ListWatchVerbs(k.subjects.Verbs, k.subjects.Account.IsOperator())
}

// splitByOwn divides kinds by what the operator may do, with one review for all of them.
func (f *Finder) splitByOwn(ctx context.Context, kinds []anykind.Kind, namespace string, verbs []string) (may, denied []anykind.Kind, err error) {
	if namespace == "" {
		namespace = f.Namespace
	}
	own, err := f.listOwn(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	may, denied = anykind.Split(kinds, func(k *anykind.Kind) bool { return own.MayHave(k, verbs) })
	return may, denied, nil
}

func (f *Finder) listOwn(ctx context.Context, namespace string) (*rights.Own, error) {
	now := f.Clock.Now()
	f.mu.Lock()
	known := f.own[namespace]
	f.mu.Unlock()
	if now.Before(known.until) {
		return known.Own, nil
	}
	own, err := rights.ListOwn(ctx, f.Own, namespace)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.own) >= maxOwn {
		clear(f.own)
	}
	f.own[namespace] = ownRights{own, now.Add(ownServes)}
	return own, nil
}
