// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/reuse"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// kept is the threshold of podgc-terminated.
const kept = 100

// evaluation measures in memory, without a control plane, how long podgc-orphaned takes to decide on the Pods of a cluster: on all, and after one
// has changed.
func evaluation(ctx context.Context, _ *rig, s sizes) ([]figure, error) {
	var figures []figure
	var perPod []float64
	for _, c := range s.evaluated {
		took, err := evaluate(ctx, c)
		if err != nil {
			return nil, err
		}
		perPod = append(perPod, float64(took.Nanoseconds())/float64(c.pods))
		milliseconds := float64(took.Microseconds()) / 1000
		figures = append(figures, figure{
			What:  fmt.Sprintf("Evaluation of podgc-orphaned over %s", c),
			Value: fmt.Sprintf("%.0f ms, %.0f ns for each Pod", milliseconds, perPod[len(perPod)-1]),
		}.on("cpu-looks", "Cleaner, all Pods", float64(c.pods), milliseconds))
	}
	figures = append(figures, figure{
		What: "Evaluation: time for each Pod, of the largest cluster by the smallest one", Value: fmt.Sprintf("%.2f", perPod[len(perPod)-1]/perPod[0]), Aim: "below 2: it grows linearly",
	})
	for _, c := range s.evaluated {
		whole, change, err := evaluateChange(ctx, c, "podgc-orphaned", nil)
		if err != nil {
			return nil, err
		}
		aim := ""
		if c.pods >= 20_000 {
			aim = "at least 1000 times"
		}
		milliseconds := float64(change.Nanoseconds()) / 1e6
		figures = append(figures, figure{
			What:  fmt.Sprintf("Evaluation of podgc-orphaned over %s, after one Pod has changed", c),
			Value: describeChange(whole, change), Aim: aim,
		}.on("cpu-looks", "Cleaner, after one Pod has changed", float64(c.pods), milliseconds))
		if c.pods < 20_000 {
			continue
		}
		joins, err := evaluateJoins(ctx, c)
		if err != nil {
			return nil, err
		}
		figures = append(figures,
			figure{What: fmt.Sprintf("Evaluation of podgc-orphaned over %s, after a Node without Pods has come or gone", c), Value: describeChange(whole, joins.empty)},
			figure{What: fmt.Sprintf("Evaluation of podgc-orphaned over %s, after a Node with Pods has gone", c), Value: describeChange(whole, joins.used)})
	}
	c := s.crowds[len(s.crowds)-1]
	whole, change, err := evaluateChange(ctx, c, "podgc-terminated", func(i int, p *corev1.Pod) {
		if i%100 == 0 {
			p.Status.Phase = corev1.PodSucceeded
		}
	})
	if err != nil {
		return nil, err
	}
	return append(figures, figure{
		What:  fmt.Sprintf("Evaluation of podgc-terminated over %s, one in 100 ended, after one Pod has changed", c),
		Value: describeChange(whole, change),
	}), nil
}

// describeChange says how long an evaluation takes after a change, compared with one of all Pods.
func describeChange(whole, change time.Duration) string {
	return fmt.Sprintf("%.3f ms, %.0f times less than for all Pods", float64(change.Nanoseconds())/1e6, float64(whole)/float64(change))
}

// evaluate returns the median time of an evaluation of all Pods. One in a hundred is on a Node that is missing, and waits for the quarantine.
func evaluate(ctx context.Context, c crowd) (time.Duration, error) {
	in, err := gatherInput(ctx, c, "podgc-orphaned", func(i int, p *corev1.Pod) {
		if i%100 == 0 {
			p.Spec.NodeName = "missing-" + p.Spec.NodeName
		}
	})
	if err != nil {
		return 0, err
	}
	in.Holds = plan.ComputePlan(ctx, in).Holds
	return medianEvaluation(func() (plan.Plan, time.Duration) { return computePlan(ctx, &in) }, func(d *plan.Plan) bool { return len(d.Pending) > 0 })
}

// evaluateChange returns the median time of an evaluation of all Pods by a template that wants nothing of them, and of one after a Pod has changed. No
// Pod is on a missing Node.
func evaluateChange(ctx context.Context, c crowd, template string, adjust func(i int, p *corev1.Pod)) (whole, change time.Duration, err error) {
	in, err := gatherInput(ctx, c, template, adjust)
	if err != nil {
		return 0, 0, err
	}
	if whole, err = medianEvaluation(func() (plan.Plan, time.Duration) { return computePlan(ctx, &in) }, func(d *plan.Plan) bool { return d.Reused == 0 }); err != nil {
		return 0, 0, err
	}
	number, all := numberContents(&in), in.Snapshot
	before := plan.ComputePlan(ctx, in)
	pods := all[0].Objects
	change, err = medianEvaluation(func() (plan.Plan, time.Duration) {
		const changes = 100 // one alone takes too little time to be measured
		took := time.Duration(0)
		for range changes {
			number++
			pod := &pods[number*7919%uint64(len(pods))]
			seen := observed.Change{Namespace: pod.Namespace, Name: pod.Name, Was: true, Before: pod.Content, Now: pod}
			pod.Content = number
			in.Results, in.Snapshot, in.Now = before.Results, nothingChanged(len(all), number), in.Now.Add(time.Second)
			in.Snapshot[0].Changes = []observed.Change{seen}
			began := time.Now()
			before, _ = plan.ComputeChange(ctx, &in, before.Base)
			took += time.Since(began)
		}
		return before, took / changes
	}, func(d *plan.Plan) bool { return d.Base != nil && d.Evaluated == 1 && d.Reused == len(pods)-1 })
	return whole, change, err
}

