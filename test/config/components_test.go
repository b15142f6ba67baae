// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/test/operator"
)

// render is config/default with one of its switches on.
func render(t *testing.T, component string) map[string]*unstructured.Unstructured {
	t.Helper()
	c, _ := needCluster(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../config")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "default", "kustomization.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	on := strings.Replace(string(text), "#- ../components/"+component, "- ../components/"+component, 1)
	if on == string(text) {
		t.Fatalf("config/default has no switch for %s", component)
	}
	if err := os.WriteFile(path, []byte(on), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := c.Kubectl(t.Context(), "kustomize", filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]*unstructured.Unstructured{}
	for doc := range strings.SplitSeq(string(out), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		objects[u.GetKind()+" "+u.GetName()] = u
	}
	return objects
}

// field reads a field that must be there.
func field[T any](t *testing.T, u *unstructured.Unstructured, path ...string) T {
	t.Helper()
	if u == nil {
		t.Fatalf("the object with %v is not there", path)
	}
	value, found, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if !found || err != nil {
		t.Fatalf("%s has no %v: %v", u.GetKind(), path, err)
	}
	read, ok := value.(T)
	if !ok {
		t.Fatalf("%v of %s is a %T", path, u.GetKind(), value)
	}
	return read
}

// With cert-manager, the certificate that it makes is the one that is mounted and that the API server trusts, and the
// operator needs no rights on certificates.
func TestCertManager(t *testing.T) {
	objects := render(t, "certmanager")
	certificate := objects["Certificate cleaner-webhook"]
	if got := field[string](t, certificate, "spec", "secretName"); got != operator.WebhookSecret {
		t.Errorf("the certificate is put into Secret %q", got)
	}
	if got := field[[]any](t, certificate, "spec", "dnsNames"); !slices.Contains(got, any(operator.WebhookService+"."+system+".svc")) {
		t.Errorf("the certificate is for %v", got)
	}
	if issuer := field[string](t, certificate, "spec", "issuerRef", "name"); objects["Issuer "+issuer] == nil {
		t.Errorf("there is no Issuer %q", issuer)
	}
	webhook := objects["ValidatingWebhookConfiguration "+operator.WebhookConfiguration]
	if got, want := webhook.GetAnnotations()["cert-manager.io/inject-ca-from"], certificate.GetNamespace()+"/"+certificate.GetName(); got != want {
		t.Errorf("the authority is that of %q, not %q", got, want)
	}
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects["Deployment cleaner-controller-manager"].Object, deployment); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	if !slices.Contains(pod.Containers[0].Args, "--webhook-cert=files") {
		t.Errorf("the manager makes certificates: %v", pod.Containers[0].Args)
	}
	volumes := []corev1.Volume{{Name: "webhook-cert", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: operator.WebhookSecret}}}}
	if diff := cmp.Diff(volumes, pod.Volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	for _, gone := range []string{"Secret cleaner-webhook-cert", "Role cleaner-webhook-certificates", "ClusterRole cleaner-webhook-certificates", "RoleBinding cleaner-webhook-certificates", "ClusterRoleBinding cleaner-webhook-certificates"} {
		if objects[gone] != nil {
			t.Errorf("%s is there", gone)
		}
	}
}

// With the component for Spiderpool, the operator may do what the templates want of its kinds, and no more.
func TestSpiderpool(t *testing.T) {
	role := &rbacv1.ClusterRole{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(render(t, "spiderpool")["ClusterRole cleaner-targets-spiderpool"].Object, role); err != nil {
		t.Fatal(err)
	}
	may := map[string][]string{}
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				verbs := slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool { return strings.HasPrefix(v, "impersonate-on:") })
				may[strings.TrimSuffix(resource+"."+group, ".")] = verbs
			}
		}
	}
	read := []string{"get", "list", "watch"}
	want := map[string][]string{
		"spiderippools.spiderpool.spidernet.io": read, "spiderippools/status.spiderpool.spidernet.io": {"patch"},
		"spiderendpoints.spiderpool.spidernet.io":   append(slices.Clone(read), "patch", "delete"),
		"spiderreservedips.spiderpool.spidernet.io": read, "spidersubnets.spiderpool.spidernet.io": read, "namespaces": read,
		"spidermultusconfigs.spiderpool.spidernet.io": read,
		"nodes": read, "pods": read, "statefulsets.apps": read, "virtualmachines.kubevirt.io": read, "virtualmachineinstances.kubevirt.io": read,
	}
	if diff := cmp.Diff(want, may); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// The component hooks gives the operator no right in its own name, and none that the component helm gives already.
