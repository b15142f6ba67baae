// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package author

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

// ErrNoRequest says that no request for an evaluation is stored that this operator has signed for this object, its spec and the
// value of the annotation that asks.
var ErrNoRequest = errors.New("no request for an evaluation of this spec is signed")

// Request is a request for an evaluation of an object with the spec that it has.
type Request struct {
	// Author is the user who made it.
	Author Author
	// Time is when it was made.
	Time time.Time
	// Template is the template that the spec stood for then, as FingerprintTemplate names it; empty without one.
	Template string
}

// request is the value of v1alpha1.AnnotationRequest. It begins like the value of AnnotationAuthor.
type request struct {
	Author    Author      `json:"author"`
	Time      metav1.Time `json:"time"`
	Template  string      `json:"template,omitempty"`
	Signature string      `json:"signature"`
}

// requestStatement is what is signed.
type requestStatement struct {
	Version     int         `json:"version"`
	Kind        string      `json:"kind"`
	Namespace   string      `json:"namespace"`
	Name        string      `json:"name"`
	UID         types.UID   `json:"uid"`
	Spec        string      `json:"spec"`
	RequestedAt string      `json:"requestedAt"`
	Author      Author      `json:"author"`
	Template    string      `json:"template"`
	Time        metav1.Time `json:"time"`
}

func marshalRequest(c v1alpha1.Owner, r *request) ([]byte, error) {
	spec, err := FingerprintSpec(c)
	if err != nil {
		return nil, err
	}
	return json.Marshal(requestStatement{
		Version: version, Kind: v1alpha1.KindOf(c), Namespace: c.GetNamespace(), Name: c.GetName(), UID: c.GetUID(),
		Spec: spec, RequestedAt: c.GetAnnotations()[v1alpha1.AnnotationRequestedAt], Author: r.Author, Template: r.Template,
		Time: metav1.Time{Time: r.Time.UTC()},
	})
}

// FingerprintTemplate returns what tells one template, and one state of it, from another; empty for nil.
func FingerprintTemplate(t *v1alpha1.CleanerTemplate) string {
	if t == nil {
		return ""
	}
	return string(t.UID) + "/" + strconv.FormatInt(t.Generation, 10)
}

// SignRequest gives the annotation that says who asked for an evaluation of an object when, with the spec that it has and the template
// that this stood for.
func SignRequest(ring signing.Ring, c v1alpha1.Owner, who Author, template string, now time.Time) (string, error) {
	if err := who.checkWritable(); err != nil {
		return "", err
	}
	r := request{Author: who, Time: metav1.NewTime(now.UTC().Truncate(time.Second)), Template: template}
	text, err := marshalRequest(c, &r)
	if err != nil {
		return "", err
	}
	if r.Signature, err = ring.Sign(signing.Request, text); err != nil {
		return "", fmt.Errorf("cannot sign the request: %w", err)
	}
	out := encodeText(&r)
	return out, checkSize(who, out)
}

// ReadRequest is the last request for an evaluation of an object with the spec that it has. The error is ErrNoRequest.
func ReadRequest(ring signing.Ring, c v1alpha1.Owner) (Request, error) {
	r := request{}
	if !parseText(c.GetAnnotations()[v1alpha1.AnnotationRequest], &r) {
		return Request{}, ErrNoRequest
	}
	text, err := marshalRequest(c, &r)
	if err != nil {
		return Request{}, ErrNoRequest
	}
	if _, err := ring.Verify(signing.Request, text, r.Signature); err != nil {
		return Request{}, ErrNoRequest
	}
	return Request{Author: r.Author, Time: r.Time.Time, Template: r.Template}, nil
}
