// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// leaves are the paths of all strings in a type, as its JSON has them; [] stands for the elements of a list.
func leaves(t reflect.Type, path string, found *[]string) {
	switch t.Kind() {
	case reflect.Pointer:
		leaves(t.Elem(), path, found)
	case reflect.Slice:
		leaves(t.Elem(), path+"[]", found)
	case reflect.String:
		*found = append(*found, path)
	case reflect.Struct:
		for i := range t.NumField() {
			tag, shown := t.Field(i).Tag.Lookup("json")
			if !shown || strings.Count(path, ".") > 20 { // what JSON does not show; some types hold themselves
				continue
			}
			name, _, _ := strings.Cut(tag, ",")
			if name != "" {
				name = "." + name
			}
			leaves(t.Field(i).Type, path+name, found)
		}
	}
}

// at is a value with "x" at a path.
func at(path string) any {
	if path == "" {
		return "x"
	}
	if rest, ok := strings.CutPrefix(path, "[]"); ok {
		return []any{at(rest)}
	}
	end := strings.IndexAny(path[1:], ".[") + 1
	if end == 0 {
		end = len(path)
	}
	return map[string]any{path[1:end]: at(path[end:])}
}

// Every field of a pod spec that can name an object of these kinds is known. A new version of Kubernetes that adds one
// fails here: what is not seen to be in use may be deleted.
func TestPodRefsKnowsEveryField(t *testing.T) {
	var paths []string
	leaves(reflect.TypeFor[corev1.PodSpec](), "", &paths)
	about := regexp.MustCompile(`(?i)secret|configmap|claimname|serviceaccount`)
	unrelated := regexp.MustCompile(`\.(key|path|fsType|apiGroup|audience|namespace|optional)$|\.items\[\]|` + // what else such a source says
		`\.resourceClaims\[\]|\.ephemeral\.volumeClaimTemplate|` + // other kinds
		`\.(cephfs\.(monitors\[\]|user|secretFile)|scaleIO\.)`)
	got := map[string][]string{}
	for _, path := range paths {
		if !about.MatchString(path) {
			continue
		}
		spec := types.DefaultTypeAdapter.NativeToValue(at(path))
		for _, kind := range []string{"ConfigMap", "PersistentVolumeClaim", "Secret", "ServiceAccount"} {
			list, ok := findPodRefs(spec, types.String(kind)).(traits.Lister)
			if !ok {
				t.Fatalf("%s: %v", path, findPodRefs(spec, types.String(kind)))
			}
			if list.Contains(types.String("x")) == types.True {
				got[kind] = append(got[kind], path)
			}
		}
		if !slices.ContainsFunc([]string{"ConfigMap", "PersistentVolumeClaim", "Secret", "ServiceAccount"}, func(kind string) bool { return slices.Contains(got[kind], path) }) && !unrelated.MatchString(path) {
			t.Errorf("podRefs does not know %s", path)
		}
	}
	want := map[string][]string{
		"PersistentVolumeClaim": {".volumes[].persistentVolumeClaim.claimName"},
		"ServiceAccount":        {".serviceAccountName", ".serviceAccount"},
		"ConfigMap":             {".volumes[].configMap.name", ".volumes[].projected.sources[].configMap.name"},
		"Secret": {
			".volumes[].secret.secretName", ".volumes[].iscsi.secretRef.name", ".volumes[].rbd.secretRef.name", ".volumes[].flexVolume.secretRef.name",
			".volumes[].cinder.secretRef.name", ".volumes[].cephfs.secretRef.name", ".volumes[].azureFile.secretName",
			".volumes[].projected.sources[].secret.name", ".volumes[].scaleIO.secretRef.name", ".volumes[].storageos.secretRef.name",
			".volumes[].csi.nodePublishSecretRef.name", ".imagePullSecrets[].name",
		},
	}
	for _, kind := range []string{"ConfigMap", "Secret"} {
		lower := strings.ToLower(kind[:1]) + kind[1:]
		for _, containers := range []string{"containers", "initContainers", "ephemeralContainers"} {
			want[kind] = append(want[kind], fmt.Sprintf(".%s[].envFrom[].%sRef.name", containers, lower), fmt.Sprintf(".%s[].env[].valueFrom.%sKeyRef.name", containers, lower))
		}
	}
	for kind := range want {
		slices.Sort(want[kind])
		slices.Sort(got[kind])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
