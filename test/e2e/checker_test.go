// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/e2e/mistakes"
)

// A checker that finds nothing proves nothing: an operator with a mistake must not get past it, and the same scenario
// without the mistake must.
func TestTheCheckerFindsMistakes(t *testing.T) {
	t.Parallel()
	e, err := newEnv(t.Context(), shared.binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	for i, m := range mistakes.List() {
		t.Run(m.Name, func(t *testing.T) {
			l := newLab(t, e)
			l.judge.mistaken = m.Breaks != nil
			l.operators.started = 10 * i // the logs of one control plane lie in one folder
			act := actTempted
			if m.OfRules {
				act = actByRule
			}
			act(l, faulty(t, m))
			got := l.judge.broken()
			for _, want := range m.Breaks {
				if !slices.Contains(got, want) {
					t.Errorf("%s was not found to be broken, but only %v", want, got)
				}
			}
			if m.Breaks == nil && !m.OfRules && !l.exists(&corev1.ConfigMap{}, "evidence") {
				t.Error("the object that was made anew was deleted")
			}
		})
	}
}

// actTempted makes an object anew, as a protected one, between the moment when its deletion was decided and checked, and the
// request.
func actTempted(l *lab, binary string) {
	l.Helper()
	old := l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
	p := l.operators.stopsAt(binary, "before a DELETE", 1, lone()...)
	if err := l.Delete(l.ctx, old); err != nil {
		l.Fatal(err)
	}
	l.configMap("evidence", map[string]string{v1alpha1.ProtectKey: "true"}, nil)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		l.Fatal(err)
	}
	l.eventually("its DELETE is answered, and what came of it is said", func() string {
		deletes := l.trail.deletes()
		if !slices.ContainsFunc(deletes, func(d cluster.Event) bool { return d.ObjectRef.Name == "evidence" }) {
			return fmt.Sprintf("the operator sent %v", deletes)
		}
		if c := l.cleaner("c"); c != nil && len(c.Status.Conditions) == 0 {
			return "the Cleaner says nothing"
		}
		return ""
	})
	if !l.judge.mistaken {
		l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonProtected)
	}
	if err := p.Kill(); err != nil {
		l.Fatal(err)
	}
}

// actByRule has a rule delete objects because of how many there are, when the lists with which its watches began are too old to confirm anything.
func actByRule(l *lab, binary string) {
	l.Helper()
	l.labelled(nil, "a")
	l.apply(cleanerYAML("c", stays("", shopMaps+`
  rules:
  - {name: many, forEach: maps.items, when: size(maps.items) > 1, actions: [{delete: {}}]}`)))
	p := l.operators.run(binary, lone()...)
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	old := time.Now().Add(life.ConfirmationServes + 2*time.Second)
	l.eventually("the lists are too old", func() string {
		if wait := time.Until(old); wait > 0 {
			return fmt.Sprintf("they are in %s", wait)
		}
		return ""
	})
	l.labelled(nil, "b")
	l.leaves()
	if err := p.Kill(); err != nil {
		l.Fatal(err)
	}
}

// broken are the invariants that the operator has broken.
func (j *judge) broken() []string {
	j.l.Helper()
	var broken []string
	for _, v := range j.violations() {
		j.l.Log(v)
		broken = append(broken, v.Invariant)
	}
	return broken
}
