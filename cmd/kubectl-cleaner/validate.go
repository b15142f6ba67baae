// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/cmd/internal/protectedkinds"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/cluster"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// validateFlags are the flags of `validate`.
type validateFlags struct {
	files             []string
	templates         []string
	crds              []string
	allowedKinds      []string
	account           string
	live              bool
	reads             bool
	operatorNamespace string
}

// validateCommand is `validate`.
type validateCommand struct {
	terminal terminal
	cluster  kubeconfig
	flags    validateFlags
}

func (v *validateCommand) newCommand() *cobra.Command {
	f := &v.flags
	cmd := &cobra.Command{
		Use:   "validate -f FILE|DIR",
		Short: "Validate Cleaners, ClusterCleaners and CleanerTemplates",
		Long: `Validate Cleaners, ClusterCleaners and CleanerTemplates, with the messages of the operator's webhook: each problem has
its file, line and column, and says what to write instead. The command contacts no cluster unless you set --live; then
it checks which kinds the cluster serves, which fields they have, and whether the operator, or the ServiceAccount of the
Cleaner, has all rights that the Cleaner uses.`,
		Example: `  kubectl cleaner validate -f cleaner.yaml
  kubectl cleaner validate -f cleaner.yaml --crds crds
  kubectl cleaner validate -f - --live < cleaner.yaml`,
		Args:              validateArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return v.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "file or folder to validate; - is standard input; may be repeated")
	flags.StringArrayVar(&f.templates, "templates", nil, "file or folder with CleanerTemplates, in addition to those that are shipped; may be repeated")
	flags.StringArrayVar(&f.crds, "crds", nil, "file or folder with CustomResourceDefinitions, which say what fields their kinds have; the command warns about kinds that are neither defined there nor built in")
	flags.Var(protectedkinds.NewValue(&f.allowedKinds), "allow-protected-kinds", "protected resources that may be deleted, as in the operator's flag of this name")
	flags.StringVar(&f.operatorNamespace, "operator-namespace", "cleaner-system", "namespace of the operator; Cleaners cannot use its Secrets")
	flags.BoolVar(&f.live, "live", false, "ask the cluster of the kubeconfig which kinds it serves, which fields they have, and which rights the operator lacks")
	flags.StringVar(&f.account, "service-account", defaultOperator, "namespace/name of the operator's ServiceAccount, for Cleaners that name none; with --live")
	flags.BoolVar(&f.reads, "reads", false, "print for each valid Cleaner what its expressions read of the objects of each target, and what a change costs")
	return cmd
}

func (v *validateCommand) run(ctx context.Context) error {
	switch {
	case len(v.flags.files) == 0:
		return usageError{errors.New("-f is missing: name the file to validate")}
	case v.flags.live && len(v.flags.crds) > 0:
		return usageError{errors.New("--live and --crds both say which kinds are served: use one of them")}
	}
	if _, _, err := parseAccount(v.flags.account); err != nil {
		return err
	}
	l, err := manifests.NewLoader()
	if err != nil {
		return err
	}
	return v.validateDocuments(ctx, l)
}

// validateDocuments validates the documents of the files, and prints the result of each.
func (v *validateCommand) validateDocuments(ctx context.Context, l *manifests.Loader) error {
	f, in := &v.flags, v.terminal.in
	l.AllowedKinds, l.OperatorNamespace = f.allowedKinds, f.operatorNamespace
	documents, err := in.ReadPaths(f.files)
	if err != nil {
		return err
	}
	more, err := in.ReadPaths(f.templates)
	if err != nil {
		return err
	}
	served, err := v.newKindFinder(l)
	if err != nil {
		return err
	}
	misses := l.NoteMisses()
	l.AddTemplates(ctx, more)
	bodies := l.AddTemplates(ctx, documents)
	valid, checked := true, 0
	for _, d := range documents {
		gvk, ok := d.ParseOwnKind()
		switch {
		case !ok:
			continue // such as the Namespace of a Cleaner
		case gvk.Kind == manifests.KindTemplate:
			found := filterProblems(bodies, d)
			if manifests.JoinErrors(found) == nil { // otherwise it was not read, and another template may have its name
				found = append(found, l.ValidateTemplate(ctx, d, served)...)
			}
			valid = v.terminal.printVerdict(d, found) && valid
		default:
			c := l.LoadCleaner(ctx, d, served)
			v.reviewAccount(ctx, d, c, served)
			valid = v.terminal.printVerdict(d, c.Problems) && valid
			if f.reads && !c.IsInvalid() {
				printReadings(v.terminal.out, c)
			}
		}
		checked++
	}
	v.warnUnchecked(misses.ListKinds())
	switch {
	case checked == 0:
		return errors.New("the files of -f contain no Cleaner, ClusterCleaner or CleanerTemplate")
	case !valid:
		return errReported
	}
	return nil
}

// warnUnchecked warns of kinds whose fields were not checked. Where the command knows which kinds are served, it has warned that these are not.
func (v *validateCommand) warnUnchecked(kinds string) {
	if kinds != "" && !v.flags.live && len(v.flags.crds) == 0 {
		v.terminal.printWarning(errors.New("the fields of " + kinds + " were not checked, because no schema is known: name the CustomResourceDefinitions with --crds, or use --live"))
	}
}

