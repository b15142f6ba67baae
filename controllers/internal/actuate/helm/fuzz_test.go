// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/release"
)

// fuzzMayCost is how much of the heap a record of at most 4 KiB may take while it is read.
const fuzzMayCost = 16 << 20

// FuzzRecord reads the JSON of records. Whatever it is, it costs little and crashes nothing; and where Helm's own decoder
// reads it too, both read the same.
func FuzzRecord(f *testing.F) {
	for _, tc := range hostileRecords(f) {
		if text := tc.text(); len(text) <= 4<<10 {
			f.Add([]byte(text))
		}
	}
	whole, err := json.Marshal(made(func(r *release.Release) {
		r.Manifest = "---\n" + configMap
		r.Hooks = []*release.Hook{{Name: "a", Kind: "Job", Manifest: configMap, Events: []release.HookEvent{release.HookPreDelete}, Weight: 1}}
		r.Config = map[string]any{"a": []any{1, "\u00e9\U0001F600\\", nil, true, -1.5e3}}
	}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4<<10 || bytes.HasPrefix(text, []byte{0x1f, 0x8b, 0x08}) {
			t.Skip()
		}
		secret := recordOf(t, zipped(t, text))
		var r record
		var err error
		if cost := memoryDuring(func() {
			if r, err = decodeRecord(t.Context(), secret, "team", "shop"); err == nil {
				_, _ = r.listDocuments()
			}
		}); cost > fuzzMayCost {
			t.Fatalf("%d bytes cost %d KiB of the heap", len(text), cost>>10)
		}
		if err != nil {
			return
		}
		helms := &release.Release{}
		if json.Unmarshal(text, helms) != nil {
			return // what is read over here, such as a chart, is none
		}
		got := r.content.release
		helms.Hooks = slices.DeleteFunc(helms.Hooks, func(h *release.Hook) bool { return !isDeleteHook(h) })
		if diff := cmp.Diff(said(helms), said(got)); diff != "" {
			t.Errorf("Helm reads it in another way (-Helm +this):\n%s", diff)
		}
		if want := computeDigest(helms.Manifest, helms.Hooks); want != r.content.digest {
			t.Errorf("digest %s, and of what Helm reads %s", r.content.digest, want)
		}
	})
}

// said is what counts of a release.
func said(r *release.Release) []any {
	all := []any{r.Name, r.Namespace, r.Version, r.Info.Status, r.Info.FirstDeployed.Time.UTC()}
	for _, h := range r.Hooks {
		all = append(all, h.Name, h.Kind, h.Manifest, h.Weight, append([]release.HookEvent{}, h.Events...), append([]release.HookDeletePolicy{}, h.DeletePolicies...))
	}
	return all
}
