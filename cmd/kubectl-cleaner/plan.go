// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/protection"
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/internal/protectedkinds"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/cluster"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/planning"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/releasereader"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// planFlags are the flags of `plan`.
type planFlags struct {
	file                string
	objects             []string
	at                  string
	since               string
	created             string
	templates           []string
	parameters          []string
	crds                []string
	allowedKinds        []string
	protectedNamespaces []string
	output              string
	counts              bool
	// account is the operator's ServiceAccount, whose rights are reviewed; empty: none are.
	account string
}

// planCommand is `plan`.
type planCommand struct {
	terminal terminal
	cluster  kubeconfig
	clock    clock.PassiveClock
	flags    planFlags
	// client reads the cluster; nil with --objects.
	client *cluster.Client
	// objects and definitions are the documents of --objects and --crds.
	objects, definitions []*manifests.Document
}

func (p *planCommand) newCommand() *cobra.Command {
	f := &p.flags
	cmd := &cobra.Command{
		Use:   "plan -f FILE [--objects FILE|DIR ...]",
		Short: "Show what a Cleaner would do now, and when it is evaluated next",
		Long: `Show what a Cleaner or a ClusterCleaner would do now, and when it is evaluated next; of a file with several, each. The
command changes nothing.

With --objects, it plans for a cluster that contains only the objects in these files, and contacts no real cluster.
Such a cluster serves the built-in kinds, the kinds of its objects, and the kinds of the CustomResourceDefinitions
among the objects or in --crds. Without --objects, it reads the cluster of the kubeconfig, including the Helm release
if the Cleaner has one.`,
		Example: `  kubectl cleaner plan -f cleaner.yaml
  kubectl get pods,nodes -A -o json > objects.json
  kubectl cleaner plan -f cleaner.yaml --objects objects.json --at 2026-01-01T00:00:00Z -o yaml`,
		Args:              validateArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context()) },
	}
	f.addInputFlags(cmd.Flags())
	cmd.Flags().StringVarP(&f.output, "output", "o", output.Table, "output format: table, yaml or json")
	cmd.Flags().StringVar(&f.account, "service-account", defaultOperator, "namespace/name of the operator's ServiceAccount, for Cleaners that name none: without --objects, the command warns about the rights that it lacks")
	cmd.Flags().BoolVar(&f.counts, "counts", false, "print for each rule how many items each step leaves out: keep, leave, unless, for, protection, earlier rules")
	return cmd
}

// addInputFlags adds the flags that say what a plan is made from.
func (f *planFlags) addInputFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&f.file, "filename", "f", "", "file with Cleaners and ClusterCleaners, and optionally templates; - is standard input")
	flags.StringArrayVar(&f.objects, "objects", nil, "file or folder with the objects of the cluster; may be repeated")
	flags.StringVar(&f.at, "at", "", "time of the decision, such as 2026-01-01T00:00:00Z (default: now)")
	flags.StringVar(&f.since, "since", "", "time at which the timers of 'for' started (default: the time of the decision)")
	flags.StringVar(&f.created, "created", "", "time at which the Cleaner was created, if the file does not say it (default: so long ago that its ttl has just passed)")
	flags.StringArrayVar(&f.templates, "templates", nil, "file or folder with CleanerTemplates, in addition to those that are shipped; may be repeated")
	flags.StringArrayVar(&f.parameters, "set", nil, "name=value of a parameter, which replaces the one in the file; may be repeated")
	flags.StringArrayVar(&f.crds, "crds", nil, "file or folder with CustomResourceDefinitions; may be repeated")
	flags.Var(protectedkinds.NewValue(&f.allowedKinds), "allow-protected-kinds", "protected resources that may be deleted, as in the operator's flag of this name")
	flags.StringSliceVar(&f.protectedNamespaces, "protected-namespaces", protection.ProtectedNamespaces(), "namespaces in which nothing is changed")
}

func (p *planCommand) run(ctx context.Context) error {
	f := &p.flags
	if f.file == "" {
		return usageError{errors.New("-f is missing: name the file with the Cleaner")}
	}
	if !slices.Contains([]string{output.Table, output.YAML, output.JSON}, f.output) {
		return usageError{fmt.Errorf("-o %s is not an output format: write table, yaml or json", f.output)}
	}
	if _, _, err := parseAccount(f.account); err != nil {
		return err
	}
	m, err := f.parseTimes(p.clock.Now())
	if err != nil {
		return err
	}
	cleaners, err := p.loadCleaners(ctx)
	if err != nil {
		return err
	}
	var views []*planView
	var problem error
	for _, c := range cleaners {
		s := newInvalidView(c, m.At)
		if c.IsInvalid() {
			problem = errReported
		} else if s, err = p.planOne(ctx, c, m); err != nil {
			return err
		}
		if !c.IsInvalid() || f.output != output.Table {
			views = append(views, s)
		}
	}
	return errors.Join(printViews(p.terminal.out, f.output, views), problem)
}

