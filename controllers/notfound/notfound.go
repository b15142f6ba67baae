// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notfound tells the API server's word that an object does not exist from other answers with the code 404: of a proxy, of
// a kind or a version that is not served for a moment, or about another object. Nothing follows from those.
//
// It makes no request.
package notfound

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// IsObjectMissing says that an error is the API server's word that there is no object of this name. The answer may name its kind instead
// of its resource: other API servers than Kubernetes' own do; kind may be empty.
func IsObjectMissing(err error, resource schema.GroupResource, kind, name string) bool {
	d := missingObject(err)
	if d == nil || d.Name != name || d.Group != resource.Group {
		return false
	}
	return d.Kind == resource.Resource || kind != "" && strings.EqualFold(d.Kind, kind)
}

// IsAnyObjectMissing is IsObjectMissing for a caller that does not compare which object the answer names: an object that is asked for by
// its path is also missing if its namespace is.
func IsAnyObjectMissing(err error) bool {
	d := missingObject(err)
	return d != nil && d.Name != ""
}

// missingObject is what the API server's word that an object does not exist says of that object; nil if the error is not that.
func missingObject(err error) *metav1.StatusDetails {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return nil
	}
	d := status.Status().Details
	if d == nil {
		return nil
	}
	unexpected := func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeUnexpectedServerResponse }
	if slices.ContainsFunc(d.Causes, unexpected) { // client-go has made the error of a text, and of what was asked for
		return nil
	}
	return d
}
