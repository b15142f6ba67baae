// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/test/operator"
)

// as is a client that is somebody else, and that remembers warnings.
func (e *env) as(t *testing.T, user string, groups ...string) (client.Client, *recorder) {
	t.Helper()
	config := e.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	warned := &recorder{}
	config.WarningHandlerWithContext = warned
	c, err := clientOf(config)
	if err != nil {
		t.Fatal(err)
	}
	return c, warned
}

// recorder keeps the warnings of an API server.
type recorder struct{ warnings []string }

// HandleWarningHeaderWithContext keeps one.
func (r *recorder) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	r.warnings = append(r.warnings, text)
}

// grant gives a subject rules in a namespace, or in the cluster if that is empty, and waits until the first one counts.
func (e *env) grant(t *testing.T, namespace, name string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	subject.APIGroup = rbacv1.GroupName
	var role, binding client.Object
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if namespace == "" {
		role = &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}
		binding = &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}
	} else {
		role = &rbacv1.Role{ObjectMeta: meta, Rules: rules}
		binding = &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}}
	}
	for _, o := range []client.Object{role, binding} {
		if err := e.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := operator.WaitForRight(t.Context(), e.Cluster, rightOf(namespace, subject, &rules[0])); err != nil {
		t.Fatal(err)
	}
}

// rightOf is a right of a rule that a subject is given in a namespace.
func rightOf(namespace string, subject rbacv1.Subject, rule *rbacv1.PolicyRule) authorizationv1.SubjectAccessReviewSpec {
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	right := authorizationv1.SubjectAccessReviewSpec{User: subject.Name, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource, Name: strings.Join(rule.ResourceNames[:min(1, len(rule.ResourceNames))], ""),
	}}
	switch subject.Kind {
	case rbacv1.GroupKind:
		right.User, right.Groups = "a-member", []string{subject.Name}
	case rbacv1.ServiceAccountKind:
		right.User = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	}
	return right
}

func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, " "), APIGroups: []string{groups}, Resources: strings.Split(resources, " "), ResourceNames: names}
}

const (
	podsToDelete = `
ttl: 1d
targets:
- {name: pods, reference: {version: v1, kind: Pod, matchLabels: {app: web}}, delete: true}
`
	oldRevisions = `
lifecycle: Recurring
targets: [{name: releases, helmReleases: {matchLabels: {status: superseded}}}]
rules: [{name: old, forEach: releases.items, when: "!has(item.unreadable)", actions: [{delete: {}}]}]
`
)

// lacks is what each refusal of a Cleaner begins with.
var lacks = lacksFor("Cleaner")

// lacksFor is what each refusal of a kind begins with.
func lacksFor(kind string) string {
	return deniedBy(kind) + "a " + kind + " may only do what its author may: "
}

