// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachetrim

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/jsontrim"
)

// clientOf is a client of an API server that sends a text.
func clientOf(t *testing.T, limit func(*rest.Config), send func(w io.Writer, r *http.Request)) client.WithWatch {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		send(w, r)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	limit(config)
	scheme := apiruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Cleaner"), meta.RESTScopeNamespace)
	out, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// manyShort are as many short texts as JSON takes so many bytes, each followed by more.
func manyShort(room int, more string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	var b strings.Builder
	for n := 0; b.Len() < room; n++ {
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%c%c%c"%s`, letters[n%62], letters[n/62%62], letters[n/62/62%62], more)
	}
	return b.String()
}

// heldBytes is what a value takes that a function returns.
func heldBytes(read func() any) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	made := read()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(made)
	return int(after.HeapAlloc) - int(before.HeapAlloc)
}

// What a user writes into the metadata of Cleaners takes no memory when they are listed, heard of or read, although it would take
// several times its text when it is decoded.
func TestMetadataTakesNoMemory(t *testing.T) {
	const room, items, most = 1_400_000, 4, 64 << 10
	for name, metadata := range map[string]string{
		"labels": `"labels":{` + manyShort(room, `:""`) + `}`, "annotations": `"annotations":{` + manyShort(room, `:""`) + `}`,
		"finalizers": `"finalizers":[` + manyShort(room, "") + `]`, "owners": `"ownerReferences":[` + strings.Repeat(`{"apiVersion":"v1","kind":"a","name":"b","uid":"c"},`, room/52) + `{}]`,
	} {
		one := `{"apiVersion":"cleaner.vtex.dev/v1alpha1","kind":"Cleaner","metadata":{"namespace":"shop","name":"c","uid":"uid","resourceVersion":"8",` + metadata + `},"spec":{"conditions":["true"]}}`
		send := func(w io.Writer, r *http.Request) {
			switch {
			case r.URL.Query().Get("watch") != "":
				for range items {
					_, _ = io.WriteString(w, `{"type":"MODIFIED","object":`+one+"}\n")
				}
			case strings.HasSuffix(r.URL.Path, "/c"):
				_, _ = io.WriteString(w, one)
			default:
				_, _ = io.WriteString(w, `{"apiVersion":"cleaner.vtex.dev/v1alpha1","kind":"CleanerList","metadata":{},"items":[`+strings.Repeat(one+",", items-1)+one+"]}")
			}
		}
		for how, read := range map[string]func(c client.WithWatch) any{
			"list": func(c client.WithWatch) any {
				all := &v1alpha1.CleanerList{}
				if err := c.List(t.Context(), all); err != nil || len(all.Items) != items || all.Items[0].Spec.Conditions == nil {
					t.Errorf("%s: it lists %d: %v", name, len(all.Items), err)
				}
				return all
			},
			"watch": func(c client.WithWatch) any {
				w, err := c.Watch(t.Context(), &v1alpha1.CleanerList{})
				if err != nil {
					t.Fatal(err)
				}
				var all []any
				for e := range w.ResultChan() {
					all = append(all, e.Object)
				}
				if len(all) != items {
					t.Errorf("%s: it hears of %d", name, len(all))
				}
				return all
			},
			"read": func(c client.WithWatch) any {
				var all []any
				for range items {
					one := &v1alpha1.Cleaner{}
					if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "c"}, one); err != nil {
						t.Error(err)
					}
					all = append(all, one)
				}
				return all
			},
		} {
			whole, limited := clientOf(t, jsontrim.LimitDepth, send), clientOf(t, LimitMetadata, send)
			read(limited) // so that connections are there
			before, after := heldBytes(func() any { return read(whole) })/items, heldBytes(func() any { return read(limited) })/items
			t.Logf("%s, %s: %d KiB for each of %d KiB, and %d KiB as the operator reads them", name, how, before>>10, len(one)>>10, after>>10)
			if name == "finalizers" && how == "read" { // all are, for a patch
				if before < after/2 {
					t.Errorf("finalizers of one take %d bytes", after)
				}
				continue
			}
			if after > most {
				t.Errorf("%s, %s: each takes %d bytes, more than %d", name, how, after, most)
			}
		}
	}
}

// The cache has the same of a Cleaner whether the rest is dropped before it is decoded or after, and a single one has all of its finalizers.
func TestLimitMetadataKeepsWhatTheCacheKeeps(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 100 {
		c := v1alpha1.Cleaner{TypeMeta: metav1.TypeMeta{APIVersion: "cleaner.vtex.dev/v1alpha1", Kind: "Cleaner"}, ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "c", UID: "uid", ResourceVersion: "7", Generation: 3, GenerateName: "c-",
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{}, OwnerReferences: make([]metav1.OwnerReference, r.IntN(3)),
		}}
		for _, name := range append(v1alpha1.CleanerAnnotations(), "example.com/a", "cleaner.vtex.dev/other", strings.Repeat("x", 200)) {
			if r.IntN(2) == 0 {
				c.Annotations[name] = strings.Repeat(`"}],{`, r.IntN(3))
			}
		}
		for i := range r.IntN(2 * MaxCachedFinalizers) {
			if c.Finalizers = append(c.Finalizers, fmt.Sprint("example.com/", i)); r.IntN(20) == 0 {
				c.Finalizers = append(c.Finalizers, v1alpha1.Finalizer)
			}
		}
		c.Spec.Conditions, c.Status.Runs = []string{`{"metadata":{"labels":{}}}`}, 7
		one, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		limited := clientOf(t, LimitMetadata, func(w io.Writer, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/c") {
				_, _ = w.Write(one)
				return
			}
			_, _ = fmt.Fprintf(w, `{"apiVersion":"cleaner.vtex.dev/v1alpha1","kind":"CleanerList","metadata":{"resourceVersion":"9"},"items":[%s]}`, one)
		})
		all, single := &v1alpha1.CleanerList{}, &v1alpha1.Cleaner{}
		if err := limited.List(t.Context(), all); err != nil || len(all.Items) != 1 || all.ResourceVersion != "9" {
			t.Fatal(err, all)
		}
		if err := limited.Get(t.Context(), client.ObjectKeyFromObject(&c), single); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.Finalizers, single.Finalizers); diff != "" || single.Labels != nil || single.OwnerReferences != nil {
			t.Errorf("%+v: -want +got\n%s", single.ObjectMeta, diff)
		}
		if _, err := TrimObject(&c); err != nil {
			t.Fatal(err)
		}
		for _, got := range []*v1alpha1.Cleaner{&all.Items[0], single} {
			if _, err := TrimObject(got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c, got, cmpopts.IgnoreTypes(metav1.TypeMeta{})); diff != "" {
				t.Fatalf("-want +got\n%s", diff)
			}
		}
	}
}
