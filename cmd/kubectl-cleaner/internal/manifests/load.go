// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

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
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/controllers/kindschemas"
)

// Loader loads Cleaners and templates from documents.
type Loader struct {
	schemas   kindSchemas
	compiler  *celenv.Compiler
	templates map[string]*v1alpha1.CleanerTemplate
	// Schemas say which fields the objects of a kind have. NewLoader sets those of the built-in kinds.
	Schemas kindschemas.Source
	// Stored says that the Cleaners are in a cluster already. They work, even if they read fields that do not exist.
	Stored bool
	// Parameters override the parameters of the file, by name.
	Parameters map[string]string
	// OperatorNamespace is the operator's namespace; empty if unknown.
	OperatorNamespace string
	// AllowedKinds are the protected kinds that may be deleted.
	AllowedKinds []string
}

// Clone returns a loader with templates of its own.
func (l *Loader) Clone() *Loader {
	out := *l
	out.templates = maps.Clone(l.templates)
	return &out
}

// Cleaner is a Cleaner or a ClusterCleaner of a file.
type Cleaner struct {
	document *Document
	Owner    v1alpha1.Owner
	Work     *v1alpha1.Work
	Programs *celenv.Programs
	// Problems are in the order of the file. If Programs is nil, one of them is an error.
	Problems []Problem
	// Schemas are those of the kinds of its objects.
	Schemas kindschemas.Source
}

// NewLoader returns a loader with the shipped templates.
func NewLoader() (*Loader, error) {
	definitions, err := newKindSchemas()
	if err != nil {
		return nil, err
	}
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		return nil, err
	}
	l := &Loader{schemas: definitions, compiler: compiler, templates: map[string]*v1alpha1.CleanerTemplate{}, Schemas: offlineSchemas{}}
	shipped, err := templates.LoadAll()
	if err != nil {
		return nil, err
	}
	for _, t := range shipped {
		l.templates[t.Name] = t
	}
	return l, nil
}

