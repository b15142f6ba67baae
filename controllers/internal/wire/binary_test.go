// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/randfill"
)

// envelope is how an API server sends a message.
func envelope(t testing.TB, kind schema.GroupVersionKind, data []byte) []byte {
	t.Helper()
	apiVersion, name := kind.ToAPIVersionAndKind()
	var out bytes.Buffer
	unknown := &runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: name}, Raw: data}
	if err := protobuf.NewSerializer(nil, nil).Encode(unknown, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// newEventEncoder writes the events of a watch as an API server does.
func newEventEncoder(to io.Writer) streaming.Encoder {
	return streaming.NewEncoder(protobuf.LengthDelimitedFramer.NewFrameWriter(to), protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme))
}

// readMessages reads the events of envelopes as a client does that reads protobuf.
func readMessages(t testing.TB, config *rest.Config, event watch.EventType, envelopes ...[]byte) *restwatch.Decoder {
	t.Helper()
	objects, events, frames, err := runtime.NewClientNegotiator(config.NegotiatedSerializer, corev1.SchemeGroupVersion).StreamDecoder(runtime.ContentTypeProtobuf, nil)
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	for _, e := range envelopes {
		if err := newEventEncoder(&stream).Encode(&metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: e}}); err != nil {
			t.Fatal(err)
		}
	}
	return restwatch.NewDecoder(streaming.NewDecoder(frames.NewFrameReader(io.NopCloser(&stream)), events), objects)
}

// sent is one object of a random content as an API server sends it in protobuf and in JSON.
func sent(t *testing.T, random *randfill.Filler, kind schema.GroupVersionKind) (data, text []byte) {
	t.Helper()
	stored := func(data []byte) typed { // which is what an API server reads, and sends in one way or the other
		object, err := scheme.Scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		m := object.(typed)
		if err := m.Unmarshal(data); err != nil {
			t.Fatal(err)
		}
		return m
	}
	filled := stored(nil)
	random.Fill(filled)
	data, err := filled.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	m := stored(data)
	if data, err = m.Marshal(); err != nil {
		t.Fatal(err)
	}
	m.GetObjectKind().SetGroupVersionKind(kind)
	if text, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	return envelope(t, kind, data), text
}

