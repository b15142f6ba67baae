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
	// maxActive is how many releases may be under way before others begin. Those that have long made no progress do not count, or they would stop
	// all others; maxUnderWay counts them too. Of one namespace there may be a part of them.
	maxActive, maxActiveOfNamespace     = 16, 8
	maxUnderWay, maxUnderWayOfNamespace = 256, 64
	// markLands is how long after it was sent a mark may still be written.
	markLands = 90 * time.Second
)

// Begun is a release whose uninstall a rule has begun.
type Begun struct {
	signedrecords.RuleMark
	Namespace, Release string

	// since is when this process has known of it first, due when it is looked at next, and wait how long it was not looked at before that.
	since, due time.Time
	wait       time.Duration
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
	// Uninstalled says that the uninstall is complete, and Gone that the release was found gone.
	Uninstalled, Gone bool
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
	// asked is when the Cleaner asked last what is due.
	asked time.Time
	// said says that the status speaks of uninstalls, and failing names the release whose uninstall fails, as it says.
	said    bool
	failing string
	// attempts receives what a job has come to, while one runs.
	attempts chan []Attempt
	running  bool
}

// IsFull says that no other uninstall may begin in a namespace.
func (u *UnderWay) IsFull(namespace string) bool {
	active, activeHere, here := 0, 0, 0
	for _, b := range u.begun {
		if b.Namespace == namespace {
			here++
		}
		if b.wait >= lastLook {
			continue
		}
		if active++; b.Namespace == namespace {
			activeHere++
		}
	}
	return active >= maxActive || len(u.begun) >= maxUnderWay || activeHere >= maxActiveOfNamespace || here >= maxUnderWayOfNamespace
}

// AddBegun adds a release that is found to be under way. Until it makes progress, it may be one that makes none.
func (u *UnderWay) AddBegun(b Begun, now time.Time) {
	b.wait = lastLook
	u.addAt(b, now, now)
}

// NoteStarted adds a release whose uninstall has just begun.
func (u *UnderWay) NoteStarted(b Begun, now time.Time) { u.addAt(b, now, now.Add(firstLook)) }

func (u *UnderWay) addAt(b Begun, now, due time.Time) {
	if u.begun == nil {
		u.begun = map[types.UID]*Begun{}
	}
	if u.begun[b.Record] == nil {
		b.since, b.due = now, due
		u.begun[b.Record] = &b
	}
}

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

