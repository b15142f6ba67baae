// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/test/cluster"
)

// StatusPolicy is the name in config/default of the policy that lets only the operator write status, and of its binding.
const StatusPolicy = "cleaner-status"

// AuthorPolicy is the name of the policy that lets only the user of a request be its author, and of its binding.
const AuthorPolicy = "cleaner-author"

// statusDenied is how the API server begins what it says of it.
const statusDenied = "only the operator writes the status of "

// writer tries to write status, with one of the users who have the right to.
type writer struct {
	dynamic.Interface
	name string
}

// StatusIsTheOperators says what is wrong with the policy that is installed: with it only the operator writes the status of a Cleaner or
// a ClusterCleaner, in any version and by any verb, and without it users with the right do. For that, it removes the binding of the
// policy, and restores it.
func StatusIsTheOperators(ctx context.Context, c *cluster.Cluster, namespace string) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	others, self, err := writers(ctx, c, client)
	if err != nil {
		return err
	}
	if err := suspended(ctx, c, namespace); err != nil {
		return err
	}
	bindings := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	binding, err := bindings.Get(ctx, StatusPolicy, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot read the binding of the policy: %w", err)
	}
	if err := bindings.Delete(ctx, StatusPolicy, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("cannot take the policy away: %w", err)
	}
	for _, w := range others {
		if err := until(ctx, func() error { return w.all(ctx, namespace, written) }); err != nil {
			return fmt.Errorf("without the policy %s cannot write status, so nothing is shown: %w", w.name, err)
		}
	}
	binding.ResourceVersion, binding.UID = "", ""
	if _, err := bindings.Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("cannot put the policy back: %w", err)
	}
	for _, w := range others {
		if err := until(ctx, func() error { return w.all(ctx, namespace, denied) }); err != nil {
			return fmt.Errorf("with the policy %s writes status: %w", w.name, err)
		}
	}
	if err := self.all(ctx, namespace, written); err != nil {
		return fmt.Errorf("the operator itself cannot write status: %w", err)
	}
	return nil
}

// writers are a user, a ServiceAccount and an administrator who may write status by their roles; and the operator.
func writers(ctx context.Context, c *cluster.Cluster, client kubernetes.Interface) (others []writer, self writer, err error) {
	const robot = "system:serviceaccount:default:robot"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "status-writer"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"cleaner.vtex.dev"}, Resources: []string{"cleaners/status", "clustercleaners/status"}, Verbs: []string{"update", "patch"},
	}, {
		APIGroups: []string{"cleaner.vtex.dev"}, Resources: []string{"cleaners", "clustercleaners"}, Verbs: []string{"get"},
	}}}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return nil, writer{}, fmt.Errorf("cannot grant writing status: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "status-writer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "mallory"}, {APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: robot}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, writer{}, fmt.Errorf("cannot grant writing status: %w", err)
	}
	as := func(name string) writer {
		config := c.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: name}
		w := writer{name: name}
		if name == "" {
			w.name = cluster.Admin
		}
		var one error
		w.Interface, one = dynamic.NewForConfig(config)
		err = errors.Join(err, one)
		return w
	}
	others, self = []writer{as("mallory"), as(robot), as("")}, as(User)
	return others, self, err
}

// suspended makes a Cleaner and a ClusterCleaner that do nothing.
func suspended(ctx context.Context, c *cluster.Cluster, namespace string) error {
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	for kind, resource := range map[string]string{"Cleaner": "cleaners", "ClusterCleaner": "clustercleaners"} {
		u := &unstructured.Unstructured{}
		err := yaml.Unmarshal([]byte(`
metadata: {name: suspended}
spec:
  suspend: true
  lifecycle: Recurring
  targets: [{name: configs, reference: {version: v1, kind: ConfigMap, matchLabels: {there: "no"}}}]
  rules: [{name: a, forEach: configs.items, when: "false", actions: [{report: {}}]}]
`), &u.Object)
		if err != nil {
			return fmt.Errorf("cannot read a %s: %w", kind, err)
		}
		u.SetAPIVersion("cleaner.vtex.dev/v1alpha1")
		u.SetKind(kind)
		gvr := schema.GroupVersionResource{Group: "cleaner.vtex.dev", Version: "v1alpha1", Resource: resource}
		var in dynamic.ResourceInterface = client.Resource(gvr)
		if kind == "Cleaner" {
			in = client.Resource(gvr).Namespace(namespace)
		}
		// The API server hears of webhooks and kinds by watches.
		if err := until(ctx, func() error { _, err := in.Create(ctx, u, metav1.CreateOptions{}); return err }); err != nil {
			return fmt.Errorf("cannot create a %s: %w", kind, err)
		}
	}
	return nil
}

// all tries each verb on the status of each kind in each version, and hands the answers to a check. Nothing is stored.
func (w writer) all(ctx context.Context, namespace string, check func(error) error) error {
	for _, of := range []struct{ version, resource, kind, namespace string }{
		{"v1alpha1", "cleaners", "Cleaner", namespace}, {"v1alpha", "cleaners", "Cleaner", namespace}, {"v1alpha1", "clustercleaners", "ClusterCleaner", ""},
	} {
		gvr := schema.GroupVersionResource{Group: "cleaner.vtex.dev", Version: of.version, Resource: of.resource}
		var in dynamic.ResourceInterface = w.Resource(gvr)
		if of.namespace != "" {
			in = w.Resource(gvr).Namespace(of.namespace)
		}
		u, err := in.Get(ctx, "suspended", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedField(u.Object, "forged", "status", "lastRequestedAt"); err != nil {
			return err
		}
		_, err = in.UpdateStatus(ctx, u, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err := check(err); err != nil {
			return fmt.Errorf("update of %s: %w", gvr, err)
		}
		_, err = in.Patch(ctx, "suspended", types.MergePatchType, []byte(`{"status":{"lastRequestedAt":"forged"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		if err := check(err); err != nil {
			return fmt.Errorf("patch of %s: %w", gvr, err)
		}
		applied := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gvr.GroupVersion().String(), "kind": of.kind, "metadata": map[string]any{"name": "suspended"}, "status": map[string]any{"lastRequestedAt": "forged"},
		}}
		_, err = in.ApplyStatus(ctx, "suspended", applied, metav1.ApplyOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "forger", Force: true})
		if err := check(err); err != nil {
			return fmt.Errorf("apply of %s: %w", gvr, err)
		}
	}
	return nil
}

// written wants that the API server accepted it.
func written(err error) error { return err }

// denied wants that the policy refused it, and says why.
func denied(err error) error {
	switch {
	case err == nil:
		return errors.New("it was accepted")
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), statusDenied):
		return nil
	}
	return err
}

// until waits until something works.
func until(ctx context.Context, try func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
