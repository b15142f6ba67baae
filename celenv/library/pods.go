// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"slices"

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
func Pods() cel.EnvOption { return cel.Lib(pods{}) }

type pods struct{}

func (pods) LibraryName() string { return "cleaner.pods" }

func (pods) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("podSpec",
			cel.Overload("pod_spec_object", []*cel.Type{cel.DynType}, cel.OptionalType(cel.DynType), cel.UnaryBinding(podSpec))),
		cel.Function("podLabels",
			cel.Overload("pod_labels_object", []*cel.Type{cel.DynType}, cel.MapType(cel.StringType, cel.StringType), cel.UnaryBinding(podLabels))),
		cel.Function("podRefs",
			cel.Overload("pod_refs_spec_string", []*cel.Type{cel.DynType, cel.StringType}, cel.ListType(cel.StringType), cel.BinaryBinding(podRefs))),
	}
}

func (pods) ProgramOptions() []cel.ProgramOption { return nil }

// podSpecs are the paths to a pod spec.
func podSpecs() [][]types.String {
	return [][]types.String{
		{"spec"},
		{"spec", "template", "spec"},
		{"spec", "jobTemplate", "spec", "template", "spec"},
		{"template", "spec"},
	}
}

func podSpec(v ref.Val) ref.Val {
	object, ok := v.(traits.Mapper)
	if !ok {
		return types.NewErr("podSpec: this is no object, but a %s", v.Type().TypeName())
	}
	for _, path := range podSpecs() {
		spec := lookup(object, path...)
		if _, ok := lookup(spec, "containers").(traits.Lister); ok {
			return types.OptionalOf(spec)
		}
	}
	return types.OptionalNone
}

// podLabels are beside the pod spec. What a controller adds to them, such as the name of a StatefulSet's Pod, only Pods have.
func podLabels(v ref.Val) ref.Val {
	object, ok := v.(traits.Mapper)
	if !ok {
		return types.NewErr("podLabels: this is no object, but a %s", v.Type().TypeName())
	}
	for _, path := range podSpecs() {
		if _, ok := lookup(lookup(object, path...), "containers").(traits.Lister); !ok {
			continue
		}
		if labels, ok := lookup(object, slices.Concat(path[:len(path)-1], []types.String{"metadata", "labels"})...).(traits.Mapper); ok {
			return labels
		}
	}
	return types.NewStringStringMap(types.DefaultTypeAdapter, nil)
}

func podRefs(v, kind ref.Val) ref.Val {
	find := map[types.String]func(map[string]any) []string{
		"ConfigMap": configMaps, "Secret": secrets, "PersistentVolumeClaim": claims, "ServiceAccount": serviceAccounts,
	}[kind.(types.String)]
	if find == nil {
		return types.NewErr("podRefs knows ConfigMap, Secret, PersistentVolumeClaim and ServiceAccount, and not %s", quoted(kind))
	}
	if v = present(v); v == nil {
		return types.NewStringList(types.DefaultTypeAdapter, nil)
	}
	spec, ok := nativeMap(v)
	if !ok {
		return types.NewErr("podRefs: this is no pod spec, but a %s", v.Type().TypeName())
	}
	names := find(spec)
	slices.Sort(names)
	return types.NewStringList(types.DefaultTypeAdapter, slices.Compact(names))
}

// containers are those of all kinds.
func containers(spec map[string]any) []map[string]any {
	return slices.Concat(maps(spec["containers"]), maps(spec["initContainers"]), maps(spec["ephemeralContainers"]))
}

// appended are texts with those of values that are texts, and not empty.
func appended(texts []string, values ...any) []string {
	for _, v := range values {
		if text, ok := v.(string); ok && text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// environment is what the environment of containers takes from objects: one key, or all of them.
func environment(spec map[string]any, key, all string) []string {
	var found []string
	for _, c := range containers(spec) {
		for _, variable := range maps(c["env"]) {
			found = appended(found, field(variable, "valueFrom", key, "name"))
		}
		for _, source := range maps(c["envFrom"]) {
			found = appended(found, field(source, all, "name"))
		}
	}
	return found
}

// projected is what projected volumes take from objects.
func projected(volume map[string]any, source string) []string {
	var found []string
	for _, s := range maps(field(volume, "projected", "sources")) {
		found = appended(found, field(s, source, "name"))
	}
	return found
}

func configMaps(spec map[string]any) []string {
	found := environment(spec, "configMapKeyRef", "configMapRef")
	for _, volume := range maps(spec["volumes"]) {
		found = appended(found, field(volume, "configMap", "name"))
		found = append(found, projected(volume, "configMap")...)
	}
	return found
}

func secrets(spec map[string]any) []string {
	found := environment(spec, "secretKeyRef", "secretRef")
	for _, secret := range maps(spec["imagePullSecrets"]) {
		found = appended(found, secret["name"])
	}
	for _, volume := range maps(spec["volumes"]) {
		found = appended(found, field(volume, "secret", "secretName"), field(volume, "azureFile", "secretName"), field(volume, "csi", "nodePublishSecretRef", "name"))
		for _, kind := range []string{"cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"} {
			found = appended(found, field(volume, kind, "secretRef", "name"))
		}
		found = append(found, projected(volume, "secret")...)
	}
	return found
}

func claims(spec map[string]any) []string {
	var found []string
	for _, volume := range maps(spec["volumes"]) {
		found = appended(found, field(volume, "persistentVolumeClaim", "claimName"))
	}
	return found
}

func serviceAccounts(spec map[string]any) []string {
	for _, name := range []string{"serviceAccountName", "serviceAccount"} { // the second is an old name of the first
		if spec[name] != nil && spec[name] != "" {
			return appended(nil, spec[name])
		}
	}
	return []string{"default"}
}
