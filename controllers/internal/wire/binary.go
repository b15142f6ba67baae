// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/controllers/internal/contain"
)

var (
	// ErrNotBinary says that something cannot be read from protobuf without a loss. The next request reads it from JSON.
	ErrNotBinary = errors.New("will read it from JSON")
	// errOtherFields says that there may be more in a message than this program knows of.
	errOtherFields = errors.New("its fields are not those that this program knows")
	// errNoJSON says that an object has a value that only protobuf can say, such as an IntOrString that is neither. An API server
	// cannot write it as JSON either.
	errNoJSON = errors.New("it has a value that cannot be written as JSON; correct or delete it")
)

// binaryConfig returns the configuration of a dynamic client that reads objects from protobuf, and marks when one could not be read so
// without a loss. It also reads what an API server nevertheless sends as JSON.
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
	binary.Serializer = messageSerializer{binary.Serializer, s.failed}
	binary.StreamSerializer = &runtime.StreamSerializerInfo{
		Serializer: binaryEventSerializer{binary.StreamSerializer.Serializer},
		Framer:     binary.StreamSerializer.Framer,
	}
	return append(all, binary)
}

// binaryEventSerializer reads the envelopes of a watch's events.
type binaryEventSerializer struct {
	runtime.Serializer
}

// Decode marks what was deleted, so that nothing but the name is read of it.
func (s binaryEventSerializer) Decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return decodeSafely(s.decodeEvent, data, gvk, into)
}

func (s binaryEventSerializer) decodeEvent(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	out, kind, err := s.Serializer.Decode(data, gvk, into)
	if event, ok := out.(*metav1.WatchEvent); ok && err == nil && watch.EventType(event.Type) == watch.Deleted {
		event.Object.Raw = markDeleted(event.Object.Raw)
	}
	return out, kind, err
}

// messageSerializer reads objects from protobuf.
type messageSerializer struct {
	runtime.Serializer // of protobuf
	failed             *atomic.Bool
}

// Decode reads one object or list into maps, as if it had been JSON, one of a watch as an Object, and a Status as such. If
// that cannot be done without a loss it marks so, and the error says why.
func (m messageSerializer) Decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	out, kind, err := decodeSafely(m.decodeMessage, data, gvk, into)
	if errors.Is(err, errTooLarge) || errors.Is(err, errNoJSON) { // as JSON too
		return nil, kind, err
	}
	if err != nil {
		m.failed.Store(true)
		return nil, kind, fmt.Errorf("cannot read %s from protobuf, and %w: %w", kind.Kind, ErrNotBinary, err)
	}
	return out, kind, nil
}

func (m messageSerializer) decodeMessage(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	data, gone := bytes.CutPrefix(data, []byte(deletedMark))
	message, kind, err := m.openEnvelope(data, gvk)
	if err != nil {
		return nil, &kind, err
	}
	object, err := readMessage(message, kind, gone, into)
	return object, &kind, err
}

// openEnvelope returns the message of an object, and its kind.
func (m messageSerializer) openEnvelope(data []byte, defaults *schema.GroupVersionKind) ([]byte, schema.GroupVersionKind, error) {
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
// would get lost. Of one that is too large a watch tells the metadata.
func readMessage(message []byte, kind schema.GroupVersionKind, gone bool, into runtime.Object) (runtime.Object, error) {
	if gone {
		o, err := parseMessageMetadata(message, kind)
		return nameOnly(kind, o), err
	}
	object, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	o, ok := object.(typed)
	if !ok {
		return nil, fmt.Errorf("%T is in no protobuf", object)
	}
	if _, ok := object.(*metav1.Status); ok { // nothing else of it is read
		return object, o.Unmarshal(message)
	}
	if list, ok := into.(*unstructured.UnstructuredList); ok {
		return readList(message, o, kind, list)
	}
	if err := checkMessage(message, reflect.TypeOf(object).Elem()); err != nil {
		if into != nil {
			return nil, err
		}
		metadata, err := parseMessageMetadata(message, kind)
		return newTooLargeObject(metadata), err
	}
	if err := readWhole(message, o); err != nil {
		return nil, err
	}
	if into == nil { // it comes of a watch
		return newLazyObject(o, kind, len(message))
	}
	return convertToUnstructured(object, kind, into)
}

// readWhole reads a message into an object. It fails if something would get lost.
func readWhole(message []byte, object typed) error {
	if err := object.Unmarshal(message); err != nil {
		return err
	}
	// A field that is not known was skipped in silence, and is missing in what is written again.
	if again, err := object.Marshal(); err != nil || !addsOnlyZeros(again, message, reflect.TypeOf(object).Elem()) {
		return errors.Join(errOtherFields, err)
	}
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil) // never read, and would be half of the work
	}
	return nil
}

