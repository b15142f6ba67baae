// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// reaction measures how long after the event that makes its condition true a Cleaner's DELETE arrives.
func reaction(ctx context.Context, r *rig, s sizes) ([]figure, error) {
	v, err := newVictim(ctx, r, "reaction", s.reactions)
	if err != nil {
		return nil, err
	}
	took, err := v.react(ctx)
	if err != nil {
		return nil, err
	}
	return []figure{
		{What: fmt.Sprintf("Reaction, from the event to the DELETE's arrival: median of %d", s.reactions), Value: percentile(took, 0.5).Round(100 * time.Microsecond).String()},
		{What: "Reaction: 99th percentile", Value: percentile(took, 0.99).Round(100 * time.Microsecond).String()},
	}, nil
}

// victim is a namespace with Cleaners that wait, each for a gate of its own.
type victim struct {
	*rig
	namespace string
	cleaners  int
}

func newVictim(ctx context.Context, r *rig, prefix string, cleaners int) (*victim, error) {
	ns, err := r.Namespace(ctx, prefix)
	if err != nil {
		return nil, err
	}
	if err := r.fixtures.configMaps(ctx, ns, "old", cleaners, member); err != nil {
		return nil, err
	}
	err = each(cleaners, makers, func(i int) error {
		if err := r.fixtures.gate(ctx, ns, member(i)); err != nil {
			return err
		}
		return r.admin.Create(ctx, gated(ns, member(i), member(i), member(i)))
	})
	if err != nil {
		return nil, err
	}
	return &victim{r, ns, cleaners}, r.fixtures.waits(ctx, ns, cleaners)
}

// react opens one gate after the other, and returns how long after each event the DELETE arrived, sorted. An event is the moment at
// which the API server has answered the write: then it sends it to all watches.
func (v *victim) react(ctx context.Context) ([]time.Duration, error) {
	for i := range v.cleaners { // one after the other: this measures the reaction, not the queue
		if err := v.rig.fixtures.open(ctx, v.namespace, member(i)); err != nil {
			return nil, err
		}
		if err := v.deleted(ctx, fmt.Sprintf("old-%d", i)); err != nil {
			return nil, err
		}
	}
	if err := v.rig.fixtures.gone(ctx, v.namespace); err != nil {
		return nil, err
	}
	events, err := v.audit.Events()
	if err != nil {
		return nil, err
	}
	opened, deleted := map[string]time.Time{}, map[string]time.Time{}
	for _, e := range events {
		if e.ObjectRef == nil || e.ObjectRef.Namespace != v.namespace || e.ObjectRef.Resource != "configmaps" {
			continue
		}
		switch e.Verb {
		case "patch":
			opened[e.ObjectRef.Name] = e.StageTimestamp.Time
		case "delete":
			deleted[e.ObjectRef.Name] = e.RequestReceivedTimestamp.Time
		}
	}
	var took []time.Duration
	for i := range v.cleaners {
		took = append(took, deleted[fmt.Sprintf("old-%d", i)].Sub(opened[member(i)]))
	}
	slices.Sort(took)
	return took, nil
}

// deleted returns when a ConfigMap is gone. It asks for what the API server has in memory.
func (v *victim) deleted(ctx context.Context, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		old := &metav1.PartialObjectMetadata{}
		old.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		err := v.admin.Get(ctx, client.ObjectKey{Namespace: v.namespace, Name: name}, old, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("cannot see ConfigMap %q gone: %w", name, err)
	}
	return nil
}

// manyCleaners measures the deletions per second of Cleaners that act at the same time, and those of bare client-go that
// makes all of their requests.
func manyCleaners(ctx context.Context, r *rig, s sizes) ([]figure, error) {
	m, err := byTurns(s.manyRounds,
		func() (speed, error) { return r.cleaners(ctx, "many", s.cleaners, s.each) },
		func() (speed, error) { return r.bare(ctx, "many", s.cleaners, s.each, (*bareLoop).clean) })
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d Cleaners with %d objects each", s.cleaners, s.each)
	return append(m.figures(what, "at least 0.9"),
		figure{What: what + ": requests of the operator", Value: m.operator[0].requests},
		figure{What: what + ": requests of bare client-go", Value: m.bare[0].requests},
	), nil
}

// oneCleaner measures the deletions per second of one Cleaner, and those of bare client-go that makes nothing but the
// deletions.
func oneCleaner(ctx context.Context, r *rig, s sizes) ([]figure, error) {
	m, err := byTurns(s.rounds,
		func() (speed, error) { return r.cleaners(ctx, "one", 1, s.objects) },
		func() (speed, error) { return r.bare(ctx, "one", 1, s.objects, (*bareLoop).deleteAll) })
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("One Cleaner with %d objects", s.objects)
	return append(m.figures(what, "at least 0.95"),
		figure{What: what + ": from the event to the first DELETE, live reads and the record of the run included", Value: m.lead().String()},
	), nil
}

// match is what the operator and bare client-go have reached in each round.
type match struct{ operator, bare []speed }

// byTurns lets the operator and bare client-go do the same, each as often, because the speed of a machine that others use
// too changes from one minute to the next by more than the two differ. In every other round the other one begins.
func byTurns(rounds int, operator, bare func() (speed, error)) (match, error) {
	var m match
	for i := range rounds {
		turns := []func() error{
			func() error { got, err := operator(); m.operator = append(m.operator, got); return err },
			func() error { got, err := bare(); m.bare = append(m.bare, got); return err },
		}
		for n := range turns {
			if err := turns[(n+i)%len(turns)](); err != nil {
				return match{}, err
			}
		}
	}
	return m, nil
}