// decoder reads objects of a media type.
func decoder(t testing.TB, config *rest.Config, mediaType string) runtime.Decoder {
	t.Helper()
	d, err := runtime.NewClientNegotiator(config.NegotiatedSerializer, corev1.SchemeGroupVersion).Decoder(mediaType, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newRandom() *randfill.Filler {
	return randfill.NewWithSeed(1).NilChance(.5).NumElements(0, 1).Funcs(metafuzzer.Funcs(scheme.Codecs)...)
}

// known are the kinds that are read in protobuf, and lists of them.
func known() []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	for kind := range scheme.Scheme.AllKnownTypes() {
		object, err := scheme.Scheme.New(kind)
		if err != nil || kind.Version == runtime.APIVersionInternal {
			continue
		}
		_, isMessage := object.(typed)
		_, isObject := object.(metav1.Object)
		if isMessage && (isObject || meta.IsListType(object)) {
			out = append(out, kind)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// Whatever is in an object of any kind, or in a list of them: protobuf and JSON are read the same.
func TestBinary(t *testing.T) {
	kinds := known()
	if len(kinds) < 100 {
		t.Fatalf("only %d kinds are known", len(kinds))
	}
	random := newRandom()
	text := decoder(t, dynamic.ConfigFor(&rest.Config{}), runtime.ContentTypeJSON)
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			failed := &atomic.Bool{}
			binary := decoder(t, binaryConfig(&rest.Config{}, failed), runtime.ContentTypeProtobuf)
			for range 10 {
				data, asText := sent(t, random, kind)
				var want, got runtime.Object = &unstructured.Unstructured{}, &unstructured.Unstructured{}
				if strings.HasSuffix(kind.Kind, "List") {
					want, got = &unstructured.UnstructuredList{}, &unstructured.UnstructuredList{}
				}
				if err := runtime.DecodeInto(text, asText, want); err != nil {
					t.Fatal(err)
				}
				if err := runtime.DecodeInto(binary, data, got); err != nil || failed.Load() {
					t.Fatalf("error %v, failed is %t", err, failed.Load())
				}
				if diff := cmp.Diff(unmanaged(t, want), unmanaged(t, got)); diff != "" {
					t.Fatalf("object (-JSON +protobuf):\n%s", diff)
				}
				if u, ok := want.(*unstructured.Unstructured); ok {
					watchedAs(t, u, binary, data)
				}
			}
		})
	}
}

// watchedAs checks that a watch tells of an object its metadata and, to who asks, the rest.
func watchedAs(t *testing.T, want *unstructured.Unstructured, binary runtime.Decoder, data []byte) {
	t.Helper()
	decoded, kind, err := binary.Decode(data, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := decoded.(*Object)
	if !ok || *kind != want.GroupVersionKind() {
		t.Fatalf("got a %T of kind %s", decoded, kind)
	}
	var metadata metav1.PartialObjectMetadata
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(want.Object, &metadata); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(metadata, got.PartialObjectMetadata, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("metadata (-JSON +protobuf):\n%s", diff)
	}
	if most := len(data); got.Size <= most/2 || got.Size > most || got.DeepCopyObject().(*Object).Size != got.Size {
		t.Errorf("%d bytes were sent of it, in an envelope of %d", got.Size, most)
	}
	for range 2 {
		content, err := got.DeepCopyObject().(*Object).Content()
		if diff := cmp.Diff(want.Object, content); err != nil || diff != "" {
			t.Fatalf("error %v, content (-JSON +protobuf):\n%s", err, diff)
		}
	}
}

// unmanaged is an object or a list without managedFields.
func unmanaged(t *testing.T, o runtime.Object) runtime.Object {
	t.Helper()
	strip := func(o runtime.Object) error {
		unstructured.RemoveNestedField(o.(*unstructured.Unstructured).Object, "metadata", "managedFields")
		return nil
	}
	if !meta.IsListType(o) {
		_ = strip(o)
		return o
	}
	if err := meta.EachListItem(o, strip); err != nil {
		t.Fatal(err)
	}
	return o
}

// podMessage is a Pod as an API server sends it in protobuf, with what a newer one knows of it.
func podMessage(t testing.TB, newer ...byte) []byte {
	t.Helper()
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "b", Name: "a", UID: "c", ResourceVersion: "12", Labels: map[string]string{"x": "y"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}}
	data, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return envelope(t, corev1.SchemeGroupVersion.WithKind("Pod"), append(data, newer...))
}

// newerField is a field with a number that no type has, and a value of one byte.
var newerField = []byte{0xfa, 0x3e, 1, 'z'}

// What was deleted has its name and its version, even if it has fields that are not known.
func TestBinaryDeleted(t *testing.T) {
	failed := &atomic.Bool{}
	d := readMessages(t, binaryConfig(&rest.Config{}, failed), watch.Deleted, podMessage(t, newerField...), podMessage(t))
	for range 2 {
		event, got, err := d.Decode()
		if err != nil || event != watch.Deleted || failed.Load() {
			t.Fatalf("got %q, %v, and failed is %t", event, err, failed.Load())
		}
		want := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "12"},
		}}
		if diff := cmp.Diff(runtime.Object(want), got); diff != "" {
			t.Errorf("object (-want +got):\n%s", diff)
		}
	}
	if _, _, err := d.Decode(); !errors.Is(err, io.EOF) {
		t.Errorf("the end gives error %v, want %v", err, io.EOF)
	}
}

