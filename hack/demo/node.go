// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
)

const (
	shop = "shop"
	// lostNode is the Node that is lost; the other one stays.
	lostNode, otherNode = "node-b", "node-a"
)

// orphaned is the ClusterCleaner of the second act.
const orphaned = `apiVersion: cleaner.vtex.dev/v1alpha1
kind: ClusterCleaner
metadata: {name: podgc-orphaned}
spec:
  lifecycle: Recurring                    # it stays
  mode: DryRun                            # first it only shows what it would do
  templateRef:
    name: podgc-orphaned                  # one of those in config/templates
    parameters: {quarantine: 5s}          # default 40s
  limits: {maxActions: 100, per: 1h}
`

// nodeAct is the second act: Pods lose their Node, and a Recurring ClusterCleaner cleans up after it.
type nodeAct struct{ story *story }

func (a nodeAct) tell(ctx context.Context) error {
	if err := a.create(ctx); err != nil {
		return err
	}
	if err := a.follow(ctx); err != nil {
		return err
	}
	return a.tellOfPods(ctx)
}

// create makes two Nodes with Pods. There is no kubelet: what it would write is written here.
func (a nodeAct) create(ctx context.Context) error {
	a.story.chapter("Two Nodes")
	if err := a.story.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}); err != nil {
		return fmt.Errorf("cannot create the namespace: %w", err)
	}
	for _, name := range []string{otherNode, lostNode} {
		if err := a.story.client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return fmt.Errorf("cannot create Node %q: %w", name, err)
		}
	}
	a.story.pods = map[string]types.UID{}
	for _, p := range []struct {
		name, node string
		phase      corev1.PodPhase
	}{
		{"web-1", otherNode, corev1.PodRunning}, {"web-2", lostNode, corev1.PodRunning}, {"report-7", lostNode, corev1.PodSucceeded},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: shop},
			Spec: corev1.PodSpec{
				NodeName: p.node, Containers: []corev1.Container{{Name: "web", Image: "example.test/storefront"}},
				AutomountServiceAccountToken: new(false),
			},
		}
		if err := a.story.client.Create(ctx, pod); err != nil {
			return fmt.Errorf("cannot create Pod %q: %w", p.name, err)
		}
		a.story.pods[pod.Name] = pod.UID
		pod.Status.Phase = p.phase
		if err := a.story.client.Status().Update(ctx, pod); err != nil {
			return fmt.Errorf("cannot write the status of Pod %q: %w", p.name, err)
		}
		a.story.say("Pod %s on Node %s: %s", p.name, p.node, p.phase)
	}
	return nil
}

// follow applies the ClusterCleaner, first in DryRun, and follows it until it has done its work.
func (a nodeAct) follow(ctx context.Context) error {
	a.story.chapter("The ClusterCleaner")
	root, err := operator.Root()
	if err != nil {
		return err
	}
	if out, err := a.story.cluster.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(root, "config", "templates")); err != nil {
		return fmt.Errorf("cannot apply the templates: %w\n%s", err, out)
	}
	return a.story.firstInDryRun(ctx, orphaned, func() error { return a.loseNode(ctx) }, a.podIsAsItWas)
}

// firstInDryRun applies a ClusterCleaner in DryRun and follows it: what happens when it is at rest, what it would do, and, when
// unchanged has seen that nothing was, that it does so in earnest.
func (s *story) firstInDryRun(ctx context.Context, manifest string, atRest func() error, unchanged func(context.Context) error) error {
	s.show(manifest)
	c := &v1alpha1.ClusterCleaner{}
	if err := yaml.Unmarshal([]byte(manifest), c); err != nil {
		return fmt.Errorf("cannot read the ClusterCleaner: %w", err)
	}
	w, err := s.client.Watch(ctx, &v1alpha1.ClusterCleanerList{}, client.MatchingFields{"metadata.name": c.Name})
	if err != nil {
		return fmt.Errorf("cannot watch ClusterCleaners: %w", err)
	}
	defer w.Stop()
	if err := s.client.Create(ctx, c); err != nil {
		return fmt.Errorf("cannot create the ClusterCleaner: %w", err)
	}
	s.say("Applied, in DryRun.")
	enforced := false
	return s.follow(ctx, w, func(c v1alpha1.Owner, reason string) (over bool, err error) {
		switch {
		case reason == v1alpha1.ReasonDryRun && !enforced:
			s.actions(c)
			enforced = true
			if err := unchanged(ctx); err != nil {
				return false, err
			}
			return false, s.enforce(ctx, c)
		case reason == v1alpha1.ReasonNothingToDo && enforced:
			s.actions(c)
			s.say("The ClusterCleaner stays, and is at rest: it sends nothing until something changes.")
			return true, nil
		case reason == v1alpha1.ReasonNothingToDo:
			return false, atRest()
		}
		return false, nil
	})
}

