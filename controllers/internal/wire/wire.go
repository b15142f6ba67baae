// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wire reads what a list or a watch sends.
//
// Kinds whose types this program knows are sent in protobuf, which API servers write once for all who watch a kind: the
// controllers and the kubelets of a cluster read them so, and one more costs next to nothing. All others are sent as JSON.
//
// In a busy cluster the operator computes little else, and client-go's own way reads the JSON of each event nine times: to
// find where it ends, its kind, the kind of the object in it, and three times whether it is JSON. This one reads it three
// times. Of what was deleted it reads only the name, and what a watch sends in protobuf is put into maps when it is first
// looked at: of two changes that follow each other closely the first never is.
//
// It never reads another thing than client-go would from JSON: a kind that a newer API server sends with fields that
// this program does not know is read as JSON for a while, and JSON that does not look as API servers write it is left to client-go. Of an
// object that is too large, or nested too deep for decoders, it reads the metadata.
package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/controllers/internal/contain"
)

// textConfig returns the configuration of a dynamic client whose watches are read from JSON. For deleted objects, they give only what
// identifies the object and its version.
func textConfig(config *rest.Config) *rest.Config {
	out := dynamic.ConfigFor(config)
	out.NegotiatedSerializer = textSerializer{out.NegotiatedSerializer}
	return out
}

// textSerializer is how a dynamic client reads and writes, but for watches.
type textSerializer struct {
	runtime.NegotiatedSerializer
}

// SupportedMediaTypes are those of a dynamic client.
func (s textSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	var out []runtime.SerializerInfo
	for _, info := range s.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON && info.StreamSerializer != nil {
			info.Serializer = objectSerializer{info.Serializer}
			info.StreamSerializer = &runtime.StreamSerializerInfo{
				EncodesAsText: info.StreamSerializer.EncodesAsText,
				Serializer:    eventSerializer{info.StreamSerializer.Serializer},
				Framer:        framer{info.StreamSerializer.Framer},
			}
		}
		out = append(out, info)
	}
	return out
}

// decodeFunc reads one message.
type decodeFunc func(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error)

// decodeSafely decodes a message. A panic is an error: client-go decodes the events of a watch in a goroutine of its own,
// where a panic would end the process.
func decodeSafely(decode decodeFunc, data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (out runtime.Object, kind *schema.GroupVersionKind, err error) {
	if p := contain.CatchPanic(func() { out, kind, err = decode(data, gvk, into) }); p != nil {
		return nil, &schema.GroupVersionKind{}, p
	}
	return out, kind, err
}

// eventBegins is how API servers begin an event, which ends with the line.
const eventBegins = `{"type":"`

// framer finds where events end.
type framer struct {
	runtime.Framer
}

// NewFrameReader returns a reader of the events that r sends.
func (f framer) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	return &frames{Closer: r, lines: bufio.NewReader(r), newFallback: f.Framer.NewFrameReader}
}

// frames reads one event at a time.
type frames struct {
	io.Closer
	lines *bufio.Reader
	// line is the event that is being read, and left what of it did not fit into the last buffer.
	line, left []byte
	// newFallback makes what reads from the first line on that does not begin as an event does, which is fallback.
	newFallback func(io.ReadCloser) io.ReadCloser
	fallback    io.Reader
}

// Read reads one event. If it does not fit, the error is io.ErrShortBuffer, and the next call reads the rest.
func (f *frames) Read(into []byte) (int, error) {
	if f.fallback != nil {
		return f.fallback.Read(into)
	}
	if len(f.left) == 0 {
		if err := f.readLine(); err != nil {
			return 0, err
		}
		if !bytes.HasPrefix(f.line, []byte(eventBegins)) {
			read := io.MultiReader(bytes.NewReader(f.line), f.lines)
			f.fallback = f.newFallback(struct {
				io.Reader
				io.Closer
			}{read, f.Closer})
			return f.fallback.Read(into)
		}
		f.left = bytes.TrimSuffix(f.line, []byte("\n"))
	}
	n := copy(into, f.left)
	if f.left = f.left[n:]; len(f.left) > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

// readLine reads a line. One that has no end was cut off.
func (f *frames) readLine() error {
	f.line = f.line[:0]
	for {
		part, err := f.lines.ReadSlice('\n')
		f.line = append(f.line, part...)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, io.EOF) && len(f.line) > 0:
			return io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// eventSerializer reads the envelopes of a watch's events.
type eventSerializer struct {
	runtime.Serializer
}

// Decode cuts an event as API servers write it in two. Whether what is in it is JSON is found out by who decodes it. An
// event that is written in any other way is left to client-go.
func (s eventSerializer) Decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return decodeSafely(s.decodeEvent, data, gvk, into)
}

func (s eventSerializer) decodeEvent(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return s.Serializer.Decode(data, gvk, into)
	}
	name, object, ok := cutEvent(data)
	if !ok {
		return s.Serializer.Decode(data, gvk, into)
	}
	if watch.EventType(name) == watch.Deleted {
		object = markDeleted(object)
	}
	event.Type, event.Object.Raw = name, object
	return event, gvk, nil
}

