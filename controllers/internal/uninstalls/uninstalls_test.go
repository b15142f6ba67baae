// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstalls

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/signing"
)

var (
	now   = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	alice = author.Author{Username: "alice", Groups: []string{"team"}}
)

// leading is a Lease that is fresh, or not.
type leading bool

// Fresh says that this process leads.
func (l leading) Fresh() bool { return bool(l) }

// newTestJob is the job of a Cleaner that alice has written, which the watch knows as it was changed.
func newTestJob(t *testing.T, by author.Author, change func(c *v1alpha1.Cleaner)) *Job {
	t.Helper()
	ring, err := signing.NewRing([]signing.Key{signing.NewKey(now)}, signing.RotationPolicy{}, now)
	if err != nil {
		t.Fatal(err)
	}
	c := &v1alpha1.Cleaner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "uid", CreationTimestamp: metav1.NewTime(now)},
		Spec:       v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}},
	}
	written, err := author.Sign(ring, c, by, now)
	if err != nil {
		t.Fatal(err)
	}
	c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: written}
	if change != nil {
		change(c)
	}
	return &Job{
		Environment: Environment{
			Clock: clocktesting.NewFakePassiveClock(now), Lease: leading(true), FinishGrace: time.Minute, SuspectClock: func() string { return "" },
			FindCleaner: func(context.Context, types.NamespacedName) (v1alpha1.Owner, error) { return c, nil },
			Fingerprint: func(_ context.Context, c v1alpha1.Owner) (string, error) { return life.FingerprintWork(c.Work()) },
			Wake:        func(types.NamespacedName) {},
		},
		Key: types.NamespacedName{Namespace: "shop", Name: "c"}, UID: "uid", Run: 3, Author: alice, Ring: ring, ReviewedAt: now, ConfirmedAt: now, Start: true,
		Log: logr.Discard(),
	}
}

// TestAPanicEndsAnUninstall shows that a Cleaner does not wait for ever for an uninstall that ended by a panic.
func TestAPanicEndsAnUninstall(t *testing.T) {
	ended, woken := make(chan End, 1), 0
	job := &Job{Environment: Environment{Wake: func(types.NamespacedName) { woken++ }}, Run: 3, Ended: ended} // without clients
	job.Do(t.Context())
	if len(ended) != 1 {
		t.Fatal("it does not say how it ended")
	}
	if woken != 1 {
		t.Errorf("it wakes its Cleaner %d times", woken)
	}
	if end := <-ended; end.Run != 3 || end.Uninstalled || !strings.HasPrefix(end.Why, "panic: ") {
		t.Errorf("it ended with %+v", end)
	}
}

// TestAnUninstallAsksAgainAboutItsAuthor shows that a try to uninstall a release ends when what was found out about the author is
// too old, or about somebody else.
func TestAnUninstallAsksAgainAboutItsAuthor(t *testing.T) {
	for name, tc := range map[string]struct {
		age    time.Duration
		change func(*v1alpha1.Cleaner)
		author author.Author
		want   error
	}{
		"Fresh":   {0, nil, alice, nil},
		"Old":     {reviewServes, nil, alice, errStale},
		"Another": {0, nil, author.Author{Username: "bob"}, errStale},
		"Edited":  {0, func(c *v1alpha1.Cleaner) { c.Spec.Conditions = nil }, alice, errStale},
		"Deleted": {0, func(c *v1alpha1.Cleaner) { c.Generation, c.DeletionTimestamp = 2, &metav1.Time{Time: now} }, alice, nil},
	} {
		t.Run(name, func(t *testing.T) {
			job := newTestJob(t, tc.author, tc.change)
			job.ReviewedAt = now.Add(-tc.age)
			g := &uninstallGuard{Job: job, ctx: t.Context()}
			for verb, ask := range map[string]func(observed.Ref) error{"delete": g.MayDelete, "run a hook": g.MayRunHook, "note": g.MayNote} {
				if err := ask(observed.Ref{}); !errors.Is(err, tc.want) {
					t.Errorf("to %s: got %v, want %v", verb, err, tc.want)
				}
			}
		})
	}
}

// TestWhatKeepsAnUninstallFromItsNextRequest shows what is asked before each request, of a release that is to be marked and of one that
// was begun.
func TestWhatKeepsAnUninstallFromItsNextRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		change         func(c *v1alpha1.Cleaner)
		here           func(j *Job)
		start, proceed string // why not; empty: it may
	}{
		"Nothing": {},
		"Edited":  {change: func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"false"} }, start: "the spec was edited", proceed: errStale.Error()},
		"Deleted": {change: func(c *v1alpha1.Cleaner) { c.DeletionTimestamp = &metav1.Time{Time: now} }, start: "the Cleaner was deleted"},
		"DeletedLongAgo": {
			change: func(c *v1alpha1.Cleaner) { c.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Minute)} }, start: "the Cleaner was deleted", proceed: "the Cleaner was deleted",
		},
		"Suspended": {change: func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }, start: "the Cleaner is suspended", proceed: "the Cleaner is suspended"},
		"Another":   {change: func(c *v1alpha1.Cleaner) { c.UID = "other" }, start: "the Cleaner is gone", proceed: "the Cleaner is gone"},
		"NotLeader": {here: func(j *Job) { j.Lease = leading(false) }, start: cleanerstore.ErrNotOwner.Error(), proceed: cleanerstore.ErrNotOwner.Error()},
		"Clock":     {here: func(j *Job) { j.SuspectClock = func() string { return "the clock" } }, start: "the clock", proceed: "the clock"},
		"Late":      {here: func(j *Job) { j.ConfirmedAt = now.Add(-life.ConfirmationServes) }, start: errStale.Error()},
		"Unmarked":  {here: func(j *Job) { j.Start = false }, start: "the release no longer has the mark of this uninstall"},
	} {
		t.Run(name, func(t *testing.T) {
			job := newTestJob(t, alice, tc.change)
			decides, err := life.FingerprintWork(newCleanerWork())
			if err != nil {
				t.Fatal(err)
			}
			if job.Decides = decides; tc.here != nil {
				tc.here(job)
			}
			g := &uninstallGuard{Job: job, ctx: t.Context()}
			for what, asked := range map[string]struct {
				err  error
				want string
			}{"start": {g.MayStart(), tc.start}, "proceed": {g.MayDelete(observed.Ref{}), tc.proceed}} {
				if (asked.err == nil) != (asked.want == "") || asked.err != nil && asked.err.Error() != asked.want {
					t.Errorf("%s: %v, want %q", what, asked.err, asked.want)
				}
			}
		})
	}
}

