// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// csv returns the ClusterServiceVersion, whole.
func (b *bundle) csv(r release) (*unstructured.Unstructured, error) {
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(b.deployment.Object, deployment); err != nil {
		return nil, fmt.Errorf("cannot read the Deployment: %w", err)
	}
	account := b.account.GetName()
	if deployment.Spec.Template.Spec.ServiceAccountName != account || len(deployment.Spec.Template.Spec.Containers) != 1 {
		return nil, fmt.Errorf("the Deployment %s is to have one container, and to run as ServiceAccount %s", deployment.Name, account)
	}
	deployment.Spec.Template.Spec.Containers[0].Image = r.image
	installed, err := plain(operatorsv1alpha1.StrategyDeploymentSpec{Name: deployment.Name, Label: deployment.Labels, Spec: deployment.Spec})
	if err != nil {
		return nil, err
	}
	webhooks, err := b.webhookDefinitions(deployment)
	if err != nil {
		return nil, err
	}
	cluster, own, err := b.rights()
	if err != nil {
		return nil, err
	}
	examples, err := indented(b.examples)
	if err != nil {
		return nil, err
	}
	namespace, err := json.Marshal(b.namespace)
	if err != nil {
		return nil, fmt.Errorf("cannot write the namespace: %w", err)
	}

	csv := b.base.DeepCopy()
	csv.SetName("cleaner.v" + r.version)
	notes := csv.GetAnnotations()
	notes["alm-examples"] = examples
	notes["containerImage"] = r.image
	notes["operatorframework.io/suggested-namespace"] = b.namespace.GetName()
	notes["operatorframework.io/suggested-namespace-template"] = string(namespace)
	csv.SetAnnotations(notes)
	spec, ok := csv.Object["spec"].(map[string]any)
	if !ok {
		return nil, errors.New("the ClusterServiceVersion in config/manifests/bases has no spec")
	}
	spec["version"] = r.version
	spec["icon"] = []any{map[string]any{"base64data": base64.StdEncoding.EncodeToString(r.icon), "mediatype": "image/svg+xml"}}
	spec["relatedImages"] = []any{map[string]any{"name": "manager", "image": r.image}}
	spec["webhookdefinitions"] = webhooks
	spec["install"] = map[string]any{"strategy": operatorsv1alpha1.InstallStrategyNameDeployment, "spec": map[string]any{
		"clusterPermissions": []any{map[string]any{"serviceAccountName": account, "rules": cluster}},
		"permissions":        []any{map[string]any{"serviceAccountName": account, "rules": own}},
		"deployments":        []any{installed},
	}}
	return csv, known(csv)
}

// webhookDefinitions are the configurations of the webhooks, as OLM has them. OLM knows no matchConditions: those that we have ask
// less often, and the operator answers yes to what they spare it.
func (b *bundle) webhookDefinitions(deployment *appsv1.Deployment) ([]any, error) {
	var port *intstr.IntOrString
	for _, p := range deployment.Spec.Template.Spec.Containers[0].Ports {
		if p.Name == "webhook" {
			n := intstr.FromInt32(p.ContainerPort)
			port = &n
		}
	}
	if port == nil {
		return nil, fmt.Errorf("the Deployment %s has no port of the name webhook", deployment.Name)
	}
	var definitions []any
	for _, asked := range []struct {
		when          operatorsv1alpha1.WebhookAdmissionType
		configuration *unstructured.Unstructured
	}{
		{operatorsv1alpha1.MutatingAdmissionWebhook, b.authors},
		{operatorsv1alpha1.ValidatingAdmissionWebhook, b.webhooks},
	} {
		// A webhook that changes objects has all the fields of one that judges them.
		configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(asked.configuration.Object, configuration); err != nil {
			return nil, fmt.Errorf("cannot read %s %q: %w", asked.configuration.GetKind(), asked.configuration.GetName(), err)
		}
		for _, w := range configuration.Webhooks {
			if w.NamespaceSelector != nil {
				return nil, fmt.Errorf("webhook %s has a namespaceSelector: OLM makes one of its own", w.Name)
			}
			definition, err := plain(operatorsv1alpha1.WebhookDescription{
				GenerateName: w.Name, Type: asked.when, DeploymentName: deployment.Name,
				ContainerPort: 443, TargetPort: port, WebhookPath: w.ClientConfig.Service.Path, ReinvocationPolicy: w.ReinvocationPolicy,
				Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy, ObjectSelector: w.ObjectSelector,
				SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions,
			})
			if err != nil {
				return nil, err
			}
			definitions = append(definitions, definition)
		}
	}
	return definitions, nil
}

// plain returns a value as YAML has it, without unset fields.
func plain(value any) (map[string]any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("cannot write a %T: %w", value, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("cannot read a %T: %w", value, err)
	}
	dropNulls(fields)
	return fields, nil
}

// dropNulls removes unset fields that types write nevertheless. An empty object may mean something, such as emptyDir: {}.
func dropNulls(value any) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			dropNulls(item)
		}
	case map[string]any:
		for k, item := range v {
			dropNulls(item)
			if item == nil {
				delete(v, k)
			}
		}
	}
}

// indented is JSON for people.
func indented(value any) (string, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return "", fmt.Errorf("cannot write the examples: %w", err)
	}
	return out.String(), nil
}

// known says what a ClusterServiceVersion has that OLM does not know.
func known(csv *unstructured.Unstructured) error {
	text, err := json.Marshal(csv)
	if err != nil {
		return fmt.Errorf("cannot write the ClusterServiceVersion: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&operatorsv1alpha1.ClusterServiceVersion{}); err != nil {
		return fmt.Errorf("the ClusterServiceVersion has what OLM does not know: %w", err)
	}
	return nil
}
