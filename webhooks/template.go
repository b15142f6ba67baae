// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/controllers/rights"
)

// templateValidator validates CleanerTemplates.
type templateValidator struct {
	*validator
	clock clock.PassiveClock
}

// Handle answers one request. The author of a template needs the rights to everything that it does, in all namespaces: an edit
// changes what stored Cleaners do, and their authors' rights are not reviewed again.
func (v *templateValidator) Handle(ctx context.Context, req admission.Request) admission.Response {
	t, old, err := readTemplates(&req)
	switch {
	case err != nil:
		return admission.Errored(http.StatusBadRequest, err)
	case old != nil && reflect.DeepEqual(old.Spec, t.Spec):
		return admission.Allowed("")
	}
	if ctx.Err() != nil {
		return denyUnavailable(errTimeout)
	}
	options, parameters := v.options, templates.Validate(t)
	if found := validation.ValidateTemplate(t, parameters, options); len(found.SpecErrors()) > 0 || len(parameters) > 0 {
		return denyInvalid(&req, found.Errors())
	}
	work, errs := templates.StandIn(t)
	if len(errs) > 0 {
		return denyInvalid(&req, validation.FromFieldErrors(errs))
	}
	programs, errs := v.compiler.Compile(ctx, work)
	if programs == nil && len(errs) == 0 {
		return denyUnavailable(errCompileTimeout)
	}
	options.Compiled = errs
	if found := validation.ValidateTemplate(t, nil, options).Errors(); len(found) > 0 {
		return denyInvalid(&req, found)
	}
	served, err := v.findServedKinds(ctx, work.Targets)
	if err != nil {
		return denyUnavailable(err)
	}
	options.Served = served
	var likely []expr.Warning
	options.UnknownFields, likely = v.fields.checkFields(ctx, work, programs)
	found := validation.ValidateTemplate(t, nil, options)
	if errors := found.Errors(); len(errors) > 0 {
		return denyInvalid(&req, errors)
	}
	warnings := append(formatWarnings(found), formatCompilerWarnings(append(programs.Warnings(), likely...), "spec.template.")...)
	return v.reviewTemplate(ctx, &req, old, t, append(rights.ListRequired("", work, options), rights.ListForAllKinds(work)...), warnings)
}

// readTemplates reads the new and the old template; old is nil if the template is created.
func readTemplates(req *admission.Request) (t, old *v1alpha1.CleanerTemplate, err error) {
	t = &v1alpha1.CleanerTemplate{}
	if err := json.Unmarshal(req.Object.Raw, t); err != nil {
		return nil, nil, fmt.Errorf("cannot read the CleanerTemplate: %w", err)
	}
	if req.Operation != admissionv1.Update {
		return t, nil, nil
	}
	old = &v1alpha1.CleanerTemplate{}
	if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
		return nil, nil, fmt.Errorf("cannot read the CleanerTemplate as it was: %w", err)
	}
	return t, old, nil
}

// reviewTemplate answers for a valid template: its author needs the rights to everything that it does, and an edit must not break
// Cleaners that use it, as far as there is time to look at them.
func (v *templateValidator) reviewTemplate(ctx context.Context, req *admission.Request, old, t *v1alpha1.CleanerTemplate, required []rights.Right, warnings []string) admission.Response {
	missing, err := v.findMissingRights(ctx, req.UserInfo, required)
	switch {
	case err != nil:
		return denyUnavailable(err)
	case len(missing) > 0:
		return denyMissingRights(req, req.UserInfo.Username, missing)
	}
	owners := v.newOwnerReview(ctx, old, t)
	broken, err := owners.findBroken(ctx)
	switch {
	case err != nil:
		return denyUnavailable(err)
	case len(broken) > 0 && old != nil:
		return denyInvalid(req, broken)
	}
	if line := owners.describeSkipped(); line != "" {
		warnings = append([]string{line}, warnings...)
	}
	for _, b := range broken { // they did not work before either, so this is only a warning
		warnings = append(warnings, b.String())
	}
	return admission.Allowed("").WithWarnings(trimWarnings(warnings)...)
}
