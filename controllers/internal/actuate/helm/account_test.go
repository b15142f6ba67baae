// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// bindingServer serves RoleBindings and ClusterRoleBindings, those of a namespace in pages, and counts requests.
type bindingServer struct {
	bindings  []rbacv1.RoleBinding
	cluster   []rbacv1.ClusterRoleBinding
	forbidden bool // to list
	pageSize  int
	asked     func(n int64)

	requests atomic.Int64
}

// ServeHTTP answers a get or a list.
func (s *bindingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n := s.requests.Add(1); s.asked != nil {
		s.asked(n)
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/rbac.authorization.k8s.io/v1/"), "/")
	namespace, resource, name := "", path[0], ""
	if path[0] == "namespaces" {
		namespace, resource, path = path[1], path[2], path[2:]
	}
	if len(path) > 1 {
		name = path[1]
	}
	answer, code := s.find(resource, namespace, name, r.URL.Query().Get("continue")), http.StatusOK
	refuse := func(why *apierrors.StatusError) {
		status := why.Status()
		status.Kind, status.APIVersion = "Status", "v1"
		answer, code = status, int(status.Code)
	}
	switch {
	case name == "" && s.forbidden:
		refuse(apierrors.NewForbidden(rbacv1.Resource(resource), "", errors.New("not allowed")))
	case answer == nil:
		refuse(apierrors.NewNotFound(rbacv1.Resource(resource), name))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

// find gives an object or a page of a list; nil if there is no such object.
func (s *bindingServer) find(resource, namespace, name, from string) any {
	if resource == "clusterrolebindings" {
		list := &rbacv1.ClusterRoleBindingList{Items: s.cluster}
		for i := range s.cluster {
			if s.cluster[i].Name == name {
				return &s.cluster[i]
			}
		}
		if name != "" {
			return nil
		}
		return list
	}
	list := &rbacv1.RoleBindingList{}
	for i := range s.bindings {
		switch b := &s.bindings[i]; {
		case b.Namespace != namespace:
		case name == b.Name:
			return b
		default:
			list.Items = append(list.Items, *b)
		}
	}
	if name != "" {
		return nil
	}
	if s.pageSize > 0 {
		at := 0
		_, _ = fmt.Sscan(from, &at)
		end := min(at+s.pageSize, len(list.Items))
		if end < len(list.Items) {
			list.Continue = fmt.Sprint(end)
		}
		list.Items = list.Items[at:end]
	}
	return list
}

// newUninstaller returns one of account deleter in namespace team, which asks this server.
func (s *bindingServer) newUninstaller(t *testing.T) *Uninstaller {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	u, err := New(Options{
		Config: &rest.Config{Host: server.URL, QPS: -1}, Clock: clock.RealClock{},
		ServiceAccount: types.NamespacedName{Namespace: "team", Name: "deleter"},
		Protection:     plan.Protection{AllowedKinds: []string{"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io"}},
	})
	check(t, err)
	return u
}

// bindTo returns a RoleBinding that binds a role to an account of namespace team.
func bindTo(namespace, name, kind, role, account string) rbacv1.RoleBinding {
	return rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "team", Name: account}},
	}
}

// accessObject is an object of RBAC in a manifest.
func accessObject(kind, resource, namespace, name string) object {
	return object{
		Ref:  observed.Ref{Resource: rbacv1.SchemeGroupVersion.WithResource(resource), Namespace: namespace, Name: name},
		kind: rbacv1.SchemeGroupVersion.WithKind(kind), namespaced: namespace != "",
	}
}

// manyInOne is how many objects a manifest may have.
const manyInOne = 5000

// manyObjects returns so many objects of RBAC, by a function of their number.
func manyObjects(n int, of func(i int) object) resolvedManifest {
	var r resolvedManifest
	for i := range n {
		r.objects = append(r.objects, of(i))
	}
	return r
}

