// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/owners"
)

// fieldManager is the name under which managedFields records the operator's patches.
const fieldManager = "cleaner"

// request is what is sent for an object.
type request struct {
	method      string
	subresource string
	contentType string
	params      map[string]string
	body        []byte
	// metadataOnly asks for nothing but the metadata of the object in the answer.
	metadataOnly bool
}

// newDeleteRequest returns the request that deletes an object, at a version, and is answered with metadata: the rest is known of that
// version. Without a policy the dependents go in the background, also
// for kinds whose own default orphans them.
func newDeleteRequest(ref plan.Ref, version string, grace *int64, propagation v1alpha1.PropagationPolicy, dryRun bool) request {
	if propagation == "" {
		propagation = v1alpha1.PropagateBackground
	}
	options := metav1.DeleteOptions{
		TypeMeta:           metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:      newPreconditions(ref, version),
		GracePeriodSeconds: grace,
		PropagationPolicy:  new(metav1.DeletionPropagation(propagation)),
	}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return request{method: http.MethodDelete, contentType: runtime.ContentTypeJSON, body: mustMarshal(options), metadataOnly: true}
}

// newEvictionRequest returns the request that evicts a Pod, at a version.
func newEvictionRequest(ref plan.Ref, version string, grace *int64, dryRun bool) (request, error) {
	if (ref.Resource.GroupResource() != schema.GroupResource{Resource: "pods"}) {
		return request{}, fmt.Errorf("only Pods can be evicted: delete or patch %s", ref.Resource.GroupResource())
	}
	return request{
		method: http.MethodPost, subresource: "eviction", contentType: runtime.ContentTypeJSON, params: dryRunParams(dryRun),
		body: mustMarshal(policyv1.Eviction{
			TypeMeta:      metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
			ObjectMeta:    metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: newPreconditions(ref, version), GracePeriodSeconds: grace},
		}),
	}, nil
}

func newPreconditions(ref plan.Ref, version string) *metav1.Preconditions {
	return &metav1.Preconditions{UID: &ref.UID, ResourceVersion: &version}
}

// newPatchRequest returns the request that patches an object, at a version, which is put into the patch in the way of its type.
func newPatchRequest(o *plan.Object, version string, p *plan.Patch, dryRun bool) (request, error) {
	r := request{method: http.MethodPatch, subresource: p.Subresource, params: dryRunParams(dryRun)}
	r.params["fieldManager"] = fieldManager
	if because := owners.FindChange(p.Type, p.Body); because != "" {
		return r, fmt.Errorf("the patch is not sent: %s", because)
	}
	var err error
	switch p.Type {
	case v1alpha1.PatchStrategic:
		r.contentType = string(types.StrategicMergePatchType)
		r.body, err = guardObject(p.Body, o, version, nil)
	case v1alpha1.PatchMerge:
		r.contentType = string(types.MergePatchType)
		r.body, err = guardObject(p.Body, o, version, nil)
	case v1alpha1.PatchJSON:
		r.contentType = string(types.JSONPatchType)
		r.body, err = guardOperations(p.Body, o, version)
	case v1alpha1.PatchApply:
		r.contentType = string(types.ApplyYAMLPatchType)
		r.params["force"] = strconv.FormatBool(p.Force)
		r.body, err = buildApplyBody(p, o, version)
	default:
		err = fmt.Errorf("the patch has the unknown type %q: write Strategic, Merge, JSON or Apply", p.Type)
	}
	return r, err
}

