// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/realistic"
)

const (
	mebibyte = 1 << 20
	// teams is how many namespaces the Pods of a crowd are in.
	teams = 50
	// podsPerNode is how many Pods are on each Node.
	podsPerNode = 20
)

// podgc are the templates that watch all Pods, and that find nothing to do among those that run.
func podgc() []string {
	return []string{"podgc-terminated", "podgc-out-of-service", "podgc-orphaned", "podgc-unscheduled-terminating"}
}

// startPodgc makes a ClusterCleaner of each of these templates. The caller must call end, also after an error.
func startPodgc(ctx context.Context, r *rig) (end func() error, err error) {
	var all []client.Object
	end = func() error {
		var errs []error
		for _, cc := range all {
			errs = append(errs, r.admin.Delete(ctx, cc))
		}
		return errors.Join(errs...)
	}
	for _, name := range podgc() {
		cc := collector(name, nil)
		if err := r.admin.Create(ctx, cc); err != nil {
			return end, err
		}
		all = append(all, cc)
	}
	return end, nil
}

// field is the Pods and Nodes of a cluster that grows. They are written into etcd as an API server writes them: two cores could not create
// so many through the API server in a reasonable time.
type field struct {
	*rig
	store      *store
	core       corev1client.CoreV1Interface
	namespaces []string
	crowd      crowd
	held       map[string]holding // what other ways took for this crowd, by their names
}

func newField(ctx context.Context, r *rig) (*field, error) {
	core, err := corev1client.NewForConfig(r.Config())
	if err != nil {
		return nil, err
	}
	f := &field{rig: r, store: newStore(r.EtcdURL()), core: core, namespaces: make([]string, teams), held: map[string]holding{}}
	return f, each(teams, makers, func(i int) error {
		var err error
		f.namespaces[i], err = r.Namespace(ctx, "team")
		return err
	})
}

// pod is the Pod of a number: 20 are on each Node.
func (f *field) pod(n int) (*corev1.Pod, error) {
	return realistic.Pod(f.namespaces[n%teams], n, n/podsPerNode)
}

// grow adds Pods and Nodes until there are so many, and returns when the API server has seen them.
func (f *field) grow(ctx context.Context, to crowd) error {
	err := each(to.nodes-f.crowd.nodes, makers, func(i int) error {
		node, err := realistic.Node(f.crowd.nodes + i)
		if err != nil {
			return err
		}
		return f.store.put(ctx, "/registry/minions/"+node.Name, node)
	})
	if err != nil {
		return err
	}
	err = each(to.pods-f.crowd.pods, makers, func(i int) error {
		pod, err := f.pod(f.crowd.pods + i)
		if err != nil {
			return err
		}
		return f.store.putPod(ctx, pod)
	})
	if err != nil {
		return err
	}
	f.crowd = to
	return f.mark(ctx, "grown to "+to.String())
}

// mark writes a message into the last Pod, and returns when the API server has seen it: then it has seen all that was written before.
func (f *field) mark(ctx context.Context, message string) error {
	last, err := f.pod(f.crowd.pods - 1)
	if err != nil {
		return err
	}
	last.Status.Message = message
	if err := f.store.putPod(ctx, last); err != nil {
		return err
	}
	return until(ctx, "the last Pod", func(ctx context.Context) (bool, error) {
		now, err := f.core.Pods(last.Namespace).Get(ctx, last.Name, metav1.GetOptions{ResourceVersion: "0"}) // of what is watched
		return err == nil && now.Status.Message == message, nil
	})
}

// change changes the status of one Pod after the other until the context or the time ends, so many in a second, and returns how many in a
// second it were.
func (f *field) change(ctx context.Context, rate int, d time.Duration) (float64, error) {
	pace := flowcontrol.NewTokenBucketRateLimiter(float32(rate), rate/10+1)
	began := time.Now()
	ends := began.Add(d)
	var written atomic.Int64
	err := each(int(d.Seconds()*float64(rate)), makers, func(i int) error {
		if !awaitTurn(ctx, pace) || time.Now().After(ends) { // the others are not written
			return nil
		}
		pod, err := f.pod(i * 7919 % f.crowd.pods)
		if err != nil {
			return err
		}
		pod.Status.Message = fmt.Sprintf("change %d at %d", i, began.UnixNano())
		if err := f.store.putPod(context.WithoutCancel(ctx), pod); err != nil {
			return err
		}
		written.Add(1)
		return nil
	})
	return float64(written.Load()) / time.Since(began).Seconds(), err
}

