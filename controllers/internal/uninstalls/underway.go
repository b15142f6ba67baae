// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstalls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/signing"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// firstLook and lastLook bound how soon a release is looked at again whose hooks have not ended, or whose objects are not gone: doubled each time.
	firstLook = time.Second
	lastLook  = time.Minute
)

// Begun is a release whose uninstall a rule has begun.
type Begun struct {
	signedrecords.RuleMark
	Namespace, Release string

	// due is when it is looked at next, and wait how long it was not looked at before that.
	due  time.Time
	wait time.Duration
	// reason is a reason of conditions for which it is not at its end, and why says that in words; empty if it was not looked at.
	reason, why string
}

// Name names the release in messages.
func (b *Begun) Name() string { return observed.FormatName("release", b.Namespace, b.Release) }

// Attempt is what an attempt to finish an uninstall came to.
type Attempt struct {
	Begun
	// Ended says that nothing more is done: the release is gone, or it is no longer the one whose uninstall was begun.
	Ended bool
	// Uninstalled says that the release is gone.
	Uninstalled bool
	// Reason is a reason of conditions, and Why says in words why it has not come to its end, or why it ended.
	Reason, Why string
	// Progressed says that something was deleted or created.
	Progressed bool
	// Deleted is how many objects and records were deleted, and Kept how many objects were left on purpose.
	Deleted, Kept int
	Actions       []v1alpha1.Action
}

// UnderWay are the releases of a Cleaner whose uninstall its rules have begun, as far as this process knows. The zero value knows none. Only the
// pass over the Cleaner touches it.
type UnderWay struct {
	begun map[types.UID]*Begun
	// searched says that it was looked for what another process has begun.
	searched bool
	// attempts receives what a job has come to, while one runs.
	attempts chan []Attempt
	running  bool
}

// IsFull says that no other uninstall may begin.
func (u *UnderWay) IsFull() bool { return len(u.begun) >= plan.MaxUninstalls }

// AddBegun adds a release, which is looked at from a moment on.
func (u *UnderWay) AddBegun(b Begun, due time.Time) {
	if u.begun == nil {
		u.begun = map[types.UID]*Begun{}
	}
	if u.begun[b.Record] == nil {
		b.due = due
		u.begun[b.Record] = &b
	}
}

// NoteStarted adds a release whose uninstall has just begun.
func (u *UnderWay) NoteStarted(b Begun, now time.Time) { u.AddBegun(b, now.Add(firstLook)) }

// ListRecords lists the Secrets of the releases; nil if there are none.
func (u *UnderWay) ListRecords() map[types.UID]bool {
	if len(u.begun) == 0 {
		return nil
	}
	out := make(map[types.UID]bool, len(u.begun))
	for uid := range u.begun {
		out[uid] = true
	}
	return out
}

// list lists the releases by their names.
func (u *UnderWay) list() []*Begun {
	return slices.SortedFunc(maps.Values(u.begun), func(a, b *Begun) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Release, b.Release), cmp.Compare(a.Record, b.Record))
	})
}

// NextAttempt is when a release is due that is not yet; zero if none is, or while a job runs, which wakes the Cleaner.
func (u *UnderWay) NextAttempt(now time.Time) (at time.Time) {
	if u.running {
		return time.Time{}
	}
	for _, b := range u.begun {
		if b.due.After(now) {
			at = monotime.ChooseEarlier(at, b.due)
		}
	}
	return at
}

// TakeDue returns the releases that are due, those first that wait longest, and where the job that looks at them sends what it came to. There are
// none while a job runs.
func (u *UnderWay) TakeDue(now time.Time) ([]Begun, chan<- []Attempt) {
	due := u.listDue(now)
	if len(due) == 0 {
		return nil, nil
	}
	u.attempts, u.running = make(chan []Attempt, 1), true
	return due, u.attempts
}

// HasDue says that a release is due, and that no job runs.
func (u *UnderWay) HasDue(now time.Time) bool { return len(u.listDue(now)) > 0 }

func (u *UnderWay) listDue(now time.Time) (due []Begun) {
	if u.running {
		return nil
	}
	for _, b := range u.list() {
		if !now.Before(b.due) {
			due = append(due, *b)
		}
	}
	slices.SortStableFunc(due, func(a, b Begun) int { return a.due.Compare(b.due) })
	return due
}

// HasAttempts says that a job has ended.
func (u *UnderWay) HasAttempts() bool { return len(u.attempts) > 0 }

