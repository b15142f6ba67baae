// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/invariants"
	"github.com/vtex/cleaner/test/sink"
)

// sink starts a sink whose events the invariants are held against.
func (l *lab) sink() *sink.Sink {
	l.Helper()
	return l.sinkAt("127.0.0.1:0")
}

// sinkAt is sink at another address, such as that of one that was closed.
func (l *lab) sinkAt(address string) *sink.Sink {
	l.Helper()
	s := sink.StartAt(l.T, address)
	l.sinks = append(l.sinks, s)
	return s
}

// judge holds a lab against the invariants.
type judge struct {
	l *lab
	// mistaken says that the operator was built with a mistake, so that the invariants do not hold.
	mistaken bool
}

// hold holds what happened in the namespace, and outside of all tests, against the invariants. It runs at the end of each
// test that has a lab.
func (j *judge) hold() {
	j.l.Helper()
	if j.mistaken {
		return
	}
	const shown = 10 // one mistake shows in many requests
	all := j.violations()
	for _, v := range all[:min(len(all), shown)] {
		j.l.Error(v)
	}
	if len(all) > shown {
		j.l.Errorf("and %d violations more", len(all)-shown)
	}
}

// violations are the promises that were not kept in the namespace until now.
func (j *judge) violations() []invariants.Violation {
	j.l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second) // the test's own has ended
	defer cancel()
	var found []invariants.Violation
	failed := errors.New("it was not tried")
	// A Cleaner that was just made, or whose status is just being written, is given the time to say how it is with it.
	_ = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		now, err := j.check(ctx) // the last look may take longer than looks are repeated
		if failed = err; err != nil {
			return false, nil //nolint:nilerr // it is asked again
		}
		found = now
		return !slices.ContainsFunc(found, func(v invariants.Violation) bool { return v.Invariant == "I8" || v.Invariant == "I12" }), nil
	})
	if failed != nil {
		j.l.Fatalf("cannot judge what happened: %s", failed)
	}
	return found
}

// check judges what happened until now.
func (j *judge) check(ctx context.Context) ([]invariants.Violation, error) {
	cleaners := &v1alpha1.CleanerList{}
	if err := j.l.List(ctx, cleaners, client.InNamespace(j.l.ns)); err != nil {
		return nil, err
	}
	clusterCleaners := &v1alpha1.ClusterCleanerList{}
	if err := j.l.List(ctx, clusterCleaners); err != nil {
		return nil, err
	}
	events, err := j.l.audit.Events()
	if err != nil {
		return nil, err
	}
	log, err := invariants.ReadLogs(filepath.Join(j.l.Dir(), "manager*.log"))
	if err != nil {
		return nil, err
	}
	r := record(events, log)
	// The labs are counted after the log was read: what it shows was done when they were there.
	r.Namespaces, r.Elsewhere, r.Sinks = []string{j.l.ns}, j.l.labs.but(j.l.ns), j.l.sinks
	for i := range cleaners.Items {
		r.Cleaners = append(r.Cleaners, &cleaners.Items[i])
	}
	for i := range clusterCleaners.Items {
		if c := &clusterCleaners.Items[i]; c.Name == j.l.ns { // those of other tests are named after these
			r.Cleaners = append(r.Cleaners, c)
		}
	}
	return invariants.Check(r), nil
}