// awaitTurn waits for the next turn of a pace, and says whether there is one: none is when the context has ended.
func awaitTurn(ctx context.Context, pace flowcontrol.RateLimiter) bool { return pace.Wait(ctx) == nil }

// restartOverCrowd restarts the operator, and returns how long it took until it had evaluated so many Cleaners and watched all Pods. Where
// there are more Pods than its Deployment is made for, it may use more memory.
func (f *field) restartOverCrowd(ctx context.Context, cleaners int) (time.Duration, error) {
	return f.rig.restart(ctx, fmt.Sprintf("%d Cleaners evaluated over %s", cleaners, f.crowd), func(now map[string]float64) bool {
		return sum(now, "cleaner_evaluations_total") >= float64(cleaners) && sum(now, "cleaner_watched_objects") >= float64(f.crowd.pods+f.crowd.nodes)
	}, f.listFlags()...)
}

// listFlags returns what the operator needs where there are more Pods than its Deployment is made for.
func (f *field) listFlags() []string {
	if f.crowd.pods > 20_000 {
		return []string{"--memory-limit=8Gi"}
	}
	return nil
}

// restart stops the operator and starts it again with arguments, and returns how long it took until its metrics showed that it is ready.
func (r *rig) restart(ctx context.Context, what string, ready func(metrics map[string]float64) bool, args ...string) (time.Duration, error) {
	if err := r.stop(); err != nil {
		return 0, err
	}
	began := time.Now()
	var err error
	if r.proc, err = r.start(ctx, "", args...); err != nil {
		return 0, err
	}
	err = until(ctx, what, func(ctx context.Context) (bool, error) {
		now, err := r.metrics(ctx)
		return err == nil && ready(now), nil // it may not serve them yet
	})
	return time.Since(began), err
}

// interval is what the operator did meanwhile, as its metrics say.
type interval struct {
	before, after map[string]float64
	seconds       float64
}

// measureInterval returns what the operator did while something was done.
func (r *rig) measureInterval(ctx context.Context, do func() error) (i interval, err error) {
	if i.before, err = r.metrics(ctx); err != nil {
		return interval{}, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return interval{}, err
	}
	i.after, err = r.metrics(ctx)
	i.seconds = time.Since(began).Seconds()
	return i, err
}

// rate is how much a metric has grown per second, over all of its labels.
func (i *interval) rate(name string) float64 {
	return (sum(i.after, name) - sum(i.before, name)) / i.seconds
}

// cpu is how many milliseconds of CPU time the operator took per second.
func (i *interval) cpu() float64 { return i.rate("process_cpu_seconds_total") * 1000 }

// resident is the resident memory of the operator at the end, in MiB.
func (i *interval) resident() float64 { return i.after["process_resident_memory_bytes"] / mebibyte }

// stop stops the operator, as kubelet does.
func (r *rig) stop() error {
	if err := r.proc.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("cannot stop the operator: %w", err)
	}
	<-r.proc.Exited()
	return nil
}

// rest returns what the operator's process takes when it has had nothing to do for a while.
func (r *rig) rest(ctx context.Context) (resident float64, err error) {
	if err := pause(ctx, 20*time.Second); err != nil {
		return 0, err
	}
	now, err := r.metrics(ctx)
	return now["process_resident_memory_bytes"] / mebibyte, err
}

// pods measures what the four podgc templates cost as a cluster grows, and while its Pods change; and what caches of client-go take for the
// same Pods, and what a list of them costs each time.
func pods(ctx context.Context, r *rig, s sizes) (figures []figure, err error) {
	f, err := crowded(ctx, r)
	if err != nil {
		return nil, err
	}
	end, err := startPodgc(ctx, r)
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return nil, err
	}
	for _, c := range s.crowds {
		if err := f.grow(ctx, c); err != nil {
			return nil, err
		}
		got, err := f.measureCrowd(ctx, c.pods <= s.cached)
		if err != nil {
			return nil, err
		}
		figures = append(figures, got...)
		if c == s.busy {
			got, err := f.measureChanges(ctx, s)
			if err != nil {
				return nil, err
			}
			figures = append(figures, got...)
		}
	}
	return figures, nil
}

