// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/release"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// recordMayCost is how much of the heap and of stacks reading any record may take, garbage included.
const recordMayCost = 64 << 20

// memoryDuring is by how much the heap and the stacks grow at most, together, while something is done.
func memoryDuring(work func()) int64 {
	taken := func() int64 {
		samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
		metrics.Read(samples)
		return int64(samples[0].Value.Uint64() + samples[1].Value.Uint64())
	}
	runtime.GC()
	before, most := taken(), int64(0)
	done, seen := make(chan struct{}), make(chan struct{})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	go func() {
		defer close(seen)
		for {
			most = max(most, taken()-before)
			select {
			case <-done:
				most = max(most, taken()-before)
				return
			case <-tick.C:
			}
		}
	}()
	finished := make(chan struct{})
	go func() { // on a stack of its own, which is small at first
		defer close(finished)
		work()
	}()
	<-finished
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

// directives is a document of about so many bytes with nothing but directives before its object, each another one.
func directives(lineBreak string, bytes int) string {
	var b strings.Builder
	for n := 0; b.Len() < bytes; n++ {
		fmt.Fprintf(&b, "%%TAG !%d! a%s", n, lineBreak)
	}
	return b.String() + "---" + lineBreak + "kind: [&b x, *b]" + lineBreak
}

// repeatedKind is a document that repeats a block of values by aliases where a text should be.
func repeatedKind(value string, block, times int) string {
	return fmt.Sprintf("apiVersion: [%s]\nmetadata: {name: a}\na: &a [%s]\nkind: [%s]\n---\n", many("1,", 2*2900), strings.Repeat(value, block), strings.Repeat("*a,", times))
}

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
			return around(`"hooks":[` + many(`{"manifest":"`+many("- [a]\\n", 100<<10)+`","events":["pre-delete"]},`, 210<<10) + `{}]`)
		}, says: "more than 50000 values"},
		"Config":        {text: func() string { return around(`"config":{"a":[` + many("{},", 8<<20) + `{}]}`) }},
		"Nested":        {text: func() string { return around(`"config":{"a":` + many("[", 4<<20) + many("]", 4<<20) + `}`) }, says: "nested deeper than 1000"},
		"NestedObjects": {text: func() string { return around(`"config":` + many(`{"a":`, 4<<20)) }, says: "nested deeper than 1000"},
		"Keys":          {text: func() string { return `{` + many(`"k":1,`, 8<<20) + around("")[1:] }},
		"KeysInInfo": {text: func() string {
			return `{"name":"shop","namespace":"team","version":1,"info":{` + many(`"k":{},`, 8<<20) + `"status":"deployed"}}`
		}},
		"LongKey":        {text: func() string { return `{"` + many("k", 8<<20) + `":1}` }, says: "a field name longer than 1 KiB"},
		"LongSkippedKey": {text: func() string { return around(`"chart":{"` + many("k", 8<<20) + `":1}`) }},
		"Twice":          {text: func() string { return around(`"manifest":"a","manifest":"b"`) }, says: `two fields "manifest"`},
		"OtherCase":      {text: func() string { return around(`"Hooks":[{}]`) }, says: `a field "Hooks", which Helm writes as "hooks"`},
		"Number":         {text: func() string { return around(`"config":` + many("1", 8<<20)) }, says: "more than 1024 digits"},
		"Space":          {text: func() string { return around("") + many(" ", 40<<20) }, says: "larger than 32 MiB"},
		"Name":           {text: func() string { return `{"name":"` + many("a", 8<<20) + `"}` }, says: "name is longer than 1 KiB"},
		"Escapes":        {text: func() string { return around(`"manifest":"` + many(`\u003c`, 8<<20) + `"`) }, says: "not YAML"},
		"Manifest":       {text: func() string { return manifest(many("a", 8<<20)) }, says: "manifest is longer than 6144 KiB"},
		"Brackets":       {text: func() string { return manifest("a: [" + many("{},", 2<<20) + "{}]") }, says: "the limit is 300000"},
		"FewerBrackets":  {text: func() string { return manifest("a: [" + many("{},", 140<<10) + "{}]") }, says: "cannot be uninstalled"},
		"ManyFewer":      {text: func() string { return manifest(many(configMap+"a: ["+many("{},", 140<<10)+"{}]\n---\n", 5<<20)) }, says: "more than 300000 values"},
		"Scalars":        {text: func() string { return manifest(configMap + "a: [" + many("a,", 199_000) + "]") }},
		"Pairs":          {text: func() string { return manifest(configMap + "b: {" + many("? a : b,", 8*42_000) + "}") }},
		"Lines":          {text: func() string { return manifest(configMap + "b:\n" + many(" - a\n", 5*149_000)) }},
		"Dashes":         {text: func() string { return manifest(many("- ", 2*149_000)) }, says: "cannot be uninstalled"},
		"DeepFlow":       {text: func() string { return manifest(many("[", 99_000)) }, says: "cannot be uninstalled"},
		"Documents":      {text: func() string { return manifest(many("a\n---\n", 5<<20)) }, says: "more than 5000 documents"},
		"Objects":        {text: func() string { return manifest("items:\n" + many("- {a: b}\n", 9*10_000)) }, says: "more than 5000 objects"},
		"Laughs":         {text: func() string { return manifest(laughs) }, says: "repeats too much by aliases"},
		"Repeated":       {text: func() string { return manifest("a: &a " + many("a", 100<<10) + "\nb: [" + many("*a,", 140_000) + "]") }, says: "repeats too much by aliases"},
		"ItsOwn":         {text: func() string { return manifest("a: &a [*a]") }, says: "repeats too much by aliases"},
		"Merged": {text: func() string {
			return manifest("a: &a {" + many("k: v,", 50<<10) + "}\nb: [" + many("{<<: *a},", 50<<10) + "]")
		}, says: "repeats too much by aliases"},
		"MergedFew": {text: func() string { return manifest("a: &a {k: v}\nb: {<<: [" + many("*a,", 290<<10) + "]}") }, says: "cannot be uninstalled"},
		"Policy": {text: func() string {
			return manifest("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {helm.sh/resource-policy: " + many("a", 5<<20) + "}}")
		}},
		"Anchors":     {text: func() string { return manifest(configMap + "b: [" + many("&a a,", 5*49_000) + "*a]") }},
		"ManyAnchors": {text: func() string { return manifest(configMap + "b: [" + many("&a a,", 5*99_000) + "*a]") }, says: "with aliases and up to"},
		"Directives":  {text: func() string { return manifest(directives("\r", 2900<<10)) }, says: "lines that begin with %"},
		"Comments": {text: func() string {
			return manifest("- [&b x, *b]\n" + many("- ", 2*9000) + "a\n" + many(" #\n#\n", 2900<<10))
		}, says: "too many comments"},
		"FewerComments": {text: func() string {
			return manifest("- [&b x, *b]\n" + many("- ", 2*60) + "a\n" + many(" #\r#\r", 2900<<10))
		}, says: "too many comments"},
		"LongDirective": {text: func() string {
			return manifest("%TAG !a! " + many("a", 1<<20) + "\n---\nkind: [&b x, *b, " + many("!a!b c,", 7*90_000) + "]")
		}, says: "characters in lines that begin with %"},
		"ShortDirective": {text: func() string {
			return manifest("%TAG !a! " + many("a", 100) + "\n---\n" + configMap + "b: [&b x, *b, " + many("!a!b c,", 7*49_000) + "]")
		}},
		"FlatComments": {text: func() string { return manifest("b: [&b x, *b]\na:\n" + many(" #\n#\n", 2900<<10)) }, says: "too many comments"},
		"HookDirectives": {text: func() string {
			return around(`"hooks":[{"manifest":` + quoted(t, directives("\n", 250<<10)) + `,"events":["pre-delete"]}]`)
		}, says: "lines that begin with %"},
		"HookLaughs": {text: func() string {
			return around(`"hooks":[{"manifest":` + quoted(t, configMap+"---\n"+laughs) + `,"events":["pre-delete"]}]`)
		}, says: "repeats too much by aliases"},
		"RepeatedKinds": {text: func() string { return manifest(many(repeatedKind("[],", 300, 918), 6<<20-10)) }, says: "more than 300000 values"},
		"FewRepeatedKinds": {text: func() string {
			return manifest(repeatedKind("{? [a] : []},", 250, 290) + "---\n" + configMap)
		}, says: "without apiVersion, kind or name"},
		"RepeatedEntries": {text: func() string { return manifest(many(repeatedKind("{a: b},", 250, 333), 12*8_000)) }, says: "repeats too much by aliases"},
		"DeepDocuments": {text: func() string {
			return manifest(many(configMap+"x: &a b\ny: *a\nb: "+many("[", 9000)+many("]", 9000)+"\n---\n", 6<<20-10))
		}, says: "nested deeper than 1000"},
		"DeepPlainDocuments": {text: func() string {
			return manifest(many(configMap+"b: "+many("[", 9000)+many("]", 9000)+"\n---\n", 6<<20-10))
		}, says: "nested deeper than 1000"},
		"DeepAliases": {text: func() string {
			text := "apiVersion: [" + many("1,", 12_000) + "]\nmetadata: {name: a}\nx0: &x0 1\n"
			for i := 1; i < 7; i++ {
				text += fmt.Sprintf("x%d: &x%d %s*x%d%s\n", i, i, many("[", 6000), i-1, many("]", 6000))
			}
			return manifest(text + "kind: *x6\n")
		}, says: "nested deeper than 1000"},
		"DeepHook": {text: func() string {
			return around(`"hooks":[{"manifest":` + quoted(t, "a: "+many("[", 9000)+many("]", 9000)) + `,"events":["pre-delete"]}]`)
		}, says: "nested deeper than 1000"},
		"LongNames": {text: func() string {
			return manifest(many("apiVersion: v1\nkind: A\nmetadata: {name: "+many("a", 500<<10)+"}\n---\n", 6<<20-10))
		}, says: "KiB of names and kinds"},
		"RepeatedNames": {text: func() string {
			doc := "x: &a " + many("a", 3<<10) + "\nitems:\n" + many("- {kind: *a, metadata: {name: *a}}\n", 12*34) + "---\n"
			return manifest(many(doc, 400*len(doc)))
		}, says: "repeats too much by aliases"},
		"RepeatedLongName": {text: func() string {
			return manifest("x: &a " + many("<", 2<<20) + "\nkind: *a\nitems: [{kind: *a, apiVersion: *a}]")
		}, says: "repeats too much by aliases"},
		"CommentsAfterValues": {text: func() string {
			return manifest(many(configMap+"x: &a b\ny: *a\nb:\n"+many(" - a # c\n", 9*15_000)+"---\n", 6<<20-10))
		}, says: "too many comments"},
		"Numbers":          {text: func() string { return around(`"config":{"a":[` + many("1,", 31<<20) + `1]}`) }},
		"BlankManifest":    {text: func() string { return manifest(many("\n \t", 5<<20)) }},
		"NotInAnyEncoding": {text: func() string { return around(`"manifest":"` + many("\xff", 5<<20) + `"`) }, says: "longer than"},
	}
}

