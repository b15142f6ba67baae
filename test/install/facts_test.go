// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// installed is what one way to install the operator creates.
type installed struct {
	*testing.T
	objects    []*unstructured.Unstructured
	deployment *appsv1.Deployment
}

// facts are all that is to be the same, a line each.
func facts(t *testing.T, objects []*unstructured.Unstructured) map[string]bool {
	t.Helper()
	i := &installed{T: t, objects: objects}
	deployments := all[appsv1.Deployment](i, "Deployment")
	if len(deployments) != 1 {
		t.Fatalf("there are %d Deployments", len(deployments))
	}
	i.deployment = deployments[0]
	lines := map[string]bool{}
	for _, some := range [][]string{i.rights(), i.roles(), i.pod(), i.kinds(), i.webhooks(), i.networks()} {
		if len(some) == 0 {
			t.Fatal("something has no facts at all")
		}
		for _, line := range some {
			lines[line] = true
		}
	}
	for _, line := range i.policies() {
		lines[line] = true
	}
	return lines
}

// all are the objects of a kind.
func all[T any](i *installed, kind string) []*T {
	i.Helper()
	var found []*T
	for _, o := range i.objects {
		if o.GetKind() != kind {
			continue
		}
		typed := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true); err != nil {
			i.Fatalf("%s %s: %v", kind, o.GetName(), err)
		}
		found = append(found, typed)
	}
	return found
}

// isManager says whether those who are bound are the operator's account, and nobody else.
func (i *installed) isManager(subjects []rbacv1.Subject) bool {
	return len(subjects) == 1 && subjects[0] == rbacv1.Subject{
		Kind: rbacv1.ServiceAccountKind, Name: i.deployment.Spec.Template.Spec.ServiceAccountName, Namespace: i.deployment.Namespace,
	}
}

// rights are what the operator may do: a verb on a resource, there or everywhere.
func (i *installed) rights() []string {
	var lines []string
	namespaced, cluster := map[string][]rbacv1.PolicyRule{}, map[string]*rbacv1.ClusterRole{}
	for _, r := range all[rbacv1.Role](i, "Role") {
		namespaced[r.Namespace+"/"+r.Name] = r.Rules
	}
	for _, r := range all[rbacv1.ClusterRole](i, "ClusterRole") {
		cluster[r.Name] = r
	}
	for _, b := range all[rbacv1.RoleBinding](i, "RoleBinding") {
		rules, there := namespaced[b.Namespace+"/"+b.RoleRef.Name]
		if !there || b.RoleRef.Kind != "Role" || b.Namespace != i.deployment.Namespace {
			i.Fatalf("RoleBinding %s in %s binds to %v", b.Name, b.Namespace, b.RoleRef)
		}
		if !i.isManager(b.Subjects) {
			lines = append(lines, fmt.Sprintf("others are bound by %s: %v", b.Name, b.Subjects))
			continue
		}
		lines = append(lines, grants("right in its namespace: ", rules)...)
	}
	for _, b := range all[rbacv1.ClusterRoleBinding](i, "ClusterRoleBinding") {
		role := cluster[b.RoleRef.Name]
		if role == nil || b.RoleRef.Kind != "ClusterRole" {
			i.Fatalf("ClusterRoleBinding %s binds to %v", b.Name, b.RoleRef)
		}
		if !i.isManager(b.Subjects) {
			lines = append(lines, fmt.Sprintf("others are bound by %s: %v", b.Name, b.Subjects))
			continue
		}
		lines = append(lines, grants("right: ", role.Rules)...)
		if role.AggregationRule == nil {
			continue
		}
		for n := range role.AggregationRule.ClusterRoleSelectors {
			selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[n])
			if err != nil {
				i.Fatal(err)
			}
			lines = append(lines, "rights of all ClusterRoles with "+selector.String())
			for _, part := range cluster {
				if selector.Matches(labels.Set(part.Labels)) {
					lines = append(lines, grants("right: ", part.Rules)...)
				}
			}
		}
	}
	return lines
}

// grants are rules, a line for each verb on each resource.
func grants(prefix string, rules []rbacv1.PolicyRule) []string {
	var lines []string
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, url := range rule.NonResourceURLs {
				lines = append(lines, prefix+verb+" "+url)
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						lines = append(lines, strings.TrimSpace(prefix+verb+" "+strings.TrimSuffix(resource+"."+group, ".")+" "+name))
					}
				}
			}
		}
	}
	return lines
}

// roles are the ClusterRoles that nobody is bound to: those that an administrator binds people to.
func (i *installed) roles() []string {
	bound := map[string]bool{}
	for _, b := range all[rbacv1.ClusterRoleBinding](i, "ClusterRoleBinding") {
		bound[b.RoleRef.Name] = true
	}
	var lines []string
	for _, role := range all[rbacv1.ClusterRole](i, "ClusterRole") {
		if bound[role.Name] || role.Labels["cleaner.vtex.dev/aggregate-to-controller"] != "" {
			continue
		}
		lines = append(lines, grants("role "+role.Name+": ", role.Rules)...)
		for k, v := range role.Labels {
			if strings.HasPrefix(k, "rbac.authorization.k8s.io/") || strings.HasPrefix(k, "cleaner.vtex.dev/") {
				lines = append(lines, "role "+role.Name+" has "+k+"="+v)
			}
		}
	}
	return lines
}

