// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package author

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

// ErrNoRequest says that no request for an evaluation is stored that this operator has signed for this object, its spec and the
// value of the annotation that asks.
var ErrNoRequest = errors.New("no request for an evaluation of this spec is signed")

// request is the value of v1alpha1.AnnotationRequest.
type request struct {
	Time      metav1.Time `json:"time"`
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
	Time        metav1.Time `json:"time"`
}

func marshalRequest(c v1alpha1.Owner, at metav1.Time) ([]byte, error) {
	spec, err := FingerprintSpec(c)
	if err != nil {
		return nil, err
	}
	return json.Marshal(requestStatement{
		Version: version, Kind: v1alpha1.KindOf(c), Namespace: c.GetNamespace(), Name: c.GetName(), UID: c.GetUID(),
		Spec: spec, RequestedAt: c.GetAnnotations()[v1alpha1.AnnotationRequestedAt], Time: metav1.Time{Time: at.UTC()},
	})
}

// SignRequest gives the annotation that says when an evaluation of an object was asked for, by whoever had the rights to its spec.
func SignRequest(ring signing.Ring, c v1alpha1.Owner, now time.Time) (string, error) {
	r := request{Time: metav1.NewTime(now.UTC().Truncate(time.Second))}
	text, err := marshalRequest(c, r.Time)
	if err != nil {
		return "", err
	}
	if r.Signature, err = ring.Sign(signing.Request, text); err != nil {
		return "", fmt.Errorf("cannot sign the request: %w", err)
	}
	out, err := json.Marshal(r)
	return string(out), err
}

// ReadRequest is when an evaluation of an object, with the spec that it has, was asked for last. The error is ErrNoRequest.
func ReadRequest(ring signing.Ring, c v1alpha1.Owner) (time.Time, error) {
	raw, r := c.GetAnnotations()[v1alpha1.AnnotationRequest], request{}
	if raw == "" || len(raw) > maxBytes || json.Unmarshal([]byte(raw), &r) != nil {
		return time.Time{}, ErrNoRequest
	}
	text, err := marshalRequest(c, r.Time)
	if err != nil {
		return time.Time{}, ErrNoRequest
	}
	if _, err := ring.Verify(signing.Request, text, r.Signature); err != nil {
		return time.Time{}, ErrNoRequest
	}
	return r.Time.Time, nil
}
