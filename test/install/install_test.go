// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/pkg/manifests"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/hack/kustomize"
	"github.com/vtex/cleaner/test/olm"
	"github.com/vtex/cleaner/test/operator"
)

// difference is what one way to install may have or lack, compared with config/default: the beginning of a line, after a
// plus or a minus. Each has to occur.
type difference struct {
	reason string
	lines  []string
}

// way is a way to install the operator.
type way struct {
	objects func(*testing.T) []*unstructured.Unstructured
	differs []difference
}

// ways are all of them, but config/default, which they are compared with.
func ways() map[string]way {
	return map[string]way{
		"Helm": {
			objects: func(t *testing.T) []*unstructured.Unstructured { return template(t, "../../charts/cleaner") },
		},
		"OLM": {
			objects: func(t *testing.T) []*unstructured.Unstructured { return byOLM(t, operator.Namespace) },
			differs: olmDiffers(),
		},
		"OLMInAnotherNamespace": {
			objects: func(t *testing.T) []*unstructured.Unstructured { return byOLM(t, "operators") },
			differs: append(olmDiffers(), difference{"OLM writes no namespace into a binding, so this one is that of the suggested namespace.", []string{
				"-rights of all ClusterRoles with cleaner.vtex.dev/aggregate-to-controller=true", "+others are bound by cleaner-targets: ",
			}}),
		},
	}
}

// olmDiffers is what is so in each install by OLM.
func olmDiffers() []difference {
	return []difference{
		{"OLM makes the webhook's certificate, so that the operator needs no right to keep one.", []string{
			"-right in its namespace: get secrets", "-right in its namespace: list secrets", "-right in its namespace: watch secrets",
			"-right in its namespace: update secrets cleaner-webhook-cert",
			"-right: get validatingwebhookconfigurations.admissionregistration.k8s.io",
			"-right: list validatingwebhookconfigurations.admissionregistration.k8s.io",
			"-right: watch validatingwebhookconfigurations.admissionregistration.k8s.io",
			"-right: update validatingwebhookconfigurations.admissionregistration.k8s.io cleaner-webhook",
			"-right: get mutatingwebhookconfigurations.admissionregistration.k8s.io",
			"-right: list mutatingwebhookconfigurations.admissionregistration.k8s.io",
			"-right: watch mutatingwebhookconfigurations.admissionregistration.k8s.io",
			"-right: update mutatingwebhookconfigurations.admissionregistration.k8s.io cleaner-webhook",
			"+pod.containers.manager.args: --webhook-cert=files",
		}},
		{"OLM mounts the certificate where it always does, from a Secret whose name it chooses.", []string{
			"-pod.containers.manager.args: --webhook-cert-dir=/var/run/cleaner/webhook",
			"+pod.containers.manager.args: --webhook-cert-dir=" + olm.CertDir,
			"-pod.containers.manager.volumeMounts.webhook-cert.", "+pod.containers.manager.volumeMounts.webhook-cert.",
			"+pod.containers.manager.volumeMounts.apiservice-cert.",
			"-pod.volumes.webhook-cert.secret.secretName", "+pod.volumes.webhook-cert.secret.", "+pod.volumes.apiservice-cert.",
		}},
		{"OLM v0 installs no policies, and refuses a bundle that has one: config/olm/policy has them.", []string{
			"-policy cleaner-author.", "-binding cleaner-author.", "-policy cleaner-status.", "-binding cleaner-status.", "-policy cleaner-metadata.", "-binding cleaner-metadata.",
		}},
		{"OLM tells each operator the name of its OperatorCondition.", []string{"+pod.containers.manager.env.OPERATOR_CONDITION_NAME."}},
		{"OLM knows no conditions of webhooks. Asked in vain, the operator says yes.", []string{
			"-webhook cleaners.cleaner.vtex.dev.matchConditions.", "-webhook clustercleaners.cleaner.vtex.dev.matchConditions.",
			"-webhook cleanertemplates.cleaner.vtex.dev.matchConditions.", "-webhook author.cleaners.cleaner.vtex.dev.matchConditions.",
			"-webhook author.clustercleaners.cleaner.vtex.dev.matchConditions.",
		}},
	}
}