// Who writes a Cleaner must have all the rights that it makes use of: each verb, on each target.
func TestAuthorMustHaveTheRights(t *testing.T) {
	cases := map[string]struct {
		reason string
		rules  []rbacv1.PolicyRule // in the namespace of the Cleaner, for user bob
		global []rbacv1.PolicyRule // in all namespaces
		spec   string
		want   []string // the missing rights; none means that it is admitted
		more   string   // what follows them
	}{
		"Nothing": {
			reason: "All that is missing is said at once, in order.",
			spec:   podsToDelete,
			want:   []string{"delete pods", "get pods", "list pods", "watch pods"},
		},
		"All": {
			reason: "These are enough.",
			rules:  []rbacv1.PolicyRule{rule("delete get list watch", "", "pods")},
			spec:   podsToDelete,
		},
		"OnlyReads": {
			reason: "Who may look may not delete by a Cleaner.",
			rules:  []rbacv1.PolicyRule{rule("get list watch", "", "pods")},
			spec:   podsToDelete,
			want:   []string{"delete pods"},
		},
		"Context": {
			reason: "A Cleaner that looks tells what it sees.",
			rules:  []rbacv1.PolicyRule{rule("delete get list watch", "", "pods")},
			spec:   podsToDelete + `- {name: secret, reference: {version: v1, kind: Secret, name: key}}` + "\n" + `- {name: jobs, reference: {apiGroup: batch, version: v1, kind: jobs}, includeWhenEvaluating: false}` + "\n",
			want:   []string{`get secrets "key"`, `watch secrets "key"`, "list jobs.batch"},
		},
		"ByName": {
			reason: "Rights on one object are enough for a target of one object.",
			rules:  []rbacv1.PolicyRule{rule("delete get watch", "", "configmaps", "a")},
			spec:   "ttl: 1d\ntargets: [{name: a, reference: {version: v1, kind: ConfigMap, name: a}, delete: true}]",
		},
		"ByAnotherName": {
			reason: "And on no other.",
			rules:  []rbacv1.PolicyRule{rule("delete get watch", "", "configmaps", "a")},
			spec:   "ttl: 1d\ntargets: [{name: b, reference: {version: v1, kind: ConfigMap, name: b}, delete: true}]",
			want:   []string{`delete configmaps "b"`, `get configmaps "b"`, `watch configmaps "b"`},
		},
		"Nodes": {
			reason: "What is cluster-scoped is asked for without a namespace.",
			rules:  []rbacv1.PolicyRule{rule("delete get list watch", "", "pods nodes")},
			spec:   podsToDelete + "- {name: nodes, reference: {version: v1, kind: Node}}\n",
			want:   []string{"!list nodes", "!watch nodes"},
		},
		"NodesGranted": {
			reason: "A right in the cluster is one on a cluster-scoped kind.",
			rules:  []rbacv1.PolicyRule{rule("delete get list watch", "", "pods")},
			global: []rbacv1.PolicyRule{rule("list watch", "", "nodes")},
			spec:   podsToDelete + "- {name: nodes, reference: {version: v1, kind: Node}}\n",
		},
		"Releases": {
			reason: "Revisions of releases are read from Secrets, and deleted with them. No other right is of use.",
			rules:  []rbacv1.PolicyRule{rule("get list patch", "", "secrets")},
			spec:   oldRevisions,
			want:   []string{"delete secrets", "watch secrets"},
		},
		"ReleasesGranted": {
			reason: "These are enough.",
			rules:  []rbacv1.PolicyRule{rule("delete get list watch", "", "secrets")},
			spec:   oldRevisions,
		},
		"Helm": {
			reason: "A release is recorded in Secrets.",
			rules:  []rbacv1.PolicyRule{rule("get list", "", "secrets")},
			spec:   "ttl: 1d\nhelm: {release: web, delete: true}",
			want:   []string{"delete secrets", "update secrets"},
		},
		"HelmNote": {
			reason: "A release that is only named is not touched.",
			rules:  []rbacv1.PolicyRule{rule("delete get list watch", "", "pods")},
			spec:   podsToDelete + "helm: {release: web}\n",
		},
		"ServiceAccount": {
			reason: "To act as somebody else is a right of its own, and replaces none.",
			rules:  []rbacv1.PolicyRule{rule("get list watch", "", "pods")},
			spec:   podsToDelete + "serviceAccountName: sweeper\n",
			want:   []string{"delete pods", `impersonate serviceaccounts "sweeper"`},
		},
		"ServiceAccountGranted": {
			reason: "That account, and no other.",
			rules:  []rbacv1.PolicyRule{rule("delete get list watch", "", "pods"), rule("impersonate", "", "serviceaccounts", "sweeper")},
			spec:   podsToDelete + "serviceAccountName: sweeper\n",
		},
		"UnknownKind": {
			reason: "Of a kind that is not served no resource can be named, so all of its group are asked for.",
			rules:  []rbacv1.PolicyRule{rule("delete get list watch", "tekton.dev", "*")}, // it may turn out to be cluster-scoped
			spec:   "ttl: 1d\ntargets: [{name: runs, reference: {apiGroup: tekton.dev, version: v1, kind: PipelineRun, matchLabels: {}}, delete: true}]",
			want:   []string{`!delete all resources of group "tekton.dev"`, `!get all resources of group "tekton.dev"`, `!list all resources of group "tekton.dev"`, `!watch all resources of group "tekton.dev"`},
			more:   "; while a kind is not served, no right can name its resource: install its CRD first, or let a user create the Cleaner who has these rights on all resources of the group, in the cluster",
		},
		"UnknownKindGranted": {
			reason: "Who may do so with all of a group may do so with this one.",
			global: []rbacv1.PolicyRule{rule("delete get list watch", "tekton.dev", "*")},
			spec:   "ttl: 1d\ntargets: [{name: runs, reference: {apiGroup: tekton.dev, version: v1, kind: PipelineRun, matchLabels: {}}, delete: true}]",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ns := shared.namespace(t)
			user := "bob-" + ns
			bob, _ := shared.as(t, user)
			subject := rbacv1.Subject{Kind: rbacv1.UserKind, Name: user}
			shared.grant(t, ns, "rules", subject, append(tc.rules, rule("create", "cleaner.vtex.dev", "cleaners"))...)
			if len(tc.global) > 0 {
				shared.grant(t, "", user, subject, tc.global...)
			}
			var lines []string
			for _, right := range tc.want {
				if global, ok := strings.CutPrefix(right, "!"); ok {
					lines = append(lines, `user "`+user+`" is not allowed to `+global)
					continue
				}
				lines = append(lines, `user "`+user+`" is not allowed to `+right+` in namespace "`+ns+`"`)
			}
			// The authorizer hears of roles a moment later, of one after the other.
			eventually(t, tc.reason, func(ctx context.Context) string {
				err := bob.Create(ctx, cleaner(t, ns, "c", tc.spec), client.DryRunAll)
				switch {
				case err == nil && len(tc.want) == 0:
					return ""
				case err == nil:
					return "it was admitted"
				case len(tc.want) > 0 && apierrors.IsForbidden(err) && err.Error() == lacks+strings.Join(lines, "; ")+tc.more:
					return ""
				}
				return err.Error()
			})
		})
	}
}

