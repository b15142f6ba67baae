// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/protection"
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/internal/protectedkinds"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/forecast"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/ui"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/whynot"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// maxPort is the highest port there is.
	maxPort = 65535
	// uiPatience is how long it may take to predict one Cleaner for a page.
	uiPatience = 20 * time.Second
)

// uiCommand is `ui`.
type uiCommand struct {
	out     output.Screen
	cluster kubeconfig
	port    int
	// flags are those of plan that pages have too.
	flags planFlags
}

func (c *uiCommand) newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve pages about the Cleaners of the cluster, on this machine",
		Long: `Serve pages about the Cleaners of the cluster: how each of them is, what it would do now, what it will do when, and why it
does or does not act on an object; and what all of them would remove now, by kind and age. Buttons suspend, resume and
evaluate Cleaners, as the commands of these names do.

The pages are served on loopback, from this machine alone, and act with your rights. The command prints their address,
which works once, in one browser, and serves them until you press Ctrl-C. It opens no browser, and writes no file. If it
runs on another machine, forward its port with "ssh -L".`,
		Example: `  kubectl cleaner ui
  kubectl cleaner ui -n default`,
		Args:              validateArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.IntVar(&c.port, "port", 0, "port to serve on; 0 means any that is free")
	flags.Var(protectedkinds.NewValue(&c.flags.allowedKinds), "allow-protected-kinds", "protected resources that may be deleted, as in the operator's flag of this name")
	flags.StringSliceVar(&c.flags.protectedNamespaces, "protected-namespaces", protection.ProtectedNamespaces(), "namespaces in which nothing is changed")
	return cmd
}

