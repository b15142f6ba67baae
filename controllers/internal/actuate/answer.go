// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/vtex/cleaner/controllers/internal/wire"
)

const (
	asMetadata = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	// acceptMetadata asks for nothing but metadata, from who can answer so, and for protobuf, which costs both sides least.
	acceptMetadata = runtime.ContentTypeProtobuf + asMetadata + "," + runtime.ContentTypeJSON + asMetadata + "," + runtime.ContentTypeJSON
)

// answerReader reads what API servers answer: metadata and Status from protobuf, and everything from JSON.
type answerReader struct {
	types  *runtime.Scheme
	binary runtime.Decoder
}

func newReader() answerReader {
	types := runtime.NewScheme()
	utilruntime.Must(metav1.AddMetaToScheme(types))
	metav1.AddToGroupVersion(types, metav1.Unversioned)
	return answerReader{types, protobuf.NewSerializer(types, types)}
}

// newErrorSerializer returns how a client reads errors, whichever format they come in.
func (r answerReader) newErrorSerializer() runtime.NegotiatedSerializer {
	return serializer.NewCodecFactory(r.types).WithoutConversion()
}

// readAnswer reads an object or a Status; nil if it is neither, or too large.
func (r answerReader) readAnswer(body []byte) *unstructured.Unstructured {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		u := &unstructured.Unstructured{}
		if wire.CheckText(body) != nil || u.UnmarshalJSON(body) != nil {
			return nil
		}
		return u
	}
	typed, kind, err := r.binary.Decode(body, nil, nil)
	if err != nil {
		return nil
	}
	if o, ok := typed.(metav1.Object); ok {
		o.SetManagedFields(nil) // never read
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(*kind)
	return u
}