// parseMessageMetadata reads the metadata of an object, and nothing else.
func parseMessageMetadata(message []byte, kind schema.GroupVersionKind) (*metav1.PartialObjectMetadata, error) {
	var o metav1.PartialObjectMetadata
	err := o.Unmarshal(message)
	o.SetGroupVersionKind(kind)
	return &o, err
}

// readList reads a list. Of items that cannot be read it has the metadata: of those that are too large at the end.
func readList(message []byte, list typed, kind schema.GroupVersionKind, into *unstructured.UnstructuredList) (runtime.Object, error) {
	message, large := cutLarge(message, reflect.TypeOf(list).Elem())
	if err := readWhole(message, list); err != nil {
		return nil, err
	}
	if _, err := convertToUnstructured(list, kind, into); err != nil {
		if err := convertItems(list, kind, into); err != nil {
			return nil, err
		}
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	for _, item := range large {
		o, err := parseMessageMetadata(item, kind)
		if err != nil {
			return nil, err
		}
		u, err := newUnreadItem(o, errTooLarge)
		if err != nil {
			return nil, err
		}
		into.Items = append(into.Items, *u)
	}
	return into, nil
}

// convertItems converts a list item by item, when some items cannot be converted: of those it keeps the metadata.
func convertItems(list runtime.Object, kind schema.GroupVersionKind, into *unstructured.UnstructuredList) error {
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	if err := meta.SetList(list, nil); err != nil {
		return err
	}
	if _, err := convertToUnstructured(list, kind, into); err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	into.Items = make([]unstructured.Unstructured, len(items))
	for i, item := range items {
		o, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		o.SetManagedFields(nil)
		if _, err := convertToUnstructured(item, kind, &into.Items[i]); err == nil {
			continue
		}
		metadata := meta.AsPartialObjectMetadata(o)
		metadata.SetGroupVersionKind(kind)
		unread, err := newUnreadItem(metadata, errNoJSON)
		if err != nil {
			return err
		}
		into.Items[i] = *unread
	}
	return nil
}

// cutLarge is the message of a list without the items that are too large, and those.
func cutLarge(message []byte, list reflect.Type) (rest []byte, large [][]byte) {
	items, ok := list.FieldByName("Items")
	if !ok || isSmall(message, perMessageByte) {
		return message, nil
	}
	number, ok := fieldNumber(items)
	from := 0 // what is not in rest yet
	for at := 0; ok && at < len(message); {
		n, kind, length := protowire.ConsumeField(message[at:])
		if length < 0 {
			break
		}
		if n == number && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(message[at:])
			item, _ := protowire.ConsumeBytes(message[at+tag:])
			if checkMessage(item, elementType(items.Type)) != nil {
				rest, large, from = append(rest, message[from:at]...), append(large, item), at+length
			}
		}
		at += length
	}
	if large == nil {
		return message, nil
	}
	return append(rest, message[from:]...), large
}

// newLazyObject returns an object of a watch, which is converted to maps when it is first read.
func newLazyObject(o typed, kind schema.GroupVersionKind, size int) (*Object, error) {
	var metadata *metav1.ObjectMeta
	if named, ok := o.(metav1.ObjectMetaAccessor); ok {
		metadata, _ = named.GetObjectMeta().(*metav1.ObjectMeta)
	}
	if metadata == nil {
		return nil, fmt.Errorf("%T has no metadata", o)
	}
	out := &Object{Content: sync.OnceValues(func() (map[string]any, error) {
		var u unstructured.Unstructured
		_, err := convertToUnstructured(o, kind, &u)
		return u.Object, err
	}), Size: size, typed: o}
	out.ObjectMeta = *metadata
	out.SetGroupVersionKind(kind)
	return out, nil
}

// convertToUnstructured converts an object or a list to an Unstructured or a list of them. Every failure, also a panic, becomes errNoJSON
// without its text, because that may repeat what users have written.
func convertToUnstructured(object runtime.Object, kind schema.GroupVersionKind, into runtime.Object) (runtime.Object, error) {
	var content map[string]any
	var err error
	if p := contain.CatchPanic(func() { content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(object) }); p != nil {
		err = p
	}
	if err != nil {
		return nil, errNoJSON
	}
	repairTexts(content)
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

// repairTexts puts U+FFFD for each byte of a text that is no UTF-8, in place, as JSON does. Protobuf takes and keeps such bytes.
func repairTexts(content map[string]any) {
	valid := true
	for key, value := range content {
		valid = valid && utf8.ValidString(key)
		content[key] = repairValue(value)
	}
	if valid {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(content)) { // of two that become the same, JSON keeps the last one
		value := content[key]
		delete(content, key)
		content[repairText(key)] = value
	}
}

func repairValue(value any) any {
	switch v := value.(type) {
	case string:
		if !utf8.ValidString(v) {
			return repairText(v)
		}
	case map[string]any:
		repairTexts(v)
	case []any:
		for i := range v {
			v[i] = repairValue(v[i])
		}
	}
	return value
}

func repairText(text string) string { return string([]rune(text)) }
