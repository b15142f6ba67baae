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
		any  bool
	}{
		"Named":        {apierrors.NewNotFound(deployments, "a"), "", true, true},
		"Wrapped":      {fmt.Errorf("cannot read it: %w", apierrors.NewNotFound(deployments, "a")), "", true, true},
		"NamedByKind":  {ofKind, "Deployment", true, true},
		"KindUnknown":  {ofKind, "", false, true},
		"Another":      {apierrors.NewNotFound(deployments, "b"), "", false, true},
		"AnotherGroup": {apierrors.NewNotFound(schema.GroupResource{Resource: "deployments"}, "a"), "", false, true},
		"Namespace":    {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "a"), "", false, true},
		"Bare":         {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}, "", false, false},
		"NotServed":    {apierrors.NewGenericServerResponse(http.StatusNotFound, "get", deployments, "a", "404 page not found", 0, true), "", false, false},
		"Forbidden":    {apierrors.NewForbidden(deployments, "a", errors.New("no")), "", false, false},
		"NoStatus":     {errors.New("not found"), "", false, false},
		"None":         {nil, "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsObjectMissing(tc.err, deployments, tc.kind, "a"); got != tc.want {
				t.Errorf("got %t for %v", got, tc.err)
			}
			if got := IsAnyObjectMissing(tc.err); got != tc.any {
				t.Errorf("got %t for any object of %v", got, tc.err)
			}
		})
	}
}
