// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// listDefaults are the fields of a spec that the schema gives a default, by their paths in the spec, such as "rules[].name", each
// with its default as JSON. There is none yet.
//
// A field has its default from the day on which it is new, keeps it for ever, and means by it what was so before: then what
// an earlier version has signed without the field, and a later one reads with it, is the same.
func listDefaults() map[string]string { return map[string]string{} }

// EncodeExplicit is a spec as JSON, as it tells one spec from another: keys are in order, and fields that are empty or have their
// default are left out. The API server fills defaults in when it reads what was stored before they were, and an earlier
// version does not know the field.
func EncodeExplicit(spec any) ([]byte, error) { return encodeWithout(spec, listDefaults()) }

func encodeWithout(spec any, defaults map[string]string) ([]byte, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("cannot write the spec: %w", err)
	}
	// Once more, since parameters are kept as they were written.
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("cannot read the spec: %w", err)
	}
	shortestFirst := func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }
	for _, path := range slices.SortedFunc(maps.Keys(defaults), shortestFirst) {
		leaveOut(value, strings.Split(strings.ReplaceAll(path, "[]", ".[]"), "."), defaults[path])
	}
	if text, err = json.Marshal(value); err != nil {
		return nil, fmt.Errorf("cannot write the spec: %w", err)
	}
	return text, nil
}

// leaveOut removes the field at a path below a value wherever it has its default.
func leaveOut(value any, path []string, otherwise string) {
	switch v := value.(type) {
	case []any:
		if path[0] == "[]" && len(path) > 1 {
			for _, item := range v {
				leaveOut(item, path[1:], otherwise)
			}
		}
	case map[string]any:
		if len(path) > 1 {
			leaveOut(v[path[0]], path[1:], otherwise)
			return
		}
		if text, err := json.Marshal(v[path[0]]); err == nil && string(text) == otherwise {
			delete(v, path[0])
		}
	}
}