// loseNode is the event that the ClusterCleaner is for.
func (a nodeAct) loseNode(ctx context.Context) error {
	a.story.say("EVENT: Node %s is deleted, as when a machine is lost for good. No kubelet is left that could end its Pods.", lostNode)
	if err := a.story.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lostNode}}); err != nil {
		return fmt.Errorf("cannot delete the Node: %w", err)
	}
	return nil
}

// podIsAsItWas tells that a dry run has changed nothing.
func (a nodeAct) podIsAsItWas(ctx context.Context) error {
	pod := &corev1.Pod{}
	if err := a.story.client.Get(ctx, client.ObjectKey{Namespace: shop, Name: "web-2"}, pod); err != nil {
		return fmt.Errorf("a dry run must change nothing: %w", err)
	}
	a.story.say("Nothing was: Pod %s is %s still. That looks right: kubectl edit, mode: Enforce.", pod.Name, pod.Status.Phase)
	return nil
}

// enforce is what a user does after reading what would be done.
func (s *story) enforce(ctx context.Context, c v1alpha1.Owner) error {
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"mode": "Enforce"}}`))
	if err := s.client.Patch(ctx, &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: c.GetName()}}, patch); err != nil {
		return fmt.Errorf("cannot edit the ClusterCleaner: %w", err)
	}
	return nil
}

// actions tells what status.lastActions has that was not told yet, oldest first.
func (s *story) actions(c v1alpha1.Owner) {
	for _, a := range slices.Backward(c.State().LastActions) {
		line := fmt.Sprintf("%s %s: %s", a.Action, a.Object, a.Result)
		if !slices.Contains(s.told, line) {
			s.told = append(s.told, line)
			s.say("  %s", line)
		}
	}
}

// tellOfPods shows what was done to Pods, and that it was done to the very objects that were decided on.
func (a nodeAct) tellOfPods(ctx context.Context) error {
	a.story.chapter("What was done to Pods, from the API server's audit log")
	events, err := a.story.audit.Events()
	if err != nil {
		return err
	}
	for _, e := range events {
		if !e.By(operator.User) || e.ObjectRef == nil || e.ObjectRef.Resource != "pods" || e.Verb != "patch" && e.Verb != "delete" {
			continue
		}
		if err := a.story.request(e); err != nil {
			return err
		}
	}
	pod := &corev1.Pod{}
	if err := a.story.client.Get(ctx, client.ObjectKey{Namespace: shop, Name: "web-1"}, pod); err != nil {
		return fmt.Errorf("a Pod whose Node is there must be left: %w", err)
	}
	a.story.say("Pod %s, whose Node is there, is %s still.", pod.Name, pod.Status.Phase)
	if v := cluster.Violations(events, operator.User); len(v) > 0 {
		return fmt.Errorf("deletions without preconditions:\n%s", strings.Join(v, "\n"))
	}
	return nil
}

// request tells of a deletion or a patch.
func (s *story) request(e cluster.Event) error {
	demand, err := demands(e)
	if err != nil {
		return err
	}
	what := strings.ToUpper(e.Verb) + " " + e.ObjectRef.Resource + " " + e.ObjectRef.Name
	if e.ObjectRef.Subresource != "" {
		what += " (its " + e.ObjectRef.Subresource + ")"
	}
	if dryRun(e) {
		what += ", as a dry run"
	}
	s.say("%s → %d, only if uid=%s… resourceVersion=%s", what, e.Code(), short(demand.UID), value(demand.ResourceVersion))
	return nil
}

// demands is what a deletion or a patch demands of its object. A patch names it as it must be, or, if it is a list of
// operations, tests it.
func demands(e cluster.Event) (metav1.Preconditions, error) {
	if e.Verb == "delete" {
		return e.Preconditions()
	}
	var patch struct{ Metadata metav1.Preconditions }
	if e.RequestObject == nil {
		return patch.Metadata, nil
	}
	var operations []struct{ Op, Path, Value string }
	if json.Unmarshal(e.RequestObject.Raw, &operations) == nil {
		for _, o := range operations {
			switch {
			case o.Op == "test" && o.Path == "/metadata/uid":
				patch.Metadata.UID = new(types.UID(o.Value))
			case o.Op == "test" && o.Path == "/metadata/resourceVersion":
				patch.Metadata.ResourceVersion = &o.Value
			}
		}
		return patch.Metadata, nil
	}
	if err := json.Unmarshal(e.RequestObject.Raw, &patch); err != nil {
		return patch.Metadata, fmt.Errorf("cannot read a patch: %w", err)
	}
	return patch.Metadata, nil
}

// dryRun tells whether a request asks that nothing be changed: a patch says so in its URL, a deletion in its options.
func dryRun(e cluster.Event) bool {
	return strings.Contains(e.RequestURI, "dryRun=All") ||
		e.Verb == "delete" && e.RequestObject != nil && strings.Contains(string(e.RequestObject.Raw), `"dryRun":["All"]`)
}
