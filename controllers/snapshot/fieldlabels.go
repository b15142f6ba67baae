// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/vtex/cleaner/controllers/plan"
)

// field reads the value that a field selector compares, out of a whole object.
type field func(content map[string]any) string

// FieldLabels are the labels that a kind has in field selectors, besides those of its metadata.
type FieldLabels struct {
	// namespace says that the kind has metadata.namespace. All have metadata.name.
	namespace bool
	spec      map[string]field
}

// BuiltinFields are the field labels of the API server's own kinds, as its conversions and registries define them. Kinds
// that are not mentioned there have metadata.name and metadata.namespace.
func BuiltinFields(r schema.GroupResource) FieldLabels {
	l := FieldLabels{namespace: true}
	switch r.String() {
	case "pods":
		l.spec = map[string]field{
			"spec.host":                at("", "spec", "nodeName"),
			"spec.nodeName":            at("", "spec", "nodeName"),
			"spec.restartPolicy":       at("", "spec", "restartPolicy"),
			"spec.schedulerName":       at("", "spec", "schedulerName"),
			"spec.serviceAccountName":  at("", "spec", "serviceAccountName"),
			"spec.hostNetwork":         at("false", "spec", "hostNetwork"),
			"status.phase":             at("", "status", "phase"),
			"status.podIP":             firstPodIP,
			"status.podIPs":            never, // a label that the API server knows and never fills
			"status.nominatedNodeName": at("", "status", "nominatedNodeName"),
		}
	case "events":
		l.spec = map[string]field{
			"involvedObject.kind":            at("", "involvedObject", "kind"),
			"involvedObject.namespace":       at("", "involvedObject", "namespace"),
			"involvedObject.name":            at("", "involvedObject", "name"),
			"involvedObject.uid":             at("", "involvedObject", "uid"),
			"involvedObject.apiVersion":      at("", "involvedObject", "apiVersion"),
			"involvedObject.resourceVersion": at("", "involvedObject", "resourceVersion"),
			"involvedObject.fieldPath":       at("", "involvedObject", "fieldPath"),
			"reason":                         at("", "reason"),
			"reportingComponent":             at("", "reportingComponent"),
			"source":                         eventSource,
			"type":                           at("", "type"),
		}
	case "events.events.k8s.io":
		l.spec = map[string]field{
			"regarding.kind":            at("", "regarding", "kind"),
			"regarding.namespace":       at("", "regarding", "namespace"),
			"regarding.name":            at("", "regarding", "name"),
			"regarding.uid":             at("", "regarding", "uid"),
			"regarding.apiVersion":      at("", "regarding", "apiVersion"),
			"regarding.resourceVersion": at("", "regarding", "resourceVersion"),
			"regarding.fieldPath":       at("", "regarding", "fieldPath"),
			"reason":                    at("", "reason"),
			"reportingController":       at("", "reportingController"),
			"type":                      at("", "type"),
		}
	case "namespaces":
		l = FieldLabels{spec: map[string]field{"status.phase": at("", "status", "phase")}}
	case "nodes":
		l = FieldLabels{spec: map[string]field{"spec.unschedulable": at("false", "spec", "unschedulable")}}
	case "secrets":
		l.spec = map[string]field{"type": at("", "type")}
	case "services":
		l.spec = map[string]field{"spec.clusterIP": at("", "spec", "clusterIP"), "spec.type": at("", "spec", "type")}
	case "replicationcontrollers":
		l.spec = map[string]field{"status.replicas": at("0", "status", "replicas")}
	case "jobs.batch":
		l.spec = map[string]field{"status.successful": at("0", "status", "succeeded")}
	case "certificatesigningrequests.certificates.k8s.io", "clustertrustbundles.certificates.k8s.io":
		l = FieldLabels{spec: map[string]field{"spec.signerName": at("", "spec", "signerName")}}
	case "podcertificaterequests.certificates.k8s.io":
		l = FieldLabels{spec: map[string]field{
			"spec.signerName": at("", "spec", "signerName"),
			"spec.podName":    at("", "spec", "podName"),
			"spec.nodeName":   at("", "spec", "nodeName"),
		}}
	case "resourceslices.resource.k8s.io":
		l = FieldLabels{spec: map[string]field{"spec.nodeName": at("", "spec", "nodeName"), "spec.driver": at("", "spec", "driver")}}
	}
	return l
}

// CustomFields are the field labels of a custom kind whose definition makes these paths selectable.
func CustomFields(namespaced bool, paths []string) FieldLabels {
	l := FieldLabels{namespace: namespaced, spec: make(map[string]field, len(paths))}
	for _, p := range paths {
		label := strings.TrimPrefix(p, ".")
		l.spec[label] = at("", strings.Split(label, ".")...)
	}
	return l
}

// Check says what is wrong with a selector, for people, or nothing.
func (l FieldLabels) Check(r schema.GroupResource, s fields.Selector) string {
	for _, q := range s.Requirements() {
		if !l.Has(q.Field) {
			return fmt.Sprintf("%s cannot be selected by field %q: they have %s", r, q.Field, strings.Join(l.names(), ", "))
		}
	}
	return ""
}

// Own says that the kind has labels besides those of its metadata.
func (l FieldLabels) Own() bool { return l.spec != nil }

// Has says that selectors may name a label.
func (l FieldLabels) Has(label string) bool {
	switch label {
	case "metadata.name":
		return true
	case "metadata.namespace":
		return l.namespace
	}
	_, ok := l.spec[label]
	return ok
}

func (l FieldLabels) names() []string {
	names := []string{"metadata.name"}
	if l.namespace {
		names = append(names, "metadata.namespace")
	}
	return append(names, slices.Sorted(maps.Keys(l.spec))...)
}

// NeedsValue says that a selector cannot be matched on metadata alone.
func NeedsValue(s fields.Selector) bool {
	return slices.ContainsFunc(s.Requirements(), func(q fields.Requirement) bool {
		return !strings.HasPrefix(q.Field, "metadata.")
	})
}

// Selects says that an object's fields match a selector that has passed Check.
func (l FieldLabels) Selects(s fields.Selector, o *plan.Object) bool {
	for _, q := range s.Requirements() {
		if (l.value(q.Field, o) == q.Value) == (q.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}

func (l FieldLabels) value(label string, o *plan.Object) string {
	switch label {
	case metav1.ObjectNameField:
		return o.Name
	case "metadata.namespace":
		return o.Namespace
	}
	read, ok := l.spec[label]
	if !ok {
		return ""
	}
	return read(o.Value)
}

// at reads a scalar at a path, or what stands for none there.
func at(none string, path ...string) field {
	return func(content map[string]any) string {
		var v any = content
		for _, p := range path {
			m, ok := v.(map[string]any)
			if !ok {
				return none
			}
			v = m[p]
		}
		switch v := v.(type) {
		case nil, map[string]any, []any:
			return none
		case string:
			return v
		default:
			return fmt.Sprint(v)
		}
	}
}

func firstPodIP(content map[string]any) string {
	status, _ := content["status"].(map[string]any)
	ips, _ := status["podIPs"].([]any)
	if len(ips) == 0 {
		return ""
	}
	first, _ := ips[0].(map[string]any)
	ip, _ := first["ip"].(string)
	return ip
}

func eventSource(content map[string]any) string {
	if s := at("", "source", "component")(content); s != "" {
		return s
	}
	return at("", "reportingComponent")(content)
}

func never(map[string]any) string { return "" }
