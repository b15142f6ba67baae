// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/protection"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/planning"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/planjson"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Runner runs cases.
type Runner struct {
	Loader *manifests.Loader
	CRDs   []*manifests.Document
	Update bool // write plan.yaml instead of comparing with it
}

// RunCase plans a case and compares the plan with what the case expects.
func (r Runner) RunCase(ctx context.Context, of Case) error {
	d, world, err := r.LoadCase(ctx, of)
	if err != nil {
		return err
	}
	p := d.ComputePlan(ctx, world)
	if err := of.comparePlan(&p, d.BuildOwner(), d.Times.At, r.Update); err != nil {
		return err
	}
	return checkStepsAfterPatch(ctx, d, world, &p)
}

// LoadCase loads what a case decides on, and the objects of its cluster.
func (r Runner) LoadCase(ctx context.Context, of Case) (planning.Decision, *snapshot.Objects, error) {
	times, err := of.readTimes()
	if err != nil {
		return planning.Decision{}, nil, err
	}
	loader := r.Loader.Clone()
	objects, err := of.folder.ReadDocuments(filepath.Join(of.name, FileObjects))
	if err != nil {
		return planning.Decision{}, nil, err
	}
	if err := loader.UseDefinitions(slices.Concat(r.CRDs, objects)); err != nil {
		return planning.Decision{}, nil, err
	}
	c, err := r.loadCleaner(ctx, loader, of)
	if err != nil {
		return planning.Decision{}, nil, err
	}
	world, err := manifests.NewOfflineObjects(objects, r.CRDs)
	if err != nil {
		return planning.Decision{}, nil, err
	}
	d := planning.Decision{Cleaner: c, Protection: plan.Protection{Namespaces: protection.ProtectedNamespaces(), AllowedKinds: loader.AllowedKinds}, Times: times}
	return d, world, nil
}

// loadCleaner loads the Cleaner of a case, with its patch and the protected kinds that the case allows.
func (r Runner) loadCleaner(ctx context.Context, loader *manifests.Loader, of Case) (*manifests.Cleaner, error) {
	path, documents, err := of.readCleaner()
	if err != nil {
		return nil, err
	}
	if err := manifests.JoinErrors(loader.AddTemplates(ctx, documents)); err != nil {
		return nil, err
	}
	own, err := manifests.SelectCleaner(path, documents)
	if err != nil {
		return nil, err
	}
	if err := of.applyPatch(own); err != nil {
		return nil, err
	}
	allowed, _, err := of.readFile(FileAllowedKinds)
	if err != nil {
		return nil, err
	}
	for name := range strings.FieldsSeq(string(allowed)) {
		if err := protection.CheckName(name); err != nil {
			return nil, fmt.Errorf("%s: %w", of.displayPath(FileAllowedKinds), err)
		}
	}
	loader.AllowedKinds = slices.Concat(loader.AllowedKinds, strings.Fields(string(allowed)))
	c := loader.LoadCleaner(ctx, own, nil)
	if c.IsInvalid() {
		return nil, manifests.JoinErrors(c.Problems)
	}
	if !c.Work.Cluster && c.Owner.GetNamespace() == "" {
		c.Owner.SetNamespace("default")
	}
	return c, nil
}

// ExpectedPlan is the part of a plan that plan.yaml has. It leaves out what differs without a reason, such as UIDs.
type ExpectedPlan struct {
	Verdict  string              `json:"verdict"`
	Reason   string              `json:"reason"`
	Steps    []planjson.Step     `json:"steps,omitempty"`
	Withheld []planjson.Withheld `json:"withheld,omitempty"`
	Pending  []planjson.Pending  `json:"pending,omitempty"`
	Next     planjson.Moment     `json:"next,omitzero"`
	Errors   []planjson.Error    `json:"errors,omitempty"`
}

// comparePlan compares a plan with the case's plan.yaml, or writes that file.
func (e Case) comparePlan(p *plan.Plan, owner plan.Owner, at time.Time, update bool) error {
	d := planjson.WritePlan(p, owner, at, nil)
	want := ExpectedPlan{Verdict: string(d.Verdict), Reason: d.Reason, Steps: d.Steps, Withheld: d.Withheld, Pending: d.Pending, Next: d.Next, Errors: d.Errors}
	for i := range want.Steps {
		want.Steps[i].UID, want.Steps[i].ResourceVersion = "", ""
	}
	for i := range want.Withheld {
		want.Withheld[i].UID, want.Withheld[i].ResourceVersion = "", ""
	}
	got, err := output.MarshalYAML(want)
	if err != nil {
		return err
	}
	path := e.displayPath(FilePlan)
	before, there, err := e.readFile(FilePlan)
	switch {
	case err != nil:
		return err
	case update && there && bytes.Equal(before, got):
		return nil
	case update:
		return e.folder.WriteFile(filepath.Join(e.name, FilePlan), got)
	case !there:
		return fmt.Errorf("%s is missing: write the expected plan, or run with --update", path)
	}
	// Parse both, so that comments and the order of keys make no difference.
	var left, right any
	if err := yaml.Unmarshal(before, &left); err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	if err := yaml.Unmarshal(got, &right); err != nil {
		return err
	}
	if reflect.DeepEqual(left, right) {
		return nil
	}
	diff, err := diffYAML(left, right)
	if err != nil {
		return err
	}
	return fmt.Errorf("the plan differs from %s (-expected, +planned):\n%s", path, diff)
}

// contextLines is how many equal lines a difference shows before and after lines that differ.
const contextLines = 3

// diffYAML returns the difference of two values as lines of YAML.
func diffYAML(left, right any) (string, error) {
	before, err := output.MarshalYAML(left)
	if err != nil {
		return "", err
	}
	after, err := output.MarshalYAML(right)
	if err != nil {
		return "", err
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: difflib.SplitLines(string(before)), B: difflib.SplitLines(string(after)), Context: contextLines})
}