// An error of a watch is the Status that client-go makes errors of.
func TestBinaryError(t *testing.T) {
	expired := metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone}
	data, err := expired.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	failed := &atomic.Bool{}
	for name, data := range map[string][]byte{"as known": data, "of a newer API server": append(data, newerField...)} {
		_, got, err := readMessages(t, binaryConfig(&rest.Config{}, failed), watch.Error, envelope(t, schema.GroupVersionKind{Version: "v1", Kind: "Status"}, data)).Decode()
		if status, ok := got.(*metav1.Status); err != nil || !ok || status.Reason != metav1.StatusReasonExpired || failed.Load() {
			t.Errorf("%s: got a %T, %v, and failed is %t", name, got, err, failed.Load())
		}
	}
}

// What cannot be read without a loss is not read.
func TestBinaryLoss(t *testing.T) {
	pod := corev1.SchemeGroupVersion.WithKind("Pod")
	inside := []byte{0x12, byte(len(newerField))} // in its spec
	for name, data := range map[string][]byte{
		"a field that is not known":        podMessage(t, newerField...),
		"a field inside that is not known": podMessage(t, append(inside, newerField...)...),
		"a kind that is not known":         envelope(t, corev1.SchemeGroupVersion.WithKind("Capsule"), nil),
		"a kind that is in no protobuf":    envelope(t, schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: "TableRow"}, nil),
		"cut off":                          envelope(t, pod, []byte{0x0a, 0x7f}),
		"not protobuf":                     []byte("hello"),
		"nothing":                          nil,
	} {
		t.Run(name, func(t *testing.T) {
			failed := &atomic.Bool{}
			_, got, err := readMessages(t, binaryConfig(&rest.Config{}, failed), watch.Modified, data).Decode()
			if err == nil || !failed.Load() {
				t.Errorf("got %v, %v, and failed is %t", got, err, failed.Load())
			}
		})
	}
}

