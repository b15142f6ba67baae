// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package live has what tests need that watch ClusterCleaners at work on a control plane: to wait, to have one look now, and
// to hold what the operator did against what it promises. It starts nothing.
package live

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/invariants"
	"github.com/vtex/cleaner/test/operator"
)

// Patience bounds every wait: far more than a busy machine needs.
const Patience = 2 * time.Minute

// Eventually waits until nothing is missing.
func Eventually(t testing.TB, what string, missing func() string) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, Patience, true, func(context.Context) (bool, error) {
		last = missing()
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("%s: still missing: %s", what, last)
	}
}

// Evaluates asks a ClusterCleaner to look, and waits until it has, at all that it is about.
func Evaluates(t testing.TB, c client.Client, cc *v1alpha1.ClusterCleaner) {
	t.Helper()
	asked := time.Now().Format(time.RFC3339Nano)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationRequestedAt, asked)
	if err := c.Patch(t.Context(), cc, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "an evaluation of "+cc.Name, func() string {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cc), cc); err != nil {
			return err.Error()
		}
		if cc.Status.LastRequestedAt != asked {
			return fmt.Sprintf("its status is %+v", cc.Status)
		}
		return ""
	})
}

// Judge holds what the operator did until now for ClusterCleaners against what it promises. The operator was given free
// the kinds that are named.
func Judge(t testing.TB, c client.Client, dir string, audit *cluster.Witness, allowedKinds ...string) {
	t.Helper()
	var found []invariants.Violation
	// One that was just made is given the time to say how it is with it.
	err := wait.PollUntilContextTimeout(context.WithoutCancel(t.Context()), 250*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		found, err = violations(ctx, c, dir, audit, allowedKinds)
		return !slices.ContainsFunc(found, func(v invariants.Violation) bool { return v.Invariant == "I8" || v.Invariant == "I12" }), err
	})
	if err != nil && !wait.Interrupted(err) {
		t.Errorf("cannot judge what happened: %s", err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

func violations(ctx context.Context, c client.Client, dir string, audit *cluster.Witness, allowedKinds []string) ([]invariants.Violation, error) {
	list := &v1alpha1.ClusterCleanerList{}
	if err := c.List(ctx, list); err != nil {
		return nil, err
	}
	events, err := audit.Events()
	if err != nil {
		return nil, err
	}
	log, err := invariants.ReadLogs(filepath.Join(dir, "manager*.log"))
	if err != nil {
		return nil, err
	}
	r := &invariants.Record{
		Operator: operator.User, Audit: events, Log: log, Own: operator.Namespace, AllowedKinds: allowedKinds,
		Protected: []string{"kube-system", "kube-public", "kube-node-lease", operator.Namespace},
	}
	for i := range list.Items {
		r.Cleaners = append(r.Cleaners, &list.Items[i])
	}
	return invariants.Check(r), nil
}