// numberContents has plans of an input reuse results, and returns the largest number of a content.
func numberContents(in *plan.Input) (number uint64) {
	for t := range in.Snapshot {
		for i := range in.Snapshot[t].Objects {
			number++
			in.Snapshot[t].Objects[i].Content = number
		}
		in.Snapshot[t].At = number
	}
	in.Results = &reuse.Results{}
	return number
}

// nothingChanged returns so many targets, as they are read at a moment when nothing has changed.
func nothingChanged(targets int, at uint64) observed.Snapshot {
	s := make(observed.Snapshot, targets)
	for t := range s {
		s[t] = observed.Target{State: observed.Complete, At: at, IsChange: true}
	}
	return s
}

// joinTimes are median times of evaluations after a Node has changed: one that has no Pods, and one that has.
type joinTimes struct{ empty, used time.Duration }

// evaluateJoins measures evaluations of podgc-orphaned after a Node has come or gone.
func evaluateJoins(ctx context.Context, c crowd) (took joinTimes, err error) {
	in, err := gatherInput(ctx, c, "podgc-orphaned", nil)
	if err != nil {
		return took, err
	}
	number, all := numberContents(&in), in.Snapshot
	first := plan.ComputePlan(ctx, in)
	before, here := first, false
	extra := all[1].Objects[0]
	extra.Name, extra.Value = "extra", map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "extra"}}
	if took.empty, err = medianEvaluation(func() (plan.Plan, time.Duration) {
		number++
		change := observed.Change{Name: extra.Name, Was: here, Before: extra.Content}
		if here = !here; here {
			now := extra
			now.Content = number
			change.Now, extra.Content = &now, number
		}
		in.Results, in.Snapshot, in.Now = before.Results, nothingChanged(len(all), number), in.Now.Add(time.Second)
		in.Snapshot[1].Changes = []observed.Change{change}
		began := time.Now()
		before, _ = plan.ComputeChange(ctx, &in, before.Base)
		return before, time.Since(began)
	}, func(d *plan.Plan) bool { return d.Base != nil && d.Evaluated == 0 }); err != nil {
		return took, err
	}
	in.Snapshot, in.Results, in.Earlier = slices.Clone(all), first.Results, first.Base
	in.Snapshot[1].Objects = all[1].Objects[1:]
	took.used, err = medianEvaluation(func() (plan.Plan, time.Duration) { return computePlan(ctx, &in) },
		func(d *plan.Plan) bool { return len(d.Pending) > 0 && d.Evaluated < c.pods/100 })
	return took, err
}

// computePlan makes a plan a second after the last one, and returns how long that took.
func computePlan(ctx context.Context, in *plan.Input) (plan.Plan, time.Duration) {
	in.Now = in.Now.Add(time.Second)
	runtime.GC() // what the last one has left is not this one's
	began := time.Now()
	d := plan.ComputePlan(ctx, *in)
	return d, time.Since(began)
}

// medianEvaluation returns the median time of some evaluations, which must be right.
func medianEvaluation(evaluate func() (plan.Plan, time.Duration), isRight func(*plan.Plan) bool) (time.Duration, error) {
	const times = 7
	var took []time.Duration
	for i := range times {
		d, t := evaluate()
		took = append(took, t)
		if !isRight(&d) || len(d.Errors) > 0 || len(d.Steps) > 0 {
			return 0, fmt.Errorf("cannot measure: evaluation %d says %s (%s), with %d that wait, %d items evaluated and the errors %v", i, d.Reason, d.Message, len(d.Pending), d.Evaluated, d.Errors)
		}
	}
	slices.Sort(took)
	return percentile(took, 0.5), nil
}