// run serves the pages until ctx ends.
func (c *uiCommand) run(ctx context.Context) error {
	if c.port < 0 || c.port > maxPort {
		return usageError{fmt.Errorf("--port %d is not a port: write a number from 0 to %d", c.port, maxPort)}
	}
	config, err := c.cluster.newRESTConfig()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	namespace, err := c.cluster.readNamespace()
	if err != nil {
		return fmt.Errorf("cannot find the namespace: %w; set it with -n", err)
	}
	raw, err := c.cluster.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	current := raw.CurrentContext
	if name := c.cluster.flags.Context; name != nil && *name != "" {
		current = *name
	}
	listener, port, err := ui.ListenLoopback(ctx, c.port)
	if err != nil {
		return fmt.Errorf("cannot serve on port %d: %w; choose another one with --port", c.port, err)
	}
	server, address, err := ui.NewServer(ui.Options{
		Client: client, Commands: &uiCommands{cluster: c.cluster, client: client, flags: c.flags}, Namespace: namespace,
		Context: current, Address: config.Host, Clock: clock.RealClock{}, Zone: time.Local, Port: port,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	c.out.Printf("Open this address in a browser on this machine. It works once:\n\n  %s\n\nPress Ctrl-C to end.\n", address)
	return server.Serve(ctx, listener)
}

// uiCommands are the commands that pages call. Each call reads the cluster again.
type uiCommands struct {
	cluster kubeconfig
	client  dynamic.Interface
	flags   planFlags
}

// newPlanCommand returns a command that prints nothing: pages show its errors.
func (c *uiCommands) newPlanCommand() planCommand {
	mode := output.ColourMode(output.ColourAuto)
	silent := output.Screen{To: io.Discard, ColourMode: &mode}
	return planCommand{terminal: terminal{out: silent, err: silent}, cluster: c.cluster, clock: clock.RealClock{}, flags: c.flags}
}

// MakePlan plans a Cleaner of the cluster, as `plan` does.
func (c *uiCommands) MakePlan(ctx context.Context, u *unstructured.Unstructured) (*ui.Plan, error) {
	f := forecastCommand{planCommand: c.newPlanCommand()}
	f.flags.counts = true
	times, err := f.flags.parseTimes(f.clock.Now())
	if err != nil {
		return nil, err
	}
	loader, err := f.loadClusterTemplates(ctx)
	if err != nil {
		return nil, err
	}
	stored, _, err := loadStored(ctx, loader, u)
	if err != nil {
		return nil, err
	}
	view, err := f.planOne(ctx, stored, times)
	if err != nil {
		return nil, err
	}
	return &ui.Plan{Plan: view.writePlan(), Message: view.plan.Message, DryRun: stored.Work.Mode == v1alpha1.ModeDryRun, Due: view.due}, ctx.Err()
}

// PrepareForecast reads what all forecasts need, and returns what predicts a Cleaner of the cluster, as `forecast` does.
func (c *uiCommands) PrepareForecast(ctx context.Context) (ui.Predict, error) {
	f := forecastCommand{planCommand: c.newPlanCommand(), patience: uiPatience}
	loader, err := f.loadClusterTemplates(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, d *forecast.Document, u *unstructured.Unstructured) error {
		times, err := f.flags.parseTimes(d.At.Time)
		if err != nil {
			return err
		}
		return f.predictLive(ctx, loader, d, u, times)
	}, nil
}

// ExplainObject explains what a Cleaner of the cluster makes of an object, as `explain --object` does.
func (c *uiCommands) ExplainObject(ctx context.Context, u *unstructured.Unstructured, object string) (*whynot.Explanation, error) {
	name, err := whynot.ParseName(object)
	if err != nil {
		return nil, err
	}
	e := explainCommand{planCommand: c.newPlanCommand()}
	times, err := e.flags.parseTimes(e.clock.Now())
	if err != nil {
		return nil, err
	}
	loader, err := e.loadClusterTemplates(ctx)
	if err != nil {
		return nil, err
	}
	stored, state, err := loadStored(ctx, loader, u)
	if err != nil {
		return nil, err
	}
	d, world, err := e.prepareDecision(ctx, stored, times)
	if err != nil {
		return nil, err
	}
	d.Waiting = state.Pending
	x, err := whynot.Explain(ctx, d, world, name)
	return x, errors.Join(err, ctx.Err())
}

// PrepareWaste reads what all plans need, and returns what lists the objects that a Cleaner of the cluster would remove now.
func (c *uiCommands) PrepareWaste(ctx context.Context) (ui.ListWanted, error) {
	p := c.newPlanCommand()
	times, err := p.flags.parseTimes(p.clock.Now())
	if err != nil {
		return nil, err
	}
	loader, err := p.loadClusterTemplates(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, u *unstructured.Unstructured) ([]ui.Wanted, error) {
		stored, state, err := loadStored(ctx, loader, u)
		if err != nil {
			return nil, err
		}
		d, world, err := p.prepareDecision(ctx, stored, times)
		if err != nil {
			return nil, err
		}
		d.Waiting = state.Pending
		computed := d.ComputePlan(ctx, world)
		return listWanted(&computed, world), ctx.Err()
	}, nil
}

// listWanted lists the objects that a plan takes, or would take if nothing held them back.
func listWanted(p *plan.Plan, world *snapshot.Objects) []ui.Wanted {
	var out []ui.Wanted
	add := func(s *plan.Step) {
		if !s.EndsObject() || s.Object.Name == "" {
			return
		}
		o := &s.Object
		if found := world.FindNamed(o.Resource.GroupResource(), o.Namespace, o.Name); found != nil { // the plan has no content of targets that no expression reads
			o = found
		}
		u := unstructured.Unstructured{Object: o.Value}
		out = append(out, ui.Wanted{UID: s.Object.UID, Kind: u.GroupVersionKind().GroupKind().String(), Created: u.GetCreationTimestamp().Time})
	}
	for i := range p.Steps {
		add(&p.Steps[i])
	}
	return out
}

// findRef returns a Cleaner for changes.
func (c *uiCommands) findRef(of ui.Name) *cleanerRef {
	if of.Namespace == "" {
		return &cleanerRef{resource: c.client.Resource(v1alpha1.GroupVersion.WithResource("clustercleaners")), name: of.Name, displayName: "clustercleaner/" + of.Name}
	}
	return &cleanerRef{resource: c.client.Resource(v1alpha1.GroupVersion.WithResource("cleaners")).Namespace(of.Namespace), name: of.Name, displayName: "cleaner/" + of.Name}
}

// SetSuspend is `suspend` and `resume`.
func (c *uiCommands) SetSuspend(ctx context.Context, of ui.Name, suspend bool) error {
	_, err := c.findRef(of).patch(ctx, suspendChange(suspend))
	return err
}

// RequestEvaluation is `run`.
func (c *uiCommands) RequestEvaluation(ctx context.Context, of ui.Name) error {
	_, err := c.findRef(of).requestEvaluation(ctx, clock.RealClock{}.Now(), false)
	if wouldSign := (*newAuthorError)(nil); errors.As(err, &wouldSign) {
		return &ui.RefusedError{Err: err}
	}
	return err
}
