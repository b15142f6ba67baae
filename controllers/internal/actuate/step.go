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

	"golang.org/x/time/rate"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/ownerpatches"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Guard is called around each request of a step.
type Guard interface {
	// LimitWait returns a context for what a step waits for before it is sent. The context ends when the step is no longer worth sending.
	// Dry runs do not call it.
	LimitWait(ctx context.Context) (context.Context, context.CancelFunc)
	// WaitForPace waits until one more request may be sent; an error means that it is not sent.
	WaitForPace(ctx context.Context) error
	// MaySend is asked right before each request; an error means that it is not sent. Dry runs do not ask.
	MaySend(ctx context.Context) error
	// LogIntent receives each request before it is sent. Dry runs do not call it.
	LogIntent(step *plan.Step, version string)
}

// Outcome is what came of a step.
type Outcome struct {
	// Answer is AnswerDone also for a step that had nothing to do. After AnswerConflict the object
	// has changed, or its version was not known, and Sight is the live read that followed; an object that is gone by then is
	// AnswerNotFound, and one that another of its name has replaced AnswerReplaced.
	life.Answer
	// Version is the version that a later step on the object must name; empty if only a read can tell.
	Version string
	// Now is the object as the API server answered, or, after a conflict, as the live read showed it. Nil if it is gone, or
	// if the answer does not show it.
	Now *observed.Object
	// Leaving says that the object is terminating or gone, and Gone that it is gone for certain.
	Leaving, Gone bool
}

// NewRateLimiter bounds how many requests are sent in a second; 0 is no bound. Its Wait is what WaitForPace of a Guard asks for.
func NewRateLimiter(perSecond int64) *rate.Limiter {
	if perSecond == 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Limit(perSecond), 1)
}

// ExecuteStep sends the request of a step for one version of its object, and returns the outcome. A step without a valid request is
// AnswerRefused. Without a version, the object is read instead. With dryRun, the request is a server-side dry run.
func (a *Actuator) ExecuteStep(ctx context.Context, step *plan.Step, version string, dryRun bool, o Guard) Outcome {
	object := &step.Object
	not := func(kind life.AnswerKind, err error) Outcome {
		return Outcome{Answer: life.Answer{Kind: kind, Why: err.Error()}, Version: version}
	}
	r, err := newStepRequest(step, version, dryRun)
	switch {
	case err != nil: // nothing can be asked for
		return not(life.AnswerRefused, err)
	case r == nil:
		return NewDone(version)
	case object.UID == "":
		return not(life.AnswerRefused, fmt.Errorf("cannot %s %s: its UID is unknown", step.Verb, object.Ref))
	case version == "": // the answer to an earlier step did not say it
		return a.handleConflict(ctx, step, version, not(life.AnswerConflict, errors.New("its resourceVersion must be read first")))
	}
	waiting := ctx
	if !dryRun { // a dry run changes nothing
		limited, end := o.LimitWait(ctx)
		defer end()
		waiting = limited
		if err := o.WaitForPace(waiting); err != nil {
			return not(life.AnswerUnsent, err)
		}
	}
	may, intent := o.MaySend, func() { o.LogIntent(step, version) }
	if dryRun {
		may, intent = nil, nil
	}
	answered, sent, err := a.sendIfAllowed(ctx, waiting, object.Ref, *r, may, intent)
	switch {
	case !sent:
		return not(life.AnswerUnsent, err)
	case err != nil:
		return a.handleError(ctx, step, version, r, err)
	case dryRun:
		return NewDone(version)
	}
	return newOutcome(step, r, answered)
}

// refuseOwnKinds refuses every action on Cleaner's own kinds: the API server would check the operator's rights, and not the author's.
func refuseOwnKinds(ref observed.Ref) error {
	if ref.Resource.Group == v1alpha1.GroupVersion.Group {
		return fmt.Errorf("%s are never touched", ref.Resource.GroupResource())
	}
	return nil
}

