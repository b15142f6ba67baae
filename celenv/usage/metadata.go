// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/celenv/projection"
)

// useMetadata says what to write instead of other fields of objects of all kinds.
const useMetadata = "read item.apiVersion, item.kind and fields of item.metadata, such as its labels, annotations, owners and times, or use a target of one kind"

// CheckMetadata says that expressions read more than apiVersion, kind and metadata of the objects of some targets, which are read without the rest.
// The targets are named, and where they stand.
func CheckMetadata(root *field.Path, targets map[string]int, readings map[string]Reading) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		r, seen := readings[name]
		at := root.Child("targets").Index(targets[name])
		switch beyond := findBeyondMetadata(r.Projection); {
		case !seen:
		case r.WholeFor != "":
			errs = append(errs, field.Invalid(root.Child(r.WholeFor), name, fmt.Sprintf("reads whole objects of target %q, of kind \"*\": %s", name, useMetadata)))
		case r.Projection != nil && len(r.Projection.References) > 0:
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("refs reads whole objects of target %q, of kind \"*\", and only its metadata is read: %s", name, useMetadata)))
		case beyond != "":
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("expressions read item.%s of target %q, of kind \"*\", and only its metadata is read: %s", beyond, name, useMetadata)))
		}
	}
	return errs
}

// findBeyondMetadata returns the path of a field that a projection keeps besides apiVersion, kind and metadata; empty if there is none.
func findBeyondMetadata(p *projection.Projection) string {
	if p == nil {
		return ""
	}
	if p.Whole || p.Shape || p.Entries != nil || p.Elements != nil || p.ByType != nil {
		return "*"
	}
	for _, key := range slices.Sorted(maps.Keys(p.Fields)) {
		if key != "apiVersion" && key != "kind" && key != "metadata" {
			return strings.Join(append([]string{key}, listFirstFields(p.Fields[key])...), ".")
		}
	}
	return ""
}

// listFirstFields follows the first field of each level of a projection.
func listFirstFields(p *projection.Projection) (path []string) {
	for p != nil && len(p.Fields) > 0 {
		key := slices.Min(slices.Collect(maps.Keys(p.Fields)))
		path, p = append(path, key), p.Fields[key]
	}
	return path
}
