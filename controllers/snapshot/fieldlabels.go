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

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// fieldReader reads the value that a field selector compares, out of a whole object.
type fieldReader func(content map[string]any) string

// FieldLabels are the labels that a kind has in field selectors, besides those of its metadata.
type FieldLabels struct {
	// namespaced says that the kind has metadata.namespace. All have metadata.name.
	namespaced bool
	readers    map[string]fieldReader
}

// BuiltinFieldLabels returns the field labels of the API server's own kinds, as its conversions and registries define them. Kinds
// that are not mentioned there have metadata.name and metadata.namespace.
func BuiltinFieldLabels(r schema.GroupResource) FieldLabels {
	l := FieldLabels{namespaced: true}
	switch r.String() {
	case "pods":
		l.readers = map[string]fieldReader{
			"spec.host":                scalarAt("", "spec", "nodeName"),
			"spec.nodeName":            scalarAt("", "spec", "nodeName"),
			"spec.restartPolicy":       scalarAt("", "spec", "restartPolicy"),
			"spec.schedulerName":       scalarAt("", "spec", "schedulerName"),
			"spec.serviceAccountName":  scalarAt("", "spec", "serviceAccountName"),
			"spec.hostNetwork":         scalarAt("false", "spec", "hostNetwork"),
			"status.phase":             scalarAt("", "status", "phase"),
			"status.podIP":             readPodIP,
			"status.podIPs":            readNothing, // a label that the API server knows and never fills
			"status.nominatedNodeName": scalarAt("", "status", "nominatedNodeName"),
		}
	case "events":
		l.readers = map[string]fieldReader{
			"involvedObject.kind":            scalarAt("", "involvedObject", "kind"),
			"involvedObject.namespace":       scalarAt("", "involvedObject", "namespace"),
			"involvedObject.name":            scalarAt("", "involvedObject", "name"),
			"involvedObject.uid":             scalarAt("", "involvedObject", "uid"),
			"involvedObject.apiVersion":      scalarAt("", "involvedObject", "apiVersion"),
			"involvedObject.resourceVersion": scalarAt("", "involvedObject", "resourceVersion"),
			"involvedObject.fieldPath":       scalarAt("", "involvedObject", "fieldPath"),
			"reason":                         scalarAt("", "reason"),
			"reportingComponent":             scalarAt("", "reportingComponent"),
			"source":                         readEventSource,
			"type":                           scalarAt("", "type"),
		}
	case "events.events.k8s.io":
		l.readers = map[string]fieldReader{
			"regarding.kind":            scalarAt("", "regarding", "kind"),
			"regarding.namespace":       scalarAt("", "regarding", "namespace"),
			"regarding.name":            scalarAt("", "regarding", "name"),
			"regarding.uid":             scalarAt("", "regarding", "uid"),
			"regarding.apiVersion":      scalarAt("", "regarding", "apiVersion"),
			"regarding.resourceVersion": scalarAt("", "regarding", "resourceVersion"),
			"regarding.fieldPath":       scalarAt("", "regarding", "fieldPath"),
			"reason":                    scalarAt("", "reason"),
			"reportingController":       scalarAt("", "reportingController"),
			"type":                      scalarAt("", "type"),
		}
	case "namespaces":
		l = FieldLabels{readers: map[string]fieldReader{"status.phase": scalarAt("", "status", "phase")}}
	case "nodes":
		l = FieldLabels{readers: map[string]fieldReader{"spec.unschedulable": scalarAt("false", "spec", "unschedulable")}}
	case "secrets":
		l.readers = map[string]fieldReader{"type": scalarAt("", "type")}
	case "services":
		l.readers = map[string]fieldReader{"spec.clusterIP": scalarAt("", "spec", "clusterIP"), "spec.type": scalarAt("", "spec", "type")}
	case "replicationcontrollers":
		l.readers = map[string]fieldReader{"status.replicas": scalarAt("0", "status", "replicas")}
	case "jobs.batch":
		l.readers = map[string]fieldReader{"status.successful": scalarAt("0", "status", "succeeded")}
	case "certificatesigningrequests.certificates.k8s.io", "clustertrustbundles.certificates.k8s.io":
		l = FieldLabels{readers: map[string]fieldReader{"spec.signerName": scalarAt("", "spec", "signerName")}}
	case "podcertificaterequests.certificates.k8s.io":
		l = FieldLabels{readers: map[string]fieldReader{
			"spec.signerName": scalarAt("", "spec", "signerName"),
			"spec.podName":    scalarAt("", "spec", "podName"),
			"spec.nodeName":   scalarAt("", "spec", "nodeName"),
		}}
	case "resourceslices.resource.k8s.io":
		l = FieldLabels{readers: map[string]fieldReader{"spec.nodeName": scalarAt("", "spec", "nodeName"), "spec.driver": scalarAt("", "spec", "driver")}}
	}
	return l
}

