// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"

	"github.com/vtex/cleaner/controllers/internal/contain"
)

// decoderOf reads a watch's events as a client of a configuration does.
func decoderOf(t testing.TB, config *rest.Config, text string) *restwatch.Decoder {
	t.Helper()
	objects, events, frames, err := runtime.NewClientNegotiator(config.NegotiatedSerializer, corev1.SchemeGroupVersion).StreamDecoder(runtime.ContentTypeJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	return restwatch.NewDecoder(streaming.NewDecoder(frames.NewFrameReader(io.NopCloser(strings.NewReader(text))), events), objects)
}

// read is what a client of a configuration makes of one event.
func read(t testing.TB, config *rest.Config, text string) (watch.EventType, runtime.Object, error) {
	t.Helper()
	return decoderOf(t, config, text).Decode()
}

// What is read faster is read the same.
func TestWire(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"x":"\"y\\\" }}"}},"spec":{"n":1,"f":1.5,"big":9007199254740993,"none":null,"list":[{},[],true]}}`
	for name, text := range map[string]string{
		"as an API server writes it":      `{"type":"ADDED","object":` + pod + `}`,
		"with two line ends":              `{"type":"MODIFIED","object":` + pod + "}\n\n",
		"over several lines":              "{\n \"type\": \"ADDED\",\n \"object\": " + pod + "\n}",
		"long":                            `{"type":"ADDED","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"` + strings.Repeat("long ", 4000) + `"}}}`,
		"with spaces":                     `{ "type": "DELETED", "object": ` + pod + ` }`,
		"the other way round":             `{"object":` + pod + `,"type":"DELETED"}`,
		"an escape in the type":           `{"type":"ADD\u0045D","object":` + pod + `}`,
		"a type that looks like an event": `{"type":"\",\"object\":","object":` + pod + `}`,
		"a bookmark":                      `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12","annotations":{"k8s.io/initial-events-end":"true"}}}}`,
		"an error":                        `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}}`,
		"a kind of its own named Status":  `{"type":"ADDED","object":{"kind":"Status","apiVersion":"example.com/v1","metadata":{"name":"a"}}}`,
		"a list":                          `{"type":"ADDED","object":{"kind":"PodList","apiVersion":"v1","items":[` + pod + `]}}`,
		"items that are no list":          `{"type":"ADDED","object":{"kind":"Shelf","apiVersion":"example.com/v1","items":{"a":1}}}`,
		"no kind":                         `{"type":"ADDED","object":{"apiVersion":"v1","metadata":{"name":"a"}}}`,
		"no version":                      `{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a"}}}`,
		"kind of another type":            `{"type":"ADDED","object":{"kind":1,"apiVersion":"v1"}}`,
		"no object":                       `{"type":"ADDED"}`,
		"null":                            `{"type":"ADDED","object":null}`,
		"not an object":                   `{"type":"ADDED","object":[]}`,
		"cut off":                         `{"type":"ADDED","object":` + pod,
		"not JSON inside":                 `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1",}}`,
		"a type that nobody knows":        `{"type":"SHOUTED","object":` + pod + `}`,
		"nothing":                         ``,
	} {
		t.Run(name, func(t *testing.T) {
			wantKind, want, wantErr := read(t, dynamic.ConfigFor(&rest.Config{}), text+"\n")
			gotKind, got, err := read(t, textConfig(&rest.Config{}), text+"\n")
			if (err != nil) != (wantErr != nil) {
				t.Fatalf("got error %v, want %v", err, wantErr)
			}
			if gotKind != wantKind {
				t.Errorf("got %q, want %q", gotKind, wantKind)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("object (-client-go +ours):\n%s", diff)
			}
		})
	}
}

// An object of a custom kind may have a field "items" at its root, whatever that is, and a kind that ends in List. It is no list: a watch
// that took it for one would not see it, or end.
func TestAnObjectWithItemsIsNoList(t *testing.T) {
	for name, items := range map[string]string{"Texts": `["a","b"]`, "Objects": `[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"}}]`, "Map": `{"a":1}`, "Number": `1`} {
		for _, event := range []string{"ADDED", "MODIFIED", "DELETED"} {
			t.Run(name+" "+event, func(t *testing.T) {
				text := `{"type":"` + event + `","object":{"apiVersion":"example.com/v1","kind":"AllowList","items":` + items + `,"metadata":{"name":"a","namespace":"web","uid":"u","resourceVersion":"7"}}}`
				_, got, err := read(t, textConfig(&rest.Config{}), text+"\n")
				u, ok := got.(*unstructured.Unstructured)
				if err != nil || !ok || u.GetName() != "a" || u.GetNamespace() != "web" || u.GetUID() != "u" || u.GetResourceVersion() != "7" {
					t.Fatalf("it is read as %T %v: %v", got, got, err)
				}
				if event != "DELETED" && u.Object["items"] == nil {
					t.Error("its items are lost")
				}
			})
		}
	}
}

