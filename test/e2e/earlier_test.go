// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/vtex/cleaner/test/operator"
)

// earlier takes part in the election of a leader, as versions do that divide nothing. It acts for no Cleaner.
type earlier struct {
	l     *lab
	lock  *resourcelock.LeaseLock
	leads atomic.Bool
	end   context.CancelFunc
	ended chan struct{}
}

// earlierVersion starts one, and may wait until it leads.
func (o *operators) earlierVersion(identity string, leads bool) *earlier {
	o.l.Helper()
	leases, err := coordinationclient.NewForConfig(o.l.Config())
	if err != nil {
		o.l.Fatal(err)
	}
	ctx, end := context.WithCancel(o.l.ctx)
	e := &earlier{l: o.l, end: end, ended: make(chan struct{}), lock: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: operator.Namespace, Name: operator.LeaseName}, Client: leases, LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { e.leads.Store(true) }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		o.l.Fatal(err)
	}
	go func() {
		defer close(e.ended)
		elector.Run(ctx)
	}()
	o.l.Cleanup(e.stop)
	o.l.eventually("the election is under way", func() string {
		if leads && !e.leads.Load() {
			return "it does not lead"
		}
		return ""
	})
	return e
}

// led reports whether it has ever led.
func (e *earlier) led() bool { return e.leads.Load() }

// renews waits until it has renewed its Lease once more.
func (e *earlier) renews() {
	e.l.Helper()
	before := ""
	e.l.eventually("the Lease is renewed", func() string {
		record, raw, err := e.lock.Get(e.l.ctx)
		switch {
		case err != nil:
			return err.Error()
		case record.HolderIdentity != e.lock.Identity():
			e.l.Fatalf("%s holds the Lease", record.HolderIdentity)
		case before == "":
			before = string(raw)
		}
		if before == string(raw) {
			return "it is not"
		}
		return ""
	})
}

// stop ends it: it releases the Lease if it leads.
func (e *earlier) stop() {
	e.end()
	<-e.ended
}

// countReplicas counts the processes that renew a Lease of a replica.
func (o *operators) countReplicas() int {
	o.l.Helper()
	leases, err := coordinationclient.NewForConfig(o.l.Config())
	if err != nil {
		o.l.Fatal(err)
	}
	list, err := leases.Leases(operator.Namespace).List(o.l.ctx, metav1.ListOptions{})
	if err != nil {
		o.l.Fatal(err)
	}
	n := 0
	for i := range list.Items {
		if l := &list.Items[i]; strings.HasPrefix(l.Name, operator.LeaseName+"-replica-") && hasHolder(l) {
			n++
		}
	}
	return n
}

func hasHolder(l *coordinationv1.Lease) bool {
	return l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != ""
}
