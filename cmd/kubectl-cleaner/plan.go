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

	"github.com/vtex/cleaner/api/facts"
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/releases"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// The forms of a plan.
const (
	outputTable = "table"
	outputYAML  = "yaml"
	outputJSON  = "json"
)

// planFlags are the command line of `plan`.
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
}

func (t *tool) newPlanCommand() *cobra.Command {
	f := &planFlags{}
	cmd := &cobra.Command{
		Use:   "plan -f FILE [--objects FILE|DIR ...]",
		Short: "Show what a Cleaner would do now, and when next",
		Long: `Show what a Cleaner or a ClusterCleaner would do now, and when next.

With --objects the plan is made from files, as if a cluster had these objects and no others. It serves Kubernetes' own
kinds, those of which there are objects, and those of the CustomResourceDefinitions among the objects or in --crds.
Without, the objects, and the Helm release if there is one, are read from the cluster of the kubeconfig. Nothing is
changed.`,
		Example: `  kubectl cleaner plan -f cleaner.yaml
  kubectl get pods,nodes -A -o json > objects.json
  kubectl cleaner plan -f cleaner.yaml --objects objects.json --at 2026-01-01T00:00:00Z -o yaml`,
		Args:              validateArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return t.runPlan(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "filename", "f", "", "file with the Cleaner or ClusterCleaner, and perhaps templates; - is standard input")
	flags.StringArrayVar(&f.objects, "objects", nil, "file or folder with the objects of the cluster; may be repeated")
	flags.StringVar(&f.at, "at", "", "time of the decision, such as 2026-01-01T00:00:00Z (default: now)")
	flags.StringVar(&f.since, "since", "", "when what rules wait for began to hold (default: at the decision)")
	flags.StringVar(&f.created, "created", "", "when the Cleaner was created, if its file does not say so (default: its ttl ago)")
	flags.StringArrayVar(&f.templates, "templates", nil, "file or folder with CleanerTemplates, besides those that are shipped; may be repeated")
	flags.StringArrayVar(&f.parameters, "set", nil, "name=value of a parameter, in the place of that of the file; may be repeated")
	flags.StringArrayVar(&f.crds, "crds", nil, "file or folder with CustomResourceDefinitions; may be repeated")
	flags.StringSliceVar(&f.allowedKinds, "allow-protected-kinds", nil, "protected resources that may be deleted, as for the operator")
	flags.StringSliceVar(&f.protectedNamespaces, "protected-namespaces", facts.ProtectedNamespaces(), "namespaces in which nothing is done")
	flags.StringVarP(&f.output, "output", "o", outputTable, "table, yaml or json")
	return cmd
}

func (t *tool) runPlan(ctx context.Context, f *planFlags) error {
	if f.file == "" {
		return usageError{errors.New("-f is missing: write the file with the Cleaner")}
	}
	if !slices.Contains([]string{outputTable, outputYAML, outputJSON}, f.output) {
		return usageError{fmt.Errorf("-o %s is no form: write table, yaml or json", f.output)}
	}
	m, err := t.parseTimes(f.at, f.since, f.created)
	if err != nil {
		return err
	}
	c, err := t.loadPlannedCleaner(ctx, f)
	if err != nil {
		return err
	}
	world, err := t.loadObjects(ctx, f, c)
	if err != nil {
		return err
	}
	protection := plan.Protection{Namespaces: f.protectedNamespaces, AllowedKinds: f.allowedKinds}
	release, err := t.readRelease(ctx, f, c, protection)
	if err != nil {
		return err
	}
	p := computePlan(ctx, c, world, release, protection, m)
	s := &planView{plan: &p, owner: buildOwner(c, m), kind: ownerKind(c.owner), at: m.at, warnings: c.formatWarnings()}
	if c.work.Mode == v1alpha1.ModeDryRun && len(p.Steps) > 0 {
		s.modeNote = "Mode is DryRun: nothing of this would be done."
		s.warnings = append(s.warnings, "spec.mode: "+s.modeNote)
	}
	return t.printPlan(s, f.output)
}

// loadPlannedCleaner reads the Cleaner that a plan is about, and says what is wrong with it.
func (t *tool) loadPlannedCleaner(ctx context.Context, f *planFlags) (*cleaner, error) {
	l, documents, err := t.prepareLoader(ctx, f)
	if err != nil {
		return nil, err
	}
	own, err := selectCleaner(f.file, documents)
	if err != nil {
		return nil, err
	}
	c := l.loadCleaner(ctx, own, nil)
	if !c.isInvalid() && len(f.objects) > 0 && c.work.Helm != nil && c.work.Helm.Delete {
		p := own.newProblem("spec.helm", "a release is only looked at in a cluster: its uninstallation is not in the plan; leave out --objects")
		p.warning = true
		c.problems = append(c.problems, p)
	}
	for _, p := range c.problems {
		if c.isInvalid() || f.output == outputTable || !p.warning {
			t.printProblem(p)
		}
	}
	if c.isInvalid() {
		return nil, errReported
	}
	return c, t.setDefaultNamespace(c)
}

// setDefaultNamespace gives a Cleaner whose file says no namespace that of the kubeconfig, or of -n.
func (t *tool) setDefaultNamespace(c *cleaner) error {
	if c.work.Cluster || c.owner.GetNamespace() != "" {
		return nil
	}
	namespace, _, err := t.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return fmt.Errorf("cannot find the namespace of the Cleaner: %w; write metadata.namespace, or -n", err)
	}
	c.owner.SetNamespace(namespace)
	return nil
}

