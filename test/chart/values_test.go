// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// Values that mean nothing are refused, and the message names the field.
func TestSchema(t *testing.T) {
	for values, want := range map[string]string{
		"{replica: 2}":            "additional properties 'replica' not allowed",
		"{replicas: two}":         "'/replicas'",
		"{replicas: -1}":          "'/replicas'",
		"{nameOverride: Cleaner}": "'/nameOverride'",
		"{fullnameOverride: a-name-that-leaves-no-room-for-any-more}": "'/fullnameOverride'",
		"{image: cleaner:1}":                                     "'/image'",
		"{image: {tag: 1.2}}":                                    "'/image/tag'",
		"{image: {digest: 0123}}":                                "'/image/digest'",
		"{image: {pullPolicy: Sometimes}}":                       "'/image/pullPolicy'",
		"{image: {pullSecrets: [registry]}}":                     "'/image/pullSecrets/0'",
		"{crds: {keep: 'yes'}}":                                  "'/crds/keep'",
		"{crds: {install: true}}":                                "'/crds': additional properties 'install' not allowed",
		"{templates: true}":                                      "'/templates'",
		"{presets: {pod: true}}":                                 "'/presets': additional properties 'pod' not allowed",
		"{presets: [pods]}":                                      "'/presets'",
		"{serviceAccount: {create: false}}":                      "'/serviceAccount/name'",
		"{serviceAccount: {annotations: {a: 1}}}":                "'/serviceAccount/annotations/a'",
		"{manager: {workers: 0}}":                                "'/manager/workers'",
		"{manager: {workers: 2.5}}":                              "'/manager/workers'",
		"{manager: {protectedNamespaces: []}}":                   "'/manager/protectedNamespaces'",
		"{manager: {protectedNamespaces: kube-system}}":          "'/manager/protectedNamespaces'",
		"{manager: {protectedNamespaces: ['a,b']}}":              "'/manager/protectedNamespaces/0'",
		"{manager: {sink: {allow: [10.0.0.1]}}}":                 "'/manager/sink/allow/0'",
		"{manager: {sink: {only: [10.0.0.0/8]}}}":                "'/manager/sink': additional properties 'only' not allowed",
		"{manager: {minInterval: 5}}":                            "'/manager/minInterval'",
		"{manager: {settle: 1d}}":                                "'/manager/settle'",
		"{manager: {verbosity: debug}}":                          "'/manager/verbosity'",
		"{webhook: {failurePolicy: fail}}":                       "'/webhook/failurePolicy'",
		"{webhook: {port: 0}}":                                   "'/webhook/port'",
		"{webhook: {timeoutSeconds: 31}}":                        "'/webhook/timeoutSeconds'",
		"{webhook: {certificates: {source: vault}}}":             "'/webhook/certificates/source'",
		"{webhook: {certificates: {issuerRef: {kind: Issuer}}}}": "'/webhook/certificates/issuerRef'",
		"{metrics: {readers: [{name: prometheus}]}}":             "'/metrics/readers/0'",
		"{metrics: {serviceMonitor: {interval: 30}}}":            "'/metrics/serviceMonitor/interval'",
		"{health: {port: health}}":                               "'/health/port'",
		"{resources: {limit: {memory: 1Gi}}}":                    "'/resources': additional properties 'limit' not allowed",
		"{goMemLimit: 460Mi}":                                    "'/goMemLimit'",
		"{goGC: often}":                                          "'/goGC'",
		"{podLabels: {a: true}}":                                 "'/podLabels/a'",
		"{tolerations: [{effect: NoRun}]}":                       "'/tolerations/0/effect'",
		"{affinity: {podAffinty: {}}}":                           "'/affinity': additional properties 'podAffinty' not allowed",
		"{topologySpreadConstraints: [{maxSkew: 1}]}":            "'/topologySpreadConstraints/0'",
		"{scheduler: true}":                                      "'/scheduler'",
		"{scheduler: {reserved: 3}}":                             "'/scheduler': additional properties 'reserved' not allowed",
		"{scheduler: {reservedIPv4: -1}}":                        "'/scheduler/reservedIPv4'",
		"{scheduler: {reservedIPv6: none}}":                      "'/scheduler/reservedIPv6'",
		"{scheduler: {name: My Scheduler}}":                      "'/scheduler/name'",
		"{scheduler: {image: {digest: 0123}}}":                   "'/scheduler/image/digest'",
		"{podDisruptionBudget: {maxUnavailable: half}}":          "'/podDisruptionBudget/maxUnavailable'",
		"{networkPolicy: {ingress: {webhook: [10.0.0.0/8]}}}":    "'/networkPolicy/ingress/webhook/0'",
		"{networkPolicy: {egress: {apiServer: {ports: []}}}}":    "'/networkPolicy/egress/apiServer/ports'",
		"{networkPolicy: {egress: {sinks: {ports: [https]}}}}":   "'/networkPolicy/egress/sinks/ports/0'",
	} {
		if _, err := template(t, name, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the message does not have %q: %v", values, want, err)
		}
	}
}

// everyFlag are values that say something other than the operator would do anyway, and so take all of its flags.
const everyFlag = `
fullnameOverride: other
manager:
  protectedNamespaces: [kube-system, vault]
  allowProtectedKinds: [roles.rbac.authorization.k8s.io, namespaces]
  requireServiceAccount: true
  defaultServiceAccount: cleaning
  actWithoutAuthor: true
  authorExtraKeys: [scopes]
  signingKey: {rotation: 720h, overlap: 240h, new: true}
  sink: {allow: [10.0.0.0/8, "fd00::/8"], deny: [10.1.0.0/16]}
  enableHTTP2: true
  minInterval: 2s
  settle: 5m
  objectEvents: false
  finishGrace: 1m30s
  maxClockSkew: 0s
  shutdownTimeout: 20s
  workers: 16
  uninstalls: 2
  memoryLimit: 500Mi
  verbosity: 4
metrics: {certificateSecret: metrics-tls}
webhook: {client: {authoritySecret: api-server-ca, names: [kube-apiserver]}}
`

