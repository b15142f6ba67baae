// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
)

// trail is what the operator did in the namespace of a test, as the audit log shows it.
type trail struct{ l *lab }

// deletes are the DELETE requests that the operator sent in the namespace, as the audit log shows them.
func (t *trail) deletes() []cluster.Event {
	t.l.Helper()
	events, err := t.l.audit.Events()
	if err != nil {
		t.l.Fatal(err)
	}
	var out []cluster.Event
	for _, e := range cluster.Deletes(events, operator.User) {
		if e.ObjectRef != nil && e.ObjectRef.Namespace == t.l.ns {
			out = append(out, e)
		}
	}
	return out
}

// attempts are when the operator asked for something of an object, in their order, of one of these verbs.
func (t *trail) attempts(name string, verbs ...string) []cluster.Event {
	t.l.Helper()
	var out []cluster.Event
	for _, verb := range verbs {
		for _, e := range t.requests(verb) {
			if e.ObjectRef.Name == name {
				out = append(out, e)
			}
		}
	}
	slices.SortFunc(out, func(a, b cluster.Event) int {
		return a.RequestReceivedTimestamp.Compare(b.RequestReceivedTimestamp.Time)
	})
	return out
}

// backsOff waits until an object was asked for so often, and checks that each pause was longer than the least one, which
// doubles.
func (t *trail) backsOff(name string, times int, verbs ...string) {
	t.l.Helper()
	var tries []cluster.Event
	t.l.eventually(fmt.Sprintf("%s is tried %d times", name, times), func() string {
		if tries = t.attempts(name, verbs...); len(tries) < times {
			return fmt.Sprintf("it was %d times", len(tries))
		}
		return ""
	})
	least := 900 * time.Millisecond // the clock of the operator, and what it takes to answer
	for i := 1; i < len(tries); i++ {
		if d := tries[i].RequestReceivedTimestamp.Sub(tries[i-1].RequestReceivedTimestamp.Time); d < least {
			t.l.Errorf("attempt %d on %s came %s after the one before, and not %s", i+1, name, d, least)
		}
		least = min(2*least, 4*time.Minute)
	}
}

// deletedFrom checks that the operator deleted an object at a moment: not before it, by the audit log. How late it may be is measured in
// time on the wall, which a busy machine stretches: so that bound is far away.
func (t *trail) deletedFrom(name string, moment time.Time) {
	t.l.Helper()
	var tries []cluster.Event
	t.l.eventually("the audit log has the deletion of "+name, func() string {
		if tries = t.attempts(name, "delete"); len(tries) == 0 {
			return "it has none"
		}
		return ""
	})
	if late := tries[0].RequestReceivedTimestamp.Sub(moment); late < 0 || late > 40*time.Second {
		t.l.Errorf("%s was deleted %s after the moment", name, late)
	}
}

// begun waits until something was deleted, and says how much.
func (t *trail) begun() int {
	t.l.Helper()
	t.l.eventually("it begins", func() string {
		if len(t.deletes()) == 0 {
			return "nothing was deleted"
		}
		return ""
	})
	return len(t.deletes())
}

// requests are what the operator asked of objects of the namespace by a verb, its own kinds apart.
func (t *trail) requests(verb string) []cluster.Event {
	t.l.Helper()
	events, err := t.l.audit.Events()
	if err != nil {
		t.l.Fatal(err)
	}
	return slices.DeleteFunc(events, func(e cluster.Event) bool {
		return e.User.Username != operator.User || e.Verb != verb || e.ObjectRef == nil || e.ObjectRef.Namespace != t.l.ns ||
			e.ObjectRef.APIGroup == v1alpha1.GroupVersion.Group || e.ObjectRef.Resource == "events"
	})
}

// deletedOnce checks that each object of a resource whose deletion was granted was deleted once.
func (t *trail) deletedOnce() {
	t.l.Helper()
	granted := map[string][]cluster.Event{}
	for _, d := range t.deletes() {
		if pre, err := d.Preconditions(); err == nil && pre.UID != nil && d.Code() < 300 {
			granted[string(*pre.UID)] = append(granted[string(*pre.UID)], d)
		}
	}
	for uid, all := range granted {
		if len(all) > 1 {
			t.l.Errorf("%s was deleted %d times: %v", uid, len(all), all)
		}
	}
}
