// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
)

// PatchObject returns the object of a step with the patch applied.
func PatchObject(s *plan.Step) (map[string]any, error) {
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
			return nil, fmt.Errorf("a strategic merge patch works for built-in kinds only, and %s is none: write type: Merge", u.GroupVersionKind())
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
	default: // Apply does the same, except for lists
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
