// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/invariants"
	"github.com/vtex/cleaner/test/operator"
)

// An operator whose Cleaners are all at rest sends nothing but what its leadership needs, and its watches.
func TestAnOperatorAtRestSendsNothing(t *testing.T) {
	l := newLab(t, alone(t))
	l.operators.run(l.binary, quick()...)
	l.configMap("evidence", nil, map[string]string{"n": "0"})
	for name, spec := range map[string]string{
		"unripe":    "\n  ttl: 100h\n  targets:" + target,
		"unmet":     "\n  retry: {period: 10h}\n  targets:" + target + "\n  conditions: ['evidence.data.n == \"1\"']",
		"missing":   "\n  targets:\n  - {name: nobody, reference: {version: v1, kind: ConfigMap, name: nobody}, delete: true}\n  conditions: ['nobody != null']",
		"invalid":   "\n  targets:" + target + "\n  conditions: ['evidnce == null']",
		"suspended": "\n  suspend: true\n  ttl: 0s\n  targets:" + target,
	} {
		l.apply(cleanerYAML(name, spec))
	}
	for name, reason := range map[string]string{
		"unripe": v1alpha1.ReasonWaitingForTTL, "unmet": v1alpha1.ReasonConditionsNotMet, "missing": v1alpha1.ReasonTargetMissing,
		"invalid": v1alpha1.ReasonInvalidSpec, "suspended": v1alpha1.ReasonSuspended,
	} {
		l.says(name, v1alpha1.ConditionReady, reason)
	}
	l.passes() // what there was to do is done, and there is something to witness

	// Six renewals of the lease are 10 s and more.
	since := time.Now()
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	events, err := l.audit.WaitFor(ctx, func(events []cluster.Event) bool { return renewals(events, since) >= 6 })
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range invariants.Restless(events, operator.User, since) {
		t.Error(v)
	}
	// The check sees: work is not rest.
	l.apply(cleanerYAML("busy", "\n  ttl: 100h\n  targets:"+target))
	l.says("busy", v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForTTL)
	if _, err = l.audit.WaitFor(ctx, func(events []cluster.Event) bool {
		return len(invariants.Restless(events, operator.User, since)) > 0
	}); err != nil {
		t.Error(fmt.Errorf("a new Cleaner was reported on without a request: %w", err))
	}
}

// renewals counts how often the operator's lease was renewed.
func renewals(events []cluster.Event, since time.Time) int {
	n := 0
	for _, e := range events {
		if e.By(operator.User) && e.Verb == "update" && e.ObjectRef != nil && e.ObjectRef.Resource == "leases" && e.RequestReceivedTimestamp.After(since) {
			n++
		}
	}
	return n
}