// TestWhatAnAccountNeedsIsAskedOnce has releases with thousands of objects that could give rights to the account that uninstalls them: what
// several of them need is asked once, and a release that needs too much is refused.
func TestWhatAnAccountNeedsIsAskedOnce(t *testing.T) {
	role := func(i int) object { return accessObject("Role", "roles", "team", fmt.Sprint("r", i)) }
	binding := func(i int) object { return accessObject("RoleBinding", "rolebindings", "team", fmt.Sprint("b", i)) }
	for name, tc := range map[string]struct {
		server   *bindingServer
		manifest resolvedManifest
		requests int64
		reason   string
		says     string
	}{
		"Roles":          {manifest: manyObjects(manyInOne, role), requests: 1},
		"RolesForbidden": {server: &bindingServer{forbidden: true}, manifest: manyObjects(manyInOne, role), requests: 1},
		"ClusterRoles": {
			manifest: manyObjects(manyInOne, func(i int) object { return accessObject("ClusterRole", "clusterroles", "", fmt.Sprint("r", i)) }), requests: 2,
		},
		"OneOfManyRoles": {
			server:   &bindingServer{bindings: []rbacv1.RoleBinding{bindTo("team", "b", "Role", "r4999", "deleter")}},
			manifest: manyObjects(manyInOne, role), requests: 1, reason: v1alpha1.ReasonReleaseOwnsServiceAccount, says: "roles.rbac.authorization.k8s.io team/r4999",
		},
		"Bindings": {manifest: manyObjects(manyInOne, binding), requests: 1},
		"OneOfManyBindings": {
			server:   &bindingServer{bindings: []rbacv1.RoleBinding{bindTo("team", "other", "Role", "r", "deleter"), bindTo("team", "b4998", "Role", "r", "deleter")}},
			manifest: manyObjects(manyInOne, binding), requests: 1, reason: v1alpha1.ReasonReleaseOwnsServiceAccount, says: "rolebindings.rbac.authorization.k8s.io team/b4998",
		},
		"OneOnTheLastPage": {
			server: &bindingServer{pageSize: 1, bindings: []rbacv1.RoleBinding{
				bindTo("team", "b0", "Role", "r", "other"), bindTo("team", "b1", "Role", "r", "other"), bindTo("team", "b2", "Role", "r", "deleter"),
			}},
			manifest: manyObjects(3, binding), requests: 3, reason: v1alpha1.ReasonReleaseOwnsServiceAccount, says: "rolebindings.rbac.authorization.k8s.io team/b2",
		},
		"FewForbiddenBindings": {
			server:   &bindingServer{forbidden: true, bindings: []rbacv1.RoleBinding{bindTo("team", "b1", "Role", "r", "deleter")}},
			manifest: manyObjects(2, binding), requests: 3, reason: v1alpha1.ReasonReleaseOwnsServiceAccount, says: "rolebindings.rbac.authorization.k8s.io team/b1",
		},
		"TwiceTheSame": {
			server: &bindingServer{forbidden: true}, manifest: manyObjects(manyInOne, func(int) object { return binding(0) }), requests: 2,
		},
		"ManyForbiddenBindings": {
			server: &bindingServer{forbidden: true}, manifest: manyObjects(manyInOne, binding), requests: maxAccountRequests,
			reason: v1alpha1.ReasonTooManyObjects, says: `release "shop" needs more than 512 requests`,
		},
		"ManyPages": {
			server:   &bindingServer{pageSize: 1, bindings: make([]rbacv1.RoleBinding, 0)},
			manifest: manyObjects(1, role), requests: maxAccountRequests, reason: v1alpha1.ReasonTooManyObjects, says: "more than 512 requests",
		},
		"ManyNamespaces": {
			manifest: manyObjects(manyInOne, func(i int) object { return accessObject("Role", "roles", fmt.Sprint("n", i), "r") }),
			reason:   v1alpha1.ReasonTooManyObjects, says: "different rights",
		},
		"OtherKinds": {
			manifest: manyObjects(manyInOne, func(i int) object {
				return object{Ref: observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "team", Name: fmt.Sprint(i)}, namespaced: true}
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.server
			if s == nil {
				s = &bindingServer{}
			}
			if name == "ManyPages" {
				for i := range 2 * maxAccountRequests {
					s.bindings = append(s.bindings, bindTo("team", fmt.Sprint("b", i), "Role", "other", "other"))
				}
			}
			blocked, err := s.newUninstaller(t).findBlocker(t.Context(), nil, tc.manifest, "team", "shop")
			check(t, err)
			if got := s.requests.Load(); got != tc.requests {
				t.Errorf("it sends %d requests, want %d", got, tc.requests)
			}
			if blocked == nil {
				blocked = &BlockedError{}
			}
			if blocked.Reason != tc.reason || !strings.Contains(blocked.Detail, tc.says) {
				t.Errorf("got reason %q: %q; want %q with %q", blocked.Reason, blocked.Detail, tc.reason, tc.says)
			}
		})
	}
}

