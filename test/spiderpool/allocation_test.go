// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package spiderpool

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/test/live"
	"github.com/vtex/cleaner/test/operator"
)

const (
	// leaks are as many records as leak, of which some have left an endpoint behind.
	leaks     = 200
	endpoints = 40
	// enough is how many patches may be refused.
	enough = 12
	// longEnough is how long the allocator continues after the first patch, where the operator is too slow to be refused that often.
	longEnough = 30 * time.Second
	// mostRecords is how many a pool may have.
	mostRecords = 5000
	// leakedFor is long enough that a pass of the operator takes less than a quarter of it, also on a slow machine: the pool changes in each pass,
	// and a pass that takes longer starts the wait again.
	leakedFor = 40 * time.Second
)

// allocator allocates addresses of a pool, one after the other and as fast as it can, as an agent of Spiderpool does: it
// reads the pool, adds a record of a Pod that exists, and replaces the status at the version that it read.
type allocator struct {
	pool string
	pods []corev1.Pod
	// allocated are the records that the API server has taken, and when it took the first and the last.
	allocated   map[string]Record
	first, last time.Time
	conflicts   int
	err         error
}

// run allocates until ctx ends, or the pool is full.
func (a *allocator) run(ctx context.Context, t *testing.T) {
	a.allocated = map[string]Record{}
	for n := 0; ctx.Err() == nil && leaks+n < mostRecords; {
		pod := &a.pods[n%len(a.pods)]
		r := Record{IP: fmt.Sprintf("10.9.%d.%d", n/250, n%250+1), Pod: pod.Namespace + "/" + pod.Name, UID: string(pod.UID)}
		switch err := a.allocate(t, r); {
		case apierrors.IsConflict(err):
			a.conflicts++
		case err != nil:
			a.err = err
			return
		default:
			if a.last = time.Now(); a.first.IsZero() {
				a.first = a.last
			}
			a.allocated[r.IP] = r
			n++
		}
	}
}

func (a *allocator) allocate(t *testing.T, r Record) error {
	u := bare(Group(), "SpiderIPPool", "", a.pool)
	if err := shared.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		return err
	}
	records, err := Records(u)
	if err != nil {
		return err
	}
	if old, taken := records[r.IP]; taken {
		return fmt.Errorf("%s is taken by %v", r.IP, old)
	}
	records[r.IP] = r
	if err := unstructured.SetNestedField(u.Object, encode(t, records), "status", "allocatedIPs"); err != nil {
		return err
	}
	if err := unstructured.SetNestedField(u.Object, int64(len(records)), "status", "allocatedIPCount"); err != nil {
		return err
	}
	return shared.Status().Update(t.Context(), u)
}

func TestNoAllocationIsLost(t *testing.T) {
	ns, err := shared.Namespace(t.Context(), "allocation")
	if err != nil {
		t.Fatal(err)
	}
	a := &allocator{pool: "busy", pods: make([]corev1.Pod, 20)}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "busy"}}
	if err := shared.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	for i := range a.pods {
		pod := &a.pods[i]
		pod.ObjectMeta = metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("lives-%d", i)}
		pod.Spec = corev1.PodSpec{NodeName: node.Name, Containers: containers()}
		if err := shared.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	records := map[string]Record{}
	for i := range leaks {
		r := Record{IP: fmt.Sprintf("10.8.%d.%d", i/250, i%250+1), Pod: fmt.Sprintf("%s/gone-%d", ns, i), UID: string(uuid.NewUUID())}
		records[r.IP] = r
		if i < endpoints {
			s := &scene{Case: &Case{Name: t.Name()}, t: t, namespace: ns, uids: map[string]string{}}
			s.uids["u"] = r.UID
			s.endpoint(&Endpoint{Name: fmt.Sprintf("gone-%d", i), UID: "u", Owner: "Deployment", IPs: []string{r.IP + "/8"}}, a.pool)
		}
	}
	u := pool(t, a.pool, records)
	t.Cleanup(func() { (&scene{t: t, namespace: ns, pool: u}).strike(context.WithoutCancel(t.Context())) })

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.run(ctx, t)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	began := time.Now()
	collect(t, "spiderpool-ip", map[string]any{"observedFor": leakedFor.String()})
	live.Eventually(t, "the leaked records go, while others are added", func() string {
		if err := shared.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
			return err.Error()
		}
		now, err := Records(u)
		if err != nil {
			return err.Error()
		}
		leaked := 0
		for ip := range records {
			if _, there := now[ip]; there {
				leaked++
			}
		}
		// On a machine on which the allocator is always faster it ends after a while: nobody is made to wait for ever.
		done, refused := patches(t, a.pool)
		tried := append(done, refused...)
		if leaked == 0 || len(refused) >= enough || len(tried) > 0 && time.Since(slices.MinFunc(tried, time.Time.Compare)) > longEnough {
			stop()
		}
		if leaked > 0 {
			return fmt.Sprintf("%d of %d are left", leaked, leaks)
		}
		return ""
	})
	took := time.Since(began)
	<-done
	if a.err != nil {
		t.Fatal(a.err)
	}
	if err := shared.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
	now, err := Records(u)
	if err != nil {
		t.Fatal(err)
	}
	for ip, r := range a.allocated {
		if now[ip] != r {
			t.Errorf("the allocation of %s to %s was lost: %v", ip, r.Pod, now[ip])
		}
	}
	if len(now) != len(a.allocated) {
		t.Errorf("there are %d records, and %d were allocated", len(now), len(a.allocated))
	}

	patched, refused := patches(t, a.pool)
	t.Logf("in %s: %d allocations, of which %d had to be tried again; %d patches, and %d that were refused", took, len(a.allocated), a.conflicts, len(patched), len(refused))
	if meanwhile := slices.ContainsFunc(append(patched, refused...), func(at time.Time) bool { return at.After(a.first) && at.Before(a.last) }); !meanwhile {
		t.Errorf("allocated from %s to %s, and patched at %s: not at the same time", a.first, a.last, patched)
	}
	deleted := map[string]int{}
	for _, e := range events(t) {
		if ref := e.ObjectRef; e.By(operator.User) && ref != nil && ref.Resource == "spiderendpoints" && ref.Namespace == ns && e.Verb == "delete" {
			deleted[ref.Name]++
		}
	}
	for name, n := range deleted {
		if n > 1 {
			t.Errorf("%s was deleted %d times", name, n)
		}
	}
	if len(deleted) != endpoints {
		t.Errorf("%d endpoints were deleted, want %d", len(deleted), endpoints)
	}
	live.Judge(t, shared, shared.Dir(), shared.audit)
}

// patches are when the operator patched a pool, and when it was refused to.
func patches(t *testing.T, pool string) (done, refused []time.Time) {
	t.Helper()
	for _, e := range events(t) {
		ref := e.ObjectRef
		if !e.By(operator.User) || ref == nil || ref.Resource != "spiderippools" || ref.Name != pool || e.Verb != "patch" {
			continue
		}
		if at := e.StageTimestamp.Time; e.Code() < 300 {
			done = append(done, at)
		} else {
			refused = append(refused, at)
		}
	}
	return done, refused
}