// One event's text is not kept in the object of another: the buffer is used again.
func TestWireKeepsNoBuffer(t *testing.T) {
	event := func(name string) string {
		return `{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"}}}` + "\n"
	}
	d := decoderOf(t, textConfig(&rest.Config{}), event("first")+event("other"))
	_, first, err := d.Decode()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Decode(); err != nil {
		t.Fatal(err)
	}
	if name := first.(metav1.Object).GetName(); name != "first" {
		t.Errorf("the first object is named %q now", name)
	}
}

// What was deleted has its name and its version, and an event that is cut off is none.
func TestWireDeletedAndCutOff(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"12","labels":{"x":"y"}},"spec":{"n":1}}`
	kind, got, err := read(t, textConfig(&rest.Config{}), `{"type":"DELETED","object":`+pod+"}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "12"},
	}}
	if diff := cmp.Diff(runtime.Object(want), got); diff != "" || kind != watch.Deleted {
		t.Errorf("got %q of an object (-want +got):\n%s", kind, diff)
	}
	_, _, err = read(t, textConfig(&rest.Config{}), `{"type":"ADDED","object":`+pod+"}")
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an event without an end gives error %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if _, _, err = read(t, textConfig(&rest.Config{}), ""); !errors.Is(err, io.EOF) {
		t.Errorf("the end gives error %v, want %v", err, io.EOF)
	}
}

// BenchmarkWatchEvent reads the event of a Pod as an API server sends it.
func BenchmarkWatchEvent(b *testing.B) {
	pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{
		Name: "web-7d4b9c-x2x4z", Namespace: "shop", UID: "6f1c2c1e-8a34-4a5c-9c5e-0d2d4b1f8a77", ResourceVersion: "123456", Labels: map[string]string{"app": "web", "pod-template-hash": "7d4b9c"},
	}}
	for i := range 3 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "registry.example.com/web:1.2.3", Args: []string{"--verbose", "--port=8080"}})
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{Manager: fmt.Sprint("m", i), Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c0\"}":{".":{},"f:image":{},"f:name":{}}}}}`)})
	}
	object, err := json.Marshal(pod)
	if err != nil {
		b.Fatal(err)
	}
	text := `{"type":"MODIFIED","object":` + string(object) + "}\n"
	message, err := pod.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	message = envelope(b, pod.GroupVersionKind(), message)
	for name, decoder := range map[string]func(n int) *restwatch.Decoder{
		"client-go": func(n int) *restwatch.Decoder {
			return decoderOf(b, dynamic.ConfigFor(&rest.Config{}), strings.Repeat(text, n))
		},
		"JSON": func(n int) *restwatch.Decoder {
			return decoderOf(b, textConfig(&rest.Config{}), strings.Repeat(text, n))
		},
		"protobuf": func(n int) *restwatch.Decoder {
			return readMessages(b, binaryConfig(&rest.Config{}, &atomic.Bool{}), watch.Modified, slices.Repeat([][]byte{message}, n)...)
		},
		"protobuf of what was deleted": func(n int) *restwatch.Decoder {
			return readMessages(b, binaryConfig(&rest.Config{}, &atomic.Bool{}), watch.Deleted, slices.Repeat([][]byte{message}, n)...)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			d := decoder(b.N)
			b.ResetTimer()
			for range b.N {
				if _, _, err := d.Decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAPanicOfADecoderIsAnError shows that what no decoder can take ends no process: a watch is decoded in a goroutine of
// client-go.
func TestAPanicOfADecoderIsAnError(t *testing.T) {
	var failed atomic.Bool
	for name, d := range map[string]runtime.Decoder{
		"Events": eventSerializer{}, "Objects": objectSerializer{}, "BinaryEvents": binaryEventSerializer{}, "Messages": messageSerializer{failed: &failed}, // without the decoders that they rest on
	} {
		_, _, err := d.Decode([]byte("x"), nil, nil)
		var p *contain.Panic
		if !errors.As(err, &p) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if !failed.Load() {
		t.Error("a kind whose messages make a panic is read from protobuf again")
	}
}