// NextAttempt is when a release is due that was not when the Cleaner asked last: maybe by now. It is zero if none is, or while a job runs, which
// wakes the Cleaner.
func (u *UnderWay) NextAttempt() (at time.Time) {
	if u.running {
		return time.Time{}
	}
	for _, b := range u.begun {
		if b.due.After(u.asked) {
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

// AskDue says whether a release is due, and no job runs.
func (u *UnderWay) AskDue(now time.Time) bool {
	u.asked = now
	return len(u.listDue(now)) > 0
}

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
	turns, turn := map[string]int{}, make(map[types.UID]int, len(due)) // one of each namespace first
	for i := range due {
		turn[due[i].Record] = turns[due[i].Namespace]
		turns[due[i].Namespace]++
	}
	rank := func(b *Begun) int { // those that have long made no progress come last
		if b.wait >= lastLook {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(due, func(a, b Begun) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(turn[a.Record], turn[b.Record]))
	})
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
		b.due = time.Time{}
	}
}

// DescribeIn returns a plan that says of what is under way, if it has nothing to say that a person must know first. Paused says that nothing is done
// for the Cleaner.
func (u *UnderWay) DescribeIn(p plan.Plan, paused bool) plan.Plan {
	u.failing = ""
	if u.said = len(u.begun) > 0 && p.Verdict != v1alpha1.VerdictInvalid; !u.said {
		return p
	}
	if paused {
		p.Message += fmt.Sprintf(" Partly uninstalled: %s.", u.nameSome())
		return p
	}
	p.Next = monotime.ChooseEarlier(p.Next, u.NextAttempt())
	if stuck := u.findStuck(); stuck != nil && p.DeferReason == "" {
		u.failing = stuck.Name()
		p.DeferReason, p.DeferDetail = stuck.reason, fmt.Sprintf("%s: %s", stuck.Name(), stuck.why)
	}
	if p.Reason != v1alpha1.ReasonNothingToDo && p.Reason != v1alpha1.ReasonHolding {
		return p
	}
	if reason, message := p.FindTrouble(); reason != "" {
		p.Reason, p.Message = reason, message
		return p
	}
	p.Reason, p.Message = v1alpha1.ReasonUninstalling, u.describeFirst()
	return p
}

// Scheduled is what the status says of uninstalls while the Cleaner waits for its schedule.
type Scheduled struct {
	// Reason and Message are for Ready; empty if the status need not change.
	Reason, Message string
	// Failing names the release whose uninstall fails, as the status says so far; empty if it says no such thing.
	Failing string
}

// DescribeScheduled says what is under way while the Cleaner waits for its schedule: what DescribeIn says of a plan that does nothing.
func (u *UnderWay) DescribeScheduled(paused bool) Scheduled {
	out, before := Scheduled{Failing: u.failing}, u.said
	p := u.DescribeIn(plan.Plan{Reason: v1alpha1.ReasonNothingToDo, Message: "Waiting for the next scheduled time."}, paused)
	if !before && !u.said {
		return out
	}
	if out.Reason, out.Message = p.Reason, p.Message; p.Reason == v1alpha1.ReasonNothingToDo {
		out.Reason = v1alpha1.ReasonWaitingForSchedule
	}
	return out
}

// findStuck returns the first release whose uninstall fails; nil if there is none.
func (u *UnderWay) findStuck() *Begun {
	all := u.list()
	if i := slices.IndexFunc(all, func(b *Begun) bool { return b.reason != "" && b.reason != v1alpha1.ReasonUninstalling }); i >= 0 {
		return all[i]
	}
	return nil
}

// describeFirst says what the first release waits for, and whether others wait for it.
func (u *UnderWay) describeFirst() string {
	first := u.list()[0]
	message := "Being uninstalled: " + u.nameSome()
	if first.why != "" {
		message += ": " + first.why
	}
	if message += "."; u.IsFull(first.Namespace) {
		message += " Other releases wait until one of these is gone."
	}
	return message
}

// nameSome names the first release, and says how many more there are.
func (u *UnderWay) nameSome() string {
	name := u.list()[0].Name()
	if more := len(u.begun) - 1; more > 0 {
		return fmt.Sprintf("%s, and %d more", name, more)
	}
	return name
}

// FindBegun looks once for the uninstalls that another process has begun for a Cleaner: by its marks on the Secrets of its targets of releases,
// whatever else those select, even if no rule uninstalls releases now. While that fails, it is tried again; meanwhile a step that wants such a release
// finds the mark too.
func (u *UnderWay) FindBegun(ctx context.Context, live snapshot.Reader, ring signing.Ring, c v1alpha1.Owner, work *v1alpha1.Work, now time.Time) error {
	if u.searched {
		return nil
	}
	var failed []error
	for i := range work.Targets {
		if !work.Targets[i].IsOfReleases() {
			continue
		}
		query, err := newMarkedQuery(c.GetNamespace(), &work.Targets[i])
		if err != nil {
			failed = append(failed, err)
			continue
		}
		seen := live.Read(ctx, query)
		if seen.State != observed.Complete {
			failed = append(failed, errors.New(cmp.Or(seen.Detail, seen.State.String())))
			continue
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
	u.searched = len(failed) == 0
	return errors.Join(failed...)
}

// newMarkedQuery asks for the newest records of releases that are being uninstalled, in the namespaces of a target.
func newMarkedQuery(namespace string, t *v1alpha1.ClusterTarget) (snapshot.Query, error) {
	marked := *t.HelmReleases
	marked.HelmReleases = v1alpha1.HelmReleases{MatchLabels: map[string]string{"status": "uninstalling"}}
	return snapshot.NewQuery(namespace, &v1alpha1.ClusterTarget{Name: t.Name, HelmReleases: &marked, Reference: marked.Reference()})
}
