// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

func serviceAccounts() schema.GroupResource { return schema.GroupResource{Resource: "serviceaccounts"} }
func roles() schema.GroupResource           { return rbacv1.Resource("roles") }
func roleBindings() schema.GroupResource    { return rbacv1.Resource("rolebindings") }
func clusterRoles() schema.GroupResource    { return rbacv1.Resource("clusterroles") }
func clusterRoleBindings() schema.GroupResource {
	return rbacv1.Resource("clusterrolebindings")
}

const (
	// maxAccountRequests is how many requests may be sent to find out what of a release its account needs.
	maxAccountRequests = 512
	// bindingsAtOnce is how many bindings are listed with one request: each can be as large as an object may be.
	bindingsAtOnce = 8
)

// errTooManyRequests says that this takes more requests than are sent.
var errTooManyRequests = errors.New("too many requests")

// answersFor says whether the account bounds what a release of a namespace can do to others. One of the same namespace does: its rights are in the
// hands of those who rule there. One of another namespace bounds nothing: a user who may write a record could have it act anywhere. Then the
// release is treated as if there were no account, although it is the account that deletes it.
func (u *Uninstaller) answersFor(namespace string) bool {
	return u.account.Name != "" && u.account.Namespace == namespace
}

// accountReader finds out which objects grant rights to the account. It asks once for what several objects need, and sends a bounded
// number of requests, each in a slot.
type accountReader struct {
	u    *Uninstaller
	slot ReadSlot
	// granted is what the bindings of a namespace grant, or those of the cluster, which have none; bound is which bindings name the
	// account that were read one by one.
	granted map[string]grants
	bound   map[observed.Ref]bool
	// left is how many requests it may still send.
	left int
}

// grants are the bindings of a namespace that name the account, and what they grant.
type grants struct {
	// listed is false if the account may not list bindings: then nothing is known about them.
	listed   bool
	bindings map[string]bool
	roles    map[roleName]bool
}

// roleName is a role as a binding names it.
type roleName struct{ kind, name string }

// binding is a RoleBinding or a ClusterRoleBinding.
type binding struct {
	namespace, name string
	role            rbacv1.RoleRef
	subjects        []rbacv1.Subject
}

// findOwnRights names those of the objects without which the account that deletes them may lose the right to continue: the
// account itself, and what grants it something. An uninstall as that account would stop half-way. The error is errTooManyRequests if
// that takes too many requests.
func (u *Uninstaller) findOwnRights(ctx context.Context, slot ReadSlot, objects []object) ([]string, error) {
	if u.account.Name == "" {
		return nil, nil
	}
	reader := &accountReader{u: u, slot: slot, granted: map[string]grants{}, bound: map[observed.Ref]bool{}, left: maxAccountRequests}
	var found []string
	for _, o := range objects {
		own, err := reader.isOwnRight(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("cannot determine whether %s grants rights to ServiceAccount %q: %w", o.Ref, u.account.Name, err)
		}
		if own {
			found = append(found, o.String())
		}
	}
	return found, nil
}

func (a *accountReader) isOwnRight(ctx context.Context, o object) (bool, error) {
	switch o.Resource.GroupResource() {
	case serviceAccounts():
		return o.Namespace == a.u.account.Namespace && o.Name == a.u.account.Name, nil
	case roleBindings(), clusterRoleBindings():
		g, err := a.readGrants(ctx, o.Namespace)
		if err != nil || g.listed {
			return g.bindings[o.Name], err
		}
		return a.isBindingOfAccount(ctx, o.Ref)
	case roles(), clusterRoles():
		return a.isBoundToAccount(ctx, o)
	default:
		return false, nil
	}
}

// isBoundToAccount says whether a binding, of this release or not, grants a role to the account. Bindings that the account may not list
// are not known.
func (a *accountReader) isBoundToAccount(ctx context.Context, o object) (bool, error) {
	role, namespaces := roleName{o.kind.Kind, o.Name}, []string{o.Namespace}
	if !o.namespaced {
		namespaces = []string{"", a.u.account.Namespace}
	}
	for _, namespace := range namespaces {
		if g, err := a.readGrants(ctx, namespace); err != nil || g.roles[role] {
			return g.roles[role], err
		}
	}
	return false, nil
}