// cutEvent has the type and the object of an event, in the order and without the spaces of an API server.
func cutEvent(data []byte) (name string, object []byte, ok bool) {
	rest, begins := bytes.CutPrefix(data, []byte(eventBegins))
	kind, rest, cut := bytes.Cut(rest, []byte(`","object":`))
	object, ends := bytes.CutSuffix(rest, []byte("}"))
	return string(kind), object, begins && cut && ends && !bytes.ContainsAny(kind, `"\`)
}

// deletedMark comes before an object that was deleted, from who reads the envelope of its event to who reads the object, and
// says that only its name is wanted.
const deletedMark = "\x00gone"

func markDeleted(object []byte) []byte { return append([]byte(deletedMark), object...) }

// nameOnly is an object with nothing but what names it and its version.
func nameOnly(kind schema.GroupVersionKind, o metav1.Object) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(o.GetNamespace())
	u.SetName(o.GetName())
	u.SetUID(o.GetUID())
	u.SetResourceVersion(o.GetResourceVersion())
	return u
}

// objectSerializer reads objects.
type objectSerializer struct {
	runtime.Serializer
}

// Decode reads one object into a map. All else, such as a Status or a list, is left to client-go. Of an object that is too
// large a watch tells the metadata, and so does a list.
func (s objectSerializer) Decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return decodeSafely(s.decodeObject, data, gvk, into)
}

func (s objectSerializer) decodeObject(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	data, gone := bytes.CutPrefix(data, []byte(deletedMark))
	if list, ok := into.(*unstructured.UnstructuredList); ok {
		return s.decodeList(data, gvk, list)
	}
	read := parseWholeObject
	if gone {
		read = parseDeletedObject
	} else if err := CheckText(data); err != nil {
		if into != nil {
			return nil, nil, err
		}
		return parseLargeObject(data)
	}
	if into != nil {
		return s.Serializer.Decode(data, gvk, into)
	}
	u, ok := read(data)
	if !ok {
		return s.Serializer.Decode(data, gvk, into)
	}
	kind := u.GroupVersionKind()
	return u, &kind, nil
}

// decodeList reads a list. Those of its items that are too large are cut down to their metadata before.
func (s objectSerializer) decodeList(data []byte, gvk *schema.GroupVersionKind, into *unstructured.UnstructuredList) (runtime.Object, *schema.GroupVersionKind, error) {
	if isSmall(data, perCharacter) {
		return s.Serializer.Decode(data, gvk, into)
	}
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        json.RawMessage   `json:"metadata,omitempty"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := utiljson.Unmarshal(data, &list); err != nil {
		return nil, nil, err
	}
	large := map[int]*unstructured.Unstructured{}
	for i, item := range list.Items {
		if CheckText(item) == nil {
			continue
		}
		metadata, err := parseTextMetadata(item)
		if err != nil {
			return nil, nil, err
		}
		if large[i], err = newUnreadItem(metadata, errTooLarge); err != nil {
			return nil, nil, err
		}
		list.Items[i] = json.RawMessage(`{}`) // whose place it takes
	}
	if len(large) == 0 {
		return s.Serializer.Decode(data, gvk, into)
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, nil, err
	}
	out, kind, err := s.Serializer.Decode(data, gvk, into)
	if err != nil {
		return nil, nil, err
	}
	for i, u := range large {
		if u.GetKind() == "" && u.GetAPIVersion() == "" { // as client-go does
			u.SetKind(strings.TrimSuffix(list.Kind, "List"))
			u.SetAPIVersion(list.APIVersion)
		}
		into.Items[i] = *u
	}
	return out, kind, nil
}

// parseLargeObject reads an object that is too large.
func parseLargeObject(data []byte) (runtime.Object, *schema.GroupVersionKind, error) {
	metadata, err := parseTextMetadata(data)
	if err != nil {
		return nil, nil, err
	}
	kind := metadata.GroupVersionKind()
	if !isObjectKind(kind) {
		return nil, nil, errTooLarge
	}
	return newTooLargeObject(metadata), &kind, nil
}

// parseTextMetadata reads the metadata of an object from its JSON, and nothing else.
func parseTextMetadata(data []byte) (*metav1.PartialObjectMetadata, error) {
	var o metav1.PartialObjectMetadata
	err := utiljson.Unmarshal(data, &o)
	return &o, err
}

// parseWholeObject reads the JSON of an object; false if it is anything else.
func parseWholeObject(data []byte) (*unstructured.Unstructured, bool) {
	var value map[string]any
	if utiljson.Unmarshal(data, &value) != nil {
		return nil, false
	}
	u := &unstructured.Unstructured{Object: value}
	_, list := value["items"]
	return u, isObjectKind(u.GroupVersionKind()) && !list
}

// parseDeletedObject reads what names an object, and its version, from its JSON; false if it is anything else.
func parseDeletedObject(data []byte) (*unstructured.Unstructured, bool) {
	var o struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Namespace       string    `json:"namespace"`
			Name            string    `json:"name"`
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if utiljson.Unmarshal(data, &o) != nil {
		return nil, false
	}
	m := metav1.ObjectMeta{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, UID: o.Metadata.UID, ResourceVersion: o.Metadata.ResourceVersion}
	return nameOnly(o.GroupVersionKind(), &m), isObjectKind(o.GroupVersionKind())
}

// isObjectKind reports whether a kind is an object's, and not a Status.
func isObjectKind(kind schema.GroupVersionKind) bool {
	return kind.Kind != "" && kind.Version != "" && kind.Kind != "Status"
}
