// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
)

const (
	tenancy = "tenancy"
	tenant  = "mallory"
)

// greedy is a Cleaner that would delete what its author may not even read.
const greedy = `apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: greedy, namespace: tenancy}
spec:
  ttl: 0s
  targets:
  - name: secrets
    reference: {version: v1, kind: Secret, matchLabels: {app: database}}
    delete: true
`

// harmless is a Cleaner of another user in the same namespace.
const harmless = `apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: harmless, namespace: tenancy}
spec:
  suspend: true
  ttl: 1d
  targets:
  - name: configs
    reference: {version: v1, kind: ConfigMap, matchLabels: {app: database}}
    delete: true
`

// tenantAct comes before the others: two attacks by a user who may write Cleaners in a namespace, and their status, and nothing else.
type tenantAct struct{ story *story }

func (a tenantAct) tell(ctx context.Context) error {
	a.story.chapter("A tenant who wants more")
	if err := a.create(ctx); err != nil {
		return err
	}
	config := a.story.cluster.Config()
	config.Impersonate.UserName = tenant
	as, err := client.New(config, client.Options{Scheme: a.story.client.Scheme()})
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	a.story.say("%s may write Cleaners in namespace %s, and their status. By a Cleaner she wants Secrets deleted, which she may not delete:", tenant, tenancy)
	a.story.show(greedy)
	refused, err := refusal(ctx, "the webhook", "a Cleaner may only do what its author may", func() error {
		c := &v1alpha1.Cleaner{}
		if err := yaml.Unmarshal([]byte(greedy), c); err != nil {
			return err
		}
		return as.Create(ctx, c)
	})
	if err != nil {
		return err
	}
	_, why, _ := strings.Cut(refused, "denied the request: ")
	a.story.say("The webhook refuses it: %s", why)

	a.story.say("Then she writes into the status of somebody else's Cleaner that a run is under way:")
	refused, err = refusal(ctx, "the policy", "only the operator writes the status", func() error {
		c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: tenancy, Name: "harmless"}}
		return as.Status().Patch(ctx, c, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"runs":1}}`)))
	})
	if err != nil {
		return err
	}
	_, why, _ = strings.Cut(refused, "denied request: ")
	a.story.say("The API server refuses it: %s", why)
	return nil
}

// create makes a namespace with a Cleaner, and lets the tenant write Cleaners there.
func (a tenantAct) create(ctx context.Context) error {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: tenancy, Name: "status-writer"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"cleaners/status"}, Verbs: []string{"update", "patch"}},
	}}
	bind := func(kind, name string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenancy, Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: tenant}},
		}
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenancy}}, role, bind("Role", role.Name), bind("ClusterRole", "cleaner-editor"),
	} {
		if err := a.story.client.Create(ctx, o); err != nil {
			return fmt.Errorf("cannot create %T %s: %w", o, o.GetName(), err)
		}
	}
	c := &v1alpha1.Cleaner{}
	if err := yaml.Unmarshal([]byte(harmless), c); err != nil {
		return fmt.Errorf("cannot read the Cleaner: %w", err)
	}
	return eventually(ctx, func() error { return a.story.client.Create(ctx, c) })
}

// refusal tries until it is refused for a reason: the API server learns of webhooks, policies and bindings by watches, and until then it
// may refuse for another reason. A success is a failure of the demo.
func refusal(ctx context.Context, by, because string, try func() error) (string, error) {
	refused := ""
	err := eventually(ctx, func() error {
		err := try()
		switch {
		case err == nil:
			return errors.New("it was accepted")
		case apierrors.IsForbidden(err) && strings.Contains(err.Error(), because):
			refused = err.Error()
			return nil
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("cannot see that %s refuses it: %w", by, err)
	}
	return refused, nil
}

// eventually tries until it succeeds, for at most a minute.
func eventually(ctx context.Context, try func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
