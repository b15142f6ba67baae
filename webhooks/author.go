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

// operatorIdentity knows as whom this process makes its requests.
type operatorIdentity struct {
	reviews  authenticationclient.SelfSubjectReviewInterface
	mu       sync.Mutex
	username string
}

// matchesUser says whether a user is this process. The API server is asked once.
func (s *operatorIdentity) matchesUser(ctx context.Context, user authenticationv1.UserInfo) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.username == "" {
		answer, err := s.reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("cannot find out who the operator is: %w", err)
		}
		s.username = answer.Status.UserInfo.Username
	}
	return s.username != "" && user.Username == s.username, nil
}

// identifyUser gives a user as the API server names them by their own token. Who impersonates a ServiceAccount by its name alone
// is the account that is there now, and not a later one of its name.
func (v *validator) identifyUser(ctx context.Context, user authenticationv1.UserInfo) (authenticationv1.UserInfo, error) {
	namespace, name, ok := author.FromUser(user, nil).ServiceAccount()
	if !ok || user.UID != "" {
		return user, nil
	}
	account := &corev1.ServiceAccount{}
	switch err := v.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, account); {
	case apierrors.IsNotFound(err):
		return user, fmt.Errorf("%w: there is no ServiceAccount %q in namespace %q", errNoAccount, name, namespace)
	case err != nil:
		return user, fmt.Errorf("cannot read ServiceAccount %q in namespace %q: %w", name, namespace, err)
	}
	user.UID = string(account.UID)
	return user, nil
}

// denyUnidentified answers a request of somebody who could not be identified.
func denyUnidentified(req *admission.Request, err error) admission.Response {
	if errors.Is(err, errNoAccount) {
		return denyRequest(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error(), newStatusDetails(req))
	}
	return denyUnavailable(err)
}

// ownerChange is what a request does to a Cleaner or a ClusterCleaner.
type ownerChange struct {
	current v1alpha1.Owner
	// old is nil when it is created.
	old v1alpha1.Owner
	// specChanged says that what the Cleaner does is written: by a creation, or by an edit of more than suspend. Whoever stops a
	// Cleaner in an emergency need not have its author's rights, and whoever lets it go on must not lend it theirs.
	specChanged bool
	// byOperator says that the operator itself asks for it.
	byOperator bool
}

// currentAuthor returns the annotation after the change, and oldAuthor the one that was there.
func (c *ownerChange) currentAuthor() string {
	return c.current.GetAnnotations()[v1alpha1.AnnotationAuthor]
}

func (c *ownerChange) oldAuthor() string {
	if c.old == nil {
		return ""
	}
	return c.old.GetAnnotations()[v1alpha1.AnnotationAuthor]
}

// currentRequest returns what is signed of a request for an evaluation after the change, and oldRequest what was.
func (c *ownerChange) currentRequest() string {
	return c.current.GetAnnotations()[v1alpha1.AnnotationRequest]
}

func (c *ownerChange) oldRequest() string {
	if c.old == nil {
		return ""
	}
	return c.old.GetAnnotations()[v1alpha1.AnnotationRequest]
}

// requestsEvaluation says that the change asks for an evaluation. Nothing but a deliberate act does: a controller that sets a label or an
// owner must not become the author of what it has not read.
func (c *ownerChange) requestsEvaluation() bool {
	asked := c.current.GetAnnotations()[v1alpha1.AnnotationRequestedAt]
	return c.old != nil && asked != "" && asked != c.old.GetAnnotations()[v1alpha1.AnnotationRequestedAt]
}

// keepsRequest says that a new spec comes with a request for an evaluation that was made under the old one, by somebody whose
// rights to the new one nobody has reviewed.
func (c *ownerChange) keepsRequest() bool {
	return c.specChanged && c.old != nil && c.current.GetAnnotations()[v1alpha1.AnnotationRequestedAt] != "" && !c.requestsEvaluation()
}

// readChange reads what a request does.
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

// equalSpecs says whether two objects have the same spec but for suspend, as they are written: the API server writes the members of
// a map in one order, and a number in one way.
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

