// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wire reads what a watch sends.
//
// In a busy cluster the operator computes little else, and client-go's own way reads the text of each event nine times: to
// find where it ends, its kind, the kind of the object in it, and three times whether it is JSON. This one reads it three
// times, and of what was deleted only the name.
//
// It never reads another thing than client-go would: what does not look as API servers write it is left to client-go.
package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Config is that of a dynamic client whose watches are read so. Of an object that was deleted they give what names it and
// its version, and nothing else.
func Config(config *rest.Config) *rest.Config {
	out := dynamic.ConfigFor(config)
	out.NegotiatedSerializer = serializer{out.NegotiatedSerializer}
	return out
}

// serializer is how a dynamic client reads and writes, but for watches.
type serializer struct {
	runtime.NegotiatedSerializer
}

// SupportedMediaTypes are those of a dynamic client.
func (s serializer) SupportedMediaTypes() []runtime.SerializerInfo {
	var out []runtime.SerializerInfo
	for _, info := range s.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON && info.StreamSerializer != nil {
			info.Serializer = objects{info.Serializer}
			info.StreamSerializer = &runtime.StreamSerializerInfo{
				EncodesAsText: info.StreamSerializer.EncodesAsText,
				Serializer:    events{info.StreamSerializer.Serializer},
				Framer:        framer{info.StreamSerializer.Framer},
			}
		}
		out = append(out, info)
	}
	return out
}

// eventBegins is how API servers begin an event, which ends with the line.
const eventBegins = `{"type":"`

// framer finds where events end.
type framer struct {
	runtime.Framer
}

// NewFrameReader returns a reader of the events that r sends.
func (f framer) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	return &frames{Closer: r, lines: bufio.NewReader(r), other: f.Framer.NewFrameReader}
}

// frames reads one event at a time.
type frames struct {
	io.Closer
	lines *bufio.Reader
	// line is the event that is being read, and left what of it did not fit into the last buffer.
	line, left []byte
	// other makes what reads from the first line on that does not begin as an event does, which is then reads.
	other func(io.ReadCloser) io.ReadCloser
	then  io.Reader
}

// Read reads an event. If it does not fit the error is io.ErrShortBuffer, and what is left is read by the next call.
func (f *frames) Read(into []byte) (int, error) {
	if f.then != nil {
		return f.then.Read(into)
	}
	if len(f.left) == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
		if !bytes.HasPrefix(f.line, []byte(eventBegins)) {
			read := io.MultiReader(bytes.NewReader(f.line), f.lines)
			f.then = f.other(struct {
				io.Reader
				io.Closer
			}{read, f.Closer})
			return f.then.Read(into)
		}
		f.left = bytes.TrimSuffix(f.line, []byte("\n"))
	}
	n := copy(into, f.left)
	if f.left = f.left[n:]; len(f.left) > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

// next reads a line. One that has no end was cut off.
func (f *frames) next() error {
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

// events reads the envelopes of a watch's events.
type events struct {
	runtime.Serializer
}

// Decode cuts an event as API servers write it in two. Whether what is in it is JSON is found out by who decodes it. An
// event that is written in any other way is left to client-go.
func (s events) Decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return s.Serializer.Decode(data, gvk, into)
	}
	name, object, ok := cutEvent(data)
	if !ok {
		return s.Serializer.Decode(data, gvk, into)
	}
	if watch.EventType(name) == watch.Deleted {
		object = nameOnly(object)
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

// nameOnly is an object with nothing but what names it and its version; the object itself if that cannot be read.
func nameOnly(object []byte) []byte {
	var o struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
		Metadata   struct {
			Name            string `json:"name,omitempty"`
			Namespace       string `json:"namespace,omitempty"`
			UID             string `json:"uid,omitempty"`
			ResourceVersion string `json:"resourceVersion,omitempty"`
		} `json:"metadata"`
	}
	if utiljson.Unmarshal(object, &o) != nil {
		return object
	}
	out, err := utiljson.Marshal(o)
	if err != nil {
		return object
	}
	return out
}

// objects reads objects.
type objects struct {
	runtime.Serializer
}

// Decode reads one object into a map. All else, such as a Status or a list, is left to client-go.
func (s objects) Decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into == nil {
		var value map[string]any
		err := utiljson.Unmarshal(data, &value)
		u := &unstructured.Unstructured{Object: value}
		kind := u.GroupVersionKind()
		_, list := value["items"]
		if err == nil && kind.Kind != "" && kind.Version != "" && kind.Kind != "Status" && !list {
			return u, &kind, nil
		}
	}
	return s.Serializer.Decode(data, gvk, into)
}
