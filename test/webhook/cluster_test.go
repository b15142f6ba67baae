// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The rights that a ClusterCleaner, a CleanerTemplate and rules make use of are those of whoever writes them: in the whole
// cluster, unless the targets name namespaces.
func TestRightsInTheCluster(t *testing.T) {
	const rules = `
lifecycle: Recurring
targets:
- {name: pods, reference: {version: v1, kind: Pod}}
- {name: nodes, reference: {version: v1, kind: Node}}
rules:
- name: orphaned
  forEach: pods.items
  when: '!nodes.items.exists(n, n.metadata.name == item.spec.nodeName)'
  confirm: [{target: nodes, name: item.spec.nodeName}]
  actions:
`
	cases := map[string]struct {
		reason string
		kind   string
		rules  []rbacv1.PolicyRule // in all namespaces
		spec   string
		want   []string // the missing rights; none means that it is admitted
	}{
		"Nothing": {
			reason: "Pods of all namespaces are meant.",
			kind:   "ClusterCleaner",
			spec:   podsToDelete,
			want:   []string{"delete pods in all namespaces", "get pods in all namespaces", "list pods in all namespaces", "watch pods in all namespaces"},
		},
		"Granted": {
			reason: "Rights in the cluster are enough.",
			kind:   "ClusterCleaner",
			rules:  []rbacv1.PolicyRule{rule("delete get list watch", "", "pods")},
			spec:   podsToDelete,
		},
		"Namespaces": {
			reason: "Only the namespaces that it names are asked for.",
			kind:   "ClusterCleaner",
			spec:   `{ttl: 1d, targets: [{name: a, reference: {version: v1, kind: Pod, matchLabels: {}, namespaces: [a, b, c], excludeNamespaces: [c]}, includeWhenEvaluating: false, delete: true}]}`,
			want:   []string{`delete pods in namespace "a"`, `delete pods in namespace "b"`, `get pods in namespace "a"`, `get pods in namespace "b"`, `list pods in namespace "a"`, `list pods in namespace "b"`},
		},
		"Named": {
			reason: "One object is one right.",
			kind:   "ClusterCleaner",
			spec:   `{ttl: 1d, targets: [{name: a, reference: {version: v1, kind: ConfigMap, name: a, namespace: b}, delete: true}]}`,
			want:   []string{`delete configmaps "a" in namespace "b"`, `get configmaps "a" in namespace "b"`, `watch configmaps "a" in namespace "b"`},
		},
		"Selected": {
			reason: "Which namespaces are meant is read from them.",
			kind:   "ClusterCleaner",
			rules:  []rbacv1.PolicyRule{rule("delete get list watch", "", "pods")},
			spec:   `{ttl: 1d, targets: [{name: a, reference: {version: v1, kind: Pod, matchLabels: {}, namespaceSelector: {matchLabels: {tier: preview}}}, delete: true}]}`,
			want:   []string{"list namespaces", "watch namespaces"},
		},
		"Account": {
			reason: "To act as an account is a right in its namespace.",
			kind:   "ClusterCleaner",
			rules:  []rbacv1.PolicyRule{rule("delete get list watch", "", "pods")},
			spec:   podsToDelete + "serviceAccount: {namespace: ops, name: sweeper}\n",
			want:   []string{`impersonate serviceaccounts "sweeper" in namespace "ops"`},
		},
		"Rule": {
			reason: "What is acted on is known; what is confirmed is read live.",
			kind:   "ClusterCleaner",
			rules:  []rbacv1.PolicyRule{rule("list watch", "", "pods nodes")},
			spec:   rules + "  - patch: {type: Strategic, subresource: status, expression: '{}'}\n  - delete: {}\n",
			want:   []string{"get nodes", "delete pods in all namespaces", "get pods in all namespaces", "patch pods/status in all namespaces"},
		},
		"RuleGranted": {
			reason: "And nothing else.",
			kind:   "ClusterCleaner",
			rules:  []rbacv1.PolicyRule{rule("list watch get", "", "pods nodes"), rule("delete", "", "pods"), rule("patch", "", "pods/status")},
			spec:   rules + "  - patch: {type: Strategic, subresource: status, expression: '{}'}\n  - delete: {}\n",
		},
		"Evict": {
			reason: "An eviction is created.",
			kind:   "ClusterCleaner",
			rules:  []rbacv1.PolicyRule{rule("list watch get", "", "pods nodes")},
			spec:   rules + "  - evict: {}\n",
			want:   []string{"create pods/eviction in all namespaces"},
		},
		"Finalizer": {
			reason: "A finalizer is taken off by a patch.",
			kind:   "ClusterCleaner",
			rules:  []rbacv1.PolicyRule{rule("list watch get", "", "pods nodes")},
			spec:   rules + "  - removeFinalizer: {name: example.com/a}\n",
			want:   []string{"patch pods in all namespaces"},
		},
		"Report": {
			reason: "Who only reports only looks.",
			kind:   "ClusterCleaner",
			rules:  []rbacv1.PolicyRule{rule("list watch", "", "pods"), rule("list watch get", "", "nodes")},
			spec:   rules + "  - report: {}\n",
		},
		"AnyTarget": {
			reason: "What an expression makes of the targets nobody can tell, so each of them may be patched; a Node, which is protected, is not deleted.",
			kind:   "ClusterCleaner",
			rules:  []rbacv1.PolicyRule{rule("list watch get", "", "pods nodes")},
			spec:   rules + "  - object: 'true ? item : nodes.items[0]'\n    patch: {type: Merge, expression: '{}'}\n  - object: 'true ? item : nodes.items[0]'\n    delete: {}\n",
			want:   []string{"patch nodes", "delete pods in all namespaces", "patch pods in all namespaces"},
		},
		"Template": {
			reason: "It changes what stored Cleaners do, in whichever namespace they are.",
			kind:   "CleanerTemplate",
			rules:  []rbacv1.PolicyRule{rule("list watch", "", "pods")},
			spec:   `{template: {targets: [{name: pods, reference: {version: v1, kind: Pod, matchLabels: {}}, delete: true}]}}`,
			want:   []string{"delete pods in all namespaces", "get pods in all namespaces"},
		},
		"TemplateGranted": {
			reason: "Rights in the cluster are enough.",
			kind:   "CleanerTemplate",
			rules:  []rbacv1.PolicyRule{rule("delete get list watch", "", "pods")},
			spec:   `{template: {targets: [{name: pods, reference: {version: v1, kind: Pod, matchLabels: {}}, delete: true}]}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			user := "carl-" + strings.ToLower(name)
			carl, _ := shared.as(t, user)
			shared.grant(t, "", user, rbacv1.Subject{Kind: rbacv1.UserKind, Name: user},
				append(tc.rules, rule("create", "cleaner.vtex.dev", "clustercleaners cleanertemplates"))...)
			var lines []string
			for _, right := range tc.want {
				lines = append(lines, `user "`+user+`" is not allowed to `+right)
			}
			eventually(t, tc.reason, func(ctx context.Context) string {
				err := carl.Create(ctx, object(t, tc.kind, strings.ToLower(name), tc.spec), client.DryRunAll)
				switch {
				case err == nil && len(tc.want) == 0:
					return ""
				case err == nil:
					return "it was admitted"
				case len(tc.want) > 0 && apierrors.IsForbidden(err) && err.Error() == lacksFor(tc.kind)+strings.Join(lines, "; "):
					return ""
				}
				return err.Error()
			})
		})
	}
}

// A ClusterCleaner that could do much is told what to think of.
func TestWarningsOfAClusterCleaner(t *testing.T) {
	admin, warned := shared.as(t, "admin", "system:masters")
	err := admin.Create(t.Context(), object(t, "ClusterCleaner", "everywhere", `
lifecycle: Recurring
includeProtected: true
targets: [{name: pods, reference: {version: v1, kind: Pod}}]
rules:
- {name: all, forEach: pods.items, when: 'item.metadata.labels["app"] == "web"', for: 2d, actions: [{delete: {gracePeriodSeconds: 0}}]}
- {name: late, forEach: pods.items, when: 'item.metadata.labels["app"] == "web"', for: 3d, actions: [{evict: {}}]}
`), client.DryRunAll)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"spec.rules[0].for: 2d is long for a time that starts again when the operator restarts",
		"spec.rules[0].actions[0].delete.gracePeriodSeconds: 0 forces the deletion",
		"spec: nothing limits what is done in the whole cluster",
		"spec.includeProtected: namespaces that the cluster depends on, such as kube-system",
		`spec.rules[0].when at 1:`,
		`spec.rules[1]: acts on no item that rule "all" can delete`,
	} {
		if !strings.Contains(strings.Join(warned.warnings, "\n"), want) {
			t.Errorf("nobody says %q in %q", want, warned.warnings)
		}
	}
}
