// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/release"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// recordMayCost is how much of the heap reading any record may take, garbage included.
const recordMayCost = 64 << 20

// heapDuring is by how much the heap grows at most while something is done.
func heapDuring(work func()) int64 {
	heap := func() int64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64())
	}
	runtime.GC()
	before, most := heap(), int64(0)
	done, seen := make(chan struct{}), make(chan struct{})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	go func() {
		defer close(seen)
		for {
			most = max(most, heap()-before)
			select {
			case <-done:
				most = max(most, heap()-before)
				return
			case <-tick.C:
			}
		}
	}()
	work()
	close(done)
	<-seen
	return most
}

// around writes the JSON of a sound release with more fields.
func around(fields string) string {
	return `{"name":"shop","namespace":"team","version":1,"info":{"first_deployed":"2030-01-02T03:04:05Z","status":"deployed"},` + cmp.Or(fields, `"a":1`) + `}`
}

func quoted(t testing.TB, text string) string {
	t.Helper()
	q, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(q)
}

// many repeats a piece until it has about so many bytes.
func many(piece string, bytes int) string { return strings.Repeat(piece, bytes/len(piece)) }

// object heads for manifests.
const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

// hostileRecords are records that anybody who may write Secrets can write: each fits into one.
func hostileRecords(t testing.TB) map[string]struct {
	text func() string
	says string
} {
	t.Helper()
	manifest := func(text string) string { return around(`"manifest":` + quoted(t, text)) }
	laughs := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 'b'; i < 'j'; i++ {
		laughs += fmt.Sprintf("%c: &%c [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", i-1), 10), ","))
	}
	return map[string]struct {
		text func() string
		says string
	}{
		"Hooks":      {text: func() string { return around(`"hooks":[` + many("{},", 8<<20) + `{}]`) }, says: "more than 256 hooks"},
		"HookEvents": {text: func() string { return around(`"hooks":[{"events":[` + many(`"a",`, 8<<20) + `"a"]}]`) }, says: "more than 16 events of a hook"},
		"HookText": {text: func() string {
			return around(`"hooks":[{"manifest":"` + many("a", 8<<20) + `","events":["pre-delete"]}]`)
		}, says: "longer than 256 KiB"},
		"HooksText": {text: func() string {
			return around(`"hooks":[` + many(`{"manifest":"`+many("a", 10<<10)+`","events":["pre-delete"]},`, 8<<20) + `{}]`)
		}, says: "longer than 256 KiB"},
		"HooksNodes": {text: func() string {
			return around(`"hooks":[` + many(`{"manifest":"`+many("- a\\n", 100<<10)+`","events":["pre-delete"]},`, 210<<10) + `{}]`)
		}, says: "its hooks have more than"},
		"Config":        {text: func() string { return around(`"config":{"a":[` + many("{},", 8<<20) + `{}]}`) }},
		"Nested":        {text: func() string { return around(`"config":{"a":` + many("[", 4<<20) + many("]", 4<<20) + `}`) }, says: "nested deeper than 1000"},
		"NestedObjects": {text: func() string { return around(`"config":` + many(`{"a":`, 4<<20)) }, says: "nested deeper than 1000"},
		"Keys":          {text: func() string { return `{` + many(`"k":1,`, 8<<20) + around("")[1:] }},
		"KeysInInfo": {text: func() string {
			return `{"name":"shop","namespace":"team","version":1,"info":{` + many(`"k":{},`, 8<<20) + `"status":"deployed"}}`
		}},
		"LongKey":        {text: func() string { return `{"` + many("k", 8<<20) + `":1}` }, says: "longest name of a field is longer than 1 KiB"},
		"LongSkippedKey": {text: func() string { return around(`"chart":{"` + many("k", 8<<20) + `":1}`) }},
		"Twice":          {text: func() string { return around(`"manifest":"a","manifest":"b"`) }, says: `two fields "manifest"`},
		"OtherCase":      {text: func() string { return around(`"Hooks":[{}]`) }, says: `a field "Hooks", which Helm writes as "hooks"`},
		"Number":         {text: func() string { return around(`"config":` + many("1", 8<<20)) }, says: "more than 1024 digits"},
		"Space":          {text: func() string { return around("") + many(" ", 40<<20) }, says: "larger than 32 MiB"},
		"Name":           {text: func() string { return `{"name":"` + many("a", 8<<20) + `"}` }, says: "name is longer than 1 KiB"},
		"Escapes":        {text: func() string { return around(`"manifest":"` + many(`\u003c`, 8<<20) + `"`) }, says: "not YAML"},
		"Manifest":       {text: func() string { return manifest(many("a", 8<<20)) }, says: "manifest is longer than 6144 KiB"},
		"Brackets":       {text: func() string { return manifest("a: [" + many("{},", 2<<20) + "{}]") }, says: "300000 are read at most"},
		"FewerBrackets":  {text: func() string { return manifest("a: [" + many("{},", 140<<10) + "{}]") }, says: "cannot be uninstalled"},
		"ManyFewer":      {text: func() string { return manifest(many(configMap+"a: ["+many("{},", 140<<10)+"{}]\n---\n", 5<<20)) }},
		"Scalars":        {text: func() string { return manifest(configMap + "a: [" + many("a,", 199_000) + "]") }},
		"Pairs":          {text: func() string { return manifest(configMap + "b: {" + many("? a : b,", 8*42_000) + "}") }},
		"Lines":          {text: func() string { return manifest(configMap + "b:\n" + many(" - a\n", 5*149_000)) }},
		"Dashes":         {text: func() string { return manifest(many("- ", 2*149_000)) }, says: "cannot be uninstalled"},
		"DeepFlow":       {text: func() string { return manifest(many("[", 99_000)) }, says: "cannot be uninstalled"},
		"Documents":      {text: func() string { return manifest(many("a\n---\n", 5<<20)) }, says: "more than 5000 documents"},
		"Objects":        {text: func() string { return manifest("items:\n" + many("- {a: b}\n", 9*10_000)) }, says: "more than 5000 objects"},
		"Laughs":         {text: func() string { return manifest(laughs) }, says: "repeats too much by aliases"},
		"Repeated":       {text: func() string { return manifest("a: &a " + many("a", 100<<10) + "\nb: [" + many("*a,", 150_000) + "]") }, says: "repeats too much by aliases"},
		"ItsOwn":         {text: func() string { return manifest("a: &a [*a]") }, says: "repeats too much by aliases"},
		"Merged": {text: func() string {
			return manifest("a: &a {" + many("k: v,", 50<<10) + "}\nb: [" + many("{<<: *a},", 50<<10) + "]")
		}, says: "repeats too much by aliases"},
		"MergedFew": {text: func() string { return manifest("a: &a {k: v}\nb: {<<: [" + many("*a,", 290<<10) + "]}") }, says: "cannot be uninstalled"},
		"Policy": {text: func() string {
			return manifest("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {helm.sh/resource-policy: " + many("a", 5<<20) + "}}")
		}},
		"Anchors":          {text: func() string { return manifest(configMap + "b: [" + many("&a a,", 5*99_000) + "*a]") }, says: ""},
		"BlankManifest":    {text: func() string { return manifest(many("\n \t", 5<<20)) }},
		"NotInAnyEncoding": {text: func() string { return around(`"manifest":"` + many("\xff", 5<<20) + `"`) }, says: "longer than"},
	}
}