func TestHooks(t *testing.T) {
	role := func(component string) *rbacv1.ClusterRole {
		typed := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(render(t, component)["ClusterRole cleaner-targets-"+component].Object, typed); err != nil {
			t.Fatal(err)
		}
		return typed
	}
	for _, rule := range role("hooks").Rules {
		for _, verb := range rule.Verbs {
			if verb != "impersonate-on:serviceaccount:create" && verb != "impersonate-on:serviceaccount:watch" {
				t.Errorf("it gives %s on %v", verb, rule.Resources)
			}
		}
	}
	for _, rule := range role("helm").Rules {
		if slices.Contains(rule.Verbs, "create") || slices.Contains(rule.Verbs, "impersonate-on:serviceaccount:create") {
			t.Errorf("the component helm lets %v be created", rule.Resources)
		}
	}
}

// The component sinks gives the operator no right in its own name, and as an account only that to get a Secret.
func TestSinks(t *testing.T) {
	typed := &rbacv1.ClusterRole{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(render(t, "sinks")["ClusterRole cleaner-targets-sinks"].Object, typed); err != nil {
		t.Fatal(err)
	}
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"impersonate-on:serviceaccount:get"}}}
	if diff := cmp.Diff(want, typed.Rules); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The Prometheus operator finds the Service of the metrics, and no other.
func TestPrometheus(t *testing.T) {
	objects := render(t, "prometheus")
	monitor := objects["ServiceMonitor cleaner-controller-manager-metrics"]
	labels := field[map[string]any](t, monitor, "spec", "selector", "matchLabels")
	endpoint, ok := field[[]any](t, monitor, "spec", "endpoints")[0].(map[string]any)
	if !ok {
		t.Fatal("the endpoint is no object")
	}
	var found []string
	for name, u := range objects {
		if u.GetKind() != "Service" {
			continue
		}
		matches := true
		for k, v := range labels {
			matches = matches && u.GetLabels()[k] == v
		}
		if !matches {
			continue
		}
		found = append(found, name)
		port, ok := field[[]any](t, u, "spec", "ports")[0].(map[string]any)
		if !ok || port["name"] != endpoint["port"] {
			t.Errorf("%s has no port %v: %v", name, endpoint["port"], port)
		}
	}
	if diff := cmp.Diff([]string{"Service cleaner-controller-manager-metrics"}, found); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// The component nodes lets the operator do what the template pod-ip-pressure does, also as a ServiceAccount, and delete no
// Node.
func TestNodes(t *testing.T) {
	role := &rbacv1.ClusterRole{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(render(t, "nodes")["ClusterRole cleaner-targets-nodes"].Object, role); err != nil {
		t.Fatal(err)
	}
	if role.Labels["cleaner.vtex.dev/aggregate-to-controller"] != "true" {
		t.Error("it is not aggregated")
	}
	got := map[string][]string{}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			got[resource] = slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool {
				own, impersonated := strings.CutPrefix(verb, "impersonate-on:serviceaccount:")
				return impersonated && slices.Contains(rule.Verbs, own) || verb == "watch"
			})
		}
	}
	want := map[string][]string{"nodes": {"get", "list", "patch"}, "pods": {"get", "list"}, "pods/eviction": {"create"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
