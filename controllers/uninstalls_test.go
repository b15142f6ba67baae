// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

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
	stopFirst := p.do(t.Context(), job(1))
	if n := <-began; n != 1 {
		t.Fatalf("job %d began", n)
	}
	stopSecond := p.do(t.Context(), job(2))
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
	p.do(t.Context(), job(3))
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
	job.do(t.Context())
	if end := <-ended; end.run != 3 || end.swept || !strings.HasPrefix(end.why, "panic: ") {
		t.Errorf("it ended with %+v", end)
	}
}
