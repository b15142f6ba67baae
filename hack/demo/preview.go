// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/helmtest"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/sink"
)

const (
	namespace = "faststore-proxy"
	commit    = "sfj-commit--account"
	// longAgo is before any 15 days that a condition may ask for.
	longAgo = "2020-01-01T00:00:00Z"
)

// knativeService is one of the two Knative Services of the release.
const knativeService = `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: "%s"}
spec: {template: {spec: {containers: [{image: example.test/storefront}]}}}
`

// revision is a Revision as Knative would make it.
const revision = `apiVersion: serving.knative.dev/v1
kind: Revision
metadata:
  name: %s
  namespace: faststore-proxy
  labels: {vtex.io/proxy: nginx-proxy-id}
  annotations: {serving.knative.dev/routes: "%s"}
spec: {containers: [{image: example.test/storefront}]}
`

// previewAct is the first act: the environment of one commit is cleaned up when it is no longer used.
type previewAct struct {
	story    *story
	received *sink.Sink
	url      string
}

// tell tells it from the beginning to the end.
func (a previewAct) tell(ctx context.Context) error {
	if err := a.create(ctx); err != nil {
		return err
	}
	if err := a.follow(ctx); err != nil {
		return err
	}
	return a.epilogue(ctx)
}

// create creates the objects to clean up.
func (a previewAct) create(ctx context.Context) error {
	a.story.chapter("The environment of one commit")
	if err := a.story.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("cannot create the namespace: %w", err)
	}
	_, err := helmtest.Install(ctx, a.story.cluster.Config(), namespace, commit, helmtest.Chart{Templates: map[string]string{
		"nginx.yaml":  fmt.Sprintf(knativeService, commit),
		"nodejs.yaml": fmt.Sprintf(knativeService, commit+"-node"),
	}})
	if err != nil {
		return err
	}
	a.story.say("Helm release %s: Knative Services %s and %s-node", commit, commit, commit)
	if err := a.createRevision(ctx, commit+"-00001", "sfj-commit--account,preview-7", "False"); err != nil {
		return err
	}
	a.story.say("Revision %s-00001: routed from sfj-commit--account and preview-7, not active since %s", commit, longAgo)
	if err := a.createRevision(ctx, commit+"-00002", "www", "True"); err != nil {
		return err
	}
	a.story.say("Revision %s-00002: routed from www, active: somebody uses it", commit)
	return nil
}

func (a previewAct) createRevision(ctx context.Context, name, routes, active string) error {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, revision, name, routes), &u.Object); err != nil {
		return fmt.Errorf("cannot read Revision %q: %w", name, err)
	}
	if err := a.story.client.Create(ctx, u); err != nil {
		return fmt.Errorf("cannot create Revision %q: %w", name, err)
	}
	return a.writeActive(ctx, u, active)
}

// writeActive writes a Revision's condition as Knative would.
func (a previewAct) writeActive(ctx context.Context, u *unstructured.Unstructured, status string) error {
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Active", "status": status, "lastTransitionTime": longAgo}}}
	if err := a.story.client.Status().Update(ctx, u); err != nil {
		return fmt.Errorf("cannot write the status of Revision %q: %w", u.GetName(), err)
	}
	return nil
}

// follow applies the Cleaner and follows it to its end.
func (a previewAct) follow(ctx context.Context) error {
	a.story.chapter("The Cleaner")
	text, err := proposal(a.url)
	if err != nil {
		return err
	}
	a.story.show(strings.TrimLeft(dropComments(text), "\n"))
	c := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &c.Object); err != nil {
		return fmt.Errorf("cannot read the sample: %w", err)
	}
	w, err := a.story.client.Watch(ctx, &v1alpha1.CleanerList{}, client.InNamespace(namespace))
	if err != nil {
		return fmt.Errorf("cannot watch Cleaners: %w", err)
	}
	defer w.Stop()
	if err := a.story.client.Create(ctx, c); err != nil {
		return fmt.Errorf("cannot create the Cleaner: %w", err)
	}
	a.story.say("Applied. What follows is its status, as it changes.")
	return a.story.follow(ctx, w, func(_ v1alpha1.Owner, reason string) (over bool, err error) {
		if reason == v1alpha1.ReasonConditionsNotMet { // until the last user of the environment goes
			return false, a.freeRevision(ctx)
		}
		return false, nil
	})
}

// dropComments leaves out the lines that are comments.
func dropComments(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// freeRevision is the event that the Cleaner waits for.
func (a previewAct) freeRevision(ctx context.Context) error {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("serving.knative.dev/v1")
	u.SetKind("Revision")
	if err := a.story.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: commit + "-00002"}, u); err != nil {
		return fmt.Errorf("cannot read the Revision: %w", err)
	}
	u.SetAnnotations(map[string]string{"serving.knative.dev/routes": "preview-8"})
	a.story.say("EVENT: www leaves Revision %s-00002, and its traffic ended long ago. Nobody calls the Cleaner: its watch does.", commit)
	if err := a.story.client.Update(ctx, u); err != nil {
		return fmt.Errorf("cannot update the Revision: %w", err)
	}
	return a.writeActive(ctx, u, "False")
}

// epilogue shows what was deleted, and what the sink received.
func (a previewAct) epilogue(ctx context.Context) error {
	a.story.chapter("What was deleted, from the API server's audit log")
	events, err := a.story.audit.Events()
	if err != nil {
		return err
	}
	for _, e := range cluster.Deletes(events, operator.User) {
		if e.ObjectRef == nil || e.ObjectRef.Namespace != namespace {
			continue
		}
		pre, err := e.Preconditions()
		if err != nil {
			return err
		}
		a.story.say("DELETE %s %s → %d, only if uid=%s… resourceVersion=%s", e.ObjectRef.Resource, e.ObjectRef.Name, e.Code(), short(pre.UID), value(pre.ResourceVersion))
	}
	if v := cluster.Violations(events, operator.User); len(v) > 0 {
		return fmt.Errorf("deletions without preconditions:\n%s", strings.Join(v, "\n"))
	}
	a.story.chapter("What the sink received")
	got, err := a.received.WaitFor(ctx, 1)
	if err != nil {
		return err
	}
	for _, e := range got {
		a.story.say("CloudEvent %s, id %s", e.Type, e.ID)
		var data any
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return fmt.Errorf("cannot read the event: %w", err)
		}
		text, err := yaml.Marshal(data)
		if err != nil {
			return fmt.Errorf("cannot show the event: %w", err)
		}
		a.story.show(string(text))
	}
	return nil
}