// planOne plans a valid Cleaner.
func (p *planCommand) planOne(ctx context.Context, c *manifests.Cleaner, m planning.Times) (*planView, error) {
	d, world, err := p.prepareDecision(ctx, c, m)
	if err != nil {
		return nil, err
	}
	computed := d.ComputePlan(ctx, world)
	s := &planView{plan: &computed, owner: d.BuildOwner(), kind: ownerKind(c.Owner), at: m.At, warnings: append(c.FormatWarnings(), planning.DescribeSkipped(ctx, world, c.Owner.GetNamespace(), c.Work)...), counts: p.flags.counts}
	if c.Work.Mode == v1alpha1.ModeDryRun && len(computed.Steps) > 0 {
		s.addNote("spec.mode", "Mode is DryRun: none of these steps would be carried out.")
	}
	if due := planning.NextTick(c.Work, m.At); computed.Verdict == v1alpha1.VerdictAct && due.After(m.At) {
		s.due = due
		s.addNote("spec.schedule", "Not due before "+formatTime(due)+": the operator decides again then.")
	}
	return s, nil
}

// prepareDecision returns what a decision is made from, and the objects to decide on.
func (p *planCommand) prepareDecision(ctx context.Context, c *manifests.Cleaner, m planning.Times) (planning.Decision, *snapshot.Objects, error) {
	d := planning.Decision{Cleaner: c, Protection: plan.Protection{Namespaces: p.flags.protectedNamespaces, AllowedKinds: p.flags.allowedKinds}, Times: m}
	world, err := p.loadObjects(ctx, c)
	if err != nil {
		return d, nil, err
	}
	d.Release, err = p.readRelease(ctx, c, d.Protection)
	d.Progress = p.showEvaluation(nameOwner(c.Owner))
	return d, world, err
}

// showEvaluation returns what shows how far the rules of a Cleaner are evaluated.
func (p *planCommand) showEvaluation(cleaner string) func(rule string, done, total int) {
	current := ""
	return func(rule string, done, total int) {
		if rule != current || done == 0 {
			current = rule
			p.terminal.progress.BeginStage("Evaluating rule %s of %s", rule, cleaner)
		}
		p.terminal.progress.Count(done, total)
	}
}

