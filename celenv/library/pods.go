// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Pods is what expressions ask about Pods, and about what makes Pods.
//
//	podSpec(<object>) -> <optional>            // of a Pod, a Deployment, a Job, a CronJob, a PodTemplate, a Knative Service…; none for what has none
//	podLabels(<object>) -> <map>               // the labels of the Pods that it is or makes; {} for those that have none
//	podRefs(<podSpec>, <string>) -> <list>     // the names of all "ConfigMap", "Secret", "PersistentVolumeClaim" or "ServiceAccount" objects in it
//
// podSpec goes by the shape: whatever has containers where a Pod or a template of Pods has them. The list of podRefs is
// sorted and has each name once; it is empty for an optional that is none. A pod spec that names no ServiceAccount refers
// to the one called "default". The claims that a Pod's ephemeral volumes or a StatefulSet's volumeClaimTemplates become
// have names that the pod spec does not have.
func Pods() cel.EnvOption { return cel.Lib(podsLibrary{}) }

type podsLibrary struct{}

func (podsLibrary) LibraryName() string { return "cleaner.pods" }

func (podsLibrary) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("podSpec",
			cel.Overload("pod_spec_object", []*cel.Type{cel.DynType}, cel.OptionalType(cel.DynType), cel.UnaryBinding(findPodSpec))),
		cel.Function("podLabels",
			cel.Overload("pod_labels_object", []*cel.Type{cel.DynType}, cel.MapType(cel.StringType, cel.StringType), cel.UnaryBinding(findPodLabels))),
		cel.Function("podRefs",
			cel.Overload("pod_refs_spec_string", []*cel.Type{cel.DynType, cel.StringType}, cel.ListType(cel.StringType), cel.BinaryBinding(findPodRefs))),
	}
}

func (podsLibrary) ProgramOptions() []cel.ProgramOption { return nil }

// ListPodSpecPaths gives the paths at which podSpec and podLabels look for a pod spec.
func ListPodSpecPaths() [][]string {
	return [][]string{
		{"spec"},
		{"spec", "template", "spec"},
		{"spec", "jobTemplate", "spec", "template", "spec"},
		{"template", "spec"},
	}
}

func findPodSpec(v ref.Val) ref.Val {
	object, ok := v.(traits.Mapper)
	if !ok {
		return types.NewErr("podSpec: this is no object, but a %s", v.Type().TypeName())
	}
	for _, path := range ListPodSpecPaths() {
		spec := lookupPath(object, path...)
		if _, ok := lookupPath(spec, "containers").(traits.Lister); ok {
			return types.OptionalOf(spec)
		}
	}
	return types.OptionalNone
}

// findPodLabels finds them beside the pod spec. What a controller adds to them, such as the name of a StatefulSet's Pod, only Pods have.
func findPodLabels(v ref.Val) ref.Val {
	object, ok := v.(traits.Mapper)
	if !ok {
		return types.NewErr("podLabels: this is no object, but a %s", v.Type().TypeName())
	}
	for _, path := range ListPodSpecPaths() {
		if _, ok := lookupPath(lookupPath(object, path...), "containers").(traits.Lister); !ok {
			continue
		}
		if labels, ok := lookupPath(object, slices.Concat(path[:len(path)-1], []string{"metadata", "labels"})...).(traits.Mapper); ok {
			return labels
		}
	}
	return types.NewStringStringMap(types.DefaultTypeAdapter, nil)
}

func findPodRefs(v, kind ref.Val) ref.Val {
	find := map[types.String]func(map[string]any) []string{
		"ConfigMap": findConfigMaps, "Secret": findSecrets, "PersistentVolumeClaim": findClaims, "ServiceAccount": findServiceAccounts,
	}[kind.(types.String)]
	if find == nil {
		return types.NewErr("podRefs knows ConfigMap, Secret, PersistentVolumeClaim and ServiceAccount, and not %s", quoteValue(kind))
	}
	if v = unwrapOptional(v); v == nil {
		return types.NewStringList(types.DefaultTypeAdapter, nil)
	}
	spec, ok := convertToMap(v)
	if !ok {
		return types.NewErr("podRefs: this is no pod spec, but a %s", v.Type().TypeName())
	}
	names := find(spec)
	slices.Sort(names)
	return types.NewStringList(types.DefaultTypeAdapter, slices.Compact(names))
}

// listContainers gives those of all kinds.
func listContainers(spec map[string]any) []map[string]any {
	return slices.Concat(listMaps(spec["containers"]), listMaps(spec["initContainers"]), listMaps(spec["ephemeralContainers"]))
}

