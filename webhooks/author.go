// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/signing"
)

// operatorIdentity is the user as which this process makes its requests.
type operatorIdentity struct {
	reviews authenticationclient.SelfSubjectReviewInterface
	mu      sync.Mutex
	user    authenticationv1.UserInfo
}

// findUser returns the user. It asks the API server once.
func (s *operatorIdentity) findUser(ctx context.Context) (authenticationv1.UserInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.user.Username == "" {
		answer, err := s.reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return authenticationv1.UserInfo{}, fmt.Errorf("cannot find out the operator's own user name: %w", err)
		}
		s.user = answer.Status.UserInfo
	}
	return s.user, nil
}

// matchesUser reports whether a user is this process.
func (s *operatorIdentity) matchesUser(ctx context.Context, user authenticationv1.UserInfo) (bool, error) {
	own, err := s.findUser(ctx)
	return err == nil && own.Username != "" && user.Username == own.Username, err
}

// identifyUser returns a user with the UID that the API server would give for their own token. A user who impersonates a ServiceAccount
// by name gets the UID of the account that exists now, so that a later account of the same name is a different author.
func (v *validator) identifyUser(ctx context.Context, user authenticationv1.UserInfo) (authenticationv1.UserInfo, error) {
	namespace, name, ok := author.FromUser(user, nil).ServiceAccount()
	if !ok || user.UID != "" {
		return user, nil
	}
	account := &corev1.ServiceAccount{}
	switch err := v.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, account); {
	case apierrors.IsNotFound(err):
		return user, fmt.Errorf("%w: there is no ServiceAccount %s/%s", errNoAccount, namespace, name)
	case err != nil:
		return user, fmt.Errorf("cannot read ServiceAccount %s/%s: %w", namespace, name, err)
	}
	user.UID = string(account.UID)
	return user, nil
}

// denyUnidentified refuses a request of a user who could not be identified.
func denyUnidentified(req *admission.Request, err error) admission.Response {
	if errors.Is(err, errNoAccount) {
		return denyRequest(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error(), newStatusDetails(req))
	}
	return denyUnavailable(err)
}

// ownerChange is what a request changes in a Cleaner or a ClusterCleaner.
type ownerChange struct {
	current v1alpha1.Owner
	// old is nil if the object is created.
	old v1alpha1.Owner
	// specChanged means that the request creates the Cleaner, or edits more than suspend. A user who suspends a Cleaner in an
	// emergency does not need its author's rights, and a user who resumes it must not lend it theirs.
	specChanged bool
	// byOperator means that the operator itself makes the request.
	byOperator bool
}

// currentAuthor returns the annotation with the author after the change, and oldAuthor the one before.
func (c *ownerChange) currentAuthor() string {
	return c.current.GetAnnotations()[v1alpha1.AnnotationAuthor]
}

func (c *ownerChange) oldAuthor() string {
	if c.old == nil {
		return ""
	}
	return c.old.GetAnnotations()[v1alpha1.AnnotationAuthor]
}

// currentRequest returns the signed request for an evaluation after the change, and oldRequest the one before.
func (c *ownerChange) currentRequest() string {
	return c.current.GetAnnotations()[v1alpha1.AnnotationRequest]
}

func (c *ownerChange) oldRequest() string {
	if c.old == nil {
		return ""
	}
	return c.old.GetAnnotations()[v1alpha1.AnnotationRequest]
}

// requestsEvaluation reports whether the change requests an evaluation. Only a new value of the annotation does: a controller that sets
// a label or an owner must not become the author of a Cleaner that it has not read.
func (c *ownerChange) requestsEvaluation() bool {
	asked := c.current.GetAnnotations()[v1alpha1.AnnotationRequestedAt]
	return c.old != nil && asked != "" && asked != c.old.GetAnnotations()[v1alpha1.AnnotationRequestedAt]
}

// keepsRequest reports whether a new spec still has a request for an evaluation of the old one. The rights of the user who made it were
// not reviewed for the new spec.
func (c *ownerChange) keepsRequest() bool {
	return c.specChanged && c.old != nil && c.current.GetAnnotations()[v1alpha1.AnnotationRequestedAt] != "" && !c.requestsEvaluation()
}

