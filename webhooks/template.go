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
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/controllers/rights"
)

// templateValidator validates CleanerTemplates.
type templateValidator struct{ *validator }

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
	found := validation.ValidateTemplate(t, nil, options)
	if errors := found.Errors(); len(errors) > 0 {
		return denyInvalid(&req, errors)
	}
	warnings := append(formatWarnings(found), formatCompilerWarnings(programs, "spec.template.")...)
	return v.reviewTemplate(ctx, &req, old, t, rights.ListRequired("", work, options), warnings)
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
// Cleaners that use it.
func (v *templateValidator) reviewTemplate(ctx context.Context, req *admission.Request, old, t *v1alpha1.CleanerTemplate, required []rights.Right, warnings []string) admission.Response {
	missing, err := v.findMissingRights(ctx, req.UserInfo, required)
	switch {
	case err != nil:
		return denyUnavailable(err)
	case len(missing) > 0:
		return denyMissingRights(req, req.UserInfo.Username, missing)
	}
	broken, err := v.findBrokenOwners(ctx, old, t)
	switch {
	case err != nil:
		return denyUnavailable(err)
	case len(broken) > 0 && old != nil:
		return denyInvalid(req, broken)
	}
	for _, b := range broken { // they did not work before either, so this is only a warning
		warnings = append(warnings, b.String())
	}
	return admission.Allowed("").WithWarnings(trimWarnings(warnings)...)
}

// findBrokenOwners returns the Cleaners that work with the old template and not with the new one. Without an old template, it returns
// all that do not work with the new one.
func (v *templateValidator) findBrokenOwners(ctx context.Context, old, t *v1alpha1.CleanerTemplate) (validation.Findings, error) {
	before, after := templateChecker{v.validator, old, map[string]field.ErrorList{}}, templateChecker{v.validator, t, map[string]field.ErrorList{}}
	var found validation.Findings
	err := v.forEachOwner(ctx, func(kind string, c v1alpha1.Owner) error {
		ref := c.Common().TemplateRef
		if ref == nil || ref.Name != t.Name {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("cannot check in time all Cleaners that use the template: %w", err)
		}
		wrong, err := after.checkOwner(ctx, c)
		if err != nil || len(wrong) == 0 {
			return err
		}
		if old != nil {
			if already, err := before.checkOwner(ctx, c); err != nil || len(already) > 0 {
				return err
			}
		}
		who := fmt.Sprintf("%s %q", kind, c.GetName())
		if ns := c.GetNamespace(); ns != "" {
			who += fmt.Sprintf(" in namespace %q", ns)
		}
		instead := ""
		if old != nil {
			instead = "; change its spec first, or write a template that it works with; if you mean to break it, delete the template and create it again"
		}
		found = append(found, validation.Finding{Path: "spec", Message: fmt.Sprintf("breaks %s, which would stop working: %s%s", who, redactFinding(wrong[0], old, t), instead), Severity: validation.Error})
		return nil
	})
	return found, err
}

// templateChecker checks Cleaners against one version of a template.
type templateChecker struct {
	*validator
	template *v1alpha1.CleanerTemplate
	// compileErrors caches the compiler's errors by cloudEventData: all other expressions are the template's own.
	compileErrors map[string]field.ErrorList
}

// checkOwner returns the reasons why a Cleaner does not work with the template; none if it does.
func (u *templateChecker) checkOwner(ctx context.Context, c v1alpha1.Owner) (validation.Findings, error) {
	work, errs := templates.Expand(c, u.template)
	if len(errs) > 0 {
		return validation.FromFieldErrors(errs), nil
	}
	options := u.options
	options.Template = u.template.Name
	errs, known := u.compileErrors[work.CloudEventData]
	if !known {
		var programs *celenv.Programs
		if programs, errs = u.compiler.Compile(ctx, work); programs == nil && len(errs) == 0 {
			return nil, errCompileTimeout
		}
		u.compileErrors[work.CloudEventData] = errs
	}
	options.Compiled = errs
	return validation.Validate(work, options).Errors(), nil
}

// ownersPage is how many Cleaners are in memory at a time: each may have more than 1 MB.
const ownersPage = 32

// forEachOwner calls do with all Cleaners and then all ClusterCleaners. It reads one page at a time.
func (v *validator) forEachOwner(ctx context.Context, do func(kind string, c v1alpha1.Owner) error) error {
	cleaners, cluster := &v1alpha1.CleanerList{}, &v1alpha1.ClusterCleanerList{}
	err := v.forEachPage(ctx, cleaners, func() error {
		for i := range cleaners.Items {
			if err := do("Cleaner", &cleaners.Items[i]); err != nil {
				return err
			}
		}
		cleaners.Items = nil
		return nil
	})
	if err != nil {
		return err
	}
	return v.forEachPage(ctx, cluster, func() error {
		for i := range cluster.Items {
			if err := do("ClusterCleaner", &cluster.Items[i]); err != nil {
				return err
			}
		}
		cluster.Items = nil
		return nil
	})
}

// forEachPage reads the pages of a list one by one, and calls do after each.
func (v *validator) forEachPage(ctx context.Context, list client.ObjectList, do func() error) error {
	for next := ""; ; {
		if err := v.live.List(ctx, list, client.Limit(ownersPage), client.Continue(next)); err != nil {
			return fmt.Errorf("cannot list the Cleaners that use the template: %w", err)
		}
		next = list.GetContinue()
		if err := do(); err != nil {
			return err
		}
		if next == "" {
			return nil
		}
		list.SetContinue("")
	}
}
