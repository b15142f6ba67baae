// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/shards"
	"github.com/vtex/cleaner/test/e2e/mistakes"
)

func TestTheOwnerIsKilledInARun(t *testing.T) {
	l := newLab(t, alone(t))
	s := l.sink()
	first := l.operators.run(l.binary, quick()...)
	l.operators.run(l.binary, quick()...)
	group := refused(l, fmt.Sprintf("\n  cloudEventSink: %q%s", s.URL, widgetSpec), "w1", "w2")
	owner := l.operators.owned()
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	grant(l, group, "get", "list", "watch", "delete")
	l.operators.follows(owner)
	took := time.Now()
	l.gone("c")
	if d := time.Since(took); d > 20*time.Second {
		t.Errorf("the new owner took %s to carry the run on", d)
	}
	l.trail.deletedOnce()
}

// A process that stops in good order releases its shards, after all that it was doing: the next one owns them before its Lease would expire, and
// acts. A standby is ready, because its caches are synced.
func TestACleanStopReleasesTheShards(t *testing.T) {
	const expires = 15 * time.Second
	l := newLab(t, alone(t))
	first := l.operators.run(l.binary, quick()...)
	owner := l.operators.owned()
	standby := l.operators.run(l.binary, quick()...)
	for _, next := range []string{"a standby", "a process that starts"} {
		if err := first.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-first.Exited()
		stopped := time.Now()
		if now := l.operators.owner(); now == owner {
			t.Errorf("%q, which has stopped, owns the Cleaners", now)
		}
		if standby == nil {
			standby = l.operators.run(l.binary, quick()...)
		}
		l.configMap("evidence", nil, nil)
		l.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
		l.gone("c")
		if took := time.Since(stopped); took >= expires {
			t.Errorf("%s acts after %s, no earlier than its Lease would have expired", next, took)
		}
		if l.exists(&corev1.ConfigMap{}, "evidence") {
			t.Errorf("%s has not cleaned up", next)
		}
		first, standby, owner = standby, nil, l.operators.owner()
	}
	l.trail.deletedOnce()
}

// The owner is paused between its last check and the request, for as long as it takes another one to take its shards and to clean up; and somebody
// makes the object anew.
func TestAPausedOwnerDoesNotDeleteWhatWasMadeAnew(t *testing.T) {
	l := newLab(t, alone(t))
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
	old := l.operators.stopsAt(faulty(t, mistakes.Mistake{}), "before a DELETE", 1, quick()...)
	owner := l.operators.owned()
	l.operators.run(l.binary, quick()...)
	l.operators.follows(owner)
	l.gone("c")
	l.configMap("evidence", nil, nil)
	if err := old.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.operators.givesUp(old)
	if !l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Error("the object that was made anew was deleted")
	}
	l.trail.deletedOnce()
}

// The owner is paused before its last check; the object stays as it was, but the Cleaner is suspended meanwhile.
func TestAPausedOwnerDoesNotDeleteForASuspendedCleaner(t *testing.T) {
	l := newLab(t, alone(t))
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
	old := l.operators.stopsAt(faulty(t, mistakes.Mistake{}), "before Act", 1, quick()...)
	owner := l.operators.owned()
	c := &v1alpha1.Cleaner{}
	l.update(c, "c", func() { c.Spec.Suspend = true })
	l.operators.run(l.binary, quick()...)
	l.operators.follows(owner)
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonSuspended)
	if err := old.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.operators.givesUp(old)
	if sent := l.trail.deletes(); len(sent) > 0 || !l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Errorf("a deletion was sent for a suspended Cleaner: %v", sent)
	}
	l.update(c, "c", func() { c.Spec.Suspend = false })
	l.gone("c")
}

// Two replicas divide the Cleaners among them, but not before the leader of an earlier version has gone; and no such leader leads while they run.
func TestReplicasShareTheCleaners(t *testing.T) {
	l := newLab(t, alone(t))
	earlier := l.operators.earlierVersion("earlier", true)
	first := l.operators.run(l.binary, quick()...)
	l.operators.run(l.binary, quick()...)
	l.eventually("both replicas renew Leases", func() string {
		if n := l.operators.countReplicas(); n != 2 {
			return fmt.Sprintf("%d do", n)
		}
		return ""
	})
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
	for range 3 {
		earlier.renews()
		if owner := l.operators.owner(); owner != "" {
			t.Fatalf("%s owns Cleaners, while an earlier version leads", owner)
		}
	}
	if sent := l.trail.deletes(); len(sent) > 0 {
		t.Fatalf("something is deleted while an earlier version leads: %v", sent)
	}
	earlier.stop()
	l.gone("c")

	owners := map[string]int{}
	l.eventually("each shard has an owner", func() string {
		owners = l.operators.countShards()
		all := 0
		for _, n := range owners {
			all += n
		}
		if all != shards.Count || len(owners) != 2 {
			return fmt.Sprint(owners)
		}
		return ""
	})
	for owner, n := range owners {
		if n != shards.Count/2 {
			t.Errorf("%s owns %d shards", owner, n)
		}
	}
	late := l.operators.earlierVersion("late", false)
	for i := range 3 {
		l.configMap("evidence", nil, nil)
		l.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
		l.gone("c")
		if i == 0 {
			if err := first.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			<-first.Exited()
		}
	}
	l.eventually("the other one owns all", func() string {
		if owners = l.operators.countShards(); len(owners) != 1 {
			return fmt.Sprint(owners)
		}
		return ""
	})
	if late.led() {
		t.Error("an earlier version leads while replicas own Cleaners")
	}
	late.stop()
	l.trail.deletedOnce()
}
