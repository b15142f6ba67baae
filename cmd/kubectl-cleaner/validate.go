// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// validateFlags are the command line of `validate`.
type validateFlags struct {
	files        []string
	templates    []string
	crds         []string
	allowedKinds []string
	live         bool
	// operatorNamespace is the namespace of the operator.
	operatorNamespace string
}

func (t *tool) newValidateCommand() *cobra.Command {
	f := &validateFlags{}
	cmd := &cobra.Command{
		Use:   "validate -f FILE|DIR",
		Short: "Say what is wrong with Cleaners, ClusterCleaners and CleanerTemplates",
		Long: `Say what is wrong with Cleaners, ClusterCleaners and CleanerTemplates, in the words of the operator's webhook: each
problem with its file, line and column, and what to write instead. No cluster is asked, unless it is to say which kinds
it serves.`,
		Example: `  kubectl cleaner validate -f cleaner.yaml
  kubectl cleaner validate -f cleaner.yaml --crds crds
  kubectl cleaner validate -f - --live < cleaner.yaml`,
		Args:              validateArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return t.runValidate(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "file or folder with what to check; - is standard input; may be repeated")
	flags.StringArrayVar(&f.templates, "templates", nil, "file or folder with CleanerTemplates, besides those that are shipped; may be repeated")
	flags.StringArrayVar(&f.crds, "crds", nil, "file or folder with CustomResourceDefinitions: kinds that are neither there nor Kubernetes' own are warned about")
	flags.StringSliceVar(&f.allowedKinds, "allow-protected-kinds", nil, "protected resources that may be deleted, as for the operator")
	flags.StringVar(&f.operatorNamespace, "operator-namespace", "cleaner-system", "namespace of the operator, of which no Secret is read for Cleaners")
	flags.BoolVar(&f.live, "live", false, "ask the cluster of the kubeconfig which kinds it serves")
	return cmd
}

func (t *tool) runValidate(ctx context.Context, f *validateFlags) error {
	switch {
	case len(f.files) == 0:
		return usageError{errors.New("-f is missing: write the file to check")}
	case f.live && len(f.crds) > 0:
		return usageError{errors.New("--live and --crds both say which kinds are served: write one of them")}
	}
	l, err := newLoader()
	if err != nil {
		return err
	}
	return t.validateDocuments(ctx, f, l)
}

// validateDocuments reads what the flags name, and says of each document whether it is valid.
func (t *tool) validateDocuments(ctx context.Context, f *validateFlags, l *loader) error {
	l.allowedKinds, l.operatorNamespace = f.allowedKinds, f.operatorNamespace
	documents, err := t.readPaths(f.files)
	if err != nil {
		return err
	}
	more, err := t.readPaths(f.templates)
	if err != nil {
		return err
	}
	served, err := t.newKindFinder(f)
	if err != nil {
		return err
	}
	l.addTemplates(ctx, more)
	bodies := l.addTemplates(ctx, documents)
	valid, checked := true, 0
	for _, d := range documents {
		gvk, ok := d.parseOwnKind()
		switch {
		case !ok:
			continue // such as a Namespace beside its Cleaner
		case gvk.Kind == kindTemplate:
			found := filterProblems(bodies, d)
			if joinErrors(found) == nil { // else it was not read, and another one may have its name
				found = append(found, l.validateTemplate(ctx, d, served)...)
			}
			valid = t.printVerdict(d, found) && valid
		default:
			valid = t.printVerdict(d, l.loadCleaner(ctx, d, served).problems) && valid
		}
		checked++
	}
	switch {
	case checked == 0:
		return errors.New("there is no Cleaner, ClusterCleaner or CleanerTemplate in what -f names")
	case !valid:
		return errReported
	}
	return nil
}

// printVerdict writes what is wrong with a document, or that it is valid, and says whether it is.
func (t *tool) printVerdict(d *document, problems []problem) (valid bool) {
	for _, p := range problems {
		t.printProblem(p)
	}
	if slices.ContainsFunc(problems, func(p problem) bool { return !p.warning }) {
		return false
	}
	name, _, _ := nestedString(d.object, "metadata", "name")
	t.out.printf("%v %s is valid\n", d.object["kind"], name)
	return true
}

// filterProblems returns the problems of one document.
func filterProblems(problems []problem, d *document) []problem {
	var out []problem
	for _, p := range problems {
		if p.file == d.file && p.documentLine == d.line {
			out = append(out, p)
		}
	}
	return out
}

// validateTemplate returns what is wrong with what a template says, whatever values its parameters have.
func (l *loader) validateTemplate(ctx context.Context, d *document, served func([]v1alpha1.ClusterTarget) []validation.ServedKind) []problem {
	name, _, _ := nestedString(d.object, "metadata", "name")
	t := l.templates[name]
	if t == nil {
		return nil
	}
	if len(templates.Validate(t)) > 0 { // said already
		return nil
	}
	work, errs := templates.StandIn(t)
	if len(errs) > 0 {
		return d.newProblems(errs)
	}
	options := validation.Options{AllowProtectedKinds: l.allowedKinds}
	if served != nil {
		options.Served = served(work.Targets)
	}
	programs, errs := l.compiler.Compile(ctx, work)
	if programs == nil && len(errs) == 0 {
		return []problem{d.newProblem("spec", "the expressions were not compiled: "+context.Cause(ctx).Error())}
	}
	options.Compiled = errs
	var out []problem
	for _, f := range validation.ValidateTemplate(t, nil, options) {
		p := d.newProblem(f.Path, f.Message)
		p.warning = f.Severity == validation.Warning
		out = append(out, p)
	}
	if programs != nil {
		for _, w := range programs.Warnings() {
			p := d.newProblem("spec.template."+w.Path, w.Message)
			p.warning = true
			out = append(out, p)
		}
	}
	sortProblems(out)
	return out
}

// newKindFinder says which kinds are, by the definitions of files or by the cluster; nil if nobody is asked.
func (t *tool) newKindFinder(f *validateFlags) (func([]v1alpha1.ClusterTarget) []validation.ServedKind, error) {
	switch {
	case f.live:
		c, err := t.newClusterClient()
		if err != nil {
			return nil, err
		}
		return func(targets []v1alpha1.ClusterTarget) []validation.ServedKind {
			served, err := c.findServedKinds(targets)
			if err != nil {
				t.err.printf("%s %s\n", t.err.newPainter().yellow("warning:"), escapeLines(continuationIndent, err.Error()))
			}
			return served
		}, nil
	case len(f.crds) > 0:
		definitions, err := t.readPaths(f.crds)
		if err != nil {
			return nil, err
		}
		world, err := newOfflineObjects(nil, definitions)
		if err != nil {
			return nil, err
		}
		return func(targets []v1alpha1.ClusterTarget) []validation.ServedKind { return findServedKinds(world, targets) }, nil
	}
	return nil, nil
}

func findServedKinds(world *snapshot.Objects, targets []v1alpha1.ClusterTarget) []validation.ServedKind {
	out := make([]validation.ServedKind, len(targets))
	for i := range targets {
		r := &targets[i].Reference
		gvr, namespaced := world.FindResource(schema.GroupVersion{Group: r.APIGroup, Version: r.Version}, r.Kind)
		out[i] = validation.ServedKind{Resource: gvr.Resource, Namespaced: namespaced}
	}
	return out
}