// readChange returns what a request changes.
func (v *ownerValidator) readChange(ctx context.Context, req *admission.Request) (*ownerChange, error) {
	c := &ownerChange{current: v.newOwner(), specChanged: true}
	if err := json.Unmarshal(req.Object.Raw, c.current); err != nil {
		return nil, fmt.Errorf("cannot read the %s: %w", req.Kind.Kind, err)
	}
	if req.Operation == admissionv1.Update {
		c.old = v.newOwner()
		if err := json.Unmarshal(req.OldObject.Raw, c.old); err != nil {
			return nil, fmt.Errorf("cannot read the %s as it was: %w", req.Kind.Kind, err)
		}
		same, err := equalSpecs(req.Object.Raw, req.OldObject.Raw)
		if err != nil {
			return nil, fmt.Errorf("cannot read the %s: %w", req.Kind.Kind, err)
		}
		c.specChanged = !same
	}
	var err error
	c.byOperator, err = v.operator.matchesUser(ctx, req.UserInfo)
	return c, err
}

// equalSpecs reports whether two objects have the same spec apart from suspend. It compares the JSON text: the API server writes
// equal values alike.
func equalSpecs(a, b []byte) (bool, error) {
	var objects [2]struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	for i, raw := range [][]byte{a, b} {
		if err := json.Unmarshal(raw, &objects[i]); err != nil {
			return false, err
		}
		delete(objects[i].Spec, "suspend")
	}
	return maps.EqualFunc(objects[0].Spec, objects[1].Spec, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }), nil
}

// authorMutator stores the author of a spec, before the spec is validated.
type authorMutator struct {
	*ownerValidator
	clock clock.PassiveClock
}

