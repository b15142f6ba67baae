// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

const rbac = "rbac.authorization.k8s.io/v1"

// grantAll lets the operator do everything with what lies in namespaces, itself and as any ServiceAccount, so that nothing
// but its own care stands between a sender and everybody else.
func (e *env) grantAll(ctx context.Context) error {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	for _, verb := range verbs {
		verbs = append(verbs, "impersonate-on:serviceaccount:"+verb)
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "cleaner-may-all", Labels: map[string]string{"cleaner.vtex.dev/aggregate-to-controller": "true"}},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps", "pods", "secrets", "services", "serviceaccounts"}, Verbs: verbs},
			{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}, Verbs: verbs},
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: verbs},
			{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate:serviceaccount"}},
		},
	}
	if _, err := e.create(ctx, rbac, "ClusterRole", role); err != nil {
		return fmt.Errorf("cannot grant the operator everything: %w", err)
	}
	reads := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reads"}, Rules: []rbacv1.PolicyRule{may("get list watch", "", "configmaps")}}
	if _, err := e.create(ctx, rbac, "ClusterRole", reads); err != nil {
		return err
	}
	for _, s := range senders() {
		for role, bound := range map[string]bool{"cleaner-cluster-editor": s.everywhere, "reads": s.reads} {
			if !bound {
				continue
			}
			binding := &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: s.user + "-" + role}, Subjects: []rbacv1.Subject{s.subject()},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			}
			if _, err := e.create(ctx, rbac, "ClusterRoleBinding", binding); err != nil {
				return fmt.Errorf("cannot bind %s to %s: %w", s.user, role, err)
			}
		}
	}
	return nil
}

func (s sender) subject() rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: s.user}
}

// makeNamespace makes a namespace, in it a Secret and a RoleBinding that nobody may touch, and the rights of a sender.
func (e *env) makeNamespace(ctx context.Context, name, by string) error {
	in := func(object string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: name, Name: object} }
	if _, err := e.create(ctx, "v1", "Namespace", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return err
	}
	if _, err := e.create(ctx, "v1", "Secret", &corev1.Secret{ObjectMeta: in("kept"), Data: map[string][]byte{"password": []byte("hunter2")}}); err != nil {
		return err
	}
	view := &rbacv1.RoleBinding{ObjectMeta: in("kept"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}
	if _, err := e.create(ctx, rbac, "RoleBinding", view); err != nil || by == "" {
		return err
	}
	s := senders()[by]
	if _, err := e.create(ctx, rbac, "Role", &rbacv1.Role{ObjectMeta: in("sender"), Rules: s.rights}); err != nil {
		return err
	}
	for binding, ref := range map[string]rbacv1.RoleRef{
		"sender": {APIGroup: rbacv1.GroupName, Kind: "Role", Name: "sender"},
		"editor": {APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cleaner-editor"},
	} {
		b := &rbacv1.RoleBinding{ObjectMeta: in(binding), Subjects: []rbacv1.Subject{s.subject()}, RoleRef: ref}
		if _, err := e.create(ctx, rbac, "RoleBinding", b); err != nil {
			return err
		}
	}
	return nil
}

// mayCreate says whether the API server knows of a sender's rights.
func (e *env) mayCreate(ctx context.Context, user, namespace string) (bool, error) {
	for _, resource := range []string{"cleaners", "configmaps"} {
		group := ""
		if resource == "cleaners" {
			group = v1alpha1.GroupVersion.Group
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Group: group, Resource: resource},
		}}
		got, err := e.create(ctx, "authorization.k8s.io/v1", "SubjectAccessReview", review)
		if err != nil {
			return false, err
		}
		if allowed, _, err := unstructured.NestedBool(got.Object, "status", "allowed"); err != nil || !allowed {
			return false, err
		}
	}
	return true, nil
}

// crowns makes what others want in the namespace of the victim, and gives the UID of its ConfigMap.
func (e *env) crowns(ctx context.Context) (string, error) {
	in := metav1.ObjectMeta{Namespace: victim, Name: "crown", Labels: map[string]string{"app": "crown"}}
	cm, err := e.create(ctx, "v1", "ConfigMap", &corev1.ConfigMap{ObjectMeta: in})
	if err != nil {
		return "", err
	}
	pod := &corev1.Pod{ObjectMeta: in, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}, AutomountServiceAccountToken: new(bool), ServiceAccountName: "deployer"}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: victim, Name: "deployer"}}
	all := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: victim, Name: "deployer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: victim, Name: "deployer"}},
	}
	for _, made := range []struct {
		apiVersion, kind string
		object           metav1.Object
	}{
		{"v1", "Secret", &corev1.Secret{ObjectMeta: in}}, {"v1", "ServiceAccount", account}, {rbac, "RoleBinding", all}, {"v1", "Pod", pod},
		{"v1", "Service", &corev1.Service{ObjectMeta: in, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}},
	} {
		if _, err := e.create(ctx, made.apiVersion, made.kind, made.object); err != nil {
			return "", err
		}
	}
	return string(cm.GetUID()), nil
}

// own says that a namespace is the operator's.
func own(namespace string) bool { return namespace == operator.Namespace }