// newStepRequest returns the request of a step; nil if there is nothing to be done.
func newStepRequest(step *plan.Step, version string, dryRun bool) (*request, error) {
	var r request
	var err error
	if err := refuseOwnKinds(step.Object.Ref); err != nil && step.Verb != plan.VerbReport {
		return nil, err
	}
	switch step.Verb {
	case plan.VerbReport:
		return nil, nil
	case plan.VerbDelete:
		r = newDeleteRequest(step.Object.Ref, version, step.Grace, step.Propagation, dryRun)
		r.metadataOnly = version == step.Object.ResourceVersion // else an earlier step has changed the rest
	case plan.VerbEvict:
		r, err = newEvictionRequest(step.Object.Ref, version, step.Grace, dryRun)
	case plan.VerbPatch:
		r, err = newPatchRequest(&step.Object, version, step.Patch, dryRun)
	case plan.VerbRemoveFinalizer:
		var there bool
		if r, there = newFinalizerRequest(&step.Object, version, step.Finalizer, dryRun); !there {
			return nil, nil
		}
	default:
		err = fmt.Errorf("unknown verb %q for %s", step.Verb, step.Object.Ref)
	}
	return &r, err
}

// NewDone returns the Outcome of a step that was done, or that had nothing to do, and left its object at a version.
func NewDone(version string) Outcome {
	return Outcome{Answer: life.Answer{Kind: life.AnswerDone}, Version: version}
}

// newOutcome returns the Outcome of a step that was done.
func newOutcome(step *plan.Step, r *request, answered *unstructured.Unstructured) Outcome {
	out := NewDone("")
	switch {
	case r.method == http.MethodPost: // an eviction is answered without the Pod
		out.Leaving = true
		return out
	case r.method == http.MethodDelete && (answered == nil || answered.GetUID() == ""):
		out.Leaving, out.Gone = true, provesGone(answered, step.Object.UID)
		return out
	case answered == nil || answered.GetUID() != step.Object.UID:
		return out
	}
	out.Version = answered.GetResourceVersion()
	if kind, known := step.Object.Value["kind"]; r.subresource != "" && known && kind != answered.GetKind() {
		return out // a Scale, which says nothing more of the object
	}
	if isLast(answered) {
		out.Version, out.Leaving, out.Gone = "", true, true
		return out
	}
	now := snapshot.FromAnswer(&step.Object, answered)
	if r.metadataOnly {
		now.Value, now.Unreadable, now.Assembled = withMetadata(step.Object.Value, now.Value["metadata"]), step.Object.Unreadable, true
	}
	out.Now, out.Leaving = &now, now.Terminating
	return out
}

// withMetadata is what was known of an object, with other metadata; nil if nothing else was known.
func withMetadata(value map[string]any, metadata any) map[string]any {
	if value == nil {
		return nil
	}
	out := maps.Clone(value)
	out["metadata"] = metadata
	return out
}

// isLast reports whether a response shows the final state of a deleted object: it has a deletionTimestamp, no finalizers and no grace
// period.
func isLast(u *unstructured.Unstructured) bool {
	grace := u.GetDeletionGracePeriodSeconds()
	return u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 && grace != nil && *grace == 0
}

// handleError returns the outcome of a step whose request was answered with an error.
func (a *Actuator) handleError(ctx context.Context, step *plan.Step, version string, r *request, err error) Outcome {
	ref := step.Object.Ref
	out := Outcome{Answer: classifyError(err, ref), Version: version}
	switch {
	case out.Kind == life.AnswerNotFound && r.method == http.MethodPatch && r.subresource != "":
		// A kind without the subresource is answered in the same words.
		out.Kind, out.Why = life.AnswerConflict, fmt.Sprintf("%s have no subresource %q: %s", ref.Resource.GroupResource(), r.subresource, describeError(err))
	case namesAnotherUID(err):
		out.Kind = life.AnswerConflict
	case isFailedOperation(err) && step.Verb == plan.VerbPatch && step.Patch.Type == v1alpha1.PatchJSON:
		out.Kind, out.Why = life.AnswerConflict, "an operation of the patch may not fit the object: "+describeError(err)
	case isFailedOperation(err) && step.Verb == plan.VerbRemoveFinalizer:
		out.Kind = life.AnswerConflict
	case apierrors.IsUnsupportedMediaType(err):
		out.Why = fmt.Sprintf("%s do not take patches of type %s: write type: Merge, which replaces lists instead of merging them (%s)", ref.Resource.GroupResource(), step.Patch.Type, describeError(err))
	}
	switch out.Kind {
	case life.AnswerNotFound:
		return Outcome{Answer: out.Answer, Leaving: true, Gone: true}
	case life.AnswerLost:
		out.Version = ""
	case life.AnswerConflict:
		return a.handleConflict(ctx, step, version, out)
	}
	return out
}

// isFailedOperation says that an operation of a JSON patch could not be carried out, a test or another one: the API server
// does not tell them apart. What it finds wrong with the object that a patch makes has details.
func isFailedOperation(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d == nil || d.Name == "" && len(d.Causes) == 0
}