// CustomFieldLabels returns the field labels of a custom kind whose definition makes these paths selectable.
func CustomFieldLabels(namespaced bool, paths []string) FieldLabels {
	l := FieldLabels{namespaced: namespaced, readers: make(map[string]fieldReader, len(paths))}
	for _, p := range paths {
		label := strings.TrimPrefix(p, ".")
		l.readers[label] = scalarAt("", strings.Split(label, ".")...)
	}
	return l
}

// CheckSelector says what is wrong with a selector, for people, or nothing.
func (l FieldLabels) CheckSelector(r schema.GroupResource, s fields.Selector) string {
	for _, q := range s.Requirements() {
		if !l.Has(q.Field) {
			return fmt.Sprintf("%s cannot be selected by field %q: they have %s", r, q.Field, strings.Join(l.listNames(), ", "))
		}
	}
	return ""
}

// HasOwn says that the kind has labels besides those of its metadata.
func (l FieldLabels) HasOwn() bool { return l.readers != nil }

// Has says that selectors may name a label.
func (l FieldLabels) Has(label string) bool {
	switch label {
	case "metadata.name":
		return true
	case "metadata.namespace":
		return l.namespaced
	}
	_, ok := l.readers[label]
	return ok
}

func (l FieldLabels) listNames() []string {
	names := []string{"metadata.name"}
	if l.namespaced {
		names = append(names, "metadata.namespace")
	}
	return append(names, slices.Sorted(maps.Keys(l.readers))...)
}

// NeedsValue says that a selector cannot be matched on metadata alone.
func NeedsValue(s fields.Selector) bool {
	return slices.ContainsFunc(s.Requirements(), func(q fields.Requirement) bool {
		return !strings.HasPrefix(q.Field, "metadata.")
	})
}

// MatchesObject says that an object's fields match a selector that has passed CheckSelector.
func (l FieldLabels) MatchesObject(s fields.Selector, o *observed.Object) bool {
	for _, q := range s.Requirements() {
		if (l.readValue(q.Field, o) == q.Value) == (q.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}

func (l FieldLabels) readValue(label string, o *observed.Object) string {
	switch label {
	case metav1.ObjectNameField:
		return o.Name
	case "metadata.namespace":
		return o.Namespace
	}
	read, ok := l.readers[label]
	if !ok {
		return ""
	}
	return read(o.Value)
}

// scalarAt reads a scalar at a path, or what stands for none there.
func scalarAt(none string, path ...string) fieldReader {
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

func readPodIP(content map[string]any) string {
	status, _ := content["status"].(map[string]any)
	ips, _ := status["podIPs"].([]any)
	if len(ips) == 0 {
		return ""
	}
	first, _ := ips[0].(map[string]any)
	ip, _ := first["ip"].(string)
	return ip
}

func readEventSource(content map[string]any) string {
	if s := scalarAt("", "source", "component")(content); s != "" {
		return s
	}
	return scalarAt("", "reportingComponent")(content)
}

func readNothing(map[string]any) string { return "" }