// authorMutator stores who wrote a spec, before it is validated.
type authorMutator struct {
	*ownerValidator
	clock clock.PassiveClock
}

// Handle answers one request. It changes nothing but three annotations: it stores the author, signs a request for an evaluation, and
// takes off one that is not about the spec any more.
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
	request, err := a.computeRequest(ctx, ring, c)
	if err != nil {
		return denyUnavailable(err)
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

// computeRequest returns what is signed of a request for an evaluation after a change, whatever the request says. Whoever may not
// ask is refused when the change is validated.
func (a *authorMutator) computeRequest(ctx context.Context, ring signing.Ring, c *ownerChange) (string, error) {
	switch {
	case c.requestsEvaluation():
		template, err := a.fingerprintTemplate(ctx, c.current)
		if err != nil {
			return "", err
		}
		return author.SignRequest(ring, c.current, template, a.clock.Now())
	case c.specChanged, c.current.GetAnnotations()[v1alpha1.AnnotationRequestedAt] == "":
		return "", nil
	}
	return c.oldRequest(), nil
}

// computeAnnotation returns the annotation that an object has after a change, whatever the request says.
func (a *authorMutator) computeAnnotation(ring signing.Ring, c *ownerChange, user authenticationv1.UserInfo) (string, error) {
	if !c.specChanged {
		if c.byOperator { // what it renews is verified when it is validated
			return c.currentAuthor(), nil
		}
		if _, err := author.Read(ring, c.old); err == nil || !c.requestsEvaluation() {
			return c.oldAuthor(), nil
		}
	}
	if c.old == nil { // the API server gives it a UID of its own
		c.current.SetUID("")
	}
	return author.Sign(ring, c.current, author.FromUser(user, a.extraKeys), a.clock.Now())
}

// annotationPath is the path of an annotation in a patch.
func annotationPath(name string) string {
	return "/metadata/annotations/" + strings.ReplaceAll(name, "/", "~1")
}

// newAnnotationPatch makes the patch that gives annotations their values, and takes off those whose value is empty.
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

// denyOperator refuses an edit by the operator itself: it would be made with rights that no author has.
func denyOperator(req *admission.Request) admission.Response {
	return denyRequest(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("the operator itself never changes the spec of a %s: somebody makes it act for them", req.Kind.Kind), newStatusDetails(req))
}

// verifyAuthor says whether the author that is stored with a change is right, and whether the change has to be reviewed: with a
// spec that is written, and with an author who takes over what had none.
func (v *ownerValidator) verifyAuthor(ring signing.Ring, c *ownerChange, user authenticationv1.UserInfo) (reviewed bool, err error) {
	stored, err := author.Read(ring, c.current)
	switch {
	case c.keepsRequest():
		return false, errRequestOfOldSpec
	case err == nil && c.byOperator && !c.specChanged: // it has named the UID, or a new key has signed
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

// verifyRequest says whether what is signed of a request for an evaluation is right: it was signed for this change, or it was left
// as it was, or taken off.
func (v *ownerValidator) verifyRequest(ctx context.Context, ring signing.Ring, c *ownerChange) error {
	if !c.requestsEvaluation() {
		if now := c.currentRequest(); now != "" && now != c.oldRequest() {
			return errRequestWritten
		}
		return nil
	}
	made, err := author.ReadRequest(ring, c.current)
	if err != nil {
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

// fingerprintTemplate tells the template that a spec stands for now from others; empty if there is none.
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
	errRequestOfOldSpec = fmt.Errorf("annotation %s is about the spec as it was: remove it", v1alpha1.AnnotationRequestedAt)
	errNoAccount        = errors.New("the author would be somebody who does not exist")
	errAuthorNotStored  = errors.New("the author of the spec is not stored: the cluster needs the operator's MutatingWebhookConfiguration")
	errSpecChangedAfter = errors.New("another admission webhook has changed the spec after its author was stored: let the operator's webhook run after it, or leave Cleaners out of the other one")
)
