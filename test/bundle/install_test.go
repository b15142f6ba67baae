// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/crds"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/live"
	"github.com/vtex/cleaner/test/olm"
	"github.com/vtex/cleaner/test/operator"
)

// apply applies a manifest, with further arguments of kubectl.
func apply(t *testing.T, manifest string, args ...string) error {
	t.Helper()
	c, _ := needCluster(t)
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := c.Kubectl(t.Context(), append([]string{"apply", "--server-side", "--validate=strict", "-f", path}, args...)...)
	return err
}

// needNamespace makes sure that there is a namespace.
func needNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// refused waits until the webhook refuses a manifest with an expression that no schema could refuse: the API server hears of
// a configuration by a watch.
func refused(t *testing.T, manifest string) {
	t.Helper()
	live.Eventually(t, "it is refused", func() string {
		err := apply(t, manifest, "--dry-run=server")
		if err == nil {
			return "it was accepted"
		}
		if !strings.Contains(err.Error(), "there is no function") {
			t.Fatal(err)
		}
		return ""
	})
}

// Each kind has its webhook, which is asked by way of the Service and with the certificate that OLM makes.
func TestWebhookRefuses(t *testing.T) {
	const spec = "{lifecycle: Recurring, targets: [{name: pods, reference: {version: v1, kind: Pod}}], rules: [{name: a, forEach: pods.things(), when: 'true', actions: [{report: {}}]}]}"
	for kind, manifest := range map[string]string{
		"Cleaner":         "metadata: {name: bad, namespace: default}\nspec: " + spec,
		"ClusterCleaner":  "metadata: {name: bad}\nspec: " + spec,
		"CleanerTemplate": "metadata: {name: bad}\nspec: {template: " + strings.Replace(spec, "lifecycle: Recurring, ", "", 1) + "}",
	} {
		t.Run(kind, func(t *testing.T) {
			refused(t, "apiVersion: cleaner.vtex.dev/v1alpha1\nkind: "+kind+"\n"+manifest)
		})
	}
}

// With the rights of the ClusterServiceVersion's account, and no others, a Cleaner cleans and goes.
func TestCleans(t *testing.T) {
	c, client := needCluster(t)
	refused(t, "apiVersion: cleaner.vtex.dev/v1alpha\nkind: Cleaner\nmetadata: {name: bad, namespace: default}\nspec: {targets: [{name: pods, reference: {version: v1, kind: Pod}}], conditions: [pods.things()]}")
	namespace, err := c.Namespace(t.Context(), "cleans-")
	if err != nil {
		t.Fatal(err)
	}
	configs := client.CoreV1().ConfigMaps(namespace)
	for _, name := range []string{"old", "new"} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"age": name}}}
		if _, err := configs.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	err = apply(t, `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: good, namespace: `+namespace+`}
spec:
  ttl: 0s
  targets:
  - name: configs
    reference: {version: v1, kind: ConfigMap, matchLabels: {age: old}}
    delete: true
  conditions: ["size(configs.items) == 1"]
`)
	if err != nil {
		t.Fatal(err)
	}
	live.Eventually(t, "the Cleaner has done its work", func() string {
		out, err := c.Kubectl(t.Context(), "get", "cleaners", "--namespace", namespace, "-o", "name")
		if err != nil {
			return err.Error()
		}
		return string(out)
	})
	if _, err := configs.Get(t.Context(), "old", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the old ConfigMap is there: %v", err)
	}
	if _, err := configs.Get(t.Context(), "new", metav1.GetOptions{}); err != nil {
		t.Errorf("the new ConfigMap: %v", err)
	}
}

// With what is applied beside the bundle nobody but the operator writes status.
func TestOnlyTheOperatorWritesStatus(t *testing.T) {
	c, _ := needCluster(t)
	if _, err := c.Kubectl(t.Context(), "apply", "--server-side", "--validate=strict", "-k", "../../config/olm/policy"); err != nil {
		t.Fatal(err)
	}
	namespace, err := c.Namespace(t.Context(), "status-")
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.StatusIsTheOperators(t.Context(), c, namespace); err != nil {
		t.Error(err)
	}
}

