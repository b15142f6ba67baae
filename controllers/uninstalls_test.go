// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/plan"
)

// An uninstall outlives the pass that has begun it.
func TestAJobOutlivesItsPass(t *testing.T) {
	p := newPool(1)
	ctx, end := context.WithCancel(t.Context())
	end()
	ended := make(chan error)
	p.runJob(ctx, func(ctx context.Context) { ended <- ctx.Err() })
	if err := <-ended; err != nil {
		t.Errorf("it ends with its pass: %v", err)
	}
	p.jobs.Wait()
}

func TestPoolRunsAsManyJobsAsItHasPlaces(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	p := newPool(1)
	ctx, stopAll := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- p.Start(ctx) }()

	began, ended := make(chan int, 3), make(chan int, 3)
	job := func(n int) func(context.Context) {
		return func(ctx context.Context) {
			began <- n
			<-ctx.Done()
			ended <- n
		}
	}
	stopFirst := p.runJob(t.Context(), job(1))
	if n := <-began; n != 1 {
		t.Fatalf("job %d began", n)
	}
	stopSecond := p.runJob(t.Context(), job(2))
	// One that waits for its place ends when it is told to, and says so.
	stopSecond()
	if n := <-ended; n != 2 {
		t.Errorf("job %d ended, want 2", n)
	}
	stopFirst()
	if n := <-ended; n != 1 {
		t.Errorf("job %d ended, want 1", n)
	}
	// One that is under way when the manager stops is told to end, and waited for.
	p.runJob(t.Context(), job(3))
	<-began // 2
	if n := <-began; n != 3 {
		t.Fatalf("job %d began", n)
	}
	stopAll()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if n := <-ended; n != 3 {
		t.Errorf("job %d ended, want 3", n)
	}
}

// TestAPanicEndsAnUninstall shows that a Cleaner does not wait for ever for an uninstall that ended by a panic.
func TestAPanicEndsAnUninstall(t *testing.T) {
	ended := make(chan uninstallEnd, 1)
	job := &uninstallJob{r: &CleanerReconciler{wake: &waker{}}, run: 3, ended: ended} // without hands
	job.doJob(t.Context())
	if end := <-ended; end.run != 3 || end.swept || !strings.HasPrefix(end.why, "panic: ") {
		t.Errorf("it ended with %+v", end)
	}
}

// TestAnUninstallAsksAgainAboutItsAuthor shows that a try to uninstall a release ends when what was found out about the author is
// too old, or about somebody else.
func TestAnUninstallAsksAgainAboutItsAuthor(t *testing.T) {
	alice, bob := author.Author{Username: "alice", Groups: []string{"team"}}, author.Author{Username: "bob"}
	for name, tc := range map[string]struct {
		age    time.Duration
		change func(*v1alpha1.Cleaner)
		author author.Author
		want   error
	}{
		"Fresh":   {0, unchanged, alice, nil},
		"Old":     {reviewServes, unchanged, alice, errStale},
		"Another": {0, unchanged, bob, errStale},
		"Edited":  {0, func(c *v1alpha1.Cleaner) { c.Spec.Conditions = nil }, alice, errStale},
		"Deleted": {0, func(c *v1alpha1.Cleaner) { c.Generation, c.DeletionTimestamp = 2, &metav1.Time{Time: time.Now()} }, alice, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := ordered(t, 1, unchanged)
			c := o.read.(*v1alpha1.Cleaner).DeepCopy()
			written, err := author.Sign(o.ring, c, tc.author, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: written}
			tc.change(c)
			o.r.client = cached(t, c)
			job := &uninstallJob{r: o.r, key: o.key, uid: c.UID, author: alice, ring: o.ring, reviewedAt: o.r.clock.Now().Add(-tc.age)}
			guard := &uninstallGuard{uninstallJob: job, ctx: t.Context()}
			for verb, ask := range map[string]func(plan.Ref) error{"delete": guard.MayDelete, "run a hook": guard.MayRunHook} {
				if err := ask(plan.Ref{}); !errors.Is(err, tc.want) {
					t.Errorf("to %s: got %v, want %v", verb, err, tc.want)
				}
			}
		})
	}
}