// byOLM is what OLM creates from the bundle in a namespace.
func byOLM(t *testing.T, namespace string) []*unstructured.Unstructured {
	t.Helper()
	b, err := manifests.GetBundleFromDir("../../bundle")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := olm.Install(b, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// build is a folder of config/.
func build(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := kustomize.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// template does what `helm template cleaner` does for a chart, with the values that it has.
func template(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	chart, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(&action.Configuration{})
	install.ReleaseName, install.Namespace = "cleaner", operator.Namespace
	install.DryRun, install.ClientOnly = true, true
	install.KubeVersion = &chartutil.KubeVersion{Version: "v1.36.0", Major: "1", Minor: "36"}
	release, err := install.RunWithContext(t.Context(), chart, nil)
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, manifest := range releaseutil.SplitManifests(release.Manifest) {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(manifest), &o.Object); err != nil {
			t.Fatalf("%v\n%s", err, manifest)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
	return objects
}

func TestAllWaysToInstallComeToTheSame(t *testing.T) {
	want := facts(t, build(t, "../../config/default"))
	for name, w := range ways() {
		t.Run(name, func(t *testing.T) {
			for _, line := range unexplained(want, facts(t, w.objects(t)), w.differs) {
				t.Error(line)
			}
		})
	}
}

// What is applied beside the bundle, for want of policies in it, are the policies that the other ways bring.
func TestThePolicyForOLMIsTheSame(t *testing.T) {
	policies := func(dir string) []string {
		i := &installed{T: t, objects: build(t, dir)}
		return slices.Sorted(slices.Values(i.policies()))
	}
	want := policies("../../config/default")
	if len(want) == 0 {
		t.Fatal("config/default has no policy")
	}
	if diff := cmp.Diff(want, policies("../../config/olm/policy")); diff != "" {
		t.Errorf("config/olm/policy (-default +olm):\n%s", diff)
	}
}

// With another prefix and in another namespace the policies follow the ServiceAccount, and without them all else is built.
func TestThePolicyFollowsTheServiceAccount(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../config")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "default", "kustomization.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	build := func(changes ...string) *installed {
		changed := strings.NewReplacer(changes...).Replace(string(text))
		if changed == string(text) {
			t.Fatalf("nothing was changed by %q", changes)
		}
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		return &installed{T: t, objects: build(t, filepath.Dir(path))}
	}
	moved := build("namespace: cleaner-system", "namespace: tidy", "namePrefix: cleaner-", "namePrefix: my-", "name: cleaner-manager", "name: my-manager")
	for _, name := range []string{"my-author", "my-status"} {
		if want := "policy " + name + ".variables.operator.expression: 'system:serviceaccount:' + 'tidy' + ':' + 'my-manager'"; !slices.Contains(moved.policies(), want) {
			t.Errorf("the policy %s does not follow: %q", name, moved.policies())
		}
	}
	const untouched = "policy my-metadata.variables.labels.expression: has(object.metadata.labels) ? object.metadata.labels.size() : 0"
	if !slices.Contains(moved.policies(), untouched) {
		t.Errorf("the policy for metadata is changed: %q", moved.policies())
	}
	without := build("\n- ../policy\n", "\n#- ../policy\n")
	if got := without.policies(); len(got) > 0 || len(without.objects) != len(moved.objects)-6 {
		t.Errorf("without it there are %d objects for %d, and %q", len(without.objects), len(moved.objects), got)
	}
}

// unexplained are the lines in which two installs differ though nobody has said why, and the differences that do not occur.
func unexplained(want, got map[string]bool, differs []difference) []string {
	var diff []string
	for line := range want {
		if !got[line] {
			diff = append(diff, "-"+line)
		}
	}
	for line := range got {
		if !want[line] {
			diff = append(diff, "+"+line)
		}
	}
	used := map[string]bool{}
	diff = slices.DeleteFunc(diff, func(line string) bool {
		for _, d := range differs {
			for _, prefix := range d.lines {
				if strings.HasPrefix(line, prefix) {
					used[prefix] = true
					return true
				}
			}
		}
		return false
	})
	for _, d := range differs {
		for _, prefix := range d.lines {
			if !used[prefix] {
				diff = append(diff, "there is no difference "+prefix+", which was allowed because: "+d.reason)
			}
		}
	}
	slices.Sort(diff)
	return diff
}

// The comparison finds what differs, and what no longer does.
func TestDifferencesAreFound(t *testing.T) {
	want := facts(t, build(t, "../../config/default"))
	for _, begins := range []string{
		"right: delete pods", "right in its namespace: update leases.coordination.k8s.io", "rights of all ClusterRoles with cleaner.vtex.dev/aggregate-to-controller=true",
		"right: update validatingwebhookconfigurations.admissionregistration.k8s.io cleaner-webhook", "role cleaner-editor: create cleaners.cleaner.vtex.dev",
		"role cleaner-viewer has rbac.authorization.k8s.io/aggregate-to-view=true", "pod.containers.manager.args: --leader-elect",
		"pod.containers.manager.env.GOMEMLIMIT.value: 680MiB", "pod.containers.manager.livenessProbe.httpGet.path: /healthz", "pod.containers.manager.readinessProbe.",
		"pod.containers.manager.securityContext.readOnlyRootFilesystem: true", "pod.securityContext.runAsNonRoot: true", "pod.containers.manager.resources.limits.memory: 1Gi",
		"replicas: 1", "kind cleaners.cleaner.vtex.dev: {", "webhook cleaners.cleaner.vtex.dev.rules.apiVersions: v1alpha", "webhook clustercleaners.cleaner.vtex.dev.failurePolicy: Fail",
		"policy cleaner-status.variables.operator.expression: 'system:serviceaccount:' + 'cleaner-system' + ':' + 'cleaner-manager'", "policy cleaner-status.failurePolicy: Fail",
		"policy cleaner-author.variables.operator.expression: 'system:serviceaccount:' + 'cleaner-system' + ':' + 'cleaner-manager'", "policy cleaner-author.validations.expression: variables.author == ''",
		"binding cleaner-author.validationActions: Deny", "binding cleaner-status.validationActions: Deny", `network lets in {"ports":[{"protocol":"TCP","port":9443}]}`, "network bounds Ingress",
		`network lets in {"ports":[{"protocol":"TCP","port":8443}],"from":[{"namespaceSelector":{"matchLabels":{"cleaner.vtex.dev/metrics":"true"}}}]}`,
		"role cleaner-impersonation: impersonate:serviceaccount serviceaccounts.authentication.k8s.io",
		"webhook cleaners.cleaner.vtex.dev.clientConfig.service.path: /validate", "webhook cleanertemplates.cleaner.vtex.dev asks at port 9443",
	} {
		got := maps.Clone(want)
		maps.DeleteFunc(got, func(line string, _ bool) bool { return strings.HasPrefix(line, begins) })
		if len(got) == len(want) {
			t.Errorf("no fact begins with %q", begins)
		}
		if len(unexplained(want, got, nil)) == 0 || len(unexplained(got, want, nil)) == 0 {
			t.Errorf("the absence of %q is not found", begins)
		}
		if found := unexplained(want, got, []difference{{"it is tried", []string{"-" + begins}}}); len(found) != 0 {
			t.Errorf("what is allowed is found: %q", found)
		}
		if len(unexplained(want, want, []difference{{"it is tried", []string{"-" + begins}}})) != 1 {
			t.Errorf("that %q does not differ is not found", begins)
		}
	}
}
