// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
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

// story is what the demo shows.
type story struct {
	*teller
	client   client.WithWatch
	cluster  *cluster.Cluster
	audit    *cluster.Witness
	received *sink.Sink
	url      string
	// told are the actions that were told.
	told []string
	// pods are the UIDs of the Pods of the second act, by name.
	pods map[string]types.UID
}

func newStory(c *cluster.Cluster, t *teller, received *sink.Sink, url string) (*story, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	w, err := client.NewWithWatch(c.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	audit, err := c.Witness()
	if err != nil {
		return nil, err
	}
	return &story{teller: t, client: w, cluster: c, audit: audit, received: received, url: url}, nil
}

// tell tells the first act, from the beginning to the end.
func (s *story) tell(ctx context.Context) error {
	if err := s.environment(ctx); err != nil {
		return err
	}
	if err := s.cleaner(ctx); err != nil {
		return err
	}
	return s.epilogue(ctx)
}

// environment creates the objects to clean up.
func (s *story) environment(ctx context.Context) error {
	s.chapter("The environment of one commit")
	if err := s.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("cannot create the namespace: %w", err)
	}
	_, err := helmtest.Install(ctx, s.cluster.Config(), namespace, commit, helmtest.Chart{Templates: map[string]string{
		"nginx.yaml":  fmt.Sprintf(knativeService, commit),
		"nodejs.yaml": fmt.Sprintf(knativeService, commit+"-node"),
	}})
	if err != nil {
		return err
	}
	s.say("Helm release %s: Knative Services %s and %s-node", commit, commit, commit)
	if err := s.revision(ctx, commit+"-00001", "sfj-commit--account,preview-7", "False"); err != nil {
		return err
	}
	s.say("Revision %s-00001: routed from sfj-commit--account and preview-7, not active since %s", commit, longAgo)
	if err := s.revision(ctx, commit+"-00002", "www", "True"); err != nil {
		return err
	}
	s.say("Revision %s-00002: routed from www, active: somebody uses it", commit)
	return nil
}

func (s *story) revision(ctx context.Context, name, routes, active string) error {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, revision, name, routes), &u.Object); err != nil {
		return fmt.Errorf("cannot read Revision %q: %w", name, err)
	}
	if err := s.client.Create(ctx, u); err != nil {
		return fmt.Errorf("cannot create Revision %q: %w", name, err)
	}
	return s.active(ctx, u, active)
}

// active writes a Revision's condition as Knative would.
func (s *story) active(ctx context.Context, u *unstructured.Unstructured, status string) error {
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Active", "status": status, "lastTransitionTime": longAgo}}}
	if err := s.client.Status().Update(ctx, u); err != nil {
		return fmt.Errorf("cannot write the status of Revision %q: %w", u.GetName(), err)
	}
	return nil
}

// cleaner applies the Cleaner and follows it to its end.
func (s *story) cleaner(ctx context.Context) error {
	s.chapter("The Cleaner")
	text, err := proposal(s.url)
	if err != nil {
		return err
	}
	s.show(strings.TrimLeft(dropComments(text), "\n"))
	c := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &c.Object); err != nil {
		return fmt.Errorf("cannot read the sample: %w", err)
	}
	w, err := s.client.Watch(ctx, &v1alpha1.CleanerList{}, client.InNamespace(namespace))
	if err != nil {
		return fmt.Errorf("cannot watch Cleaners: %w", err)
	}
	defer w.Stop()
	if err := s.client.Create(ctx, c); err != nil {
		return fmt.Errorf("cannot create the Cleaner: %w", err)
	}
	s.say("Applied. What follows is its status, as it changes.")
	return s.follow(ctx, w, func(_ v1alpha1.Owner, reason string) (over bool, err error) {
		if reason == v1alpha1.ReasonConditionsNotMet { // until the last user of the environment goes
			return false, s.release(ctx)
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

// follow tells each change of what a Cleaner says of itself, until it is gone, or until what is done about a reason says
// that this is over.
func (s *story) follow(ctx context.Context, w watch.Interface, on func(c v1alpha1.Owner, reason string) (over bool, err error)) error {
	var said string
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-w.ResultChan():
			c, is := e.Object.(v1alpha1.Owner)
			switch {
			case !ok:
				return errors.New("cannot watch Cleaners: the watch ended")
			case !is:
				continue
			case e.Type == watch.Deleted:
				s.say("The Cleaner is gone.")
				return nil
			}
			ready := meta.FindStatusCondition(c.State().Conditions, v1alpha1.ConditionReady)
			if ready == nil || said == ready.Reason+ready.Message {
				continue
			}
			said = ready.Reason + ready.Message
			s.say("%s: %s%s", ready.Reason, ready.Message, next(c))
			if over, err := on(c, ready.Reason); over || err != nil {
				return err
			}
		}
	}
}

// next says until when a Cleaner waits if nothing happens.
func next(c v1alpha1.Owner) string {
	at := c.State().NextScheduledEvaluation
	if at == nil {
		return ""
	}
	return fmt.Sprintf(" [looks again at %s]", at.Local().Format(time.TimeOnly))
}

// release is the event that the Cleaner waits for.
func (s *story) release(ctx context.Context) error {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("serving.knative.dev/v1")
	u.SetKind("Revision")
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: commit + "-00002"}, u); err != nil {
		return fmt.Errorf("cannot read the Revision: %w", err)
	}
	u.SetAnnotations(map[string]string{"serving.knative.dev/routes": "preview-8"})
	s.say("EVENT: www leaves Revision %s-00002, and its traffic ended long ago. Nobody calls the Cleaner: its watch does.", commit)
	if err := s.client.Update(ctx, u); err != nil {
		return fmt.Errorf("cannot update the Revision: %w", err)
	}
	return s.active(ctx, u, "False")
}

// epilogue shows what was deleted, and what the sink received.
func (s *story) epilogue(ctx context.Context) error {
	s.chapter("What was deleted, from the API server's audit log")
	events, err := s.audit.Events()
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
		s.say("DELETE %s %s → %d, only if uid=%s… resourceVersion=%s", e.ObjectRef.Resource, e.ObjectRef.Name, e.Code(), short(pre.UID), value(pre.ResourceVersion))
	}
	if v := cluster.Violations(events, operator.User); len(v) > 0 {
		return fmt.Errorf("deletions without preconditions:\n%s", strings.Join(v, "\n"))
	}
	s.chapter("What the sink received")
	got, err := s.received.WaitFor(ctx, 1)
	if err != nil {
		return err
	}
	for _, e := range got {
		s.say("CloudEvent %s, id %s", e.Type, e.ID)
		var data any
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return fmt.Errorf("cannot read the event: %w", err)
		}
		text, err := yaml.Marshal(data)
		if err != nil {
			return fmt.Errorf("cannot show the event: %w", err)
		}
		s.show(string(text))
	}
	return nil
}

func short[T ~string](p *T) string {
	return value(p)[:min(8, len(value(p)))]
}

func value[T ~string](p *T) string {
	if p == nil {
		return "-"
	}
	return string(*p)
}