// TestAskingForRightsEndsWithItsContext: an account that may list nothing is asked about each binding, until nobody waits for that any more.
func TestAskingForRightsEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("its time is over")
	s := &bindingServer{forbidden: true, asked: func(n int64) {
		if n == 10 {
			cancel(over)
		}
	}}
	binding := func(i int) object { return accessObject("RoleBinding", "rolebindings", "team", fmt.Sprint("b", i)) }
	_, err := s.newUninstaller(t).findBlocker(ctx, nil, manyObjects(100, binding), "team", "shop")
	if err == nil || s.requests.Load() != 10 {
		t.Errorf("got %v after %d requests, and it was to end with the tenth", err, s.requests.Load())
	}
}

// TestWhoABindingIsFor shows which subjects of a binding stand for the account.
func TestWhoABindingIsFor(t *testing.T) {
	u := &Uninstaller{account: types.NamespacedName{Namespace: "team", Name: "deleter"}}
	for name, tc := range map[string]struct {
		in      string
		subject rbacv1.Subject
		want    bool
	}{
		"Account":           {in: "bank", subject: rbacv1.Subject{Kind: "ServiceAccount", Namespace: "team", Name: "deleter"}, want: true},
		"OtherAccount":      {in: "team", subject: rbacv1.Subject{Kind: "ServiceAccount", Namespace: "team", Name: "runner"}},
		"AccountElsewhere":  {in: "team", subject: rbacv1.Subject{Kind: "ServiceAccount", Namespace: "bank", Name: "deleter"}},
		"NoNamespace":       {in: "team", subject: rbacv1.Subject{Kind: "ServiceAccount", Name: "deleter"}, want: true},
		"NoNamespaceOther":  {in: "bank", subject: rbacv1.Subject{Kind: "ServiceAccount", Name: "deleter"}},
		"NoNamespaceAtAll":  {subject: rbacv1.Subject{Kind: "ServiceAccount", Name: "deleter"}},
		"User":              {subject: rbacv1.Subject{Kind: "User", Name: "system:serviceaccount:team:deleter"}, want: true},
		"OtherUser":         {subject: rbacv1.Subject{Kind: "User", Name: "deleter"}},
		"AllAuthenticated":  {subject: rbacv1.Subject{Kind: "Group", Name: "system:authenticated"}, want: true},
		"AllAccounts":       {subject: rbacv1.Subject{Kind: "Group", Name: "system:serviceaccounts"}, want: true},
		"AccountsOfIts":     {subject: rbacv1.Subject{Kind: "Group", Name: "system:serviceaccounts:team"}, want: true},
		"AccountsOfAnother": {subject: rbacv1.Subject{Kind: "Group", Name: "system:serviceaccounts:bank"}},
		"Unauthenticated":   {subject: rbacv1.Subject{Kind: "Group", Name: "system:unauthenticated"}},
		"OtherKind":         {subject: rbacv1.Subject{Kind: "Role", Namespace: "team", Name: "deleter"}},
	} {
		others := []rbacv1.Subject{{Kind: "User", Name: "other"}, tc.subject}
		if got := u.includesAccount(binding{namespace: tc.in, subjects: others}); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// TestWhatGrantsRights finds what of a release grants rights to the account, and asks about nothing else.
func TestWhatGrantsRights(t *testing.T) {
	clusterBinding := func(name, role, account string) rbacv1.ClusterRoleBinding {
		b := bindTo("", name, "ClusterRole", role, account)
		return rbacv1.ClusterRoleBinding{ObjectMeta: b.ObjectMeta, RoleRef: b.RoleRef, Subjects: b.Subjects}
	}
	account := func(namespace, name string) object {
		return object{Ref: observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, Namespace: namespace, Name: name}, namespaced: true}
	}
	for name, tc := range map[string]struct {
		server   *bindingServer
		object   object
		own      bool
		requests int64
	}{
		"Account":          {object: account("team", "deleter"), own: true},
		"OtherAccount":     {object: account("team", "runner")},
		"AccountElsewhere": {object: account("bank", "deleter")},
		"RoleElsewhere": {
			server: &bindingServer{bindings: []rbacv1.RoleBinding{bindTo("bank", "b", "Role", "r", "deleter")}},
			object: accessObject("Role", "roles", "bank", "r"), own: true, requests: 1,
		},
		"RoleOfTheName": {
			server: &bindingServer{bindings: []rbacv1.RoleBinding{bindTo("bank", "b", "Role", "r", "deleter")}},
			object: accessObject("Role", "roles", "team", "r"), requests: 1,
		},
		"OtherKindOfTheName": {
			server: &bindingServer{bindings: []rbacv1.RoleBinding{bindTo("team", "b", "ClusterRole", "r", "deleter")}},
			object: accessObject("Role", "roles", "team", "r"), requests: 1,
		},
		"ClusterRole": {
			server: &bindingServer{cluster: []rbacv1.ClusterRoleBinding{clusterBinding("b", "r", "deleter")}},
			object: accessObject("ClusterRole", "clusterroles", "", "r"), own: true, requests: 1,
		},
		"ClusterRoleInItsNamespace": {
			server: &bindingServer{bindings: []rbacv1.RoleBinding{bindTo("team", "b", "ClusterRole", "r", "deleter")}},
			object: accessObject("ClusterRole", "clusterroles", "", "r"), own: true, requests: 2,
		},
		"ClusterRoleOfOthers": {
			server: &bindingServer{cluster: []rbacv1.ClusterRoleBinding{clusterBinding("b", "r", "runner"), clusterBinding("c", "s", "deleter")}},
			object: accessObject("ClusterRole", "clusterroles", "", "r"), requests: 2,
		},
		"ClusterBinding": {
			server: &bindingServer{cluster: []rbacv1.ClusterRoleBinding{clusterBinding("b", "r", "deleter")}},
			object: accessObject("ClusterRoleBinding", "clusterrolebindings", "", "b"), own: true, requests: 1,
		},
		"ClusterBindingForbidden": {
			server: &bindingServer{forbidden: true, cluster: []rbacv1.ClusterRoleBinding{clusterBinding("b", "r", "deleter")}},
			object: accessObject("ClusterRoleBinding", "clusterrolebindings", "", "b"), own: true, requests: 2,
		},
		"BindingGone": {
			server: &bindingServer{forbidden: true}, object: accessObject("RoleBinding", "rolebindings", "team", "b"), requests: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.server == nil {
				tc.server = &bindingServer{}
			}
			found, err := tc.server.newUninstaller(t).findOwnRights(t.Context(), nil, []object{tc.object})
			if err != nil || len(found) > 0 != tc.own {
				t.Errorf("got %q, %v, want own: %t", found, err, tc.own)
			}
			if got := tc.server.requests.Load(); got != tc.requests {
				t.Errorf("it sends %d requests, want %d", got, tc.requests)
			}
		})
	}
}