// loadCleaners reads the Cleaners to plan, and prints their problems.
func (p *planCommand) loadCleaners(ctx context.Context) ([]*manifests.Cleaner, error) {
	l, documents, err := p.prepareLoader(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.openCluster(l); err != nil {
		return nil, err
	}
	own, err := manifests.SelectCleaners(p.flags.file, documents)
	if err != nil {
		return nil, err
	}
	var out []*manifests.Cleaner
	for _, d := range own {
		c := p.loadCleaner(ctx, l, d)
		if !c.IsInvalid() {
			if err := p.setDefaultNamespace(c); err != nil {
				return nil, err
			}
			p.reviewAccount(ctx, d, c)
		}
		out = append(out, c)
	}
	return out, nil
}

// loadCleaner reads one Cleaner, and prints its problems.
func (p *planCommand) loadCleaner(ctx context.Context, l *manifests.Loader, own *manifests.Document) *manifests.Cleaner {
	f := &p.flags
	c := l.LoadCleaner(ctx, own, nil)
	if !c.IsInvalid() && len(f.objects) > 0 && c.Work.Helm != nil && c.Work.Helm.Delete {
		c.AddWarning(own, "spec.helm", "the plan does not include the uninstall, because releases can only be read from a cluster: omit --objects")
	}
	for _, wrong := range c.Problems {
		if c.IsInvalid() || f.output == output.Table || !wrong.Warning {
			p.terminal.printProblem(wrong)
		}
	}
	return c
}

// reviewAccount warns about the rights that the account of a Cleaner lacks. A user who may not ask, or has no operator, is not bothered.
func (p *planCommand) reviewAccount(ctx context.Context, own *manifests.Document, c *manifests.Cleaner) {
	if p.client == nil || p.flags.account == "" {
		return
	}
	served, err := p.client.FindServedKinds(c.Work.Targets)
	if err != nil { // reading the objects fails with the same error
		return
	}
	a := accountReview{cluster: p.cluster, operator: p.flags.account, allowedKinds: p.flags.allowedKinds}
	lacks, err := a.findLacks(ctx, c, served)
	if err != nil || lacks == "" {
		return
	}
	c.AddWarning(own, "spec", lacks)
	if p.flags.output == output.Table {
		p.terminal.printProblem(c.Problems[len(c.Problems)-1])
	}
}

// setDefaultNamespace sets the namespace of -n or of the kubeconfig on a Cleaner whose file has none.
func (p *planCommand) setDefaultNamespace(c *manifests.Cleaner) error {
	if c.Work.Cluster || c.Owner.GetNamespace() != "" {
		return nil
	}
	namespace, err := p.cluster.readNamespace()
	if err != nil {
		return fmt.Errorf("cannot find the namespace of the Cleaner: %w; write metadata.namespace, or set it with -n", err)
	}
	c.Owner.SetNamespace(namespace)
	return nil
}

// prepareLoader returns a loader with the templates and parameters of the flags, and the documents of the file.
func (p *planCommand) prepareLoader(ctx context.Context) (*manifests.Loader, []*manifests.Document, error) {
	f, in := &p.flags, p.terminal.in
	l, err := manifests.NewLoader()
	if err != nil {
		return nil, nil, err
	}
	l.AllowedKinds = f.allowedKinds
	if l.Parameters, err = parseAssignments(f.parameters); err != nil {
		return nil, nil, err
	}
	documents, err := in.ReadDocuments(f.file)
	if err != nil {
		return nil, nil, err
	}
	more, err := in.ReadPaths(f.templates)
	if err != nil {
		return nil, nil, err
	}
	wrong := false
	for _, found := range l.AddTemplates(ctx, slices.Concat(more, documents)) {
		p.terminal.printProblem(found)
		wrong = wrong || !found.Warning
	}
	if wrong {
		return nil, nil, errReported
	}
	return l, documents, nil
}

// openCluster reads the documents of --objects and --crds, or connects to the cluster. The loader looks up fields there.
func (p *planCommand) openCluster(l *manifests.Loader) error {
	f, in := &p.flags, p.terminal.in
	var err error
	if len(f.objects) == 0 {
		if p.client, err = p.cluster.newClusterClient(); err != nil {
			return fmt.Errorf("%w; use --objects to read files instead of a cluster", err)
		}
		l.Schemas = p.client.Schemas
		return nil
	}
	if !slices.Contains(f.objects, "-") { // a user may type there
		p.terminal.progress.BeginStage("Reading %s", strings.Join(f.objects, ", "))
	}
	if p.objects, err = in.ReadPaths(f.objects); err != nil {
		return err
	}
	if p.definitions, err = in.ReadPaths(f.crds); err != nil {
		return err
	}
	return l.UseDefinitions(slices.Concat(p.definitions, p.objects))
}

// loadObjects reads the objects to plan with, from files or from the cluster.
func (p *planCommand) loadObjects(ctx context.Context, c *manifests.Cleaner) (*snapshot.Objects, error) {
	if p.client == nil {
		return manifests.NewOfflineObjects(p.objects, p.definitions)
	}
	world, err := p.client.FetchObjects(ctx, c, p.terminal.progress)
	if err != nil {
		err = fmt.Errorf("%w; use --objects to read files instead of a cluster", err)
	}
	return world, err
}

// readRelease reads the Helm release of the spec from the cluster; nil if the spec has none or no cluster is asked.
func (p *planCommand) readRelease(ctx context.Context, c *manifests.Cleaner, protection plan.Protection) (*observed.Release, error) {
	if len(p.flags.objects) > 0 || c.Work.Helm == nil {
		return nil, nil
	}
	config, err := p.cluster.newRESTConfig()
	if err != nil {
		return nil, err
	}
	return releasereader.ReadWanted(ctx, config, c.Owner.GetNamespace(), c.Work, protection)
}

func ownerKind(o v1alpha1.Owner) string {
	if _, ok := o.(*v1alpha1.ClusterCleaner); ok {
		return manifests.KindClusterCleaner
	}
	return manifests.KindCleaner
}

// parseTimes returns the times of the flags, with their defaults.
func (f *planFlags) parseTimes(now time.Time) (planning.Times, error) {
	var m planning.Times
	for _, one := range []struct {
		flag, text string
		into       *time.Time
	}{{"--at", f.at, &m.At}, {"--since", f.since, &m.Since}, {"--created", f.created, &m.Created}} {
		if one.text == "" {
			continue
		}
		read, err := time.Parse(time.RFC3339, one.text)
		if err != nil {
			return planning.Times{}, usageError{fmt.Errorf("%s %s is not a time: write one such as 2026-01-01T00:00:00Z", one.flag, one.text)}
		}
		*one.into = read
	}
	if m.At.IsZero() {
		m.At = now.UTC().Truncate(time.Second)
	}
	if m.Since.IsZero() {
		m.Since = m.At
	}
	if m.Since.After(m.At) {
		return planning.Times{}, usageError{errors.New("--since is after --at: write an earlier time")}
	}
	return m, nil
}

// parseAssignments parses texts of the form name=value.
func parseAssignments(texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usageError{fmt.Errorf("--set %s is not an assignment: write name=value", text)}
		}
		out[name] = value
	}
	return out, nil
}
