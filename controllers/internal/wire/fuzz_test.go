// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"

	"github.com/vtex/cleaner/controllers/internal/contain"
)

// The ways in which FuzzWatchEvents sends what it makes up.
const (
	asText    = iota // the stream of a watch, in JSON
	asFrames         // the same, in protobuf
	asMessage        // one object of a kind, in an event and a frame that are sound
	ways
)

// FuzzWatchEvents reads what a watch sends. Whatever it is, it ends nothing and takes no more memory than was counted; and what
// client-go reads too is read the same.
func FuzzWatchEvents(f *testing.F) {
	for _, text := range []string{
		`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}}`,
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}`,
		`{"type":"ADDED","object":{"apiVersion":"v1","kind":"PodList","items":[{}]}}`,
		`{"type":"DELETED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"a":"b"}}}}`,
		`{"object":{"apiVersion":"v1","kind":"Pod"},"type":"ADDED"}`,
	} {
		f.Add(uint8(asText), uint16(0), []byte(text+"\n"))
	}
	kinds := known()
	objects := map[string]typed{
		"Pod": &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}},
		"NetworkPolicy": &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{
			{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}, {},
		}}},
		"ConfigMap": &corev1.ConfigMap{Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": {0xff}}},
		"Status":    &metav1.Status{Code: 410},
	}
	for i, kind := range kinds {
		object, ok := objects[kind.Kind]
		if !ok || kind.Version != "v1" {
			continue
		}
		message, err := object.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(asMessage), uint16(i), message)
		f.Add(uint8(asFrames), uint16(0), framed(f, watch.Modified, envelope(f, kind, message)))
	}
	for kind, object := range poisoned() {
		message, err := object.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(asMessage), uint16(slices.Index(kinds, kind)), message)
		f.Add(uint8(asFrames), uint16(0), framed(f, watch.Modified, envelope(f, kind, message)))
	}
	f.Fuzz(func(t *testing.T, way uint8, kind uint16, data []byte) {
		if len(data) > 64<<10 {
			t.Skip()
		}
		switch way % ways {
		case asText:
			fuzzText(t, data)
		case asFrames:
			for d, end := streamOf(t, data), false; !end; {
				o, err := decodeWithin(t, d, 5*perMessageByte*int64(len(data)))
				if _, err := contentWithin(t, o, 5*perMessageByte*int64(len(data))); err != nil && !errors.Is(err, errNoJSON) {
					t.Errorf("an object that is small was not read: %v", err)
				}
				end = err != nil
			}
		case asMessage:
			gvk := kinds[int(kind)%len(kinds)]
			object, err := scheme.Scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			counted := messageSize(data, reflect.TypeOf(object).Elem(), 1<<40)
			o, err := decodeWithin(t, streamOf(t, framed(t, watch.Modified, envelope(t, gvk, data))), 5*counted)
			if err != nil || o == nil {
				return
			}
			got, notSaid := contentWithin(t, o, 5*counted)
			if notSaid != nil && !errors.Is(notSaid, errNoJSON) {
				t.Fatal(notSaid)
			}
			if err := object.(typed).Unmarshal(data); err != nil {
				t.Fatalf("client-go does not read it: %v", err)
			}
			object.(metav1.Object).SetManagedFields(nil)
			object.GetObjectKind().SetGroupVersionKind(gvk)
			text, err := json.Marshal(object)
			if err != nil {
				return
			}
			if notSaid != nil {
				t.Fatalf("client-go writes %s, and this says: %v", text, notSaid)
			}
			var want unstructured.Unstructured
			if err := want.UnmarshalJSON(text); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(want.Object, got) {
				t.Errorf("%s: client-go reads %v, and this %v", gvk, want.Object, got)
			}
		}
	})
}

// fuzzText reads a stream of JSON.
func fuzzText(t *testing.T, text []byte) {
	t.Helper()
	theirs := decoderOf(t, dynamic.ConfigFor(&rest.Config{}), string(text))
	ours := decoderOf(t, textConfig(&rest.Config{}), string(text))
	for {
		event, got, err := decodeEvent(t, ours, 5*textSize(text, 1<<40)+8*int64(len(text)))
		if err != nil {
			return
		}
		wantEvent, want, wantErr := theirs.Decode()
		if wantErr != nil || event != wantEvent {
			t.Fatalf("client-go reads %q, %v, %v, and this %q, %v", wantEvent, want, wantErr, event, got)
		}
		if event == watch.Deleted {
			w, wOK := want.(metav1.Object)
			g, gOK := got.(metav1.Object)
			if wOK != gOK || wOK && (w.GetName() != g.GetName() || w.GetNamespace() != g.GetNamespace() || w.GetUID() != g.GetUID() || w.GetResourceVersion() != g.GetResourceVersion()) {
				t.Errorf("client-go reads that %v was deleted, and this %v", want, got)
			}
		} else if !reflect.DeepEqual(want, got) {
			t.Errorf("client-go reads %v, and this %v", want, got)
		}
	}
}

// framed is an event of an object as a watch sends it in protobuf.
func framed(t testing.TB, event watch.EventType, object []byte) []byte {
	t.Helper()
	var stream bytes.Buffer
	if err := newEventEncoder(&stream).Encode(&metav1.WatchEvent{Type: string(event), Object: apiruntime.RawExtension{Raw: object}}); err != nil {
		t.Fatal(err)
	}
	return stream.Bytes()
}

// streamOf reads a stream of protobuf.
func streamOf(t *testing.T, data []byte) *restwatch.Decoder {
	t.Helper()
	config := binaryConfig(&rest.Config{}, &atomic.Bool{})
	objects, events, frames, err := apiruntime.NewClientNegotiator(config.NegotiatedSerializer, corev1.SchemeGroupVersion).StreamDecoder(apiruntime.ContentTypeProtobuf, nil)
	if err != nil {
		t.Fatal(err)
	}
	return restwatch.NewDecoder(streaming.NewDecoder(frames.NewFrameReader(io.NopCloser(bytes.NewReader(data))), events), objects)
}

// decodeEvent reads an event, which may allocate so many bytes, and what a stream needs.
func decodeEvent(t *testing.T, d *restwatch.Decoder, most int64) (event watch.EventType, o apiruntime.Object, err error) {
	t.Helper()
	const stream = 256 << 10
	allocated := allocatedBy(func() { event, o, err = d.Decode() })
	if allocated > most+stream {
		t.Errorf("%d bytes are allocated, and %d were counted", allocated, most)
	}
	var panicked *contain.Panic
	if errors.As(err, &panicked) {
		t.Errorf("%v\n%s", panicked, panicked.Stack)
	}
	return event, o, err
}

// decodeWithin reads an object of a watch in protobuf; nil if it tells of something else.
func decodeWithin(t *testing.T, d *restwatch.Decoder, most int64) (*Object, error) {
	t.Helper()
	_, o, err := decodeEvent(t, d, most)
	object, _ := o.(*Object)
	return object, err
}

// contentWithin is the content of an object, which may allocate so many bytes.
func contentWithin(t *testing.T, o *Object, most int64) (content map[string]any, err error) {
	t.Helper()
	const types = 2 << 20 // what there is to know of types that are seen first
	if o == nil {
		return nil, nil
	}
	if allocated := allocatedBy(func() { content, err = o.Content() }); allocated > most+types {
		t.Errorf("%d bytes are allocated for its content, and %d were counted", allocated, most)
	}
	return content, err
}