// TestWhatGrantsRightsIsUnknown has requests for bindings fail: that nobody knows is no answer.
func TestWhatGrantsRightsIsUnknown(t *testing.T) {
	role := named("rbac.authorization.k8s.io/v1", "Role", "reach")
	binding := named("rbac.authorization.k8s.io/v1", "RoleBinding", "grant")
	forbidden, broken := failWith(http.StatusForbidden, metav1.StatusReasonForbidden), failWith(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	for name, tc := range map[string]struct {
		text string
		list *apierrors.StatusError
		get  *apierrors.StatusError
		says string
	}{
		"ListFails":     {text: role, list: broken, says: `whether Role team/reach grants rights to ServiceAccount "deleter": the test answers 500`},
		"ListForbidden": {text: role, list: forbidden},
		"GetFails":      {text: binding, list: forbidden, get: broken, says: `whether RoleBinding team/grant grants rights to ServiceAccount "deleter": the test answers 500`},
		"GetForbidden":  {text: binding, list: forbidden, get: forbidden, says: "the test answers 403"},
		"GetNotServed":  {text: binding, list: forbidden, get: notServed(), says: "the server could not find the requested resource"},
		"GetGone":       {text: binding, list: forbidden, get: gone("grant")},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeClusterWithAccount(t)
			f.install(config("a"), tc.text)
			f.server.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				with := tc.list
				if !strings.HasSuffix(r.URL.Path, "/rolebindings") {
					with = tc.get
				}
				if with == nil || r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/rolebindings") {
					return false
				}
				respond(w, with)
				return true
			}
			_, err := f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop")
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

// Bindings, each of which may be as large as an object can be, are listed a few at a time, and read in slots with others.
func TestBindingsAreReadInSlots(t *testing.T) {
	s := &bindingServer{pageSize: bindingsAtOnce}
	for i := range 3 * bindingsAtOnce {
		s.bindings = append(s.bindings, bindTo("team", fmt.Sprint("b", i), "Role", "r", "other"))
	}
	slots, taken := 0, false
	s.asked = func(int64) {
		if !taken {
			t.Error("a request is sent without a slot")
		}
	}
	slot := func(context.Context) (func(), error) {
		slots, taken = slots+1, true
		return func() { taken = false }, nil
	}
	objects := manyObjects(1, func(int) object { return accessObject("RoleBinding", "rolebindings", "team", "b0") })
	_, err := s.newUninstaller(t).findBlocker(t.Context(), slot, objects, "team", "shop")
	check(t, err)
	if slots != 3 || s.requests.Load() != 3 {
		t.Errorf("%d requests are sent in %d slots, want 3", s.requests.Load(), slots)
	}
	if bindingsAtOnce > 8 {
		t.Errorf("%d bindings are listed at a time", bindingsAtOnce)
	}
}

// TestAnAccountOfAnotherNamespace shows that an account bounds nothing of a release in another namespace: a user who may write the record there could
// have it act anywhere. Such a release is treated as if there were no account.
func TestAnAccountOfAnotherNamespace(t *testing.T) {
	for name, tc := range map[string]struct {
		objects []string
		blocked string
		hooks   bool // they cannot run
	}{
		"Own":     {objects: []string{config("a")}},
		"Outside": {objects: []string{config("a"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: other}\n"}, blocked: v1alpha1.ReasonReleaseOutsideNamespace},
		"Hooks":   {objects: []string{config("a"), config("gift", preDelete)}, hooks: true},
	} {
		for _, namespace := range []string{"team", "ops"} {
			f := fakeClusterWithAccount(t)
			f.account.Namespace = namespace
			f.install(tc.objects...)
			rel := must(f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop"))(t)
			foreign := namespace != "team"
			if want := map[bool]string{true: tc.blocked}[foreign]; rel.Blocked != want {
				t.Errorf("%s, as an account of %s: it is blocked by %q: %s", name, namespace, rel.Blocked, rel.Detail)
			}
			if blocked := rel.HooksBlocked != ""; blocked != (tc.hooks && foreign) {
				t.Errorf("%s, as an account of %s: its hooks cannot run: %q", name, namespace, rel.HooksBlocked)
			}
		}
	}
	u := &Uninstaller{account: types.NamespacedName{Namespace: "ops", Name: "deleter"}}
	labels := map[string]string{managedByLabel: managedByHelm}
	annotations := map[string]string{releaseNameAnnotation: "shop", releaseNamespaceAnnotation: "team"}
	ref := observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "other", Name: "b"}
	if because := u.reasonToKeep(ref, &metav1.ObjectMeta{Labels: labels, Annotations: annotations}, UninstallRequest{Namespace: "team", Name: "shop"}); because == "" {
		t.Error("it deletes an object of another namespace")
	}
}
