// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// checkStepsAfterPatch checks that rules which patch an object, and then do more for the same items, want the rest also when the patch
// is all that was done.
func (t *tool) checkStepsAfterPatch(ctx context.Context, c *cleaner, world *snapshot.Objects, protection plan.Protection, m planTimes, p *plan.Plan) error {
	var later []*plan.Step
	patched := map[types.UID]map[string]any{}
	for i := range p.Steps {
		s := &p.Steps[i]
		for _, before := range s.After {
			if first := &p.Steps[before]; first.Patch != nil && first.Rule == s.Rule {
				later = append(later, s)
			}
		}
	}
	if len(later) == 0 {
		return nil
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Patch == nil || slices.Contains(later, s) {
			continue
		}
		after, err := patchObject(s)
		if err != nil {
			return fmt.Errorf("rule %q cannot patch %s: %w", s.Rule, s.Object.FullName(), err)
		}
		patched[s.Object.UID] = after
	}
	again := computePlan(ctx, c, &overlay{Objects: world, patched: patched}, nil, protection, m)
	for _, s := range later {
		if !slices.ContainsFunc(again.Steps, func(o plan.Step) bool {
			return o.Rule == s.Rule && o.Action == s.Action && o.Object.UID == s.Object.UID
		}) {
			return fmt.Errorf("rule %q patches an object, and then does not want to %s %s any more: if the operator is stopped in between, that is never done; "+
				"let `when` hold for what the patch makes of the object", s.Rule, s.Verb, s.Object.FullName())
		}
	}
	return nil
}

// overlay is a world in which some objects are patched.
type overlay struct {
	*snapshot.Objects
	patched map[types.UID]map[string]any
}

// Read answers as the world does, with the objects as they are when they are patched.
func (o *overlay) Read(ctx context.Context, q snapshot.Query) plan.Target {
	t := o.Objects.Read(ctx, q)
	t.Objects = slices.Clone(t.Objects)
	for i := range t.Objects {
		if after := o.patched[t.Objects[i].UID]; after != nil && !q.MetadataOnly {
			t.Objects[i].Value = after
		}
	}
	return t
}

// patchObject returns what a patch makes of an object.
func patchObject(s *plan.Step) (map[string]any, error) {
	before, err := json.Marshal(s.Object.Value)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch s.Patch.Type {
	case v1alpha1.PatchStrategic:
		u := unstructured.Unstructured{Object: s.Object.Value}
		typed, err := scheme.Scheme.New(u.GroupVersionKind())
		if err != nil {
			return nil, fmt.Errorf("%s is no kind of Kubernetes' own: write type: Merge", u.GroupVersionKind())
		}
		if after, err = strategicpatch.StrategicMergePatch(before, s.Patch.Body, typed); err != nil {
			return nil, err
		}
	case v1alpha1.PatchJSON:
		operations, err := jsonpatch.DecodePatch(s.Patch.Body)
		if err != nil {
			return nil, err
		}
		if after, err = operations.Apply(before); err != nil {
			return nil, err
		}
	default: // of Apply it is what happens where no list is merged
		if after, err = jsonpatch.MergePatch(before, s.Patch.Body); err != nil {
			return nil, err
		}
	}
	var object map[string]any
	if err := utiljson.Unmarshal(after, &object); err != nil {
		return nil, err
	}
	return object, nil
}
