// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package notfound

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestNames(t *testing.T) {
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	ofKind := apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployment"}, "a")
	for name, tc := range map[string]struct {
		err  error
		kind string
		want bool
	}{
		"Named":        {apierrors.NewNotFound(deployments, "a"), "", true},
		"Wrapped":      {fmt.Errorf("cannot read it: %w", apierrors.NewNotFound(deployments, "a")), "", true},
		"NamedByKind":  {ofKind, "Deployment", true},
		"KindUnknown":  {ofKind, "", false},
		"Another":      {apierrors.NewNotFound(deployments, "b"), "", false},
		"AnotherGroup": {apierrors.NewNotFound(schema.GroupResource{Resource: "deployments"}, "a"), "", false},
		"Namespace":    {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "a"), "", false},
		"Bare":         {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}, "", false},
		"NotServed":    {apierrors.NewGenericServerResponse(http.StatusNotFound, "get", deployments, "a", "404 page not found", 0, true), "", false},
		"Forbidden":    {apierrors.NewForbidden(deployments, "a", errors.New("no")), "", false},
		"NoStatus":     {errors.New("not found"), "", false},
		"None":         {nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsObjectMissing(tc.err, deployments, tc.kind, "a"); got != tc.want {
				t.Errorf("got %t for %v", got, tc.err)
			}
		})
	}
}