// prepareLoader makes a loader of the templates and parameters that the command line gives, and reads the file.
func (t *tool) prepareLoader(ctx context.Context, f *planFlags) (*loader, []*document, error) {
	l, err := newLoader()
	if err != nil {
		return nil, nil, err
	}
	l.allowedKinds = f.allowedKinds
	if l.parameters, err = parseAssignments(f.parameters); err != nil {
		return nil, nil, err
	}
	documents, err := t.in.readDocuments(f.file)
	if err != nil {
		return nil, nil, err
	}
	more, err := t.readPaths(f.templates)
	if err != nil {
		return nil, nil, err
	}
	wrong := false
	for _, p := range l.addTemplates(ctx, slices.Concat(more, documents)) {
		t.printProblem(p)
		wrong = wrong || !p.warning
	}
	if wrong {
		return nil, nil, errReported
	}
	return l, documents, nil
}

func (t *tool) readPaths(paths []string) ([]*document, error) {
	var all []*document
	for _, path := range paths {
		documents, err := t.in.readDocuments(path)
		if err != nil {
			return nil, err
		}
		all = append(all, documents...)
	}
	return all, nil
}

// loadObjects reads what the plan is made from.
func (t *tool) loadObjects(ctx context.Context, f *planFlags, c *cleaner) (*snapshot.Objects, error) {
	if len(f.objects) == 0 {
		world, err := t.fetchObjects(ctx, c)
		if err != nil {
			err = fmt.Errorf("%w; with --objects no cluster is asked", err)
		}
		return world, err
	}
	objects, err := t.readPaths(f.objects)
	if err != nil {
		return nil, err
	}
	definitions, err := t.readPaths(f.crds)
	if err != nil {
		return nil, err
	}
	return newOfflineObjects(objects, definitions)
}

// readRelease reads the release of the spec as the cluster has it; nil if there is none, or no cluster is asked.
func (t *tool) readRelease(ctx context.Context, f *planFlags, c *cleaner, p plan.Protection) (*plan.Release, error) {
	if len(f.objects) > 0 || c.work.Helm == nil {
		return nil, nil
	}
	config, err := t.newRESTConfig()
	if err != nil {
		return nil, err
	}
	return releases.ReadWanted(ctx, config, c.owner.GetNamespace(), c.work, p)
}

// selectCleaner returns the one Cleaner or ClusterCleaner among documents.
func selectCleaner(file string, documents []*document) (*document, error) {
	var found []*document
	for _, d := range documents {
		if gvk, _ := d.parseOwnKind(); gvk.Kind != kindTemplate {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%s has %d Cleaners and ClusterCleaners: write one", file, len(found))
	}
	return found[0], nil
}

// formatWarnings returns the warnings among the problems.
func (c *cleaner) formatWarnings() []string {
	var out []string
	for _, p := range c.problems {
		if p.warning {
			out = append(out, p.field+": "+p.message)
		}
	}
	return out
}

func ownerKind(o v1alpha1.Owner) string {
	if _, ok := o.(*v1alpha1.ClusterCleaner); ok {
		return kindClusterCleaner
	}
	return kindCleaner
}

// parseTimes reads the times of a command line.
func (t *tool) parseTimes(at, since, created string) (planTimes, error) {
	var m planTimes
	for _, one := range []struct {
		flag, text string
		into       *time.Time
	}{{"--at", at, &m.at}, {"--since", since, &m.since}, {"--created", created, &m.created}} {
		if one.text == "" {
			continue
		}
		read, err := time.Parse(time.RFC3339, one.text)
		if err != nil {
			return planTimes{}, usageError{fmt.Errorf("%s %s is no time: write one such as 2026-01-01T00:00:00Z", one.flag, one.text)}
		}
		*one.into = read
	}
	if m.at.IsZero() {
		m.at = t.clock.Now().UTC().Truncate(time.Second)
	}
	if m.since.IsZero() {
		m.since = m.at
	}
	if m.since.After(m.at) {
		return planTimes{}, usageError{errors.New("--since lies after --at: write an earlier time")}
	}
	return m, nil
}

// parseAssignments reads name=value.
func parseAssignments(texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usageError{fmt.Errorf("--set %s is no assignment: write name=value", text)}
		}
		out[name] = value
	}
	return out, nil
}