// gatherInput returns what a decision by a template depends on, over Pods that may be adjusted.
func gatherInput(ctx context.Context, c crowd, name string, adjust func(i int, p *corev1.Pod)) (plan.Input, error) {
	cc := collector(name, nil)
	template, err := templates.Load(name)
	if err != nil {
		return plan.Input{}, err
	}
	work, errs := templates.Expand(cc, template)
	if len(errs) > 0 {
		return plan.Input{}, errs.ToAggregate()
	}
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		return plan.Input{}, err
	}
	programs, errs := compiler.Compile(ctx, work)
	if len(errs) > 0 {
		return plan.Input{}, errs.ToAggregate()
	}
	objects := snapshot.NewObjects()
	objects.AddKind(corev1.SchemeGroupVersion, metav1.APIResource{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true})
	objects.AddKind(corev1.SchemeGroupVersion, metav1.APIResource{Name: "nodes", SingularName: "node", Kind: "Node"})
	add := func(kind string, o client.Object) error {
		content, err := k8sruntime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return err
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetAPIVersion("v1")
		u.SetKind(kind)
		u.SetCreationTimestamp(metav1.NewTime(time.Now()))
		return objects.AddObject(u)
	}
	for i := range c.nodes {
		if err := add("Node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node(i)}}); err != nil {
			return plan.Input{}, err
		}
	}
	for i := range c.pods {
		p := pod(fmt.Sprintf("ns-%d", i%100), i, c)
		if adjust != nil {
			adjust(i, p)
		}
		if err := add("Pod", p); err != nil {
			return plan.Input{}, err
		}
	}
	if err := objects.SortObjects(); err != nil {
		return plan.Input{}, err
	}
	now := time.Now()
	return plan.Input{
		Owner: plan.Owner{Name: cc.Name, UID: "bench", Created: now}, Spec: work, Programs: programs,
		Snapshot: snapshot.ReadTargets(ctx, objects, "", work), Now: now,
	}, nil
}

// collector is a ClusterCleaner of a template.
func collector(template string, parameters map[string]any) *v1alpha1.ClusterCleaner {
	cc := &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: template}}
	cc.Spec.Lifecycle, cc.Spec.TemplateRef = v1alpha1.LifecycleRecurring, &v1alpha1.TemplateRef{Name: template}
	if text, err := json.Marshal(parameters); err == nil && parameters != nil {
		cc.Spec.TemplateRef.Parameters = &k8sruntime.RawExtension{Raw: text}
	}
	return cc
}

// ended measures the deletions per second of podgc-terminated, and those of bare client-go.
func ended(ctx context.Context, r *rig, s sizes) ([]figure, error) {
	m, err := byTurns(s.rounds,
		func() (speed, error) { return r.terminated(ctx, s.ended) },
		func() (speed, error) { return r.bareForce(ctx, s.ended) })
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("podgc-terminated with %d Pods over the threshold", s.ended)
	return append(m.figures(what, "at least 0.95"),
		figure{What: what + ": from its creation to the first DELETE, the first look at all Pods included", Value: m.lead().String()},
	), nil
}

// nodesOfEnded is how many Nodes the Pods that have ended ran on.
const nodesOfEnded = 10

// terminated lets podgc-terminated delete Pods, and removes those that it keeps.
func (r *rig) terminated(ctx context.Context, pods int) (speed, error) {
	ns, err := r.fixtures.pods(ctx, "ended-operator", crowd{pods + kept, nodesOfEnded}, corev1.PodSucceeded)
	if err != nil {
		return speed{}, err
	}
	cc := collector("podgc-terminated", map[string]any{"threshold": kept})
	cc.Name = ns
	got, err := r.speed(ns, "pods", pods, r.operatorCPU(ctx), func() error {
		if err := r.admin.Create(ctx, cc); err != nil {
			return err
		}
		return r.fixtures.left(ctx, ns, kept)
	})
	return got, errors.Join(err, r.admin.Delete(ctx, cc),
		r.admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(ns), client.GracePeriodSeconds(0)), r.fixtures.left(ctx, ns, 0))
}

// bareForce lets bare client-go delete as many Pods as podgc-terminated does.
func (r *rig) bareForce(ctx context.Context, n int) (speed, error) {
	ns, err := r.fixtures.pods(ctx, "ended-bare", crowd{n, nodesOfEnded}, corev1.PodSucceeded)
	if err != nil {
		return speed{}, err
	}
	all, err := metadata.NewForConfig(r.as)
	if err != nil {
		return speed{}, err
	}
	pods := all.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(ns)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return speed{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if err := r.watchPods(watching); err != nil {
		return speed{}, err
	}
	now, background := int64(0), metav1.DeletePropagationBackground
	return r.speed(ns, "pods", n, ownCPU, func() error {
		return each(len(list.Items), inFlight, func(i int) error {
			o := &list.Items[i]
			return pods.Delete(ctx, o.Name, metav1.DeleteOptions{
				Preconditions:      &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
				GracePeriodSeconds: &now, PropagationPolicy: &background,
			})
		})
	})
}

// watchPods watches all Pods until the context ends, as kube-controller-manager does: whatever decides on their phases has to.
func (r *rig) watchPods(ctx context.Context) error {
	all, err := newTypedInformers(r.as)
	if err != nil {
		return err
	}
	return runInformers(ctx, all.Pods().Informer())
}

// sum adds the values of a metric over all of its labels.
func sum(values map[string]float64, name string) float64 {
	all := 0.0
	for key, value := range values {
		if key == name || strings.HasPrefix(key, name+"{") {
			all += value
		}
	}
	return all
}