// AddTemplates adds the CleanerTemplates among documents and returns their problems. A template replaces another of the same name.
func (l *Loader) AddTemplates(ctx context.Context, documents []*Document) []Problem {
	var found []Problem
	for _, d := range documents {
		if gvk, ok := d.ParseOwnKind(); !ok || gvk.Kind != KindTemplate {
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

// newProblems returns problems of field errors.
func (d *Document) newProblems(errs field.ErrorList) []Problem {
	var out []Problem
	for _, err := range errs {
		message := err.Detail
		if message == "" {
			message = err.ErrorBody()
		}
		out = append(out, d.NewProblem(err.Field, message))
	}
	return out
}

// LoadCleaner decodes a Cleaner, expands its template, validates and compiles it. served says which kinds the cluster serves; nil if
// unknown.
func (l *Loader) LoadCleaner(ctx context.Context, d *Document, served func([]v1alpha1.ClusterTarget) []validation.ServedKind) *Cleaner {
	c := &Cleaner{document: d, Schemas: l.Schemas}
	object, problems := l.schemas.decodeObject(ctx, d)
	c.Problems = problems
	owner, ok := object.(v1alpha1.Owner)
	if !ok {
		return c
	}
	c.Owner = owner
	if err := l.overrideParameters(owner); err != nil {
		c.Problems = append(c.Problems, d.NewProblem("spec", err.Error()))
		return c
	}
	var template *v1alpha1.CleanerTemplate
	if ref := owner.Common().TemplateRef; ref != nil {
		if template = l.templates[ref.Name]; template == nil {
			c.Problems = append(c.Problems, d.NewProblem("spec.templateRef.name", fmt.Sprintf("there is no template %q: write one of %s, or add templates with --templates",
				ref.Name, strings.Join(slices.Sorted(maps.Keys(l.templates)), ", "))))
			return c
		}
	}
	work, errs := templates.Expand(owner, template)
	if len(errs) > 0 {
		c.Problems = append(c.Problems, d.newProblems(errs)...)
		return c
	}
	options := validation.Options{AllowProtectedKinds: l.AllowedKinds, Namespace: owner.GetNamespace(), OperatorNamespace: l.OperatorNamespace}
	if served != nil {
		options.Served = served(work.Targets)
	}
	programs, errs := l.compiler.Compile(ctx, work)
	if programs == nil && len(errs) == 0 {
		c.Problems = append(c.Problems, d.NewProblem("spec", "the expressions were not compiled: "+context.Cause(ctx).Error()))
		return c
	}
	options.Compiled = errs
	warnings := l.checkFields(ctx, work, programs, &options)
	found := validation.Validate(work, options)
	for _, f := range found {
		p := d.NewProblem(l.FindSourceField(owner, f.Path), f.Message)
		if template != nil && l.FindSourceField(owner, f.Path) != f.Path {
			p.field, p.message = f.Path, fmt.Sprintf("%s (in the template %q)", f.Message, template.Name)
		}
		p.Warning = f.Severity == validation.Warning
		c.Problems = append(c.Problems, p)
	}
	for _, w := range warnings {
		p := d.NewProblem(l.FindSourceField(owner, "spec."+w.Path), describeWarning(w))
		p.field, p.Warning = "spec."+w.Path, true
		c.Problems = append(c.Problems, p)
	}
	if len(found.Errors()) == 0 {
		c.Work, c.Programs = work, programs
	}
	sortProblems(c.Problems)
	return c
}

// FindSourceField returns the field of the file that a field of the expanded spec comes from.
func (l *Loader) FindSourceField(owner v1alpha1.Owner, path string) string {
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

// overrideParameters sets parameters of the template, or of the Cleaner if it has none.
func (l *Loader) overrideParameters(owner v1alpha1.Owner) error {
	if len(l.Parameters) == 0 {
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
	for name, text := range l.Parameters {
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

// AddWarning adds a warning about a field; none if the text is empty.
func (c *Cleaner) AddWarning(d *Document, field, text string) {
	if text == "" {
		return
	}
	p := d.NewProblem(field, text)
	p.Warning = true
	c.Problems = append(c.Problems, p)
}

// IsInvalid reports whether the Cleaner has errors.
func (c *Cleaner) IsInvalid() bool { return c.Programs == nil }

// FormatWarnings returns the Cleaner's warnings, one line for each.
func (c *Cleaner) FormatWarnings() []string {
	var out []string
	for _, p := range c.Problems {
		if p.Warning {
			out = append(out, p.field+": "+p.message)
		}
	}
	return out
}

// ValidateTemplate returns the problems that a template has whatever values its parameters get.
func (l *Loader) ValidateTemplate(ctx context.Context, d *Document, served func([]v1alpha1.ClusterTarget) []validation.ServedKind) []Problem {
	name, _, _ := NestedString(d.Object, "metadata", "name")
	t := l.templates[name]
	if t == nil {
		return nil
	}
	if len(templates.Validate(t)) > 0 { // AddTemplates returned these
		return nil
	}
	work, errs := templates.StandIn(t)
	if len(errs) > 0 {
		return d.newProblems(errs)
	}
	options := validation.Options{AllowProtectedKinds: l.AllowedKinds}
	if served != nil {
		options.Served = served(work.Targets)
	}
	programs, errs := l.compiler.Compile(ctx, work)
	if programs == nil && len(errs) == 0 {
		return []Problem{d.NewProblem("spec", "the expressions were not compiled: "+context.Cause(ctx).Error())}
	}
	options.Compiled = errs
	warnings := l.checkFields(ctx, work, programs, &options)
	var out []Problem
	for _, f := range validation.ValidateTemplate(t, nil, options) {
		p := d.NewProblem(f.Path, f.Message)
		p.Warning = f.Severity == validation.Warning
		out = append(out, p)
	}
	for _, w := range warnings {
		p := d.NewProblem("spec.template."+w.Path, describeWarning(w))
		p.Warning = true
		out = append(out, p)
	}
	sortProblems(out)
	return out
}

// describeWarning says where in an expression something may be wrong, what, and what to write instead, as the webhook does.
func describeWarning(w expr.Warning) string {
	text := w.Message + "; " + w.Hint
	if w.Line > 0 {
		text = fmt.Sprintf("%d:%d: %s", w.Line, w.Column, text)
	}
	return text
}

// SelectCleaner returns the one Cleaner or ClusterCleaner among documents.
func SelectCleaner(file string, documents []*Document) (*Document, error) {
	found, err := SelectCleaners(file, documents)
	if err == nil && len(found) > 1 {
		err = fmt.Errorf("%s has %d Cleaners and ClusterCleaners: write one", file, len(found))
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// SelectCleaners returns the Cleaners and ClusterCleaners among documents. If there is only one document beside templates, it is meant to be
// one, whatever it is: its problems say what is wrong with it.
func SelectCleaners(file string, documents []*Document) ([]*Document, error) {
	var cleaners, others []*Document
	for _, d := range documents {
		switch gvk, own := d.ParseOwnKind(); {
		case own && gvk.Kind == KindTemplate:
		case own && (gvk.Kind == KindCleaner || gvk.Kind == KindClusterCleaner):
			cleaners = append(cleaners, d)
		default:
			others = append(others, d)
		}
	}
	switch {
	case len(cleaners) > 0:
		return cleaners, nil
	case len(others) == 1:
		return others, nil
	case len(others) > 1:
		return nil, fmt.Errorf("%s has no Cleaner or ClusterCleaner, but %d other objects: name the objects of the cluster with --objects", file, len(others))
	default:
		return nil, fmt.Errorf("%s has no Cleaner or ClusterCleaner", file)
	}
}

// ListErrors returns the problems for which the Cleaner is invalid, with their fields.
func (c *Cleaner) ListErrors() []v1alpha1.ItemError {
	var out []v1alpha1.ItemError
	for _, p := range c.Problems {
		if !p.Warning {
			out = append(out, v1alpha1.ItemError{Field: strings.TrimPrefix(p.field, "spec."), Message: p.message})
		}
	}
	return out
}
