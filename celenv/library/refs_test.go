// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/celenv/references"
)

// found are the references of an object, or what is wrong.
func found(t *testing.T, object any, kind string) any {
	t.Helper()
	got, err := ConvertToNative(findRefs(types.DefaultTypeAdapter.NativeToValue(object), types.String(kind)))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Every field of every kind of Kubernetes' own that names a Secret, a ConfigMap, a claim or a ServiceAccount is known. A
// new version of Kubernetes that adds one of another name fails here: what is not seen to be in use may be deleted.
func TestRefsKnowsEveryFieldOfEveryKind(t *testing.T) {
	kinds := map[string]*regexp.Regexp{
		"ConfigMap":             regexp.MustCompile(`(?i)configmap`),
		"PersistentVolumeClaim": regexp.MustCompile(`(?i)claimname|claimref|persistentvolumeclaim[^.]*$`),
		"Secret":                regexp.MustCompile(`(?i)secret`),
		"ServiceAccount":        regexp.MustCompile(`(?i)serviceaccount`),
	}
	// What else such a field says.
	unrelated := regexp.MustCompile(`\.(key|path|fsType|apiGroup|apiVersion|kind|uid|resourceVersion|fieldPath|audience|namespace|secretNamespace|optional|secretFile|user|` +
		`type|token|tokenExpirationSeconds|volumesAttached|resourceClaimName|kubeletConfigKey|serviceAccountUID)$|\.items\[\]|\.resourceClaim[a-zA-Z]*|\.monitors\[\]|\.audiences\[\]|metadata\.|^\.status\.`)
	checked := 0
	for gvk, kind := range scheme.Scheme.AllKnownTypes() {
		if strings.HasSuffix(gvk.Kind, "List") || gvk.Version == "__internal" || gvk.Group == "" && gvk.Version != "v1" {
			continue
		}
		var paths []string
		leaves(kind, "", &paths)
		for _, path := range paths {
			for name, about := range kinds {
				if !about.MatchString(path) || unrelated.MatchString(path) || owns(gvk, path) {
					continue
				}
				checked++
				object := at(path).(map[string]any)
				object["metadata"] = map[string]any{"name": "it", "namespace": "ns"}
				if keys, _ := found(t, object, name).([]any); !containsAny(keys, "ns/x", "x") {
					t.Errorf("%s: the %s in %s is not seen: %v", gvk, name, path, keys)
				}
			}
		}
	}
	if checked < 500 {
		t.Errorf("only %d fields were looked at", checked)
	}
}

// owns says that a field is what a kind has of itself, and not of another object.
func owns(gvk schema.GroupVersionKind, path string) bool {
	return (gvk.Kind == "Secret" || gvk.Kind == "ConfigMap") && strings.HasPrefix(path, ".metadata") || gvk.Kind == "TokenReview"
}

func containsAny(keys []any, names ...string) bool {
	for _, key := range keys {
		for _, name := range names {
			if key == any(name) {
				return true
			}
		}
	}
	return false
}

func TestRefs(t *testing.T) {
	cases := map[string]struct {
		reason, kind, object string
		want                 []any
	}{
		"Pod": {"It names them in all the ways that it can.", "Secret", `
metadata: {name: p, namespace: a}
spec:
  imagePullSecrets: [{name: pull}]
  initContainers: [{envFrom: [{secretRef: {name: init}}]}]
  ephemeralContainers: [{env: [{name: X, valueFrom: {secretKeyRef: {name: debug, key: k}}}]}]
  containers: [{name: main}]
  volumes: [{secret: {secretName: volume}}, {projected: {sources: [{secret: {name: projected}}]}}]`,
			[]any{"a/debug", "a/init", "a/projected", "a/pull", "a/volume"}},
		"CommandLine": {"A controller is told of its settings by an argument, or by a variable.", "ConfigMap", `
metadata: {name: p, namespace: a}
spec:
  containers:
  - command: [/bin/controller]
    args: [--configmap=$(POD_NAMESPACE)/settings, --tcp, other/tcp-services.v1]
    env: [{name: LEADER, value: "lock"}]`,
			[]any{"a/bin", "a/configmap", "a/controller", "a/lock", "a/other", "a/settings", "a/tcp", "a/tcp-services.v1", "bin/controller", "other/tcp-services.v1"}},
		"CronJob": {"What is to run later refers too.", "PersistentVolumeClaim", `
metadata: {name: c, namespace: a}
spec: {jobTemplate: {spec: {template: {spec: {containers: [], volumes: [{persistentVolumeClaim: {claimName: backup}}]}}}}}`,
			[]any{"a/backup"}},
		"Volume": {"A volume says in which namespace.", "Secret", `
metadata: {name: v}
spec: {csi: {nodeStageSecretRef: {name: stage, namespace: b}}, azureFile: {secretName: azure, secretNamespace: c}}`,
			[]any{"b/stage", "c/azure"}},
		"StorageClass": {"Its parameters are a plain map.", "Secret", `
metadata: {name: s}
parameters: {csi.storage.k8s.io/provisioner-secret-name: provision, csi.storage.k8s.io/provisioner-secret-namespace: b}`,
			[]any{"b/provision"}},
		"Gateway": {"A CRD, which may reach into another namespace.", "Secret", `
metadata: {name: g, namespace: a}
spec: {listeners: [{tls: {certificateRefs: [{kind: Secret, name: own}, {kind: Secret, name: theirs, namespace: b}, {kind: Other, name: none}]}}]}`,
			[]any{"a/own", "b/theirs"}},
		"Annotation": {"Ingress controllers read annotations.", "Secret", `
metadata: {name: i, namespace: a, annotations: {nginx.ingress.kubernetes.io/auth-tls-secret: b/ca, nginx.ingress.kubernetes.io/auth-secret: users}}`,
			[]any{"a/users", "b/ca"}},
		"ClusterScoped": {"In which namespace it looks only its controller knows.", "Secret", `
metadata: {name: issuer}
spec: {acme: {privateKeySecretRef: {name: account}}}`,
			[]any{"account"}},
		"Itself": {"Labels, owners and its own name are no references.", "Secret", `
kind: Secret
metadata: {name: me, namespace: a, labels: {secret: no}, ownerReferences: [{kind: Secret, name: owner}]}`,
			nil},
		"AnotherKind": {"A reference that says what it is about is about that.", "ConfigMap", `
metadata: {name: x, namespace: a}
spec: {configMapRef: {kind: Secret, name: no}, valuesFrom: [{kind: ConfigMap, name: ours}]}`,
			[]any{"a/ours"}},
		"Default": {"A Pod that names no ServiceAccount has one.", "ServiceAccount", `
metadata: {name: p, namespace: a}
spec: {template: {spec: {containers: []}}}`,
			[]any{"a/default"}},
		"Subjects": {"A binding may name an account as such, or as a user.", "ServiceAccount", `
metadata: {name: b, namespace: a}
subjects: [{kind: ServiceAccount, name: one, namespace: b}, {kind: User, name: "system:serviceaccount:c:two"}, {kind: Group, name: three}]`,
			[]any{"b/one", "c/two"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(tc.object), &object); err != nil {
				t.Fatal(err)
			}
			got, _ := found(t, []any{object, object}, tc.kind).([]any)
			if len(got) == 0 {
				got = nil
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRefsErrors(t *testing.T) {
	var many strings.Builder
	for i := range references.Max + 1 {
		fmt.Fprintf(&many, "n%d ", i)
	}
	for name, tc := range map[string]struct {
		object any
		kind   string
		want   string
	}{
		"kind":      {map[string]any{}, "PVC", `refs knows ConfigMap, Secret, PersistentVolumeClaim and ServiceAccount, and not "PVC"`},
		"too many":  {map[string]any{"args": []any{many.String()}}, "Secret", "refs: there are more than 500000 references"},
		"no object": {[]any{"x"}, "Secret", "refs: this is no object, but a string"},
	} {
		got, ok := findRefs(types.DefaultTypeAdapter.NativeToValue(tc.object), types.String(tc.kind)).(*types.Err)
		if !ok || got.Error() != tc.want {
			t.Errorf("%s: got %v, want %s", name, got, tc.want)
		}
	}
}
