// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/test/operator"
)

// account makes a namespace with a ServiceAccount that may read and delete its ConfigMaps and Secrets, one of each of which
// there is; and returns a client of the operator that acts as that account.
func account(t *testing.T) (namespace string, as kubernetes.Interface) {
	t.Helper()
	c, client := needCluster(t)
	namespace, err := c.Namespace(t.Context(), "account-")
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "robot", Namespace: namespace}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}))
	must(client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{}))
	must(client.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{}))
	must(client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: []string{"get", "delete"}},
	}}, metav1.CreateOptions{}))
	bind(t, namespace, "Role", "robot", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "robot", Namespace: namespace})
	config, err := c.ServiceAccountConfig(t.Context(), operator.Namespace, operator.ServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":robot"}
	if as, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return namespace, as
}

// bind binds a role in a namespace.
func bind(t *testing.T, namespace, kind, role string, to rbacv1.Subject) {
	t.Helper()
	_, client := needCluster(t)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}, Subjects: []rbacv1.Subject{to},
	}
	if _, err := client.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// works waits until a request is accepted: the authorizer hears of bindings by watches.
func works(t *testing.T, what string, request func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = request(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

// By default the operator acts as no ServiceAccount. Bound to cleaner-impersonation in a namespace it acts as those of that
// namespace, and only on what a preset grants besides; bound to cleaner-legacy-impersonation, on all that the account may.
func TestActsAsAccountsOnlyWhereItIsBound(t *testing.T) {
	_, client := needCluster(t)
	aggregated(t, client, "cleaner-targets", about("revisions"))
	bound, asBound := account(t)
	other, asOther := account(t)
	configs := func(namespace string, as kubernetes.Interface) func(context.Context) error {
		return func(ctx context.Context) error {
			return as.CoreV1().ConfigMaps(namespace).Delete(ctx, "robot", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		}
	}
	secrets := func(namespace string, as kubernetes.Interface) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := as.CoreV1().Secrets(namespace).Get(ctx, "robot", metav1.GetOptions{})
			return err
		}
	}
	forbidden := func(what string, request func(context.Context) error) {
		t.Helper()
		if err := request(t.Context()); !apierrors.IsForbidden(err) {
			t.Error(fmt.Errorf("%s: %w", what, err))
		}
	}
	forbidden("it acts as an account by default", configs(bound, asBound))
	self := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: operator.ServiceAccount, Namespace: operator.Namespace}
	bind(t, bound, "ClusterRole", "cleaner-impersonation", self)
	works(t, "where it is bound", configs(bound, asBound))
	forbidden("it reads Secrets, which no preset lets it, as an account", secrets(bound, asBound))
	forbidden("it acts as an account of another namespace", configs(other, asOther))
	bind(t, other, "ClusterRole", "cleaner-legacy-impersonation", self)
	works(t, "where the broad role is bound", secrets(other, asOther))
}