// newFinalizerRequest returns the request that takes a finalizer off an object, at a version. False says that it is not there.
func newFinalizerRequest(o *plan.Object, version, name string, dryRun bool) (request, bool) {
	i := slices.Index(o.Finalizers, name)
	if i < 0 {
		return request{}, false
	}
	path := "/metadata/finalizers/" + strconv.Itoa(i)
	r := request{method: http.MethodPatch, contentType: string(types.JSONPatchType), params: dryRunParams(dryRun)}
	r.params["fieldManager"] = fieldManager
	r.body = mustMarshal(append(testOperations(o, version), operation{Op: "test", Path: path, Value: name}, operation{Op: "remove", Path: path}))
	return r, true
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// testOperations are the operations that fail on any other object and version.
func testOperations(o *plan.Object, version string) []operation {
	return []operation{
		{Op: "test", Path: "/metadata/uid", Value: string(o.UID)},
		{Op: "test", Path: "/metadata/resourceVersion", Value: version},
	}
}

// guardOperations puts the tests of object and version before the operations of a JSON patch.
func guardOperations(body []byte, o *plan.Object, version string) ([]byte, error) {
	var operations []json.RawMessage
	if err := json.Unmarshal(body, &operations); err != nil {
		return nil, errors.New("a patch of type JSON must be a list of operations: write [{\"op\": …, \"path\": …}]")
	}
	var guarded []json.RawMessage
	for _, t := range testOperations(o, version) {
		guarded = append(guarded, mustMarshal(t))
	}
	return mustMarshal(append(guarded, operations...)), nil
}

// guardObject puts object and version, and what else is given, into the metadata of a patch that is a map.
func guardObject(body []byte, o *plan.Object, version string, more map[string]string) ([]byte, error) {
	var patch, metadata map[string]json.RawMessage
	if err := json.Unmarshal(body, &patch); err != nil || patch == nil {
		return nil, errors.New("a patch of this type must be a map of the fields to set: write {\"metadata\": …}")
	}
	if given, ok := patch["metadata"]; ok {
		if err := json.Unmarshal(given, &metadata); err != nil || metadata == nil {
			return nil, errors.New("metadata in a patch must be a map: write the labels, annotations or finalizers to set")
		}
	}
	if metadata == nil {
		metadata = map[string]json.RawMessage{}
	}
	for k, v := range more {
		metadata[k] = mustMarshal(v)
	}
	metadata["uid"], metadata["resourceVersion"] = mustMarshal(o.UID), mustMarshal(version)
	patch["metadata"] = mustMarshal(metadata)
	return mustMarshal(patch), nil
}

// buildApplyBody completes what is applied. An apply of an object that does not exist makes one, unless it names a UID.
func buildApplyBody(p *plan.Patch, o *plan.Object, version string) ([]byte, error) {
	names := map[string]string{"name": o.Name}
	if o.Namespace != "" {
		names["namespace"] = o.Namespace
	}
	body, err := guardObject(p.Body, o, version, names)
	if err != nil {
		return nil, err
	}
	if p.Subresource != "" && p.Subresource != "status" {
		return body, nil // a kind of its own, such as Scale, which the patch has to name
	}
	kind, ok := o.Value["kind"].(string)
	if !ok {
		return nil, fmt.Errorf("cannot apply to %s: the operator reads only its metadata; set includeWhenEvaluating: true on its target", o.Ref)
	}
	var patch map[string]json.RawMessage
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, fmt.Errorf("cannot read a patch: %w", err)
	}
	patch["apiVersion"], patch["kind"] = mustMarshal(o.Resource.GroupVersion().String()), mustMarshal(kind)
	return mustMarshal(patch), nil
}

func dryRunParams(dryRun bool) map[string]string {
	params := map[string]string{}
	if dryRun {
		params["dryRun"] = metav1.DryRunAll
	}
	return params
}

// mustMarshal returns the JSON of a value that can always be marshalled.
func mustMarshal(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("cannot write JSON: %s", err))
	}
	return out
}

// sendIfAllowed sends a request once there is a slot for it and may allows it, unless waiting ends before. If it did not send, the error
// says why. In a dry run, may and intent are nil.
func (a *Actuator) sendIfAllowed(ctx, waiting context.Context, ref plan.Ref, r request, may func(context.Context) error, intent func()) (answered *unstructured.Unstructured, sent bool, err error) {
	slot, err := a.slots.TakeSlot(waiting, types.NamespacedName{Namespace: ref.Namespace})
	if err != nil {
		return nil, false, err
	}
	defer slot.GiveBack()
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	if may != nil {
		if err := may(ctx); err != nil {
			return nil, false, err
		}
		intent()
	}
	switch r.method {
	case http.MethodDelete:
		faults.PassPoint("before a DELETE")
		defer faults.PassPoint("after a DELETE")
	case http.MethodPatch:
		faults.PassPoint("before a PATCH")
		defer faults.PassPoint("after a PATCH")
	default:
		faults.PassPoint("before an eviction")
		defer faults.PassPoint("after an eviction")
	}
	answered, err = a.sendRequest(ctx, ref, r)
	return answered, true, err
}

// sendRequest sends a request, and returns what was answered, an object or a Status; nil if it was neither.
func (a *Actuator) sendRequest(ctx context.Context, ref plan.Ref, r request) (*unstructured.Unstructured, error) {
	accept := runtime.ContentTypeJSON
	if r.metadataOnly {
		accept = acceptMetadata
	}
	req := a.client.Verb(r.method).AbsPath(objectPath(ref, r.subresource)...).SetHeader("Accept", accept)
	if r.body != nil {
		req.SetHeader("Content-Type", r.contentType).Body(r.body)
	}
	for _, name := range slices.Sorted(maps.Keys(r.params)) {
		req.Param(name, r.params[name])
	}
	var asked time.Duration
	result := req.Do(context.WithValue(ctx, retryAfterKey{}, &asked))
	if err := result.Error(); err != nil {
		if asked > 0 {
			err = &retryAfterError{err, asked}
		}
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	return a.answers.readAnswer(body), nil // whatever it says, it was done
}

// objectPath is where the API server serves an object, or a subresource of it.
func objectPath(ref plan.Ref, subresource string) []string {
	out := []string{"apis", ref.Resource.Group, ref.Resource.Version}
	if ref.Resource.Group == "" {
		out = []string{"api", ref.Resource.Version}
	}
	if ref.Namespace != "" {
		out = append(out, "namespaces", ref.Namespace)
	}
	out = append(out, ref.Resource.Resource, ref.Name)
	if subresource != "" {
		out = append(out, subresource)
	}
	return out
}
