// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package olm knows what OLM makes of a bundle: the objects that it would create in a cluster, from the CustomResourceDefinitions
// to the webhook's certificate. It stands in for OLM in tests, which have no kubelet to run OLM itself. It asks no cluster,
// and leaves out the few rights that OLM adds of its own accord, so that what works here works with what the bundle asks for.
package olm

import (
	"fmt"

	"github.com/operator-framework/api/pkg/manifests"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
)

const (
	// CertDir is where OLM mounts the webhook's certificate, as tls.crt and tls.key.
	CertDir = "/tmp/k8s-webhook-server/serving-certs"
	// apiServiceCertDir is where it mounts the same certificate under the names that extension API servers expect.
	apiServiceCertDir = "/apiserver.local.config/certificates"
)

// Service is the name of the Service by which the API server calls the webhook of a Deployment.
func Service(deployment string) string { return deployment + "-service" }

// Secret is the name of the Secret with the certificate of a Deployment's webhook.
func Secret(deployment string) string { return Service(deployment) + "-cert" }

// Install returns what OLM creates for a bundle in a namespace whose OperatorGroup selects all namespaces. Each call makes
// other certificates.
func Install(b *manifests.Bundle, namespace string) ([]*unstructured.Unstructured, error) {
	i := installation{bundle: b, namespace: namespace}
	i.manifests()
	i.rights()
	for _, d := range b.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		if err := i.deployment(d); err != nil {
			return nil, err
		}
	}
	return i.objects, i.err
}

// installation collects the objects.
type installation struct {
	bundle    *manifests.Bundle
	namespace string
	objects   []*unstructured.Unstructured
	err       error
}

// add adds an object of a built-in kind.
func (i *installation) add(gv schema.GroupVersion, kind string, o interface {
	runtime.Object
	metav1.Object
}) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil && i.err == nil {
		i.err = fmt.Errorf("cannot write %s %s: %w", kind, o.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(gv.WithKind(kind))
	unstructured.RemoveNestedField(u.Object, "status")
	i.objects = append(i.objects, u)
}

// meta returns the metadata of an object in the namespace.
func (i *installation) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: i.namespace}
}

// manifests installs manifests as they are; objects with a namespace get the operator's.
func (i *installation) manifests() {
	for _, o := range i.bundle.Objects {
		switch o.GetKind() {
		case operatorsv1alpha1.ClusterServiceVersionKind:
			continue
		case "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding":
			i.objects = append(i.objects, o.DeepCopy())
		default:
			o = o.DeepCopy()
			o.SetNamespace(i.namespace)
			i.objects = append(i.objects, o)
		}
	}
}

// rights are a role for each entry of permissions and of clusterPermissions, bound to the account that it names.
func (i *installation) rights() {
	csv, strategy := i.bundle.CSV, i.bundle.CSV.Spec.InstallStrategy.StrategySpec
	accounts := map[string]bool{}
	account := func(name string) []rbacv1.Subject {
		if !accounts[name] {
			accounts[name] = true
			i.add(corev1.SchemeGroupVersion, "ServiceAccount", &corev1.ServiceAccount{ObjectMeta: i.meta(name)})
		}
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: i.namespace}}
	}
	for n, p := range strategy.Permissions {
		name := fmt.Sprintf("%s-%s-%d", csv.Name, p.ServiceAccountName, n)
		i.add(rbacv1.SchemeGroupVersion, "Role", &rbacv1.Role{ObjectMeta: i.meta(name), Rules: p.Rules})
		i.add(rbacv1.SchemeGroupVersion, "RoleBinding", &rbacv1.RoleBinding{
			ObjectMeta: i.meta(name), Subjects: account(p.ServiceAccountName), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		})
	}
	for n, p := range strategy.ClusterPermissions {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", csv.Name, n)}
		i.add(rbacv1.SchemeGroupVersion, "ClusterRole", &rbacv1.ClusterRole{ObjectMeta: meta, Rules: p.Rules})
		i.add(rbacv1.SchemeGroupVersion, "ClusterRoleBinding", &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, Subjects: account(p.ServiceAccountName), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		})
	}
}