// ReceiveAttempts takes what a job has come to, and returns the attempts; nil if none has ended.
func (u *UnderWay) ReceiveAttempts(now time.Time) []Attempt {
	select {
	case attempts := <-u.attempts:
		u.running = false
		for i := range attempts {
			u.noteAttempt(&attempts[i], now)
		}
		return attempts
	default:
		return nil
	}
}

// noteAttempt records what an attempt came to.
func (u *UnderWay) noteAttempt(a *Attempt, now time.Time) {
	b := u.begun[a.Record]
	switch { // it may have been forgotten meanwhile
	case b == nil:
	case a.Ended:
		delete(u.begun, a.Record)
	default:
		switch b.reason, b.why = a.Reason, a.Why; {
		case a.Progressed:
			b.wait = firstLook
		case a.Reason == v1alpha1.ReasonUninstalling:
			b.wait = min(max(2*b.wait, firstLook), lastLook)
		default:
			b.wait = backoff.DoubleWait(b.wait)
		}
		b.due = now.Add(b.wait)
	}
}

// LookAgain has all releases be looked at at once: their author asks for it.
func (u *UnderWay) LookAgain() {
	for _, b := range u.begun {
		b.due, b.wait = time.Time{}, 0
	}
}

// DescribeIn returns a plan that says of what is under way, if it has nothing to say that a person must know first.
func (u *UnderWay) DescribeIn(p plan.Plan, now time.Time) plan.Plan {
	if len(u.begun) == 0 || p.Verdict == v1alpha1.VerdictInvalid {
		return p
	}
	p.Next = monotime.ChooseEarlier(p.Next, u.NextAttempt(now))
	for _, b := range u.list() {
		if b.reason != "" && b.reason != v1alpha1.ReasonUninstalling && p.DeferReason == "" {
			p.DeferReason, p.DeferDetail = b.reason, fmt.Sprintf("%s: %s", b.Name(), b.why)
		}
	}
	if p.Reason != v1alpha1.ReasonNothingToDo && p.Reason != v1alpha1.ReasonHolding {
		return p
	}
	if reason, message := p.FindTrouble(); reason != "" {
		p.Reason, p.Message = reason, message
		return p
	}
	first := u.list()[0]
	p.Reason, p.Message = v1alpha1.ReasonUninstalling, fmt.Sprintf("%s is being uninstalled", upperFirst(first.Name()))
	if more := len(u.begun) - 1; more > 0 {
		p.Message += fmt.Sprintf(", and %d more", more)
	}
	if first.why != "" {
		p.Message += ": " + first.why
	}
	p.Message += "."
	return p
}

func upperFirst(text string) string { return "R" + text[1:] } // of a name that begins with "release"

// FindBegun looks once for the uninstalls that another process has begun for a Cleaner: by its marks on the Secrets of its targets of releases,
// whatever else those select. While that fails, it is tried again; meanwhile a step that wants such a release finds the mark too.
func (u *UnderWay) FindBegun(ctx context.Context, live snapshot.Reader, ring signing.Ring, c v1alpha1.Owner, work *v1alpha1.Work, now time.Time) error {
	if u.searched || !work.UninstallsForRules() {
		return nil
	}
	for i := range work.Targets {
		if !work.Targets[i].IsOfReleases() {
			continue
		}
		query, err := newMarkedQuery(c.GetNamespace(), &work.Targets[i])
		if err != nil {
			return err
		}
		seen := live.Read(ctx, query)
		if seen.State != observed.Complete {
			return errors.New(cmp.Or(seen.Detail, seen.State.String()))
		}
		for n := range seen.Objects {
			o := &seen.Objects[n]
			release, revision, ok := o.ReadRevision()
			if !ok {
				continue
			}
			mark := observed.NestedString(o.Value, "metadata", "annotations", v1alpha1.AnnotationUninstall)
			if m, ours := signedrecords.ReadRuleMark(ring, c, o.UID, revision, mark); ours {
				u.AddBegun(Begun{RuleMark: m, Namespace: o.Namespace, Release: release}, now)
			}
		}
	}
	u.searched = true
	return nil
}

// newMarkedQuery asks for the newest records of releases that are being uninstalled, in the namespaces of a target.
func newMarkedQuery(namespace string, t *v1alpha1.ClusterTarget) (snapshot.Query, error) {
	marked := *t.HelmReleases
	marked.HelmReleases = v1alpha1.HelmReleases{MatchLabels: map[string]string{"status": "uninstalling"}}
	return snapshot.NewQuery(namespace, &v1alpha1.ClusterTarget{Name: t.Name, HelmReleases: &marked, Reference: marked.Reference()})
}
