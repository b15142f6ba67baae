// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resolvedspec says what a Cleaner is to do: its spec, with its template in place, and the version of both. It does not say whether that
// is valid.
package resolvedspec

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/controllers/author"
)

// Assignment is what a Cleaner is to do now: its spec with its template in place.
type Assignment struct {
	// Work is as written while the template is missing, or does not fit.
	Work *v1alpha1.Work
	// Version tells one assignment of a Cleaner from another.
	Version string
	// Missing names the template that does not exist; empty otherwise.
	Missing string
	// Wrong is why the template cannot be used as the spec does.
	Wrong field.ErrorList
}

// Reader reads templates.
type Reader struct{ Client client.Reader }

// ReadAssignment reads the template of a Cleaner, if it has one.
func (r Reader) ReadAssignment(ctx context.Context, c v1alpha1.Owner) (Assignment, error) {
	version, t, err := r.readTemplate(ctx, c)
	if err != nil {
		return Assignment{}, err
	}
	a := Assignment{Work: c.Work(), Version: version}
	use := c.Common().TemplateRef
	if use == nil {
		return a, nil
	}
	if t == nil {
		a.Missing = use.Name
		return a, nil
	}
	expanded, errs := templates.Expand(c, t)
	if len(errs) > 0 {
		a.Wrong = errs
		return a, nil
	}
	a.Work = expanded
	return a, nil
}

// IsCurrent says that a version of what a Cleaner is to do is the one that there is now.
func (r Reader) IsCurrent(ctx context.Context, c v1alpha1.Owner, version string) (bool, error) {
	now, _, err := r.readTemplate(ctx, c)
	return now == version, err
}

// readTemplate gives the version of what a Cleaner is to do, and the template that is a part of it; nil if there is none.
func (r Reader) readTemplate(ctx context.Context, c v1alpha1.Owner) (version string, _ *v1alpha1.CleanerTemplate, _ error) {
	version, use := strconv.FormatInt(c.GetGeneration(), 10), c.Common().TemplateRef
	if use == nil {
		return version, nil, nil
	}
	t := &v1alpha1.CleanerTemplate{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: use.Name}, t, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return version, nil, nil
	case err != nil:
		return "", nil, fmt.Errorf("cannot read CleanerTemplate %q: %w", use.Name, err)
	}
	return version + "/" + author.FingerprintTemplate(t), t, nil
}

// TemplateOf is the template in a version of what a Cleaner is to do, as author.FingerprintTemplate names it; empty if there is none.
func TemplateOf(version string) string {
	_, template, _ := strings.Cut(version, "/")
	return template
}

// ListUsers lists the Cleaners and ClusterCleaners that use a template.
func (r Reader) ListUsers(ctx context.Context, template client.Object) []reconcile.Request {
	var cleaners v1alpha1.CleanerList
	var clusters v1alpha1.ClusterCleanerList
	for _, list := range []client.ObjectList{&cleaners, &clusters} {
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			logf.FromContext(ctx).Error(err, "Cannot find out who uses a template", "template", template.GetName())
			return nil
		}
	}
	var out []reconcile.Request
	uses := func(c v1alpha1.Owner) {
		if use := c.Common().TemplateRef; use != nil && use.Name == template.GetName() {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		}
	}
	for i := range cleaners.Items {
		uses(&cleaners.Items[i])
	}
	for i := range clusters.Items {
		uses(&clusters.Items[i])
	}
	return out
}
