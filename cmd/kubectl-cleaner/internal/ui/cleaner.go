// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

// maxSpec bounds the YAML of a spec on a page, in bytes.
const maxSpec = 256 << 10

// nameOf returns the Cleaner that the address of a request names.
func nameOf(r *http.Request) Name { return Name{r.PathValue("namespace"), r.PathValue("name")} }

// errInvalidName says that no Cleaner can have such a name.
var errInvalidName = errors.New("no Cleaner can have this name")

// checkName refuses names that an address of the API server cannot contain.
func checkName(of Name) error {
	for _, part := range []string{of.Namespace, of.Name} {
		if wrong := content.IsPathSegmentName(part); len(wrong) > 0 {
			return &RefusedError{fmt.Errorf("%w: it %s", errInvalidName, strings.Join(wrong, ", "))}
		}
	}
	return nil
}

// readCleaner reads the Cleaner of a request as it is now. If that fails, it shows why.
func (s *Server) readCleaner(w http.ResponseWriter, r *http.Request) (v1alpha1.Owner, *unstructured.Unstructured, bool) {
	of := nameOf(r)
	err := checkName(of)
	var u *unstructured.Unstructured
	if err == nil {
		u, err = s.getCleaner(r.Context(), of)
	}
	var owner v1alpha1.Owner
	if err == nil {
		owner, err = manifests.DecodeOwner(u)
	}
	if err != nil {
		s.showProblem(w, r, statusOf(err), &problem{Title: "Cannot read " + of.Kind() + " " + showLine(of.DisplayName()), Message: describeError(err)})
		return nil, nil, false
	}
	return owner, u, true
}

// getCleaner reads a Cleaner as it is now.
func (s *Server) getCleaner(ctx context.Context, of Name) (*unstructured.Unstructured, error) {
	resource := v1alpha1.ResourceOf(v1alpha1.NewOwner(of.Namespace)).Resource
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return s.Client.Resource(v1alpha1.GroupVersion.WithResource(resource)).Namespace(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
}

// specView is the spec of a Cleaner.
type specView struct {
	subject
	YAML string
	// Cut says that the rest is not shown.
	Cut bool
}

// showSpec shows the spec of a Cleaner.
func (s *Server) showSpec(w http.ResponseWriter, r *http.Request) {
	owner, u, ok := s.readCleaner(w, r)
	if !ok {
		return
	}
	text, err := output.MarshalYAML(map[string]any{"spec": u.Object["spec"]})
	if err != nil {
		s.showProblem(w, r, http.StatusInternalServerError, &problem{Title: "Cannot show the spec", Message: describeError(err)})
		return
	}
	content := &specView{subject: s.viewer.makeSubject(owner, "/spec"), Cut: len(text) > maxSpec}
	content.YAML = string(text[:min(len(text), maxSpec)])
	s.showPage(w, r, http.StatusOK, &page{Template: "spec", Title: content.DisplayName() + ": spec", Current: "/", Events: s.fleet.eventsOf(content.Name, content.Version), Content: content})
}