// A client reads a kind in protobuf until that fails, and then as JSON, of which it loses nothing. Other kinds go on, and those
// of which this program has no types are never asked for in protobuf.
func TestClientReadsAsJSONWhatItDoesNotKnow(t *testing.T) {
	var accepted sync.Map // by path
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted.Store(r.URL.Path, r.Header.Get("Accept"))
		if !strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
			w.Header().Set("Content-Type", runtime.ContentTypeJSON)
			_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"newer":"z"}}`)
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		newer := newerField
		if strings.Contains(r.URL.Path, "/nodes") {
			newer = nil
		}
		_, _ = w.Write(podMessage(t, newer...))
	}))
	defer server.Close()
	now := clocktesting.NewFakePassiveClock(time.Unix(1700000000, 0))
	c, err := NewClient(&rest.Config{Host: server.URL}, server.Client(), now)
	if err != nil {
		t.Fatal(err)
	}
	get := func(group, resource string) (*unstructured.Unstructured, error) {
		return c.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}).Get(t.Context(), "a", metav1.GetOptions{})
	}
	if _, err := get("", "pods"); !errors.Is(err, errOtherFields) || !errors.Is(err, ErrNotBinary) {
		t.Errorf("got error %v, want %v", err, errOtherFields)
	}
	pod, err := get("", "pods")
	if err != nil {
		t.Fatal(err)
	}
	if newer, _, _ := unstructured.NestedString(pod.Object, "spec", "newer"); newer != "z" {
		t.Errorf("got %v, without what is newer", pod.Object)
	}
	if _, err := get("", "nodes"); err != nil {
		t.Error(err)
	}
	if _, err := get("example.com", "capsules"); err != nil {
		t.Error(err)
	}
	for path, binary := range map[string]bool{"/api/v1/pods/a": false, "/api/v1/nodes/a": true, "/apis/example.com/v1/capsules/a": false} {
		last, _ := accepted.Load(path)
		if accept, _ := last.(string); strings.Contains(accept, runtime.ContentTypeProtobuf) != binary {
			t.Errorf("%s was asked for as %q", path, accept)
		}
	}

	now.SetTime(now.Now().Add(textFor)) // the API server may have become an older one
	if _, err := get("", "pods"); !errors.Is(err, ErrNotBinary) {
		t.Errorf("after a while: got error %v, want %v", err, ErrNotBinary)
	}
	if _, err := get("", "pods"); err != nil {
		t.Errorf("after a while: got error %v", err)
	}
}

// noText is a value that is neither a number nor a text, as only protobuf can say. API servers take it in places that they do not check.
var noText = &intstr.IntOrString{Type: 5, StrVal: "http"}

// poisoned are objects that no JSON can say, by their kinds.
func poisoned() map[schema.GroupVersionKind]typed {
	named := metav1.ObjectMeta{Namespace: "mallory", Name: "bad", UID: "u", ResourceVersion: "12", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}
	return map[schema.GroupVersionKind]typed{
		policies: &networkingv1.NetworkPolicy{ObjectMeta: named, Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: noText}}}}}},
		appsv1.SchemeGroupVersion.WithKind("DaemonSet"):          &appsv1.DaemonSet{ObjectMeta: named, Spec: appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: noText}}}},
		appsv1.SchemeGroupVersion.WithKind("ControllerRevision"): &appsv1.ControllerRevision{ObjectMeta: named, Data: runtime.RawExtension{Raw: []byte("no JSON")}},
	}
}

// One object that no JSON can say is an error of its own. It keeps no other of a list from being read, nor protobuf from being asked for:
// an API server cannot write it as JSON either.
func TestAnObjectThatNoJSONCanSay(t *testing.T) {
	for kind, bad := range poisoned() {
		t.Run(kind.Kind, func(t *testing.T) {
			message, err := bad.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			object, err := scheme.Scheme.New(kind)
			if err != nil {
				t.Fatal(err)
			}
			good := object.(metav1.Object)
			good.SetName("good")
			goodMessage, err := object.(typed).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			failed := &atomic.Bool{}
			config := binaryConfig(&rest.Config{}, failed)

			items := []byte("\x0a\x07\x0a\x00\x12\x017\x1a\x00")
			for _, m := range [][]byte{goodMessage, message, goodMessage} {
				items = protowire.AppendBytes(protowire.AppendTag(items, 2, protowire.BytesType), m)
			}
			var list unstructured.UnstructuredList
			lists := kind
			lists.Kind += "List"
			if err := runtime.DecodeInto(decoder(t, config, runtime.ContentTypeProtobuf), envelope(t, lists, items), &list); err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != 3 || list.GetResourceVersion() != "7" || list.GroupVersionKind() != lists {
				t.Errorf("got a %s of %d items and version %q", list.GroupVersionKind(), len(list.Items), list.GetResourceVersion())
			}
			for i := range list.Items {
				u, want := &list.Items[i], error(nil)
				if i == 1 {
					want = errNoJSON
				}
				if got := UnreadReason(u); !errors.Is(got, want) || u.GroupVersionKind() != kind || u.GetName() == "bad" != (want != nil) {
					t.Errorf("item %d is %v, unread because: %v", i, u.Object, got)
				}
			}
			if u := &list.Items[1]; u.GetNamespace() != "mallory" || u.GetUID() != "u" || u.GetResourceVersion() != "12" || u.GetLabels()["a"] != "b" {
				t.Errorf("its metadata is %v", u.Object)
			}

			if err := runtime.DecodeInto(decoder(t, config, runtime.ContentTypeProtobuf), envelope(t, kind, message), &unstructured.Unstructured{}); !errors.Is(err, errNoJSON) {
				t.Errorf("read alone it gives %v", err)
			}
			_, got, err := readMessages(t, config, watch.Modified, envelope(t, kind, message)).Decode()
			if o, ok := got.(*Object); err != nil || !ok || o.GetName() != "bad" {
				t.Errorf("a watch tells of %v, %v", got, err)
			} else if _, err := o.Content(); !errors.Is(err, errNoJSON) {
				t.Errorf("its content gives %v", err)
			}
			if failed.Load() {
				t.Error("the kind will be read as JSON")
			}
		})
	}
}