// TestHostileRecordsAreCheap reads records that unpack into much more than they take in a Secret. None takes much more memory or time than
// one of plain text.
func TestHostileRecordsAreCheap(t *testing.T) {
	plain := recordOf(t, zipped(t, []byte(around(`"manifest":`+quoted(t, many(configMap+"b: "+many("a ", 2<<20)+"\n---\n", 6<<20-10))))))
	before := userTime(t)
	if _, err := decodeRecord(t.Context(), plain, "team", "shop"); err != nil {
		t.Fatal(err)
	}
	mayTake := 10 * max(userTime(t)-before, 150*time.Millisecond)
	for name, tc := range hostileRecords(t) {
		t.Run(name, func(t *testing.T) {
			secret := recordOf(t, zipped(t, []byte(tc.text())))
			if size := len(secret.Data["release"]); size > 1<<20 {
				t.Fatalf("%d bytes do not fit into a Secret", size)
			}
			var err error
			before := userTime(t)
			cost := memoryDuring(func() {
				var r record
				if r, err = decodeRecord(t.Context(), secret, "team", "shop"); err == nil {
					_, err = r.listDocuments()
				}
			})
			took := userTime(t) - before
			t.Logf("%d bytes cost %.1f MiB and %s: %v", len(secret.Data["release"]), float64(cost)/(1<<20), took, err)
			if cost > recordMayCost {
				t.Errorf("it costs %d MiB of the heap and of stacks", cost>>20)
			}
			if took > mayTake {
				t.Errorf("it takes %s, and plain text a tenth of %s", took, mayTake)
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

// userTime is how much of the processor this process has had.
func userTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	check(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano())
}

// endingContext is over once it was asked so many times whether it is.
type endingContext struct {
	context.Context

	left *int
}

func (c endingContext) Err() error {
	if *c.left--; *c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestReadingARecordEndsWithItsContext: others wait until a record is read, and one whose time is over holds them up no longer.
func TestReadingARecordEndsWithItsContext(t *testing.T) {
	for name, manifest := range map[string]string{
		"ManyDocuments": many(configMap+"---\n", 10<<10),
		"OneDocument":   configMap + "b: " + many("a ", 50<<10),
		"Aliases":       configMap + "b: [&a b, *a, " + many("a ", 50<<10) + "]",
	} {
		t.Run(name, func(t *testing.T) {
			secret := recordOf(t, zipped(t, []byte(around(`"manifest":`+quoted(t, manifest)))))
			const plenty = 1 << 20
			left := plenty
			if _, err := decodeRecord(endingContext{t.Context(), &left}, secret, "team", "shop"); err != nil {
				t.Fatal(err)
			}
			asked := plenty - left
			if asked < 100 { // a look for each 512 bytes, or for each document
				t.Errorf("it asks %d times whether its time is over", asked)
			}
			for n := 0; n < asked; n += 1 + asked/50 {
				left := n
				if _, err := decodeRecord(endingContext{t.Context(), &left}, secret, "team", "shop"); !errors.Is(err, context.Canceled) {
					t.Fatalf("its time is over after %d of %d looks: got %v", n, asked, err)
				}
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
