// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// errOtherFields says that there may be more in a message than this program knows of.
var errOtherFields = errors.New("its fields are not those that this program knows")

// binaryConfig is that of a dynamic client that reads objects from protobuf, and marks when one could not be read so
// without a loss. What an API server nevertheless sends as JSON is read too.
func binaryConfig(config *rest.Config, failed *atomic.Bool) *rest.Config {
	out := textConfig(config)
	out.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	out.NegotiatedSerializer = binarySerializer{out.NegotiatedSerializer, failed}
	return out
}

// binarySerializer is how a dynamic client reads and writes, and what it reads of protobuf.
type binarySerializer struct {
	runtime.NegotiatedSerializer
	failed *atomic.Bool
}

// SupportedMediaTypes are those of a dynamic client, and protobuf.
func (s binarySerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	all := s.NegotiatedSerializer.SupportedMediaTypes()
	binary, known := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !known {
		return all
	}
	binary.Serializer = messages{binary.Serializer, s.failed}
	binary.StreamSerializer = &runtime.StreamSerializerInfo{
		Serializer: binaryEvents{binary.StreamSerializer.Serializer},
		Framer:     binary.StreamSerializer.Framer,
	}
	return append(all, binary)
}

// binaryEvents reads the envelopes of a watch's events.
type binaryEvents struct {
	runtime.Serializer
}

// Decode marks what was deleted, so that nothing but the name is read of it.
func (s binaryEvents) Decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return contained(s.decode, data, gvk, into)
}

func (s binaryEvents) decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	out, kind, err := s.Serializer.Decode(data, gvk, into)
	if event, ok := out.(*metav1.WatchEvent); ok && err == nil && watch.EventType(event.Type) == watch.Deleted {
		event.Object.Raw = markGone(event.Object.Raw)
	}
	return out, kind, err
}

// messages reads objects from protobuf.
type messages struct {
	runtime.Serializer // of protobuf
	failed             *atomic.Bool
}

// Decode reads one object or list into maps, as if it had been JSON, one of a watch as an Object, and a Status as such. If
// that cannot be done without a loss it marks so, and the error says why.
func (m messages) Decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	out, kind, err := contained(m.decode, data, gvk, into)
	if err != nil {
		m.failed.Store(true)
		return nil, kind, fmt.Errorf("cannot read %s from protobuf, and will read it from JSON: %w", kind.Kind, err)
	}
	return out, kind, nil
}

func (m messages) decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	data, gone := bytes.CutPrefix(data, []byte(goneMark))
	message, kind, err := m.open(data, gvk)
	if err != nil {
		return nil, &kind, err
	}
	object, err := readMessage(message, kind, gone, into)
	return object, &kind, err
}

// open is the message of an object, and its kind.
func (m messages) open(data []byte, defaults *schema.GroupVersionKind) ([]byte, schema.GroupVersionKind, error) {
	var envelope runtime.Unknown
	_, kind, err := m.Serializer.Decode(data, defaults, &envelope)
	if err != nil {
		return nil, schema.GroupVersionKind{}, fmt.Errorf("cannot read a message: %w", err)
	}
	return envelope.Raw, *kind, nil
}

// typed is an object that can be read from a message, and written again.
type typed interface {
	runtime.Object
	Unmarshal(message []byte) error
	Marshal() (message []byte, err error)
}

// readMessage reads a message. All objects have their metadata in the same field. It fails if something of an object
// would get lost.
func readMessage(message []byte, kind schema.GroupVersionKind, gone bool, into runtime.Object) (runtime.Object, error) {
	if gone {
		var o metav1.PartialObjectMetadata
		err := o.Unmarshal(message)
		return nameOnly(kind, &o), err
	}
	object, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	o, ok := object.(typed)
	if !ok {
		return nil, fmt.Errorf("%T is in no protobuf", object)
	}
	if err := o.Unmarshal(message); err != nil {
		return nil, err
	}
	if _, ok := object.(*metav1.Status); ok { // of which nothing else is read
		return object, nil
	}
	// A field that is not known was skipped in silence, and is missing in what is written again. An older API server may
	// lack a field that is always written: nothing is lost then, but that cannot be told apart.
	if again, err := o.Marshal(); err != nil || !bytes.Equal(again, message) {
		return nil, errors.Join(errOtherFields, err)
	}
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil) // which nobody reads, and would be half of the work
	}
	if into == nil { // it comes of a watch
		return later(o, kind)
	}
	return untyped(object, kind, into)
}

// later is an object of a watch, which is put into maps when somebody reads it.
func later(o typed, kind schema.GroupVersionKind) (*Object, error) {
	var metadata *metav1.ObjectMeta
	if named, ok := o.(metav1.ObjectMetaAccessor); ok {
		metadata, _ = named.GetObjectMeta().(*metav1.ObjectMeta)
	}
	if metadata == nil {
		return nil, fmt.Errorf("%T has no metadata", o)
	}
	out := &Object{Content: sync.OnceValues(func() (map[string]any, error) {
		var u unstructured.Unstructured
		_, err := untyped(o, kind, &u)
		return u.Object, err
	})}
	out.ObjectMeta = *metadata
	out.SetGroupVersionKind(kind)
	return out, nil
}

// untyped puts an object or a list into maps, in an Unstructured or a list of them.
func untyped(object runtime.Object, kind schema.GroupVersionKind, into runtime.Object) (runtime.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	items, _ := content["items"].([]any) // which say of themselves what they are only where it differs
	item := kind
	item.Kind = strings.TrimSuffix(kind.Kind, "List")
	for _, i := range items {
		if o, ok := i.(map[string]any); ok && o["kind"] == nil {
			(&unstructured.Unstructured{Object: o}).SetGroupVersionKind(item)
		}
	}
	out, ok := into.(runtime.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T has no place for it", into)
	}
	out.SetUnstructuredContent(content)
	if list, ok := out.(*unstructured.UnstructuredList); ok {
		delete(list.Object, "items") // which are in the list by now
	}
	out.GetObjectKind().SetGroupVersionKind(kind)
	return out, nil
}