// Every example that a console would offer can be applied, in the order in which they are listed.
func TestExamplesApply(t *testing.T) {
	_, client := needCluster(t)
	var examples []unstructured.Unstructured
	if err := json.Unmarshal([]byte(load(t, dir).CSV.Annotations["alm-examples"]), &examples); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, example := range examples {
		kinds[example.GetKind()]++
		t.Run(example.GetKind()+"/"+example.GetName(), func(t *testing.T) {
			if ns := example.GetNamespace(); ns != "" {
				needNamespace(t, client, ns)
			}
			text, err := json.Marshal(example.Object)
			if err != nil {
				t.Fatal(err)
			}
			if err := apply(t, string(text)); err != nil {
				t.Error(err)
			}
		})
	}
	samples, err := filepath.Glob("../../config/samples/cleaner_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	templates, err := filepath.Glob("../../config/templates/*/template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if kinds["Cleaner"]+kinds["ClusterCleaner"] != len(samples) || kinds["CleanerTemplate"] != len(templates) || len(templates) == 0 {
		t.Errorf("of %d samples and %d templates there are the examples %v", len(samples), len(templates), kinds)
	}
}

// A ClusterRole with the label adds to what the operator may do, as in every other install.
func TestLabelledClusterRoleAddsRights(t *testing.T) {
	c, client := needCluster(t)
	may := func(ctx context.Context) bool {
		_, err := c.Kubectl(ctx, "auth", "can-i", "delete", "storageclasses.storage.k8s.io", "--as="+operator.User)
		return err == nil // it exits with 1 for no
	}
	if may(t.Context()) {
		t.Fatal("the operator may do it already: this test cannot fail")
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "more", Labels: map[string]string{"cleaner.vtex.dev/aggregate-to-controller": "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses"}, Verbs: []string{"delete"}}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	live.Eventually(t, "the operator may do it", func() string {
		if may(t.Context()) {
			return ""
		}
		return "no"
	})
}

// What the Pod is told about the webhook is what OLM does: where the certificate is, and which port the Service leads to.
func TestPodServesTheWebhook(t *testing.T) {
	c, client := needCluster(t)
	container, err := operator.Declared(t.Context(), c, operator.Deployment)
	if err != nil {
		t.Fatal(err)
	}
	service, err := client.CoreV1().Services(operator.Namespace).Get(t.Context(), olm.Service(operator.Deployment), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--webhook-cert=files", "--webhook-cert-dir=" + olm.CertDir, "--webhook-port=" + service.Spec.Ports[0].TargetPort.String()} {
		if !slices.Contains(container.Args, want) {
			t.Errorf("the manager is not told %s: %v", want, container.Args)
		}
	}
	for _, arg := range container.Args {
		if strings.HasPrefix(arg, "--webhook=") {
			t.Errorf("the manager is told %s", arg)
		}
	}
	mounts := map[string]int{}
	for _, m := range container.VolumeMounts {
		mounts[m.MountPath]++
	}
	if mounts[olm.CertDir] != 1 || len(mounts) != 2 {
		t.Errorf("mounts: %v", mounts)
	}
}

// The Pod is admitted where Pods are restricted, as they are in the namespace that the bundle suggests.
func TestPodIsAdmitted(t *testing.T) {
	_, client := needCluster(t)
	deployment, err := client.AppsV1().Deployments(operator.Namespace).Get(t.Context(), operator.Deployment, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.Restricted(t.Context(), client, deployment); err != nil {
		t.Error(err)
	}
}

// The metrics' Service leads to the Pod.
func TestMetricsService(t *testing.T) {
	_, client := needCluster(t)
	service, err := client.CoreV1().Services(operator.Namespace).Get(t.Context(), operator.Deployment+"-metrics", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deployment, err := client.AppsV1().Deployments(operator.Namespace).Get(t.Context(), operator.Deployment, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range service.Spec.Selector {
		if deployment.Spec.Template.Labels[k] != v {
			t.Errorf("the Service selects %s=%s, and the Pod has %v", k, v, deployment.Spec.Template.Labels)
		}
	}
	if !slices.ContainsFunc(deployment.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == service.Spec.Ports[0].TargetPort.StrVal }) {
		t.Errorf("the container has no port %s", service.Spec.Ports[0].TargetPort.StrVal)
	}
}

// OLM's own definitions accept the ClusterServiceVersion, and what config/olm has OLM do; and the two speak of the same.
func TestAcceptedByOLM(t *testing.T) {
	c, client := needCluster(t)
	var files []string
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{crds.ClusterServiceVersion(), crds.OperatorGroup(), crds.CatalogSource(), crds.Subscription()} {
		text, err := yaml.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), crd.Name+".yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	if err := cluster.InstallCRDs(t.Context(), c.Config(), files...); err != nil {
		t.Fatal(err)
	}
	csv := filepath.Join(dir, "manifests", "cleaner.clusterserviceversion.yaml")
	for _, path := range []string{csv, "../../config/olm/install.yaml"} {
		if _, err := c.Kubectl(t.Context(), "apply", "--server-side", "--force-conflicts", "--validate=strict", "--namespace="+operator.Namespace, "-f", path); err != nil {
			t.Error(err)
		}
	}

	var metadata struct{ Annotations map[string]string }
	if err := yaml.Unmarshal([]byte(tree(t, dir)["metadata/annotations.yaml"]), &metadata); err != nil {
		t.Fatal(err)
	}
	out, err := c.Kubectl(t.Context(), "get", "subscription", "cleaner", "--namespace="+operator.Namespace, "-o", "jsonpath={.spec.name} {.spec.channel}")
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "operators.operatorframework.io.bundle."
	if got, want := string(out), metadata.Annotations[prefix+"package.v1"]+" "+metadata.Annotations[prefix+"channel.default.v1"]; got != want {
		t.Errorf("the Subscription is to %q, and the bundle is of %q", got, want)
	}

	suggested := &corev1.Namespace{}
	if err := yaml.UnmarshalStrict([]byte(load(t, dir).CSV.Annotations["operatorframework.io/suggested-namespace-template"]), suggested); err != nil {
		t.Fatal(err)
	}
	namespace, err := client.CoreV1().Namespaces().Get(t.Context(), operator.Namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	delete(namespace.Labels, corev1.LabelMetadataName) // the API server adds it
	if diff := cmp.Diff(suggested.Labels, namespace.Labels); diff != "" {
		t.Errorf("labels of the namespace (-suggested +config/olm):\n%s", diff)
	}
}
