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
	"github.com/vtex/cleaner/test/e2e/mistakes"
)

func TestTheLeaderIsKilledInARun(t *testing.T) {
	l := newLab(t, alone(t))
	s := l.sink()
	first := l.operators.run(l.binary, quick()...)
	l.operators.run(l.binary, quick()...)
	group := refused(l, fmt.Sprintf("\n  cloudEventSink: %q%s", s.URL, widgetSpec), "w1", "w2")
	leader := l.operators.leader()
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	grant(l, group, "get", "list", "watch", "delete")
	l.operators.follows(leader)
	took := time.Now()
	l.gone("c")
	if d := time.Since(took); d > 20*time.Second {
		t.Errorf("the new leader took %s to carry the run on", d)
	}
	l.trail.deletedOnce()
}

// A process that stops in good order releases the Lease, after all that it was doing: the next one leads before the Lease would expire, and
// acts. A standby is ready, because its caches are synced.
func TestACleanStopReleasesTheLease(t *testing.T) {
	const expires = 15 * time.Second
	l := newLab(t, alone(t))
	first := l.operators.run(l.binary, quick()...)
	l.eventually("the first process leads", func() string {
		if l.operators.leader() == "" {
			return "there is no leader"
		}
		return ""
	})
	leader := l.operators.leader()
	standby := l.operators.run(l.binary, quick()...)
	for _, next := range []string{"a standby", "a process that starts"} {
		if err := first.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-first.Exited()
		stopped := time.Now()
		if now := l.operators.leader(); now == leader {
			t.Errorf("the Lease is held by %q, which has stopped", now)
		}
		if standby == nil {
			standby = l.operators.run(l.binary, quick()...)
		}
		l.configMap("evidence", nil, nil)
		l.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
		l.gone("c")
		if took := time.Since(stopped); took >= expires {
			t.Errorf("%s acts after %s, no earlier than the Lease would have expired", next, took)
		}
		if l.exists(&corev1.ConfigMap{}, "evidence") {
			t.Errorf("%s has not cleaned up", next)
		}
		first, standby, leader = standby, nil, l.operators.leader()
	}
	l.trail.deletedOnce()
}

// The leader is paused between its last check and the request, for as long as it takes another one to lead, to clean up,
// and to be gone; and somebody makes the object anew.
func TestAPausedLeaderDoesNotDeleteWhatWasMadeAnew(t *testing.T) {
	l := newLab(t, alone(t))
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
	old := l.operators.stopsAt(faulty(t, mistakes.Mistake{}), "before a DELETE", 1, quick()...)
	leader := l.operators.leader()
	l.operators.run(l.binary, quick()...)
	l.operators.follows(leader)
	l.gone("c")
	l.configMap("evidence", nil, nil)
	if err := old.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.operators.ends(old)
	if !l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Error("the object that was made anew was deleted")
	}
	l.trail.deletedOnce()
}

// The leader is paused before its last check; the object stays as it was, but the Cleaner is suspended meanwhile.
func TestAPausedLeaderDoesNotDeleteForASuspendedCleaner(t *testing.T) {
	l := newLab(t, alone(t))
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
	old := l.operators.stopsAt(faulty(t, mistakes.Mistake{}), "before Act", 1, quick()...)
	leader := l.operators.leader()
	c := &v1alpha1.Cleaner{}
	l.update(c, "c", func() { c.Spec.Suspend = true })
	l.operators.run(l.binary, quick()...)
	l.operators.follows(leader)
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonSuspended)
	if err := old.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.operators.ends(old)
	if sent := l.trail.deletes(); len(sent) > 0 || !l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Errorf("a deletion was sent for a suspended Cleaner: %v", sent)
	}
	l.update(c, "c", func() { c.Spec.Suspend = false })
	l.gone("c")
}