// appendTexts gives texts with those of values that are texts, and not empty.
func appendTexts(texts []string, values ...any) []string {
	for _, v := range values {
		if text, ok := v.(string); ok && text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// findInEnvironment finds what the environment of containers takes from objects: one key, or all of them.
func findInEnvironment(spec map[string]any, key, all string) []string {
	var found []string
	for _, c := range listContainers(spec) {
		for _, variable := range listMaps(c["env"]) {
			found = appendTexts(found, lookupNative(variable, "valueFrom", key, "name"))
		}
		for _, source := range listMaps(c["envFrom"]) {
			found = appendTexts(found, lookupNative(source, all, "name"))
		}
	}
	return found
}

// findInProjected finds what projected volumes take from objects.
func findInProjected(volume map[string]any, source string) []string {
	var found []string
	for _, s := range listMaps(lookupNative(volume, "projected", "sources")) {
		found = appendTexts(found, lookupNative(s, source, "name"))
	}
	return found
}

func findConfigMaps(spec map[string]any) []string {
	found := findInEnvironment(spec, "configMapKeyRef", "configMapRef")
	for _, volume := range listMaps(spec["volumes"]) {
		found = appendTexts(found, lookupNative(volume, "configMap", "name"))
		found = append(found, findInProjected(volume, "configMap")...)
	}
	return found
}

func findSecrets(spec map[string]any) []string {
	found := findInEnvironment(spec, "secretKeyRef", "secretRef")
	for _, secret := range listMaps(spec["imagePullSecrets"]) {
		found = appendTexts(found, secret["name"])
	}
	for _, volume := range listMaps(spec["volumes"]) {
		found = appendTexts(found, lookupNative(volume, "secret", "secretName"), lookupNative(volume, "azureFile", "secretName"), lookupNative(volume, "csi", "nodePublishSecretRef", "name"))
		for _, kind := range listSecretVolumes() {
			found = appendTexts(found, lookupNative(volume, kind, "secretRef", "name"))
		}
		found = append(found, findInProjected(volume, "secret")...)
	}
	return found
}

// listSecretVolumes gives the kinds of volumes that have a secretRef.
func listSecretVolumes() []string {
	return []string{"cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"}
}

func findClaims(spec map[string]any) []string {
	var found []string
	for _, volume := range listMaps(spec["volumes"]) {
		found = appendTexts(found, lookupNative(volume, "persistentVolumeClaim", "claimName"))
	}
	return found
}

func findServiceAccounts(spec map[string]any) []string {
	for _, name := range []string{"serviceAccountName", "serviceAccount"} { // the second is an old name of the first
		if spec[name] != nil && spec[name] != "" {
			return appendTexts(nil, spec[name])
		}
	}
	return []string{"default"}
}

// AnyElement stands in a path of ListPodRefPaths for each element of a list.
const AnyElement = "[*]"

// ListPodRefPaths gives the paths in a pod spec at which podRefs finds names of objects of a kind, or of any that it knows for another kind.
// It reads nothing else of what is there.
func ListPodRefPaths(kind string) [][]string {
	switch kind {
	case "ConfigMap":
		return slices.Concat(listEnvironmentPaths("configMapKeyRef", "configMapRef"), listVolumePaths("configMap.name", "projected.sources.[*].configMap.name"))
	case "Secret":
		paths := slices.Concat(listEnvironmentPaths("secretKeyRef", "secretRef"), [][]string{{"imagePullSecrets", AnyElement, "name"}}, listVolumePaths(
			"secret.secretName", "azureFile.secretName", "csi.nodePublishSecretRef.name", "projected.sources.[*].secret.name"))
		for _, kind := range listSecretVolumes() {
			paths = append(paths, listVolumePaths(kind+".secretRef.name")...)
		}
		return paths
	case "PersistentVolumeClaim":
		return listVolumePaths("persistentVolumeClaim.claimName")
	case "ServiceAccount":
		return [][]string{{"serviceAccountName"}, {"serviceAccount"}}
	default:
		return slices.Concat(ListPodRefPaths("ConfigMap"), ListPodRefPaths("Secret"), ListPodRefPaths("PersistentVolumeClaim"), ListPodRefPaths("ServiceAccount"))
	}
}

// listEnvironmentPaths gives the paths that findInEnvironment reads.
func listEnvironmentPaths(key, all string) (paths [][]string) {
	for _, containers := range []string{"containers", "initContainers", "ephemeralContainers"} {
		paths = append(paths, []string{containers, AnyElement, "env", AnyElement, "valueFrom", key, "name"}, []string{containers, AnyElement, "envFrom", AnyElement, all, "name"})
	}
	return paths
}

// listVolumePaths gives paths in the volumes of a pod spec. Each path in a volume is written with dots.
func listVolumePaths(inVolume ...string) (paths [][]string) {
	for _, path := range inVolume {
		paths = append(paths, append([]string{"volumes", AnyElement}, strings.Split(path, ".")...))
	}
	return paths
}