// deployment is a Deployment, and for its webhooks a Service, a certificate, and a configuration each.
func (i *installation) deployment(d operatorsv1alpha1.StrategyDeploymentSpec) error {
	spec := d.Spec.DeepCopy()
	if spec.Template.Annotations == nil {
		spec.Template.Annotations = map[string]string{}
	}
	for k, v := range map[string]string{"olm.targetNamespaces": "", "olm.operatorGroup": "global", "olm.operatorNamespace": i.namespace} {
		spec.Template.Annotations[k] = v
	}
	for n := range spec.Template.Spec.Containers {
		c := &spec.Template.Spec.Containers[n]
		c.Env = append(c.Env, corev1.EnvVar{Name: "OPERATOR_CONDITION_NAME", Value: i.bundle.CSV.Name})
	}
	if err := i.webhooks(d.Name, spec); err != nil {
		return err
	}
	i.add(appsv1.SchemeGroupVersion, "Deployment", &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: i.namespace, Labels: d.Label}, Spec: *spec,
	})
	return nil
}

// webhooks are those that a Deployment serves.
func (i *installation) webhooks(deployment string, spec *appsv1.DeploymentSpec) error {
	host := Service(deployment) + "." + i.namespace
	chain, key, err := cert.GenerateSelfSignedCertKey(host+".svc", nil, []string{host})
	if err != nil {
		return fmt.Errorf("cannot make the webhook's certificate: %w", err)
	}
	var ports []corev1.ServicePort
	for _, w := range i.bundle.CSV.Spec.WebhookDefinitions {
		if w.DeploymentName != deployment {
			return fmt.Errorf("webhook %s is one of Deployment %q, and only those of Deployment %q are installed here", w.GenerateName, w.DeploymentName, deployment)
		}
		if len(ports) == 0 {
			ports = []corev1.ServicePort{{Name: fmt.Sprint(w.ContainerPort), Port: w.ContainerPort, TargetPort: *w.TargetPort}}
		}
		switch meta := (metav1.ObjectMeta{Name: w.GenerateName + "-olm"}); w.Type {
		case operatorsv1alpha1.ValidatingAdmissionWebhook:
			i.add(admissionregistrationv1.SchemeGroupVersion, "ValidatingWebhookConfiguration", &admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{w.GetValidatingWebhook(i.namespace, nil, chain)},
			})
		case operatorsv1alpha1.MutatingAdmissionWebhook:
			i.add(admissionregistrationv1.SchemeGroupVersion, "MutatingWebhookConfiguration", &admissionregistrationv1.MutatingWebhookConfiguration{
				ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{w.GetMutatingWebhook(i.namespace, nil, chain)},
			})
		default:
			return fmt.Errorf("webhook %s is a %s, which is not installed here", w.GenerateName, w.Type)
		}
	}
	if len(ports) == 0 {
		return nil
	}
	i.add(corev1.SchemeGroupVersion, "Service", &corev1.Service{
		ObjectMeta: i.meta(Service(deployment)), Spec: corev1.ServiceSpec{Selector: spec.Selector.MatchLabels, Ports: ports},
	})
	i.add(corev1.SchemeGroupVersion, "Secret", &corev1.Secret{
		ObjectMeta: i.meta(Secret(deployment)), Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key},
	})
	mountCertificate(&spec.Template.Spec, deployment, "apiservice-cert", apiServiceCertDir, "apiserver.crt", "apiserver.key")
	mountCertificate(&spec.Template.Spec, deployment, "webhook-cert", CertDir, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	return nil
}

// mountCertificate replaces a volume of the same name, and mounts it in each container.
func mountCertificate(pod *corev1.PodSpec, deployment, name, dir, crt, key string) {
	volumes := []corev1.Volume{{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: Secret(deployment), DefaultMode: ptr.To[int32](0o644),
		Items: []corev1.KeyToPath{{Key: corev1.TLSCertKey, Path: crt}, {Key: corev1.TLSPrivateKeyKey, Path: key}},
	}}}}
	for _, v := range pod.Volumes {
		if v.Name != name {
			volumes = append(volumes, v)
		}
	}
	pod.Volumes = volumes
	for n := range pod.Containers {
		c := &pod.Containers[n]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: dir})
	}
}