// pod is what runs: each field that is set, and each argument. The image is a matter of releases.
func (i *installed) pod() []string {
	d := i.deployment.DeepCopy()
	for n := range d.Spec.Template.Spec.Containers {
		d.Spec.Template.Spec.Containers[n].Image = ""
		d.Spec.Template.Spec.Containers[n].ImagePullPolicy = ""
	}
	return append(i.flat("pod", d.Spec.Template.Spec), i.flat("replicas", d.Spec.Replicas)...)
}

// kinds are the definitions, whole.
func (i *installed) kinds() []string {
	var lines []string
	for _, o := range i.objects {
		if o.GetKind() == "CustomResourceDefinition" {
			spec, err := json.Marshal(o.Object["spec"])
			if err != nil {
				i.Fatal(err)
			}
			lines = append(lines, "kind "+o.GetName()+": "+string(spec))
		}
	}
	return lines
}

// webhooks are what the API server asks about, and the port of the Pod at which it asks.
func (i *installed) webhooks() []string {
	var lines []string
	ask := func(name string, at *admissionregistrationv1.WebhookClientConfig, webhook any) {
		lines = append(lines, fmt.Sprintf("webhook %s asks at port %d", name, i.portOf(at.Service)))
		*at = admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Path: at.Service.Path}}
		lines = append(lines, i.flat("webhook "+name, webhook)...)
	}
	for _, c := range all[admissionregistrationv1.ValidatingWebhookConfiguration](i, "ValidatingWebhookConfiguration") {
		for _, w := range c.Webhooks {
			ask(w.Name, &w.ClientConfig, &w)
		}
	}
	for _, c := range all[admissionregistrationv1.MutatingWebhookConfiguration](i, "MutatingWebhookConfiguration") {
		for _, w := range c.Webhooks {
			ask(w.Name, &w.ClientConfig, &w)
		}
	}
	return lines
}

// policies are what the API server itself refuses: who may write status, and be named as an author.
func (i *installed) policies() []string {
	var lines []string
	bound := map[string]bool{}
	for _, b := range all[admissionregistrationv1.ValidatingAdmissionPolicyBinding](i, "ValidatingAdmissionPolicyBinding") {
		bound[b.Spec.PolicyName] = true
		lines = append(lines, i.flat("binding "+b.Name, b.Spec)...)
	}
	for _, p := range all[admissionregistrationv1.ValidatingAdmissionPolicy](i, "ValidatingAdmissionPolicy") {
		if !bound[p.Name] {
			i.Errorf("the policy %s is not bound", p.Name)
		}
		if p.Namespace != "" {
			i.Errorf("the policy %s is in namespace %s", p.Name, p.Namespace)
		}
		lines = append(lines, i.flat("policy "+p.Name, p.Spec)...)
	}
	return lines
}

// networks are who may reach the Pod, a line for each rule, and in which directions anything is said.
func (i *installed) networks() []string {
	var lines []string
	for _, p := range all[networkingv1.NetworkPolicy](i, "NetworkPolicy") {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil {
			i.Fatal(err)
		}
		if p.Namespace != i.deployment.Namespace || !selector.Matches(labels.Set(i.deployment.Spec.Template.Labels)) {
			i.Errorf("the NetworkPolicy %s is not about the Pod", p.Name)
		}
		for _, kind := range p.Spec.PolicyTypes {
			lines = append(lines, "network bounds "+string(kind))
		}
		for _, rule := range p.Spec.Ingress {
			text, err := json.Marshal(rule)
			if err != nil {
				i.Fatal(err)
			}
			lines = append(lines, "network lets in "+string(text))
		}
	}
	return lines
}

// portOf is the port of the Pod that a Service leads to.
func (i *installed) portOf(ref *admissionregistrationv1.ServiceReference) int32 {
	i.Helper()
	for _, s := range all[corev1.Service](i, "Service") {
		if s.Name != ref.Name || s.Namespace != ref.Namespace || ref.Namespace != i.deployment.Namespace {
			continue
		}
		if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(i.deployment.Spec.Template.Labels)) {
			i.Fatalf("Service %s does not lead to the Pod", s.Name)
		}
		for _, port := range s.Spec.Ports {
			if ref.Port != nil && port.Port != *ref.Port || ref.Port == nil && port.Port != 443 {
				continue
			}
			if port.TargetPort.Type == intstr.Int {
				return port.TargetPort.IntVal
			}
			for _, p := range i.deployment.Spec.Template.Spec.Containers[0].Ports {
				if p.Name == port.TargetPort.StrVal {
					return p.ContainerPort
				}
			}
		}
	}
	i.Fatalf("Service %s/%s leads nowhere", ref.Namespace, ref.Name)
	return 0
}

// flat is a value, a line for each field that is set. What has a name stands under its name, and what is a plain list, such
// as arguments, in any order.
func (i *installed) flat(prefix string, value any) []string {
	i.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		i.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		i.Fatal(err)
	}
	var lines []string
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case nil:
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(path+"."+k, v[k])
			}
		case []any:
			for _, item := range v {
				if fields, ok := item.(map[string]any); ok && fields["name"] != nil {
					walk(path+"."+fmt.Sprint(fields["name"]), item)
				} else {
					walk(path, item)
				}
			}
		default:
			if v != "" {
				lines = append(lines, fmt.Sprintf("%s: %v", path, v))
			}
		}
	}
	walk(prefix, plain)
	return lines
}