// reviewAccount adds a warning about the rights that the account of a valid Cleaner lacks, if the cluster may be asked.
func (v *validateCommand) reviewAccount(ctx context.Context, d *manifests.Document, c *manifests.Cleaner, served func([]v1alpha1.ClusterTarget) []validation.ServedKind) {
	if !v.flags.live || c.IsInvalid() {
		return
	}
	a := accountReview{cluster: v.cluster, operator: v.flags.account, allowedKinds: v.flags.allowedKinds}
	lacks, err := a.findLacks(ctx, c, served(c.Work.Targets))
	if err != nil {
		lacks = "the rights of its account are not checked: " + err.Error()
	}
	c.AddWarning(d, "spec", lacks)
}

// printVerdict prints the problems of a document, or that it is valid, and reports whether it is.
func (t terminal) printVerdict(d *manifests.Document, problems []manifests.Problem) (valid bool) {
	for _, p := range problems {
		t.printProblem(p)
	}
	if slices.ContainsFunc(problems, func(p manifests.Problem) bool { return !p.Warning }) {
		return false
	}
	name, _, _ := manifests.NestedString(d.Object, "metadata", "name")
	t.out.Printf("%v %s is valid\n", d.Object["kind"], name)
	return true
}

// printReadings prints what the expressions of a Cleaner read of an object of each target that they see, besides its identity, and for which
// items each rule is evaluated after a change.
func printReadings(out output.Screen, c *manifests.Cleaner) {
	readings := c.Programs.FindReadings()
	for i := range c.Work.Targets {
		name := c.Work.Targets[i].Name
		reading, seen := readings[name]
		paths := reading.Projection.ListPaths()
		switch {
		case !seen:
		case reading.WholeFor != "":
			out.Printf("  %s: all, for %s\n", name, reading.WholeFor)
		case len(paths) == 0:
			out.Printf("  %s: nothing\n", name)
		default:
			out.Printf("  %s: %s\n", name, strings.Join(paths, ", "))
		}
	}
	for i := range c.Work.Rules {
		out.Printf("  rule %s: %s\n", c.Work.Rules[i].Name, describeReuse(c.Programs.FindReuse(i)))
	}
}

// describeReuse says for which items of a rule the operator evaluates when after a change.
func describeReuse(r celenv.Reuse) string {
	if r.Impossible != "" {
		return "each change evaluates all items, because " + r.Impossible
	}
	rest := slices.DeleteFunc(slices.Clone(r.Joined), func(target string) bool { return slices.Contains(r.LookedUp, target) })
	text := "each change evaluates the items that changed"
	if len(r.LookedUp) > 0 {
		text += "; a change of " + strings.Join(r.LookedUp, " or ") + " those that have looked up what changed"
	}
	if len(rest) > 0 {
		text += "; a change of " + strings.Join(rest, " or ") + " all of them"
	}
	return text
}

// filterProblems returns the problems of one document.
func filterProblems(problems []manifests.Problem, d *manifests.Document) []manifests.Problem {
	var out []manifests.Problem
	for _, p := range problems {
		if p.File == d.File && p.DocumentLine == d.Line {
			out = append(out, p)
		}
	}
	return out
}

// newKindFinder returns a function that looks up kinds in the cluster or in the files of --crds; nil if neither is set. The loader looks up their
// fields there too.
func (v *validateCommand) newKindFinder(l *manifests.Loader) (func([]v1alpha1.ClusterTarget) []validation.ServedKind, error) {
	switch {
	case v.flags.live:
		c, err := v.cluster.newClusterClient()
		if err != nil {
			return nil, err
		}
		l.Schemas = c.Schemas
		return func(targets []v1alpha1.ClusterTarget) []validation.ServedKind {
			served, err := c.FindServedKinds(targets)
			if err != nil {
				v.terminal.printWarning(err)
			}
			return served
		}, nil
	case len(v.flags.crds) > 0:
		return v.terminal.newOfflineKindFinder(l, v.flags.crds)
	}
	return nil, nil
}

// newOfflineKindFinder returns a function that looks up kinds among those that are built in or defined in files. The loader looks up their
// fields there too.
func (t terminal) newOfflineKindFinder(l *manifests.Loader, crds []string) (func([]v1alpha1.ClusterTarget) []validation.ServedKind, error) {
	definitions, err := t.in.ReadPaths(crds)
	if err != nil {
		return nil, err
	}
	world, err := manifests.NewOfflineObjects(nil, definitions)
	if err != nil {
		return nil, err
	}
	if err := l.UseDefinitions(definitions); err != nil {
		return nil, err
	}
	return func(targets []v1alpha1.ClusterTarget) []validation.ServedKind { return findServedKinds(world, targets) }, nil
}

func findServedKinds(world *snapshot.Objects, targets []v1alpha1.ClusterTarget) []validation.ServedKind {
	out := make([]validation.ServedKind, len(targets))
	for i := range targets {
		r := &targets[i].Reference
		if targets[i].IsOfAnyKind() {
			out[i].Kinds = cluster.NameKinds(world.ListKinds(), &targets[i])
			continue
		}
		gvr, namespaced := world.FindResource(schema.GroupVersion{Group: r.APIGroup, Version: r.Version}, r.Kind)
		out[i] = validation.ServedKind{Resource: gvr.Resource, Namespaced: namespaced}
	}
	return out
}
