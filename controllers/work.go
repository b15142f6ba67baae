// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

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

// assignment is what a Cleaner is to do now: its spec with its template in place.
type assignment struct {
	// work is as written while the template is missing, or does not fit.
	work *v1alpha1.Work
	// version tells one assignment of a Cleaner from another.
	version string
	// missing names the template that does not exist; empty otherwise.
	missing string
	// wrong is why the template cannot be used as the spec does.
	wrong field.ErrorList
}

// assignmentOf reads the template of a Cleaner, if it has one.
func (r *CleanerReconciler) assignmentOf(ctx context.Context, c v1alpha1.Owner) (assignment, error) {
	version, t, err := r.versionOf(ctx, c)
	if err != nil {
		return assignment{}, err
	}
	a := assignment{work: c.Work(), version: version}
	use := c.Common().TemplateRef
	if use == nil {
		return a, nil
	}
	if t == nil {
		a.missing = use.Name
		return a, nil
	}
	expanded, errs := templates.Expand(c, t)
	if len(errs) > 0 {
		a.wrong = errs
		return a, nil
	}
	a.work = expanded
	return a, nil
}

// isSameWork says that what a Cleaner is to do is still what this pass knows.
func (p *sight) isSameWork(ctx context.Context, c v1alpha1.Owner) (bool, error) {
	version, _, err := p.r.versionOf(ctx, c)
	return version == p.version, err
}

// versionOf is the version of what a Cleaner is to do, with the template that is a part of it; nil if there is none.
func (r *CleanerReconciler) versionOf(ctx context.Context, c v1alpha1.Owner) (string, *v1alpha1.CleanerTemplate, error) {
	version, use := strconv.FormatInt(c.GetGeneration(), 10), c.Common().TemplateRef
	if use == nil {
		return version, nil, nil
	}
	t := &v1alpha1.CleanerTemplate{}
	err := r.client.Get(ctx, types.NamespacedName{Name: use.Name}, t, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return version, nil, nil
	case err != nil:
		return "", nil, fmt.Errorf("cannot read CleanerTemplate %q: %w", use.Name, err)
	}
	return version + "/" + author.FingerprintTemplate(t), t, nil
}

// templateOf is the template in a version of what a Cleaner is to do, as author.FingerprintTemplate names it; empty if there is none.
func templateOf(version string) string {
	_, template, _ := strings.Cut(version, "/")
	return template
}

// usersOf are the Cleaners and ClusterCleaners that use a template.
func (r *CleanerReconciler) usersOf(ctx context.Context, template client.Object) []reconcile.Request {
	var cleaners v1alpha1.CleanerList
	var clusters v1alpha1.ClusterCleanerList
	for _, list := range []client.ObjectList{&cleaners, &clusters} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
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