// isBindingOfAccount reads one binding, and says whether it names the account.
func (a *accountReader) isBindingOfAccount(ctx context.Context, ref observed.Ref) (bool, error) {
	if known, asked := a.bound[ref]; asked {
		return known, nil
	}
	names := false
	err := a.sendRequest(ctx, func() error {
		b, err := a.getBinding(ctx, ref)
		names = err == nil && a.u.includesAccount(b)
		return err
	})
	if err != nil && !notfound.IsAnyObjectMissing(err) {
		return false, err
	}
	a.bound[ref] = names
	return names, nil
}

// readGrants lists the bindings of a namespace, or of the cluster, unless it has listed them before.
func (a *accountReader) readGrants(ctx context.Context, namespace string) (grants, error) {
	if known, asked := a.granted[namespace]; asked {
		return known, nil
	}
	g := grants{listed: true, bindings: map[string]bool{}, roles: map[roleName]bool{}}
	for o := (metav1.ListOptions{Limit: bindingsAtOnce}); g.listed; {
		err := a.sendRequest(ctx, func() (err error) {
			o.Continue, err = a.addPage(ctx, g, namespace, o)
			return err
		})
		switch {
		case apierrors.IsForbidden(err):
			g = grants{}
		case err != nil:
			return grants{}, err
		}
		if o.Continue == "" {
			break
		}
	}
	a.granted[namespace] = g
	return g, nil
}

// addPage adds to grants what a page of bindings grants, and returns where the next page begins.
func (a *accountReader) addPage(ctx context.Context, g grants, namespace string, o metav1.ListOptions) (next string, _ error) {
	page, next, err := a.listBindings(ctx, namespace, o)
	for _, b := range page {
		if a.u.includesAccount(b) {
			g.bindings[b.name], g.roles[roleName{b.role.Kind, b.role.Name}] = true, true
		}
	}
	return next, err
}

// sendRequest sends a request in a slot, if there may be one more.
func (a *accountReader) sendRequest(ctx context.Context, send func() error) error {
	if a.left--; a.left < 0 {
		return errTooManyRequests
	}
	var failed error
	if err := a.slot.run(ctx, func() { failed = send() }); err != nil {
		return err
	}
	return failed
}

func (a *accountReader) getBinding(ctx context.Context, ref observed.Ref) (binding, error) {
	if ref.Namespace == "" {
		b, err := a.u.rbac.ClusterRoleBindings().Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return binding{}, err
		}
		return binding{"", b.Name, b.RoleRef, b.Subjects}, nil
	}
	b, err := a.u.rbac.RoleBindings(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return binding{}, err
	}
	return binding{b.Namespace, b.Name, b.RoleRef, b.Subjects}, nil
}

// listBindings returns one page of the RoleBindings of a namespace, or of the ClusterRoleBindings if it is empty.
func (a *accountReader) listBindings(ctx context.Context, namespace string, o metav1.ListOptions) (page []binding, next string, _ error) {
	if namespace == "" {
		list, err := a.u.rbac.ClusterRoleBindings().List(ctx, o)
		if err != nil {
			return nil, "", err
		}
		for _, b := range list.Items {
			page = append(page, binding{"", b.Name, b.RoleRef, b.Subjects})
		}
		return page, list.Continue, nil
	}
	list, err := a.u.rbac.RoleBindings(namespace).List(ctx, o)
	if err != nil {
		return nil, "", err
	}
	for _, b := range list.Items {
		page = append(page, binding{namespace, b.Name, b.RoleRef, b.Subjects})
	}
	return page, list.Continue, nil
}

// includesAccount says whether subjects of a binding stand for the account: itself, its user, or a group of all ServiceAccounts.
func (u *Uninstaller) includesAccount(b binding) bool {
	return slices.ContainsFunc(b.subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			in := s.Namespace
			if in == "" {
				in = b.namespace
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
