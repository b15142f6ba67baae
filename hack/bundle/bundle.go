// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// bundle is what config/manifests declares, by what OLM does with it.
type bundle struct {
	// base is the ClusterServiceVersion as far as it is written by hand.
	base, namespace, account, deployment, webhooks, authors *unstructured.Unstructured
	// manifests are installed as they are.
	manifests []*unstructured.Unstructured
	// examples are objects of our own kinds.
	examples []*unstructured.Unstructured
	// roles are the Roles and ClusterRoles, by kind and name, until something is known to use them.
	roles map[string]*unstructured.Unstructured
	// bindings are the RoleBindings and ClusterRoleBindings.
	bindings []*unstructured.Unstructured
}

// sort tells objects apart by what OLM does with them.
func sort(objects []*unstructured.Unstructured) (*bundle, error) {
	b := &bundle{roles: map[string]*unstructured.Unstructured{}}
	once := map[string]**unstructured.Unstructured{
		"ClusterServiceVersion": &b.base, "Namespace": &b.namespace, "ServiceAccount": &b.account,
		"Deployment": &b.deployment, "ValidatingWebhookConfiguration": &b.webhooks, "MutatingWebhookConfiguration": &b.authors,
	}
	for _, o := range objects {
		place, isOnce := once[o.GetKind()]
		switch kind := o.GetKind(); {
		case o.GroupVersionKind().Group == "cleaner.vtex.dev":
			b.examples = append(b.examples, o)
		case isOnce && *place != nil:
			return nil, fmt.Errorf("there are two objects of kind %s, %s and %s: a bundle has one", kind, (*place).GetName(), o.GetName())
		case isOnce:
			*place = o
		case kind == "ClusterRole" || kind == "Role":
			b.roles[kind+" "+o.GetName()] = o
		case kind == "ClusterRoleBinding" || kind == "RoleBinding":
			b.bindings = append(b.bindings, o)
		case kind == "CustomResourceDefinition" || kind == "Service" || kind == "NetworkPolicy":
			b.manifests = append(b.manifests, o)
		default:
			return nil, fmt.Errorf("it is not known how OLM installs %s %s: say so here, or take it out in config/manifests", kind, o.GetName())
		}
	}
	for kind, place := range once {
		if *place == nil {
			return nil, fmt.Errorf("there is no object of kind %s", kind)
		}
	}
	return b, nil
}

// rights returns what the operator's account is granted, in all namespaces and in its own. Roles without a binding are installed as they
// are, for people; and so are an aggregated role and its binding, since a ClusterServiceVersion can only list rules.
func (b *bundle) rights() (cluster, own []any, err error) {
	for _, binding := range b.bindings {
		roleKind, _, _ := unstructured.NestedString(binding.Object, "roleRef", "kind")
		name, _, _ := unstructured.NestedString(binding.Object, "roleRef", "name")
		role := b.roles[roleKind+" "+name]
		subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
		account := map[string]any{"kind": "ServiceAccount", "name": b.account.GetName(), "namespace": b.account.GetNamespace()}
		switch {
		case role == nil:
			return nil, nil, fmt.Errorf("%s %s binds %s %s, which is not there", binding.GetKind(), binding.GetName(), roleKind, name)
		case len(subjects) != 1 || fmt.Sprint(subjects[0]) != fmt.Sprint(account):
			return nil, nil, fmt.Errorf("%s %s binds others than ServiceAccount %s: a ClusterServiceVersion cannot say so", binding.GetKind(), binding.GetName(), b.account.GetName())
		case binding.GetKind() != "ClusterRoleBinding":
			own = append(own, b.take(role)...)
		case role.Object["aggregationRule"] != nil:
			added, err := b.aggregated(role)
			if err != nil {
				return nil, nil, err
			}
			cluster = append(cluster, added...)
			b.manifests = append(b.manifests, binding)
		default:
			cluster = append(cluster, b.take(role)...)
		}
	}
	for _, role := range b.roles {
		b.manifests = append(b.manifests, role)
	}
	slices.SortFunc(b.manifests, func(a, b *unstructured.Unstructured) int { return strings.Compare(fileName(a), fileName(b)) })
	return cluster, own, nil
}

// take returns the rules of a role, which is then of no further use.
func (b *bundle) take(role *unstructured.Unstructured) []any {
	delete(b.roles, role.GetKind()+" "+role.GetName())
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	return rules
}

// aggregated returns the rules of all roles that one consists of, by name.
func (b *bundle) aggregated(sum *unstructured.Unstructured) ([]any, error) {
	typed := &rbacv1.ClusterRole{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(sum.Object, typed); err != nil {
		return nil, fmt.Errorf("cannot read ClusterRole %s: %w", sum.GetName(), err)
	}
	var parts []*unstructured.Unstructured
	for i := range typed.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&typed.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("cannot read what ClusterRole %s consists of: %w", sum.GetName(), err)
		}
		for _, role := range b.roles {
			if selector.Matches(labels.Set(role.GetLabels())) {
				parts = append(parts, role)
			}
		}
	}
	slices.SortFunc(parts, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	var rules []any
	for _, part := range slices.Compact(parts) {
		rules = append(rules, b.take(part)...)
	}
	return rules, nil
}

// files returns the files of the bundle, by their paths in it.
func (b *bundle) files(r release) (map[string][]byte, error) {
	csv, err := b.csv(r)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"metadata/annotations.yaml": annotationsFile(), "Dockerfile": dockerfile()}
	for _, o := range append(b.manifests, csv) {
		o.SetNamespace("") // it is installed in the namespace that its user chooses
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("cannot write %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		files["manifests/"+fileName(o)] = append([]byte(generated), text...)
	}
	return files, nil
}

// generated is the first line of each file.
const generated = "# Generated by make bundle from config/manifests. Do not edit.\n"

// fileName is how operator-sdk would name the file of an object.
func fileName(o *unstructured.Unstructured) string {
	gvk := o.GroupVersionKind()
	switch gvk.Kind {
	case "ClusterServiceVersion":
		return "cleaner.clusterserviceversion.yaml"
	case "CustomResourceDefinition":
		plural, group, _ := strings.Cut(o.GetName(), ".")
		return group + "_" + plural + ".yaml"
	}
	parts := slices.DeleteFunc([]string{o.GetName(), gvk.Group, gvk.Version, strings.ToLower(gvk.Kind)}, func(s string) bool { return s == "" })
	return strings.Join(parts, "_") + ".yaml"
}

// annotations say to OLM's tools what the bundle is. Its image has them as labels.
func annotations() [][2]string {
	const prefix = "operators.operatorframework.io.bundle."
	return [][2]string{
		{prefix + "mediatype.v1", "registry+v1"},
		{prefix + "manifests.v1", "manifests/"},
		{prefix + "metadata.v1", "metadata/"},
		{prefix + "package.v1", "cleaner"},
		{prefix + "channels.v1", "candidate"},
		{prefix + "channel.default.v1", "candidate"},
	}
}

func annotationsFile() []byte {
	var s strings.Builder
	s.WriteString(generated + "annotations:\n")
	for _, a := range annotations() {
		fmt.Fprintf(&s, "  %s: %s\n", a[0], a[1])
	}
	return []byte(s.String())
}

func dockerfile() []byte {
	var s strings.Builder
	s.WriteString(generated + "# It is built in this folder: docker build bundle\nFROM scratch\n\n")
	for _, a := range annotations() {
		fmt.Fprintf(&s, "LABEL %s=%s\n", a[0], a[1])
	}
	s.WriteString("\nCOPY manifests /manifests/\nCOPY metadata /metadata/\n")
	return []byte(s.String())
}