// TestATryHasItsTime has an API server that does not answer in time. The try ends, although it waits for nothing that it could look at, and
// gives its slot back; one that took long and did nothing is not repeated at once.
func TestATryHasItsTime(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		why   string
	}{
		"Quick": {takes: slowTry - 1},
		"Slow":  {takes: 50 * time.Second, why: "an attempt made no progress in 50s: the API server is too slow, or the release is too large"},
	} {
		t.Run(name, func(t *testing.T) {
			job := newTestJob(t, alice, nil)
			passed := clocktesting.NewFakePassiveClock(now)
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				passed.SetTime(now.Add(tc.takes))
				<-r.Context().Done()
			}))
			t.Cleanup(server.Close)
			uninstaller, err := helm.New(helm.Options{Config: &rest.Config{Host: server.URL}, Clock: clock.RealClock{}})
			if err != nil {
				t.Fatal(err)
			}
			job.Clock, job.Own, job.Clients = passed, &clients.Set{}, &clients.Set{Helm: uninstaller}
			job.Want = helm.UninstallRequest{Namespace: "shop", Name: "web"}
			job.ReviewedAt = now.Add(100*time.Millisecond - reviewServes)
			ended := make(chan End, 1)
			job.Ended = ended
			over, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if job.Do(over); over.Err() != nil {
				t.Error("it goes on")
			}
			if end := <-ended; end.Why != tc.why || end.Uninstalled {
				t.Errorf("it ended with %+v, want %q", end, tc.why)
			}
		})
	}
}

// newCleanerWork is what the Cleaner of a job was to do when its run was committed.
func newCleanerWork() *v1alpha1.Work {
	return (&v1alpha1.Cleaner{Spec: v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}}}).Work()
}

// TestDescribeEnd shows what is said of how an uninstall ended.
func TestDescribeEnd(t *testing.T) {
	ref := observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Namespace: "shop", Name: "a", UID: "1"}
	for name, tc := range map[string]struct {
		out  helm.Outcome
		err  error
		want End
	}{
		"Done":     {out: helm.Outcome{State: helm.Done}, want: End{Uninstalled: true}},
		"Stale":    {err: fmt.Errorf("asked: %w", errStale)},
		"Failed":   {err: errors.New("no\nanswer"), want: End{Why: "no answer"}},
		"Upgraded": {out: helm.Outcome{State: helm.Upgraded}, want: End{Why: "the release was upgraded, or its release Secret was modified"}},
		"Pending":  {out: helm.Outcome{State: helm.Pending}, want: End{Why: "the release is being installed, upgraded or rolled back"}},
		"Hook":     {out: helm.Outcome{State: helm.HookRunning, Hook: "hook a"}, want: End{Why: "hook a has not finished yet"}},
		"Remaining": {
			out:  helm.Outcome{State: helm.Terminating, Remaining: []helm.Remaining{{Ref: ref}}},
			want: End{Why: "1 objects of the release still exist, such as " + fmt.Sprint(helm.Remaining{Ref: ref})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := newTestJob(t, alice, nil)
			tc.out.Created, tc.out.Deleted, tc.out.Kept = []observed.Ref{ref}, []observed.Ref{ref}, []helm.Kept{{Ref: ref, Because: "it is\nkept"}}
			got := job.describeEnd(tc.out, tc.err)
			if got.Run != 3 || got.Uninstalled != tc.want.Uninstalled || got.Why != tc.want.Why {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			var said []string
			for _, a := range got.Actions {
				said = append(said, a.Object+" "+a.Result)
			}
			if want := "[Pod shop/a created for a hook Pod shop/a deleted Pod shop/a kept: it is kept]"; fmt.Sprint(said) != want {
				t.Errorf("deeds: %v", said)
			}
		})
	}
}

// TestSetTimeouts shows for how long a try may occupy its place.
func TestSetTimeouts(t *testing.T) {
	for name, tc := range map[string]struct {
		spec        *v1alpha1.Helm
		waits       bool
		hook, place time.Duration
	}{
		"Default": {nil, false, defaultHelmTimeout, maxHelmWait},
		"Spec":    {&v1alpha1.Helm{Timeout: "10s"}, false, 10 * time.Second, 10 * time.Second},
		"Wrong":   {&v1alpha1.Helm{Timeout: "x"}, false, defaultHelmTimeout, maxHelmWait},
		"Waits":   {nil, true, defaultHelmTimeout, laterHelmWait},
	} {
		want := helm.UninstallRequest{}
		if SetTimeouts(&want, tc.spec, tc.waits); want.HookTimeout != tc.hook || want.Timeout != tc.place {
			t.Errorf("%s: %s and %s, want %s and %s", name, want.HookTimeout, want.Timeout, tc.hook, tc.place)
		}
	}
}
