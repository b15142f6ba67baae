// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/test/e2e/mistakes"
	"github.com/vtex/cleaner/test/operator"
)

// The taints of a Node are one list. The operator is paused before it writes it, and somebody else writes it meanwhile: when
// the template pod-ip-pressure adds its taint, and when it takes it off.
func TestATaintOfSomebodyElseIsNotLost(t *testing.T) {
	l := newLab(t, alone(t))
	if err := operator.InstallTemplates(l.ctx, l.Cluster, "nodes"); err != nil {
		t.Fatal(err)
	}
	const ours = "cleaner.vtex.dev/pod-ip-pressure"
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "short"},
		Spec:       corev1.NodeSpec{PodCIDR: "10.20.0.0/30", PodCIDRs: []string{"10.20.0.0/30"}}, // one address
	}
	if err := l.Create(l.ctx, node); err != nil {
		t.Fatal(err)
	}
	l.apply(`
apiVersion: v1
kind: Pod
metadata: {name: only}
spec: {nodeName: short, containers: [{name: c, image: example.test/c}]}
status: {phase: Running, podIP: 192.0.2.1, podIPs: [{ip: 192.0.2.1}]}`)
	l.fixtures.cluster(`
  lifecycle: Recurring
  templateRef: {name: pod-ip-pressure}`)

	// overtaken has somebody else taint the Node while the operator is about to patch it, and waits for what comes of both.
	overtaken := func(key string, want ...string) *operator.Process {
		p := l.operators.stopsAt(faulty(t, mistakes.Mistake{}), "before a PATCH", 1, lone()...)
		if err := l.Get(l.ctx, client.ObjectKeyFromObject(node), node); err != nil {
			t.Fatal(err)
		}
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
		if err := l.Update(l.ctx, node); err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		l.eventually(fmt.Sprintf("the Node has the taints %v", want), func() string {
			if err := l.Get(l.ctx, client.ObjectKeyFromObject(node), node); err != nil {
				return err.Error()
			}
			var got []string
			for _, taint := range node.Spec.Taints {
				got = append(got, taint.Key)
			}
			return cmp.Diff(want, got)
		})
		return p
	}
	const notReady = corev1.TaintNodeNotReady // the API server's own
	p := overtaken("example.com/first", notReady, "example.com/first", ours)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	only := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "only"}}
	if err := l.Delete(l.ctx, only, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	overtaken("example.com/second", notReady, "example.com/first", "example.com/second")

	var answers []int
	l.eventually("the audit log has all of it", func() string {
		answers = nil
		events, err := l.audit.Events()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.By(operator.User) && e.Verb == "patch" && e.ObjectRef != nil && e.ObjectRef.Resource == "nodes" {
				answers = append(answers, e.Code())
			}
		}
		return cmp.Diff(4, len(answers))
	})
	if want := []int{http.StatusConflict, http.StatusOK, http.StatusConflict, http.StatusOK}; !slices.Equal(answers, want) {
		t.Errorf("the patches were answered %v, want %v", answers, want)
	}
	l.bystander() // and the audit log has a deletion, without which it witnesses nothing
}
