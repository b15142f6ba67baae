// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/vtex/cleaner/test/operator"
)

const system = "cleaner-system"

// aggregated waits until the control plane has filled in the rules of an aggregated ClusterRole.
func aggregated(t *testing.T, client kubernetes.Interface, name string, ready func(rbacv1.PolicyRule) bool) *rbacv1.ClusterRole {
	t.Helper()
	var role *rbacv1.ClusterRole
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (_ bool, err error) {
		role, err = client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(role.Rules, ready), err
	})
	if err != nil {
		t.Fatalf("ClusterRole %q: %v", name, err)
	}
	return role
}

func about(resource string) func(rbacv1.PolicyRule) bool {
	return func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, resource) }
}

// To apply the same again changes nothing, also after the control plane has filled in the aggregated rules.
func TestAppliesTwice(t *testing.T) {
	c, client := needCluster(t)
	before := aggregated(t, client, "cleaner-targets", about("revisions"))
	if out, err := c.Kubectl(t.Context(), "apply", "--server-side", "-k", "../../config/default"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	after := aggregated(t, client, "cleaner-targets", about("revisions"))
	if before.ResourceVersion != after.ResourceVersion {
		t.Error("ClusterRole cleaner-targets was changed: operators that are installed by GitOps would lose their rules for a while")
	}
}

func TestManagerIsRestricted(t *testing.T) {
	_, client := needCluster(t)
	ns, err := client.CoreV1().Namespaces().Get(t.Context(), system, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := ns.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		t.Fatalf("namespace %q enforces %q", system, got)
	}
	deployment, err := client.AppsV1().Deployments(system).Get(t.Context(), operator.Deployment, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.Restricted(t.Context(), client, deployment); err != nil {
		t.Error(err)
	}
	if !ptr.Deref(deployment.Spec.Template.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem, false) {
		t.Error("the manager may write to its image")
	}
}

func TestServiceFindsManager(t *testing.T) {
	_, client := needCluster(t)
	service, err := client.CoreV1().Services(system).Get(t.Context(), "cleaner-controller-manager-metrics", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deployment, err := client.AppsV1().Deployments(system).Get(t.Context(), operator.Deployment, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	template := deployment.Spec.Template
	for k, v := range service.Spec.Selector {
		if template.Labels[k] != v {
			t.Errorf("the Service selects %s=%s; the Pod has %v", k, v, template.Labels)
		}
	}
	port := service.Spec.Ports[0].TargetPort.StrVal
	if !slices.ContainsFunc(template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == port }) {
		t.Errorf("the container has no port %q", port)
	}
}

func TestNoWildcards(t *testing.T) {
	_, client := needCluster(t)
	roles, err := client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, role := range roles.Items {
		if !strings.HasPrefix(role.Name, "cleaner-") {
			continue
		}
		seen++
		for _, rule := range role.Rules {
			for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs} {
				if slices.Contains(list, "*") {
					t.Errorf("%s has a wildcard: %v", role.Name, rule)
				}
			}
		}
	}
	if seen < 8 {
		t.Errorf("only %d ClusterRoles are there", seen)
	}
}

func TestRights(t *testing.T) {
	_, client := needCluster(t)
	aggregated(t, client, "cleaner-targets", about("revisions"))
	aggregated(t, client, "view", about("cleaners"))
	aggregated(t, client, "edit", about("cleaners"))
	for user, role := range map[string]string{"viewer": "view", "editor": "edit", "admin": "admin", "cleaner": "cleaner-editor", "watcher": "cleaner-cluster-viewer", "operations": "cleaner-cluster-editor"} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test-" + user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
		if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	const operator = "system:serviceaccount:cleaner-system:cleaner-manager"
	cases := map[string]struct {
		reason                       string
		user                         string
		verb, group, resource, where string
		want                         bool
	}{
		"FinalizeCleaner":   {"It sets a finalizer.", operator, "update", "cleaner.vtex.dev", "cleaners", "a", true},
		"DeleteCleaner":     {"It removes a Cleaner that is finished.", operator, "delete", "cleaner.vtex.dev", "cleaners", "a", true},
		"WriteStatus":       {"It reports.", operator, "patch", "cleaner.vtex.dev", "cleaners/status", "a", true},
		"ClusterCleaner":    {"It carries on what acts in all namespaces.", operator, "update", "cleaner.vtex.dev", "clustercleaners", "", true},
		"ClusterStatus":     {"And reports on it.", operator, "patch", "cleaner.vtex.dev", "clustercleaners/status", "", true},
		"Template":          {"It hears of templates.", operator, "watch", "cleaner.vtex.dev", "cleanertemplates", "", true},
		"WriteTemplate":     {"And writes none.", operator, "update", "cleaner.vtex.dev", "cleanertemplates", "", false},
		"Namespaces":        {"It knows which namespaces a selector means.", operator, "watch", "", "namespaces", "", true},
		"CreateCleaner":     {"It makes none.", operator, "create", "cleaner.vtex.dev", "cleaners", "a", false},
		"Events":            {"It tells.", operator, "create", "events.k8s.io", "events", "a", true},
		"EventSeries":       {"And counts what happens again.", operator, "patch", "events.k8s.io", "events", "a", true},
		"ReadEvents":        {"It reads none.", operator, "get", "events.k8s.io", "events", "a", false},
		"CoreEvents":        {"And needs them in no other group.", operator, "create", "", "events", "a", false},
		"Lease":             {"One leads.", operator, "update", "coordination.k8s.io", "leases", system, true},
		"LeaseElsewhere":    {"Other leases are not its business.", operator, "update", "coordination.k8s.io", "leases", "a", false},
		"CRDs":              {"It hears of new kinds.", operator, "watch", "apiextensions.k8s.io", "customresourcedefinitions", "", true},
		"DeleteCRD":         {"It never removes a kind.", operator, "delete", "apiextensions.k8s.io", "customresourcedefinitions", "", false},
		"TokenReview":       {"It asks who reads its metrics.", operator, "create", "authentication.k8s.io", "tokenreviews", "", true},
		"AccessReview":      {"And whether they may.", operator, "create", "authorization.k8s.io", "subjectaccessreviews", "", true},
		"SelfReview":        {"It asks what it may do.", operator, "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", true},
		"DeletePod":         {"By the component workloads.", operator, "delete", "", "pods", "a", true},
		"PatchPodStatus":    {"By the component pods.", operator, "patch", "", "pods/status", "a", true},
		"EvictPod":          {"By the component pods.", operator, "create", "", "pods/eviction", "a", true},
		"EvictAsAnother":    {"And for a Cleaner that names a ServiceAccount.", operator, "impersonate-on:serviceaccount:create", "", "pods/eviction", "a", true},
		"ReadNode":          {"By the component pods.", operator, "get", "", "nodes", "", true},
		"PatchNode":         {"Which only reads Nodes.", operator, "patch", "", "nodes", "", false},
		"CreatePod":         {"It runs nothing.", operator, "create", "", "pods", "a", false},
		"DeletePods":        {"It never deletes a collection.", operator, "deletecollection", "", "pods", "a", false},
		"DeleteRevision":    {"By the component knative.", operator, "delete", "serving.knative.dev", "revisions", "a", true},
		"ReadSecret":        {"Which takes the component helm.", operator, "get", "", "secrets", "a", false},
		"ListSecrets":       {"Which takes the component helm.", operator, "list", "", "secrets", "", false},
		"WriteAnySecret":    {"In its own namespace it writes that of its certificates.", operator, "update", "", "secrets", system, false},
		"DeleteAccount":     {"Which takes the component helm.", operator, "delete", "", "serviceaccounts", "a", false},
		"DeleteRole":        {"Which takes the component helm.", operator, "delete", "rbac.authorization.k8s.io", "roles", "a", false},
		"CreateAsAnother":   {"Which takes the component hooks.", operator, "impersonate-on:serviceaccount:create", "", "pods", "a", false},
		"ReadAsAnother":     {"Which takes the component sinks.", operator, "impersonate-on:serviceaccount:get", "", "secrets", "a", false},
		"ActAsAnother":      {"Which takes a binding in the namespace.", operator, "impersonate:serviceaccount", "authentication.k8s.io", "serviceaccounts", "a", false},
		"CreateRole":        {"It gives no rights.", operator, "create", "rbac.authorization.k8s.io", "roles", "a", false},
		"DeleteNamespace":   {"It deletes nothing that is cluster-scoped.", operator, "delete", "", "namespaces", "", false},
		"WebhookCerts":      {"It keeps the webhook's certificates.", operator, "list", "", "secrets", system, true},
		"WebhookAuthority":  {"And tells the API server of them.", operator, "watch", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", true},
		"OtherWebhooks":     {"Those of others are not its business.", operator, "update", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", false},
		"Impersonate":       {"It is nobody else.", operator, "impersonate", "", "serviceaccounts", "a", false},
		"ViewerReads":       {"Who may view a namespace sees its Cleaners.", "viewer", "list", "cleaner.vtex.dev", "cleaners", "a", true},
		"ViewerWrites":      {"And no more.", "viewer", "create", "cleaner.vtex.dev", "cleaners", "a", false},
		"EditorReads":       {"Who may edit may view.", "editor", "get", "cleaner.vtex.dev", "cleaners", "a", true},
		"EditorWrites":      {"A Cleaner deletes with the operator's rights: more than an editor has.", "editor", "create", "cleaner.vtex.dev", "cleaners", "a", false},
		"AdminWrites":       {"The same for a namespace's admin.", "admin", "patch", "cleaner.vtex.dev", "cleaners", "a", false},
		"CleanerWrites":     {"Who is bound to cleaner-editor writes Cleaners.", "cleaner", "create", "cleaner.vtex.dev", "cleaners", "a", true},
		"CleanerReadStatus": {"And reads their status.", "cleaner", "get", "cleaner.vtex.dev", "cleaners/status", "a", true},
		"CleanerStatus":     {"And never writes it: a forged run is an order to delete.", "cleaner", "update", "cleaner.vtex.dev", "cleaners/status", "a", false},
		"ClusterViewer":     {"Who is bound to cleaner-cluster-viewer sees all.", "watcher", "list", "cleaner.vtex.dev", "clustercleaners", "", true},
		"ClusterViewerSet":  {"And changes nothing.", "watcher", "update", "cleaner.vtex.dev", "cleanertemplates", "", false},
		"ClusterWrites":     {"Who runs the cluster writes ClusterCleaners.", "operations", "create", "cleaner.vtex.dev", "clustercleaners", "", true},
		"TemplateWrites":    {"And templates.", "operations", "patch", "cleaner.vtex.dev", "cleanertemplates", "", true},
		"ClusterForges":     {"But no orders to delete.", "operations", "update", "cleaner.vtex.dev", "clustercleaners/status", "", false},
		"EditorCluster":     {"An editor has no say in all namespaces.", "editor", "create", "cleaner.vtex.dev", "clustercleaners", "", false},
		"AdminCluster":      {"Nor has an admin.", "admin", "create", "cleaner.vtex.dev", "clustercleaners", "", false},
		"AdminTemplate":     {"Nor in what others clean.", "admin", "update", "cleaner.vtex.dev", "cleanertemplates", "", false},
		"CleanerCluster":    {"Nor has who writes Cleaners.", "cleaner", "create", "cleaner.vtex.dev", "clustercleaners", "", false},
	}
	// First what is allowed: the authorizer hears of roles and bindings by watches, and by then has heard of all.
	for _, allowed := range []bool{true, false} {
		for name, tc := range cases {
			if tc.want != allowed {
				continue
			}
			t.Run(name, func(t *testing.T) {
				resource, subresource, _ := strings.Cut(tc.resource, "/")
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: tc.user,
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: tc.verb, Group: tc.group, Resource: resource, Subresource: subresource, Namespace: tc.where,
					},
				}}
				err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
					answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
					return err == nil && answer.Status.Allowed == tc.want, err
				})
				if err != nil {
					t.Errorf("%s: %s %s %s is not %t: %v", tc.reason, tc.user, tc.verb, tc.resource, tc.want, err)
				}
			})
		}
	}
}

func TestMetricsReader(t *testing.T) {
	_, client := needCluster(t)
	role, err := client.RbacV1().ClusterRoles().Get(t.Context(), "cleaner-metrics-reader", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(role.Rules) != 1 || !slices.Equal(role.Rules[0].NonResourceURLs, []string{"/metrics"}) || !slices.Equal(role.Rules[0].Verbs, []string{"get"}) {
		t.Errorf("got %v", role.Rules)
	}
}