// crowded returns the field of Pods and Nodes, which all measurements share.
func crowded(ctx context.Context, r *rig) (*field, error) {
	if r.field != nil {
		return r.field, nil
	}
	var err error
	r.field, err = newField(ctx, r)
	return r.field, err
}

// measureCrowd measures what the operator takes for the Pods that there are, and others too if asked.
func (f *field) measureCrowd(ctx context.Context, others bool) ([]figure, error) {
	took, err := f.restartOverCrowd(ctx, len(podgc()))
	if err != nil {
		return nil, err
	}
	resident, err := f.rest(ctx)
	if err != nil {
		return nil, err
	}
	x := float64(f.crowd.pods)
	what := fmt.Sprintf("Four podgc templates over %s: ", f.crowd)
	figures := []figure{
		{What: what + "from the start of the operator until all are evaluated", Value: took.Round(100 * time.Millisecond).String()},
		figure{What: what + "resident memory of the operator", Value: fmt.Sprintf("%.0f MiB", resident), Aim: f.aim("at most 150 MiB")}.on("memory-pods", "Cleaner, four podgc templates", x, resident),
	}
	if !others {
		return figures, nil
	}
	for _, way := range waysToHold() {
		held, err := hold(ctx, f.rig, way)
		if err != nil {
			return nil, err
		}
		if held.Pods < f.crowd.pods {
			return nil, fmt.Errorf("cannot measure: %s has %d Pods of %d", way.what, held.Pods, f.crowd.pods)
		}
		f.held[way.name] = held
		figures = append(figures, held.figures(f.crowd, way)...)
	}
	return figures, nil
}

// measureChanges measures what the operator takes for each Pod, and while Pods change.
func (f *field) measureChanges(ctx context.Context, s sizes) ([]figure, error) {
	heap, err := f.heap(ctx)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("Heap of the operator for each of %s, the operator itself included", f.crowd)
	figures := []figure{{What: what, Value: fmt.Sprintf("%.1f KiB", heap/float64(f.crowd.pods)/1024)}}
	for _, way := range waysToHold() {
		if way.part > 0 {
			figures = append(figures, figure{
				What: fmt.Sprintf("%s: against the heap of a %s", what, way.what), Value: fmt.Sprintf("1/%.1f", f.held[way.name].Heap/heap), Aim: fmt.Sprintf("at most 1/%d", way.part),
			})
		}
	}
	for _, rate := range s.rates {
		var written float64
		began := time.Now()
		meanwhile, err := f.measureInterval(ctx, func() (err error) {
			if written, err = f.change(ctx, rate, s.writes); err != nil {
				return err
			}
			return f.mark(ctx, fmt.Sprintf("changed at %d", rate))
		})
		if err != nil {
			return nil, err
		}
		asked, err := countRequests(f.rig, began)
		if err != nil {
			return nil, err
		}
		what := fmt.Sprintf("Four podgc templates over %s, %.0f changes of Pods per second: ", f.crowd, written)
		figures = append(figures,
			figure{What: what + "CPU time of the operator per second", Value: fmt.Sprintf("%.0f ms", meanwhile.cpu())}.on("cpu-changes", "Cleaner, four podgc templates", written, meanwhile.cpu()),
			figure{What: what + "evaluations per second, of all four", Value: fmt.Sprintf("%.1f", meanwhile.rate("cleaner_evaluations_total"))},
			figure{What: what + "requests of the operator, beyond watches and its Leases", Value: counted(asked)},
			figure{What: what + "resident memory of the operator", Value: fmt.Sprintf("%.0f MiB", meanwhile.resident()), Aim: f.aim("at most 150 MiB")})
	}
	return figures, nil
}

// aim is what memory should be with 20,000 Pods.
func (f *field) aim(aim string) string {
	if f.crowd.pods == 20_000 {
		return aim
	}
	return ""
}

// countRequests counts what the operator has asked of the API server, without watches and its Leases, by verb and resource.
func countRequests(r *rig, since time.Time) (map[string]int, error) {
	events, err := r.audit.Events()
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, e := range events {
		if !e.By(operator.User) || e.Verb == "watch" || e.ObjectRef == nil || e.ObjectRef.Resource == "leases" || e.RequestReceivedTimestamp.Time.Before(since) {
			continue
		}
		count[nameRequest(e)]++
	}
	return count, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
