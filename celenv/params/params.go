// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package params reads the parameters of a Cleaner as expressions see them. It knows nothing of what they are for.
package params

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// DecodeParams reads parameters as expressions see them: an integer that an int can hold is one, other numbers are doubles, and a
// null is absent, in nested objects too. A null in a list stays, so that the others keep their places. Those that durations names are
// durations, in the form of v1alpha1.Duration.
func DecodeParams(raw *runtime.RawExtension, durations []string) (map[string]any, error) {
	if raw == nil || len(raw.Raw) == 0 {
		return map[string]any{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw.Raw))
	d.UseNumber()
	var params map[string]any
	if err := d.Decode(&params); err != nil {
		return nil, fmt.Errorf("cannot read the parameters: %w", err)
	}
	if params == nil { // the JSON null
		return map[string]any{}, nil
	}
	if _, err := normalizeValue(params); err != nil {
		return nil, fmt.Errorf("cannot read the parameters: %w", err)
	}
	for _, name := range durations {
		value, given := params[name]
		if !given {
			continue
		}
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("the parameter %q must be a duration, such as \"40s\", and is %v", name, value)
		}
		d, err := v1alpha1.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("the parameter %q: %w", name, err)
		}
		params[name] = d
	}
	return params, nil
}

// normalizeValue changes decoded JSON, in place, to what Kubernetes objects hold.
func normalizeValue(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i, nil
		}
		return v.Float64()
	case []any:
		for i := range v {
			var err error
			if v[i], err = normalizeValue(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for name, value := range v {
			if value == nil {
				delete(v, name)
				continue
			}
			var err error
			if v[name], err = normalizeValue(value); err != nil {
				return nil, fmt.Errorf("%q: %w", name, err)
			}
		}
	}
	return v, nil
}
