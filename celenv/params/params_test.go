// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package params

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestParamsOf(t *testing.T) {
	cases := map[string]struct {
		raw  *runtime.RawExtension
		want map[string]any
	}{
		"Nil":      {nil, map[string]any{}},
		"Empty":    {&runtime.RawExtension{}, map[string]any{}},
		"Null":     {&runtime.RawExtension{Raw: []byte("null")}, map[string]any{}},
		"Integers": {&runtime.RawExtension{Raw: []byte(`{"a":9007199254740993,"b":-1,"c":1.5,"d":9223372036854775808}`)}, map[string]any{"a": int64(9007199254740993), "b": int64(-1), "c": 1.5, "d": 9223372036854775808.0}},
		"Nulls":    {&runtime.RawExtension{Raw: []byte(`{"a":null,"b":{"c":null,"d":1},"e":[null,{"f":null}]}`)}, map[string]any{"b": map[string]any{"d": int64(1)}, "e": []any{nil, map[string]any{}}}},
		"Others":   {&runtime.RawExtension{Raw: []byte(`{"a":"x","b":true,"c":[1,"y"]}`)}, map[string]any{"a": "x", "b": true, "c": []any{int64(1), "y"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeParams(tc.raw, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParamsOfErrors(t *testing.T) {
	for name, raw := range map[string]string{"Truncated": "{", "NoObject": "[1]", "TooLarge": `{"a":1e999}`} {
		t.Run(name, func(t *testing.T) {
			if got, err := DecodeParams(&runtime.RawExtension{Raw: []byte(raw)}, nil); err == nil {
				t.Errorf("got %v", got)
			}
		})
	}
}

// Parameters that are declared durations are durations, and nothing else is.
func TestDurations(t *testing.T) {
	raw := &runtime.RawExtension{Raw: []byte(`{"a":"40s","b":"40s"}`)}
	got, err := DecodeParams(raw, []string{"a", "c"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"a": 40 * time.Second, "b": "40s"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{"Number": `{"a":40}`, "Text": `{"a":"soon"}`} {
		if got, err := DecodeParams(&runtime.RawExtension{Raw: []byte(text)}, []string{"a"}); err == nil || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("%s: got %v and the error %v", name, got, err)
		}
	}
}