// namesAnotherUID says that a patch was refused because its object has another UID.
func namesAnotherUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// handleConflict reads the object of a step live, to find out what a conflict came from.
func (a *Actuator) handleConflict(ctx context.Context, step *plan.Step, version string, out Outcome) Outcome {
	ref := step.Object.Ref
	u, err := a.sendRequest(ctx, ref, request{method: http.MethodGet})
	switch {
	case isObjectMissing(err, ref):
		out.Sight = life.Sight{Missing: true}
	case err != nil || u == nil || u.GetUID() == "":
		out.Sight, out.Version = life.Sight{Failed: fmt.Sprintf("cannot read %s after it has changed: %v", ref, err)}, ""
		return out
	default:
		out.Sight = life.Sight{
			Kind: ref.Kind, UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), Terminating: u.GetDeletionTimestamp() != nil, Finalizers: u.GetFinalizers(),
		}
	}
	if out.Sight.Missing || out.Sight.UID != ref.UID {
		out.Kind, out.Why = life.AnswerNotFound, ""
		if !out.Sight.Missing {
			out.Kind = life.AnswerReplaced
		}
		return Outcome{Answer: out.Answer, Leaving: true, Gone: true}
	}
	now := snapshot.FromAnswer(&step.Object, u)
	out.Now, out.Version, out.Leaving = &now, now.ResourceVersion, now.Terminating
	switch {
	case step.Verb == plan.VerbRemoveFinalizer && !slices.Contains(now.Finalizers, step.Finalizer):
		out.Answer = life.Answer{Kind: life.AnswerDone} // another client removed it
	case now.ResourceVersion == version: // it has not changed: a webhook answers with a conflict to refuse
		out.Kind = life.AnswerRefused
	}
	return out
}

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
func newDeleteRequest(ref observed.Ref, version string, grace *int64, propagation v1alpha1.PropagationPolicy, dryRun bool) request {
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
func newEvictionRequest(ref observed.Ref, version string, grace *int64, dryRun bool) (request, error) {
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

func newPreconditions(ref observed.Ref, version string) *metav1.Preconditions {
	return &metav1.Preconditions{UID: &ref.UID, ResourceVersion: &version}
}

// newPatchRequest returns the request that patches an object, at a version, which is put into the patch in the way of its type.
func newPatchRequest(o *observed.Object, version string, p *plan.Patch, dryRun bool) (request, error) {
	r := request{method: http.MethodPatch, subresource: p.Subresource, params: dryRunParams(dryRun)}
	r.params["fieldManager"] = fieldManager
	if because := ownerpatches.FindChange(p.Type, p.Body); because != "" {
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
func newFinalizerRequest(o *observed.Object, version, name string, dryRun bool) (request, bool) {
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
func testOperations(o *observed.Object, version string) []operation {
	return []operation{
		{Op: "test", Path: "/metadata/uid", Value: string(o.UID)},
		{Op: "test", Path: "/metadata/resourceVersion", Value: version},
	}
}

// guardOperations puts the tests of object and version before the operations of a JSON patch.
func guardOperations(body []byte, o *observed.Object, version string) ([]byte, error) {
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
func guardObject(body []byte, o *observed.Object, version string, more map[string]string) ([]byte, error) {
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
func buildApplyBody(p *plan.Patch, o *observed.Object, version string) ([]byte, error) {
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
func (a *Actuator) sendIfAllowed(ctx, waiting context.Context, ref observed.Ref, r request, may func(context.Context) error, intent func()) (answered *unstructured.Unstructured, sent bool, err error) {
	slot, err := a.takes.TakeSlot(waiting, types.NamespacedName{Namespace: ref.Namespace})
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
func (a *Actuator) sendRequest(ctx context.Context, ref observed.Ref, r request) (*unstructured.Unstructured, error) {
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
func objectPath(ref observed.Ref, subresource string) []string {
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

// RunSteps calls do for each step, with as many in parallel as one Cleaner may have in flight. Namespaces share these places, so that
// requests that hang or wait for a slot in one namespace delay no other. Requests on objects of one namespace begin in their order.
// RunSteps begins with the namespace that follows after, and returns the value of after for the next call.
func RunSteps(steps []*plan.Step, after string, do func(i int)) (next string) {
	namespaces := make([]string, len(steps))
	for i, s := range steps {
		namespaces[i] = s.Object.Namespace
	}
	return contain.RunInLanes(inFlight, namespaces, after, do)
}