// lead is the median of how long the operator took until its first deletion.
func (m match) lead() time.Duration {
	var leads []time.Duration
	for _, s := range m.operator {
		leads = append(leads, s.lead)
	}
	slices.Sort(leads)
	return percentile(leads, 0.5).Round(time.Millisecond)
}

// overall is the speed of all rounds together: deletions per second, and seconds of CPU time for each.
func overall(rounds []speed) (perSecond, cpu float64) {
	deletions, took := 0, 0.0
	for _, s := range rounds {
		deletions += s.deletions
		took += s.took.Seconds()
		cpu += s.cpu
	}
	return float64(deletions) / took, cpu / float64(deletions)
}

func (m match) figures(what, aim string) []figure {
	operator, operatorCPU := overall(m.operator)
	bare, bareCPU := overall(m.bare)
	var each []string
	for i := range m.operator {
		perSecond, _ := overall(m.operator[i : i+1])
		bare, _ := overall(m.bare[i : i+1])
		each = append(each, fmt.Sprintf("%.2f", perSecond/bare))
	}
	return []figure{
		{What: what + ": deletions per second", Value: fmt.Sprintf("%.0f", operator)},
		{What: what + ": the same by bare client-go", Value: fmt.Sprintf("%.0f", bare)},
		{What: what + ": ratio", Value: fmt.Sprintf("%.2f", operator/bare), Aim: aim},
		{What: what + ": ratio of each round", Value: strings.Join(each, ", ")},
		{What: what + ": CPU time of the operator for each, from the event to the end", Value: fmt.Sprintf("%.2f ms", operatorCPU*1000)},
		{What: what + ": CPU time of bare client-go for each", Value: fmt.Sprintf("%.2f ms", bareCPU*1000)},
	}
}

// speed is how long so many deletions took, from the first to the last, how many seconds of CPU time they cost who asked
// for them, how long it was until the first, and with which requests.
type speed struct {
	deletions int
	took      time.Duration
	cpu       float64
	lead      time.Duration
	requests  string
}

// cleaners lets Cleaners delete ConfigMaps.
func (r *rig) cleaners(ctx context.Context, prefix string, cleaners, objects int) (speed, error) {
	ns, err := r.stage(ctx, prefix+"-operator", cleaners, objects)
	if err != nil {
		return speed{}, err
	}
	err = each(cleaners, makers, func(i int) error { return r.admin.Create(ctx, gated(ns, member(i), "gate", member(i))) })
	if err != nil {
		return speed{}, err
	}
	if err := r.fixtures.waits(ctx, ns, cleaners); err != nil {
		return speed{}, err
	}
	waiting := &v1alpha1.Cleaner{}
	if err := r.admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: member(0)}, waiting); err != nil {
		return speed{}, err
	}
	r.waiting = waiting.Status
	return r.speed(ns, "configmaps", cleaners*objects, r.operatorCPU(ctx), func() error {
		if err := r.fixtures.open(ctx, ns, "gate"); err != nil {
			return err
		}
		return r.fixtures.gone(ctx, ns)
	})
}

// bare lets bare client-go delete as many.
func (r *rig) bare(ctx context.Context, prefix string, cleaners, objects int, do func(*bareLoop, context.Context, int) error) (speed, error) {
	ns, err := r.stage(ctx, prefix+"-bare", cleaners, objects)
	if err != nil {
		return speed{}, err
	}
	loop, err := newBareLoop(ctx, r, ns, cleaners)
	if err != nil {
		return speed{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if err := loop.watch(watching); err != nil {
		return speed{}, err
	}
	return r.speed(ns, "configmaps", cleaners*objects, ownCPU, func() error { return do(loop, ctx, cleaners) })
}

// stage makes a namespace with a gate and the ConfigMaps of groups.
func (r *rig) stage(ctx context.Context, prefix string, groups, objects int) (string, error) {
	ns, err := r.Namespace(ctx, prefix)
	if err != nil {
		return "", err
	}
	if err := r.fixtures.configMaps(ctx, ns, "old", groups*objects, func(i int) string { return member(i % groups) }); err != nil {
		return "", err
	}
	return ns, r.fixtures.gate(ctx, ns, "gate")
}

// member names a Cleaner and its group.
func member(i int) string { return fmt.Sprintf("c-%d", i) }

// operatorCPU is how many seconds of CPU time the operator has taken.
func (r *rig) operatorCPU(ctx context.Context) func() (float64, error) {
	return func() (float64, error) {
		values, err := r.metrics(ctx)
		return values["process_cpu_seconds_total"], err
	}
}

// ownCPU is how many seconds of CPU time this process has taken.
func ownCPU() (float64, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0, fmt.Errorf("cannot read the CPU time of this process: %w", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds(), nil
}

// speed measures what is done, from the audit log. Unlike its time, the CPU time of who deletes depends little on what else runs on the machine.
func (r *rig) speed(namespace, resource string, deletions int, cpu func() (float64, error), do func() error) (speed, error) {
	before, err := r.requests(namespace, resource)
	if err != nil {
		return speed{}, err
	}
	used, err := cpu()
	if err != nil {
		return speed{}, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return speed{}, err
	}
	usedNow, err := cpu()
	if err != nil {
		return speed{}, err
	}
	got, err := r.requests(namespace, resource)
	if err != nil {
		return speed{}, err
	}
	if got.deletes != deletions {
		return speed{}, fmt.Errorf("cannot measure: the audit log has %d deletions in namespace %q, want %d", got.deletes, namespace, deletions)
	}
	for what, n := range before.count {
		if got.count[what] -= n; got.count[what] == 0 {
			delete(got.count, what)
		}
	}
	return speed{deletions: deletions, took: got.last.Sub(got.first), cpu: usedNow - used, lead: got.first.Sub(began), requests: counted(got.count)}, nil
}
