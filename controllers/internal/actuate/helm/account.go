// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func serviceAccounts() schema.GroupResource { return schema.GroupResource{Resource: "serviceaccounts"} }
func roles() schema.GroupResource           { return rbacv1.Resource("roles") }
func roleBindings() schema.GroupResource    { return rbacv1.Resource("rolebindings") }
func clusterRoles() schema.GroupResource    { return rbacv1.Resource("clusterroles") }
func clusterRoleBindings() schema.GroupResource {
	return rbacv1.Resource("clusterrolebindings")
}

// findOwnRights names those of the objects without which the account that deletes them may lose the right to go on: the
// account itself, and what grants it something. An uninstall as that account would end half-way.
func (u *Uninstaller) findOwnRights(ctx context.Context, objects []object) ([]string, error) {
	if u.account.Name == "" {
		return nil, nil
	}
	var found []string
	for _, o := range objects {
		own, err := u.isOwnRight(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("cannot see whom %s serves: %w", o.Ref, err)
		}
		if own {
			found = append(found, o.String())
		}
	}
	return found, nil
}

func (u *Uninstaller) isOwnRight(ctx context.Context, o object) (bool, error) {
	switch o.Resource.GroupResource() {
	case serviceAccounts():
		return o.Namespace == u.account.Namespace && o.Name == u.account.Name, nil
	case roleBindings():
		b, err := u.rbac.RoleBindings(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
		if isObjectMissing(err) {
			return false, nil
		}
		return err == nil && u.includesAccount(b.Subjects, b.Namespace), err
	case clusterRoleBindings():
		b, err := u.rbac.ClusterRoleBindings().Get(ctx, o.Name, metav1.GetOptions{})
		if isObjectMissing(err) {
			return false, nil
		}
		return err == nil && u.includesAccount(b.Subjects, ""), err
	case roles(), clusterRoles():
		return u.isBoundToAccount(ctx, o)
	default:
		return false, nil
	}
}

// isBoundToAccount says whether a binding, of this release or not, grants a role to the account. An account that may not list
// bindings is not told of those.
func (u *Uninstaller) isBoundToAccount(ctx context.Context, o object) (bool, error) {
	namespace := o.Namespace
	if !o.namespaced {
		namespace = u.account.Namespace
		list, err := u.rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsForbidden(err) {
			return false, err
		}
		if err == nil && slices.ContainsFunc(list.Items, func(b rbacv1.ClusterRoleBinding) bool {
			return refersToRole(b.RoleRef, o) && u.includesAccount(b.Subjects, "")
		}) {
			return true, nil
		}
	}
	list, err := u.rbac.RoleBindings(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return false, err
	}
	return slices.ContainsFunc(list.Items, func(b rbacv1.RoleBinding) bool {
		return refersToRole(b.RoleRef, o) && u.includesAccount(b.Subjects, b.Namespace)
	}), nil
}

func refersToRole(ref rbacv1.RoleRef, role object) bool {
	return ref.Kind == role.kind.Kind && ref.Name == role.Name
}

// includesAccount says whether subjects of a binding stand for the account, by itself or by a group of all of its like.
func (u *Uninstaller) includesAccount(subjects []rbacv1.Subject, namespace string) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			in := s.Namespace
			if in == "" {
				in = namespace
			}
			return s.Name == u.account.Name && in == u.account.Namespace
		case rbacv1.UserKind:
			return s.Name == fmt.Sprintf("system:serviceaccount:%s:%s", u.account.Namespace, u.account.Name)
		case rbacv1.GroupKind:
			return slices.Contains([]string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + u.account.Namespace}, s.Name)
		default:
			return false
		}
	})
}
