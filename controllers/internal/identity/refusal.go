// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/signing"
)

// shownRights is how many missing rights a message lists.
const shownRights = 5

// Policy is what an administrator sets: with which accounts the operator acts, and for which Cleaners.
type Policy struct {
	// DefaultServiceAccount is the one of each Cleaner's namespace as which the operator acts for Cleaners that name none;
	// empty: it acts as itself.
	DefaultServiceAccount string
	// ActWithoutAuthor lets Cleaners whose author is not known act.
	ActWithoutAuthor bool
}

// ServiceAccountOf returns the ServiceAccount with which the operator acts for a spec; nil if the operator acts as itself.
func (p Policy) ServiceAccountOf(work *v1alpha1.Work) *v1alpha1.ServiceAccountReference {
	if work.ServiceAccount == nil && !work.Cluster && p.DefaultServiceAccount != "" {
		return &v1alpha1.ServiceAccountReference{Name: p.DefaultServiceAccount}
	}
	return work.ServiceAccount
}

// RecordedName is how an account stands in a run of a Cleaner: by its name, if it is of the Cleaner's namespace.
func (a Account) RecordedName(c v1alpha1.Owner) string {
	if a.IsOperator() || a.Namespace == c.GetNamespace() {
		return a.Name
	}
	return a.Namespace + "/" + a.Name
}

// ParseRecorded reads what RecordedName wrote.
func ParseRecorded(c v1alpha1.Owner, s string) Account {
	if namespace, name, ok := strings.Cut(s, "/"); ok && c.GetNamespace() == "" {
		return Account{Namespace: namespace, Name: name}
	}
	if s == "" {
		return Account{}
	}
	return Account{Namespace: c.GetNamespace(), Name: s}
}

// AccountBySpec is the account as which the operator acts for what a Cleaner is to do now.
func (p Policy) AccountBySpec(c v1alpha1.Owner, work *v1alpha1.Work) Account {
	as := p.ServiceAccountOf(work)
	if as == nil {
		return Account{}
	}
	return Account{Namespace: cmp.Or(as.Namespace, c.GetNamespace()), Name: as.Name}
}

// Refusal says why nothing may be done for a Cleaner. The zero Refusal lets it be done.
type Refusal struct{ Reason, Message string }

// IsRefusal says that something is refused.
func (f Refusal) IsRefusal() bool { return f.Reason != "" }

// AsPhrase is the message as a part of another one.
func (f Refusal) AsPhrase() string { return strings.TrimSuffix(f.Message, ".") }

// FindAuthor says who has to have the rights. While that is not known, it says why nothing may be done, if so.
func (p Policy) FindAuthor(ring signing.Ring, c v1alpha1.Owner, account Account) (who author.Stored, known bool, f Refusal) {
	who, err := author.Read(ring, c)
	switch {
	case err == nil, errors.Is(err, author.ErrKeyLost) && !account.IsOperator() && !p.ActWithoutAuthor:
		// The rights of the account decide what is done. Whether the author may name it is asked of the one whom the annotation
		// names, for whom only the policy vouches where the key is lost.
		return who, true, Refusal{}
	case p.ActWithoutAuthor:
	default:
		f = Refusal{v1alpha1.ReasonAuthorMissing, withoutAuthor(c, err)}
	}
	return who, false, f
}

// ReviewAuthor says why nothing may be done for an author, if some rights are missing.
func (a *Authors) ReviewAuthor(ctx context.Context, namespace string, who author.Stored, needed []rights.Right) Refusal {
	missing, err := a.FindMissingRights(ctx, namespace, who.Author, needed)
	switch {
	case err != nil:
		return Refusal{v1alpha1.ReasonAuthorLacksRights, fmt.Sprintf("Cannot determine the rights of the author, %s: %s.", who, err)}
	case len(missing) > 0:
		return Refusal{v1alpha1.ReasonAuthorLacksRights, DescribeLack("The author of the spec, "+who.String()+",", missing)}
	}
	return Refusal{}
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
		begin += "the author annotation is not signed for this spec"
	case errors.Is(why, author.ErrKeyLost):
		begin += "the author annotation is signed with a key that the operator no longer has"
	default:
		begin += "no author is stored"
	}
	return fmt.Sprintf(`%s. To become its author, review it and run "kubectl cleaner run %s/%s%s --become-author".`, begin, kind, c.GetName(), where)
}

// DescribeLack returns a sentence with the rights that a user or account lacks.
func DescribeLack(who string, missing []rights.Right) string {
	var lines []string
	for _, r := range missing[:min(len(missing), shownRights)] {
		lines = append(lines, r.String())
	}
	if more := len(missing) - shownRights; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%s is not allowed to %s.", who, strings.Join(lines, "; "))
}