// Handle answers one request. It changes only three annotations: it stores the author, signs a request for an evaluation, and removes
// a request that is not about the current spec.
func (a *authorMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	c, err := a.readChange(ctx, &req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if c.byOperator && c.specChanged {
		return denyOperator(&req)
	}
	ring, err := a.keys.CurrentRing()
	if err != nil {
		return denyUnavailable(err)
	}
	user, err := a.identifyUser(ctx, req.UserInfo)
	if err != nil {
		return denyUnidentified(&req, err)
	}
	if ctx.Err() != nil {
		return denyUnavailable(errTimeout)
	}
	stored, err := a.computeAnnotation(ring, c, user)
	if err != nil {
		return denyRequest(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error(), newStatusDetails(&req))
	}
	template := ""
	if c.requestsEvaluation() {
		if template, err = a.fingerprintTemplate(ctx, c.current); err != nil {
			return denyUnavailable(err)
		}
	}
	request, err := a.computeRequest(ring, c, user, template)
	if err != nil {
		return denyRequest(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error(), newStatusDetails(&req))
	}
	want := map[string]string{v1alpha1.AnnotationAuthor: stored, v1alpha1.AnnotationRequest: request}
	if c.keepsRequest() {
		want[v1alpha1.AnnotationRequestedAt] = ""
	}
	patch := newAnnotationPatch(c.current, want)
	if len(patch) == 0 {
		return admission.Allowed("")
	}
	return admission.Patched("", patch...)
}

// computeRequest returns the signed request for an evaluation after a change, and ignores what the user wrote there. The validation
// refuses a user who may not request one.
func (a *authorMutator) computeRequest(ring signing.Ring, c *ownerChange, user authenticationv1.UserInfo, template string) (string, error) {
	switch {
	case c.requestsEvaluation():
		return author.SignRequest(ring, c.current, author.FromUser(user, a.extraKeys), template, a.clock.Now())
	case c.specChanged, c.current.GetAnnotations()[v1alpha1.AnnotationRequestedAt] == "":
		return "", nil
	}
	return c.oldRequest(), nil
}

// computeAnnotation returns the annotation with the author after a change, and ignores what the user wrote there.
func (a *authorMutator) computeAnnotation(ring signing.Ring, c *ownerChange, user authenticationv1.UserInfo) (string, error) {
	if !c.specChanged {
		if c.byOperator { // the validation verifies what it renews
			return c.currentAuthor(), nil
		}
		if _, err := author.Read(ring, c.old); err == nil || !c.requestsEvaluation() {
			return c.oldAuthor(), nil
		}
	}
	if c.old == nil { // the API server will set a new UID
		c.current.SetUID("")
	}
	return author.Sign(ring, c.current, author.FromUser(user, a.extraKeys), a.clock.Now())
}

// annotationPath returns the path of an annotation in a JSON patch.
func annotationPath(name string) string {
	return "/metadata/annotations/" + strings.ReplaceAll(name, "/", "~1")
}

// newAnnotationPatch returns a JSON patch that sets annotations, and removes those with an empty value.
func newAnnotationPatch(c v1alpha1.Owner, want map[string]string) []jsonpatch.Operation {
	var patch []jsonpatch.Operation
	there := c.GetAnnotations()
	if len(there) == 0 {
		values := maps.Clone(want)
		maps.DeleteFunc(values, func(_, value string) bool { return value == "" })
		if len(values) > 0 {
			patch = append(patch, jsonpatch.NewOperation("add", "/metadata/annotations", values))
		}
		return patch
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		now, has := there[name]
		switch value := want[name]; {
		case value == "" && has:
			patch = append(patch, jsonpatch.NewOperation("remove", annotationPath(name), nil))
		case value != now:
			patch = append(patch, jsonpatch.NewOperation("add", annotationPath(name), value))
		}
	}
	return patch
}

// denyOperator refuses an edit by the operator itself: the operator would become the author, with its own rights.
func denyOperator(req *admission.Request) admission.Response {
	return denyRequest(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("the operator itself never changes the spec of a %s: use an account of your own", req.Kind.Kind), newStatusDetails(req))
}

// verifyAuthor checks that the right author is stored with a change, and reports whether the change must be reviewed: if the spec
// changes, or if an author takes over a Cleaner without one.
func (v *ownerValidator) verifyAuthor(ring signing.Ring, c *ownerChange, user authenticationv1.UserInfo) (reviewed bool, err error) {
	stored, err := author.Read(ring, c.current)
	switch {
	case c.keepsRequest():
		return false, errRequestOfOldSpec
	case err == nil && c.byOperator && !c.specChanged: // it added the UID, or signed with a new key
		return false, nil
	case err == nil && equality.Semantic.DeepEqual(stored.Author, author.FromUser(user, v.extraKeys)) && (c.specChanged || c.requestsEvaluation()):
		return true, nil
	case !c.specChanged:
		return false, errAuthorWritten
	case errors.Is(err, author.ErrForeign):
		return false, errSpecChangedAfter
	}
	return false, errAuthorNotStored
}

// verifyRequest checks the signed request for an evaluation: it must be signed for this change and this user, or be unchanged, or be
// removed.
func (v *ownerValidator) verifyRequest(ctx context.Context, ring signing.Ring, c *ownerChange, user authenticationv1.UserInfo) error {
	if !c.requestsEvaluation() {
		if now := c.currentRequest(); now != "" && now != c.oldRequest() {
			return errRequestWritten
		}
		return nil
	}
	made, err := author.ReadRequest(ring, c.current)
	if err != nil || !equality.Semantic.DeepEqual(made.Author, author.FromUser(user, v.extraKeys)) {
		return errRequestNotSigned
	}
	switch template, err := v.fingerprintTemplate(ctx, c.current); {
	case err != nil:
		return err
	case template != made.Template:
		return errTemplateChanged
	}
	return nil
}

// fingerprintTemplate returns a fingerprint of the template that a spec uses now; empty if it uses none.
func (v *validator) fingerprintTemplate(ctx context.Context, c v1alpha1.Owner) (string, error) {
	use := c.Common().TemplateRef
	if use == nil {
		return "", nil
	}
	t, err := v.getTemplate(ctx, use.Name)
	return author.FingerprintTemplate(t), err
}

var (
	errAuthorWritten    = fmt.Errorf("annotation %s is written by the operator alone: leave it as it is", v1alpha1.AnnotationAuthor)
	errRequestWritten   = fmt.Errorf("annotation %s is written by the operator alone: leave it as it is", v1alpha1.AnnotationRequest)
	errRequestNotSigned = errors.New("the request for an evaluation is not signed: the cluster needs the operator's MutatingWebhookConfiguration")
	errTemplateChanged  = errors.New("the template has changed since the request for an evaluation was signed")
	errRequestOfOldSpec = fmt.Errorf("annotation %s is about the old spec: remove it", v1alpha1.AnnotationRequestedAt)
	errNoAccount        = errors.New("the author does not exist")
	errAuthorNotStored  = errors.New("the author of the spec is not stored: the cluster needs the operator's MutatingWebhookConfiguration")
	errSpecChangedAfter = errors.New("another admission webhook has changed the spec after its author was stored: exclude Cleaners from it, or let the operator's webhook run after it")
)