// TestHostileRecordsAreCheap reads records that unpack into much more than they take in a Secret.
func TestHostileRecordsAreCheap(t *testing.T) {
	for name, tc := range hostileRecords(t) {
		t.Run(name, func(t *testing.T) {
			secret := recordOf(t, zipped(t, []byte(tc.text())))
			if size := len(secret.Data["release"]); size > 1<<20 {
				t.Fatalf("%d bytes do not fit into a Secret", size)
			}
			var err error
			cost := heapDuring(func() {
				var r record
				if r, err = decodeRecord(secret, "team", "shop"); err == nil {
					_, err = r.parseManifest()
				}
			})
			t.Logf("%d bytes cost %.1f MiB: %v", len(secret.Data["release"]), float64(cost)/(1<<20), err)
			if cost > recordMayCost {
				t.Errorf("it costs %d MiB of the heap", cost>>20)
			}
			blocked, ok := errors.AsType[*BlockedError](err)
			if err != nil && !ok {
				t.Fatalf("got %v, want a BlockedError", err)
			}
			if err == nil && tc.says != "" || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want it to say %q", err, tc.says)
			}
			if ok && !strings.Contains(blocked.Detail, `"shop"`) && blocked.Reason != v1alpha1.ReasonTooManyObjects {
				t.Errorf("%q does not name the release", blocked.Detail)
			}
		})
	}
}

// TestDigestIsAsEver holds the digest, which runs of older versions have recorded, to what it was made of.
func TestDigestIsAsEver(t *testing.T) {
	r := made(func(r *release.Release) {
		r.Manifest = many("a<é\u2028\U0001F600\\\"\n", 100<<10)
		r.Hooks = []*release.Hook{{Name: "a", Kind: "Job", Manifest: "kind: <Job>", Weight: -1, Events: []release.HookEvent{release.HookPreDelete}}}
	})
	const want = "v1:054836e108729eb0ff7afe525c104fdce53fbad53d5fdbac61c0114c1b27ac02"
	if got := computeDigest(r.Manifest, r.Hooks); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
