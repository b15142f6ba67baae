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

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/releases"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// The forms of a plan.
const (
	asTable = "table"
	asYAML  = "yaml"
	asJSON  = "json"
)

// planFlags are the command line of `plan`.
type planFlags struct {
	file       string
	objects    []string
	at         string
	since      string
	created    string
	templates  []string
	set        []string
	crds       []string
	allowed    []string
	namespaces []string
	output     string
}

func (t *tool) planCommand() *cobra.Command {
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
		Args:              arguments(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return t.plan(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "filename", "f", "", "file with the Cleaner or ClusterCleaner, and perhaps templates; - is standard input")
	flags.StringArrayVar(&f.objects, "objects", nil, "file or folder with the objects of the cluster; may be repeated")
	flags.StringVar(&f.at, "at", "", "time of the decision, such as 2026-01-01T00:00:00Z (default: now)")
	flags.StringVar(&f.since, "since", "", "when what rules wait for began to hold (default: at the decision)")
	flags.StringVar(&f.created, "created", "", "when the Cleaner was created, if its file does not say so (default: its ttl ago)")
	flags.StringArrayVar(&f.templates, "templates", nil, "file or folder with CleanerTemplates, besides those that are shipped; may be repeated")
	flags.StringArrayVar(&f.set, "set", nil, "name=value of a parameter, in the place of that of the file; may be repeated")
	flags.StringArrayVar(&f.crds, "crds", nil, "file or folder with CustomResourceDefinitions; may be repeated")
	flags.StringSliceVar(&f.allowed, "allow-protected-kinds", nil, "protected resources that may be deleted, as for the operator")
	flags.StringSliceVar(&f.namespaces, "protected-namespaces", defaultProtected(), "namespaces in which nothing is done")
	flags.StringVarP(&f.output, "output", "o", asTable, "table, yaml or json")
	return cmd
}

// defaultProtected are the namespaces that an operator protects unless it is told otherwise.
func defaultProtected() []string { return []string{"kube-system", "kube-public", "kube-node-lease"} }

func (t *tool) plan(ctx context.Context, f *planFlags) error {
	if f.file == "" {
		return usage{errors.New("-f is missing: write the file with the Cleaner")}
	}
	if !slices.Contains([]string{asTable, asYAML, asJSON}, f.output) {
		return usage{fmt.Errorf("-o %s is no form: write table, yaml or json", f.output)}
	}
	m, err := t.moments(f.at, f.since, f.created)
	if err != nil {
		return err
	}
	l, documents, err := t.read(ctx, f)
	if err != nil {
		return err
	}
	own, err := oneCleaner(f.file, documents)
	if err != nil {
		return err
	}
	c := l.load(ctx, own, nil)
	if !c.invalid() && len(f.objects) > 0 && c.work.Helm != nil && c.work.Helm.Delete {
		p := own.at("spec.helm", "a release is only looked at in a cluster: its uninstallation is not in the plan; leave out --objects")
		p.warning = true
		c.problems = append(c.problems, p)
	}
	for _, p := range c.problems {
		if c.invalid() || f.output == asTable || !p.warning {
			t.complain(p)
		}
	}
	if c.invalid() {
		return errSaid
	}
	if err := t.place(c); err != nil {
		return err
	}
	world, err := t.world(ctx, f, c)
	if err != nil {
		return err
	}
	protection := plan.Protection{Namespaces: f.namespaces, AllowedKinds: f.allowed}
	release, err := t.release(ctx, f, c, protection)
	if err != nil {
		return err
	}
	p := decide(ctx, c, world, release, protection, m)
	s := &shown{plan: &p, owner: ownerOf(c, m), kind: kindOfOwner(c.owner), at: m.at, warnings: c.warnings()}
	if c.work.Mode == v1alpha1.ModeDryRun && len(p.Steps) > 0 {
		s.mode = "Mode is DryRun: nothing of this would be done."
		s.warnings = append(s.warnings, "spec.mode: "+s.mode)
	}
	return t.show(s, f.output)
}

// place gives a Cleaner whose file says no namespace that of the kubeconfig, or of -n.
func (t *tool) place(c *cleaner) error {
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

// read makes a loader of the templates and parameters that the command line gives, and reads the file.
func (t *tool) read(ctx context.Context, f *planFlags) (*loader, []*document, error) {
	l, err := newLoader()
	if err != nil {
		return nil, nil, err
	}
	l.allowed = f.allowed
	if l.set, err = assignments(f.set); err != nil {
		return nil, nil, err
	}
	documents, err := t.in.read(f.file)
	if err != nil {
		return nil, nil, err
	}
	more, err := t.readAll(f.templates)
	if err != nil {
		return nil, nil, err
	}
	wrong := false
	for _, p := range l.addTemplates(ctx, slices.Concat(more, documents)) {
		t.complain(p)
		wrong = wrong || !p.warning
	}
	if wrong {
		return nil, nil, errSaid
	}
	return l, documents, nil
}

func (t *tool) readAll(paths []string) ([]*document, error) {
	var all []*document
	for _, path := range paths {
		documents, err := t.in.read(path)
		if err != nil {
			return nil, err
		}
		all = append(all, documents...)
	}
	return all, nil
}

// world is what the plan is made from.
func (t *tool) world(ctx context.Context, f *planFlags, c *cleaner) (*snapshot.Objects, error) {
	if len(f.objects) == 0 {
		world, err := t.fetch(ctx, c)
		if err != nil {
			err = fmt.Errorf("%w; with --objects no cluster is asked", err)
		}
		return world, err
	}
	objects, err := t.readAll(f.objects)
	if err != nil {
		return nil, err
	}
	definitions, err := t.readAll(f.crds)
	if err != nil {
		return nil, err
	}
	return offline(objects, definitions)
}

// release is that of the spec as the cluster has it; nil if there is none, or no cluster is asked.
func (t *tool) release(ctx context.Context, f *planFlags, c *cleaner, p plan.Protection) (*plan.Release, error) {
	if len(f.objects) > 0 || c.work.Helm == nil {
		return nil, nil
	}
	config, err := t.restConfig()
	if err != nil {
		return nil, err
	}
	return releases.ReadWanted(ctx, config, c.owner.GetNamespace(), c.work, p)
}

// oneCleaner is the one Cleaner or ClusterCleaner among documents.
func oneCleaner(file string, documents []*document) (*document, error) {
	var found []*document
	for _, d := range documents {
		if gvk, _ := d.ours(); gvk.Kind != kindTemplate {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%s has %d Cleaners and ClusterCleaners: write one", file, len(found))
	}
	return found[0], nil
}

// warnings are those of the problems.
func (c *cleaner) warnings() []string {
	var out []string
	for _, p := range c.problems {
		if p.warning {
			out = append(out, p.field+": "+p.message)
		}
	}
	return out
}

func kindOfOwner(o v1alpha1.Owner) string {
	if _, ok := o.(*v1alpha1.ClusterCleaner); ok {
		return kindClusterCleaner
	}
	return kindCleaner
}

// moments reads the times of a command line.
func (t *tool) moments(at, since, created string) (moments, error) {
	var m moments
	for _, one := range []struct {
		flag, text string
		into       *time.Time
	}{{"--at", at, &m.at}, {"--since", since, &m.since}, {"--created", created, &m.created}} {
		if one.text == "" {
			continue
		}
		read, err := time.Parse(time.RFC3339, one.text)
		if err != nil {
			return moments{}, usage{fmt.Errorf("%s %s is no time: write one such as 2026-01-01T00:00:00Z", one.flag, one.text)}
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
		return moments{}, usage{errors.New("--since lies after --at: write an earlier time")}
	}
	return m, nil
}

// assignments reads name=value.
func assignments(texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usage{fmt.Errorf("--set %s is no assignment: write name=value", text)}
		}
		out[name] = value
	}
	return out, nil
}