// With values for all flags, the operator's own command line takes what is rendered, and no flag is out of reach but those
// that mean nothing in a Pod.
func TestFlags(t *testing.T) {
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{"namespace": true, "sink-allow-loopback": true} // its Pod says the one; the other is for local runs
	for _, values := range []string{everyFlag, "{fullnameOverride: tidy}", "{webhook: {enabled: false}}", "{webhook: {certificates: {source: cert-manager}}}"} {
		args := manager(t, render(t, name, values)).Spec.Template.Spec.Containers[0].Args
		for _, arg := range args {
			flag, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			got[flag] = true
		}
		// It reads its flags before it looks for an API server, and there is none.
		cmd := exec.CommandContext(t.Context(), binary, append(slices.Clone(args), "--namespace="+namespace)...)
		cmd.Env = []string{"KUBECONFIG=" + filepath.Join(t.TempDir(), "none")}
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "cannot find the API server") {
			t.Errorf("the operator does not take %v:\n%s", args, out)
		}
	}
	help, _ := exec.CommandContext(t.Context(), binary, "--help").CombinedOutput()
	want := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`).FindAllStringSubmatch(string(help), -1) {
		if m[1] != "help" && m[1] != "version" {
			want[m[1]] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 20 {
		t.Errorf("flags (-manager +chart):\n%s", diff)
	}
}

// rows are the first two cells of the table of values in README.md, without their backticks.
func rows(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]*)` \\| .+ \\|$").FindAllStringSubmatch(page(t), -1) {
		found[m[1]] = m[2]
	}
	if len(found) < 50 {
		t.Fatalf("README.md has only the values %v", found)
	}
	return found
}

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The table in README.md has the values and their defaults, and the schema knows these values and no others.
func TestTableOfValues(t *testing.T) {
	table, values := rows(t), load(t, path).Values
	for name, shown := range table {
		var want any
		if err := yaml.Unmarshal([]byte(shown), &want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := any(values)
		for key := range strings.SplitSeq(name, ".") {
			group, ok := got.(map[string]any)
			if _, there := group[key]; !ok || !there {
				t.Fatalf("values.yaml has no %s", name)
			}
			got = group[key]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-README.md +values.yaml):\n%s", name, diff)
		}
	}
	described := func(name string) bool {
		_, ok := table[name]
		return ok
	}
	var walk func(parent string, group map[string]any)
	walk = func(parent string, group map[string]any) {
		for key, value := range group {
			name := parent + key
			if inner, ok := value.(map[string]any); ok && !described(name) {
				walk(name+".", inner)
			} else if !described(name) {
				t.Errorf("README.md does not have %s", name)
			}
		}
	}
	walk("", values)
	var schema node
	if err := json.Unmarshal(load(t, path).Schema, &schema); err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "global") // Helm's own, for charts that have this one as a part
	schema.walk("", func(name string, n node) bool {
		if described(name) {
			return false
		}
		if len(n.Properties) == 0 && n.Ref == "" && len(n.AllOf) == 0 {
			t.Errorf("the schema has %s, which values.yaml has not", name)
		}
		return true
	})
}

// node is a part of the schema.
type node struct {
	Properties map[string]node `json:"properties"`
	Ref        string          `json:"$ref"`
	AllOf      []node          `json:"allOf"`
}

func (n node) walk(parent string, visit func(string, node) bool) {
	for key, inner := range n.Properties {
		if visit(parent+key, inner) {
			inner.walk(parent+key+".", visit)
		}
	}
}

// Whatever README.md tells to set is a value that there is, and its links lead somewhere.
func TestPage(t *testing.T) {
	found := 0
	for _, m := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(page(t), -1) {
		if m[1] == "yaml" {
			found++
			render(t, name, m[2])
		}
	}
	for _, m := range regexp.MustCompile(`--set '?([^\s'`+"`"+`]+)`).FindAllStringSubmatch(page(t), -1) {
		found++
		set, err := strvals.Parse(m[1])
		if err != nil {
			t.Fatal(err)
		}
		values, err := yaml.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		render(t, name, string(values))
	}
	if found < 5 {
		t.Errorf("README.md has only %d examples", found)
	}
	for _, m := range regexp.MustCompile(`\]\((\.\./[^)#]+)\)`).FindAllStringSubmatch(page(t), -1) {
		if _, err := os.Stat(filepath.Join(path, m[1])); err != nil {
			t.Errorf("README.md leads nowhere: %v", err)
		}
	}
}

// What the chart says of itself is of one version.
func TestVersion(t *testing.T) {
	c := load(t, path)
	if c.Metadata.Version != c.Metadata.AppVersion {
		t.Errorf("the chart is %s and installs %s", c.Metadata.Version, c.Metadata.AppVersion)
	}
	image := manager(t, render(t, name, "")).Spec.Template.Spec.Containers[0].Image
	if !strings.HasSuffix(image, ":"+c.Metadata.AppVersion) || !strings.Contains(c.Metadata.Annotations["artifacthub.io/images"], "image: "+image+"\n") {
		t.Errorf("the chart installs %s, and says %s", image, c.Metadata.Annotations["artifacthub.io/images"])
	}
}
