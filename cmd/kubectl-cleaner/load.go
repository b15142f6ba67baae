// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/config/templates"
)

// loader reads what a command is told of Cleaners.
type loader struct {
	schemas   kindSchemas
	compiler  *celenv.Compiler
	templates map[string]*v1alpha1.CleanerTemplate
	// parameters are values of parameters that take the place of those of the file.
	parameters map[string]string
	// operatorNamespace is that of the operator; empty if nobody knows.
	operatorNamespace string
	// allowedKinds are the protected kinds that may be deleted all the same.
	allowedKinds []string
}

// clone returns the loader without what it was told since it was made.
func (l *loader) clone() *loader {
	out := *l
	out.templates = maps.Clone(l.templates)
	return &out
}

// cleaner is a Cleaner or a ClusterCleaner of a file, as far as it can work.
type cleaner struct {
	document *document
	owner    v1alpha1.Owner
	work     *v1alpha1.Work
	programs *celenv.Programs
	// problems are in the order of the file. Without programs, some are no warnings.
	problems []problem
}

func newLoader() (*loader, error) {
	definitions, err := newKindSchemas()
	if err != nil {
		return nil, err
	}
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		return nil, err
	}
	l := &loader{schemas: definitions, compiler: compiler, templates: map[string]*v1alpha1.CleanerTemplate{}}
	shipped, err := templates.LoadAll()
	if err != nil {
		return nil, err
	}
	for _, t := range shipped {
		l.templates[t.Name] = t
	}
	return l, nil
}

// addTemplates takes the CleanerTemplates among documents; one takes the place of another of its name. What is wrong with
// them is returned.
func (l *loader) addTemplates(ctx context.Context, documents []*document) []problem {
	var found []problem
	for _, d := range documents {
		if gvk, ok := d.parseOwnKind(); !ok || gvk.Kind != kindTemplate {
			continue
		}
		object, problems := l.schemas.decodeObject(ctx, d)
		found = append(found, problems...)
		if t, ok := object.(*v1alpha1.CleanerTemplate); ok {
			found = append(found, d.newProblems(templates.Validate(t))...)
			l.templates[t.Name] = t
		}
	}
	return found
}

// newProblems makes problems of what is wrong with fields.
func (d *document) newProblems(errs field.ErrorList) []problem {
	var out []problem
	for _, err := range errs {
		message := err.Detail
		if message == "" {
			message = err.ErrorBody()
		}
		out = append(out, d.newProblem(err.Field, message))
	}
	return out
}

// loadCleaner reads a Cleaner, puts its template in its place, compiles it, and says what is wrong with it.
func (l *loader) loadCleaner(ctx context.Context, d *document, served func([]v1alpha1.ClusterTarget) []validation.ServedKind) *cleaner {
	c := &cleaner{document: d}
	object, problems := l.schemas.decodeObject(ctx, d)
	c.problems = problems
	owner, ok := object.(v1alpha1.Owner)
	if !ok {
		return c
	}
	c.owner = owner
	if err := l.overrideParameters(owner); err != nil {
		c.problems = append(c.problems, d.newProblem("spec", err.Error()))
		return c
	}
	var template *v1alpha1.CleanerTemplate
	if ref := owner.Common().TemplateRef; ref != nil {
		if template = l.templates[ref.Name]; template == nil {
			c.problems = append(c.problems, d.newProblem("spec.templateRef.name", fmt.Sprintf("there is no template %q: there are %s; add others with --templates",
				ref.Name, strings.Join(slices.Sorted(maps.Keys(l.templates)), ", "))))
			return c
		}
	}
	work, errs := templates.Expand(owner, template)
	if len(errs) > 0 {
		c.problems = append(c.problems, d.newProblems(errs)...)
		return c
	}
	options := validation.Options{AllowProtectedKinds: l.allowedKinds, Namespace: owner.GetNamespace(), OperatorNamespace: l.operatorNamespace}
	if served != nil {
		options.Served = served(work.Targets)
	}
	programs, errs := l.compiler.Compile(ctx, work)
	if programs == nil && len(errs) == 0 {
		c.problems = append(c.problems, d.newProblem("spec", "the expressions were not compiled: "+context.Cause(ctx).Error()))
		return c
	}
	options.Compiled = errs
	found := validation.Validate(work, options)
	for _, f := range found {
		p := d.newProblem(l.findSourceField(owner, f.Path), f.Message)
		if template != nil && l.findSourceField(owner, f.Path) != f.Path {
			p.field, p.message = f.Path, fmt.Sprintf("%s (of the template %q)", f.Message, template.Name)
		}
		p.warning = f.Severity == validation.Warning
		c.problems = append(c.problems, p)
	}
	if programs != nil {
		for _, w := range programs.Warnings() {
			p := d.newProblem(l.findSourceField(owner, "spec."+w.Path), w.Message)
			p.field, p.warning = "spec."+w.Path, true
			c.problems = append(c.problems, p)
		}
	}
	if len(found.Errors()) == 0 {
		c.work, c.programs = work, programs
	}
	sortProblems(c.problems)
	return c
}

// findSourceField returns the field of the file that a field of the work comes from.
func (l *loader) findSourceField(owner v1alpha1.Owner, path string) string {
	if owner.Common().TemplateRef == nil {
		return path
	}
	for _, part := range []string{"targets", "variables", "conditions", "rules", "parameters"} {
		if strings.HasPrefix(path, "spec."+part) {
			return "spec.templateRef.name"
		}
	}
	return path
}

// overrideParameters sets the parameters that the command line gives, in the template's place or in the Cleaner's own.
func (l *loader) overrideParameters(owner v1alpha1.Owner) error {
	if len(l.parameters) == 0 {
		return nil
	}
	common := owner.Common()
	raw := &common.Parameters
	if common.TemplateRef != nil {
		raw = &common.TemplateRef.Parameters
	}
	values := map[string]json.RawMessage{}
	if *raw != nil && len((*raw).Raw) > 0 {
		if err := json.Unmarshal((*raw).Raw, &values); err != nil {
			return fmt.Errorf("cannot read the parameters: %w", err)
		}
	}
	for name, text := range l.parameters {
		value, err := sigsyaml.YAMLToJSON([]byte(text))
		if err != nil {
			return fmt.Errorf("cannot read the value of --set %s: %w", name, err)
		}
		values[name] = value
	}
	text, err := json.Marshal(values)
	if err != nil {
		return fmt.Errorf("cannot set the parameters: %w", err)
	}
	*raw = &runtime.RawExtension{Raw: text}
	return nil
}

// isInvalid says that the Cleaner cannot work.
func (c *cleaner) isInvalid() bool { return c.programs == nil }
