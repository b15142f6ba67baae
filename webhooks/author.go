// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
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

// self knows as whom this process makes its requests.
type self struct {
	reviews authenticationclient.SelfSubjectReviewInterface
	mu      sync.Mutex
	name    string
}

// is says whether a user is this process. The API server is asked once.
func (s *self) is(ctx context.Context, user authenticationv1.UserInfo) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.name == "" {
		answer, err := s.reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("cannot find out who the operator is: %w", err)
		}
		s.name = answer.Status.UserInfo.Username
	}
	return s.name != "" && user.Username == s.name, nil
}

// identify gives a user as the API server names them by their own token. Who impersonates a ServiceAccount by its name alone
// is the account that is there now, and not a later one of its name.
func (v *validator) identify(ctx context.Context, user authenticationv1.UserInfo) (authenticationv1.UserInfo, error) {
	namespace, name, ok := author.Of(user, nil).ServiceAccount()
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

// unidentified answers a request of somebody who could not be identified.
func unidentified(req *admission.Request, err error) admission.Response {
	if errors.Is(err, errNoAccount) {
		return refused(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error(), detailsOf(req))
	}
	return unavailable(err)
}

// change is what a request does to a Cleaner or a ClusterCleaner.
type change struct {
	now v1alpha1.Owner
	// old is nil when it is created.
	old v1alpha1.Owner
	// spec says that what the Cleaner does is written: by a creation, or by an edit of more than suspend. Whoever stops a
	// Cleaner in an emergency need not have its author's rights, and whoever lets it go on must not lend it theirs.
	spec bool
	// byOperator says that the operator itself asks for it.
	byOperator bool
}

// author is the annotation after the change, and before is the one that was there.
func (c *change) author() string { return c.now.GetAnnotations()[v1alpha1.AnnotationAuthor] }

func (c *change) before() string {
	if c.old == nil {
		return ""
	}
	return c.old.GetAnnotations()[v1alpha1.AnnotationAuthor]
}

// asks says that the change asks for an evaluation. Nothing but a deliberate act does: a controller that sets a label or an
// owner must not become the author of what it has not read.
func (c *change) asks() bool {
	asked := c.now.GetAnnotations()[v1alpha1.AnnotationRequestedAt]
	return c.old != nil && asked != "" && asked != c.old.GetAnnotations()[v1alpha1.AnnotationRequestedAt]
}

// readChange reads what a request does.
func (v *owners) readChange(ctx context.Context, req *admission.Request) (*change, error) {
	c := &change{now: v.empty(), spec: true}
	if err := json.Unmarshal(req.Object.Raw, c.now); err != nil {
		return nil, fmt.Errorf("cannot read the %s: %w", req.Kind.Kind, err)
	}
	if req.Operation == admissionv1.Update {
		c.old = v.empty()
		if err := json.Unmarshal(req.OldObject.Raw, c.old); err != nil {
			return nil, fmt.Errorf("cannot read the %s as it was: %w", req.Kind.Kind, err)
		}
		same, err := sameSpec(req.Object.Raw, req.OldObject.Raw)
		if err != nil {
			return nil, fmt.Errorf("cannot read the %s: %w", req.Kind.Kind, err)
		}
		c.spec = !same
	}
	var err error
	c.byOperator, err = v.self.is(ctx, req.UserInfo)
	return c, err
}

// sameSpec says whether two objects have the same spec but for suspend, as they are written.
func sameSpec(a, b []byte) (bool, error) {
	var objects [2]struct {
		Spec map[string]any `json:"spec"`
	}
	for i, raw := range [][]byte{a, b} {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&objects[i]); err != nil {
			return false, err
		}
		delete(objects[i].Spec, "suspend")
	}
	return reflect.DeepEqual(objects[0].Spec, objects[1].Spec), nil
}

// authors stores who wrote a spec, before it is validated.
type authors struct {
	*owners
	clock clock.PassiveClock
}

// Handle answers one request. It changes nothing but the annotation with the author.
func (a *authors) Handle(ctx context.Context, req admission.Request) admission.Response {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := a.readChange(ctx, &req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if c.byOperator && c.spec {
		return byOperator(&req)
	}
	ring, err := a.keys.Ring()
	if err != nil {
		return unavailable(err)
	}
	user, err := a.identify(ctx, req.UserInfo)
	if err != nil {
		return unidentified(&req, err)
	}
	stored, err := a.stored(ring, c, user)
	if err != nil {
		return refused(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error(), detailsOf(&req))
	}
	if stored == c.author() {
		return admission.Allowed("")
	}
	return admission.Patched("", annotate(c.now, stored)...)
}

// stored is the annotation that an object has after a change, whatever the request says.
func (a *authors) stored(ring signing.Ring, c *change, user authenticationv1.UserInfo) (string, error) {
	if !c.spec {
		if c.byOperator { // what it renews is verified when it is validated
			return c.author(), nil
		}
		if _, err := author.Read(ring, c.old); err == nil || !c.asks() {
			return c.before(), nil
		}
	}
	if c.old == nil { // the API server gives it a UID of its own
		c.now.SetUID("")
	}
	return author.Sign(ring, c.now, author.Of(user, a.extraKeys), a.clock.Now())
}

// annotate is the patch that stores an author, or takes it off if it is empty.
func annotate(c v1alpha1.Owner, value string) []jsonpatch.Operation {
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationAuthor, "/", "~1")
	switch {
	case value == "":
		return []jsonpatch.Operation{jsonpatch.NewOperation("remove", path, nil)}
	case len(c.GetAnnotations()) == 0:
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", "/metadata/annotations", map[string]string{v1alpha1.AnnotationAuthor: value})}
	}
	return []jsonpatch.Operation{jsonpatch.NewOperation("add", path, value)}
}

// byOperator refuses an edit by the operator itself: it would be made with rights that no author has.
func byOperator(req *admission.Request) admission.Response {
	return refused(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("the operator itself never changes the spec of a %s: somebody makes it act for them", req.Kind.Kind), detailsOf(req))
}

// judge says whether the author that is stored with a change is right, and whether the change has to be reviewed: with a
// spec that is written, and with an author who takes over what had none.
func (v *owners) judge(ring signing.Ring, c *change, user authenticationv1.UserInfo) (reviewed bool, err error) {
	stored, err := author.Read(ring, c.now)
	switch {
	case err == nil && c.byOperator && !c.spec: // it has named the UID, or a new key has signed
		return false, nil
	case err == nil && equality.Semantic.DeepEqual(stored.Author, author.Of(user, v.extraKeys)) && (c.spec || c.asks()):
		return true, nil
	case !c.spec:
		return false, errAuthorWritten
	case errors.Is(err, author.ErrForeign):
		return false, errSpecChangedAfter
	}
	return false, errAuthorNotStored
}

var (
	errAuthorWritten    = fmt.Errorf("annotation %s is written by the operator alone: leave it as it is", v1alpha1.AnnotationAuthor)
	errNoAccount        = errors.New("the author would be somebody who does not exist")
	errAuthorNotStored  = errors.New("the author of the spec is not stored: the cluster needs the operator's MutatingWebhookConfiguration")
	errSpecChangedAfter = errors.New("another admission webhook has changed the spec after its author was stored: let the operator's webhook run after it, or leave Cleaners out of the other one")
)