// Rights that a user has by a group count, as they do everywhere else.
func TestRightsOfAGroup(t *testing.T) {
	ns := shared.namespace(t)
	subject := rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "team-" + ns}
	shared.grant(t, ns, "rules", subject, rule("create", "cleaner.vtex.dev", "cleaners"), rule("delete get list watch", "", "pods"))
	carol, _ := shared.as(t, "carol", "team-"+ns)
	eventually(t, "carol is in the team", func(ctx context.Context) string {
		if err := carol.Create(ctx, cleaner(t, ns, "c", podsToDelete), client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	})
}

// Who may write Cleaners may label them whatever they do, and change what they do only with the rights for it.
func TestRightsAreReviewedWhenTheSpecChanges(t *testing.T) {
	ns := shared.namespace(t)
	if err := shared.Create(t.Context(), cleaner(t, ns, "c", podsToDelete)); err != nil {
		t.Fatal(err)
	}
	subject := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "dave"}
	shared.grant(t, ns, "rules", subject, rule("get update", "cleaner.vtex.dev", "cleaners"))
	dave, _ := shared.as(t, "dave")
	change := func(ctx context.Context, change func(u *unstructured.Unstructured)) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the operator writes it too
			u := cleaner(t, ns, "c", "{}")
			if err := dave.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
				return err
			}
			change(u)
			return dave.Update(ctx, u)
		})
	}
	eventually(t, "a label is set", func(ctx context.Context) string {
		err := change(ctx, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) })
		if err != nil {
			return err.Error()
		}
		return ""
	})
	err := change(t.Context(), func(u *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(u.Object, "1s", "spec", "ttl"); err != nil {
			t.Fatal(err)
		}
	})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `user "dave" is not allowed to delete pods in namespace "`+ns+`"`) {
		t.Errorf("the ttl was changed: %v", err)
	}
}
