// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
)

const (
	// HeadStart is the beginning of each head.
	HeadStart = "\n---\n"
	// maxObjects is how many objects a manifest may have.
	maxObjects = 5000
	// maxHeads bounds the text of all heads of a manifest.
	maxHeads = 2 << 20
	// maxAnnotation is how many bytes of an annotation are kept.
	maxAnnotation = 100
)

// errHeadsTooLong refuses a manifest with too many names and kinds.
var errHeadsTooLong = fmt.Errorf("its manifest has more than %d KiB of names and kinds: %w", maxHeads>>10, ErrTooLarge)

// ExtractHeads reads the YAML documents of a manifest, and returns the heads of its objects: apiVersion, kind, name, namespace and these
// annotations, as JSON. Nothing else ever parses the manifest itself. The error wraps ErrTooLarge if there is too much to read.
func ExtractHeads(ctx context.Context, docs []string, annotations ...string) (string, error) {
	var heads strings.Builder
	objects, left := 0, NewAllowance(maxNodes)
	for n, doc := range docs {
		switch err := left.TakeDocument(ctx, doc); {
		case errors.Is(err, ErrTooLarge):
			return "", fmt.Errorf("its manifest %w", err)
		case err != nil: // the lines of the error count from the beginning of the document
			return "", fmt.Errorf("its manifest, in document %d, %w", n+1, err)
		}
		var o *writtenObject
		if err := yamlv2.NewDecoder(NewReader(ctx, strings.NewReader(doc))).Decode(&o); err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("its manifest, in document %d, is not YAML of objects: %w", n+1, err)
		}
		if o == nil {
			continue
		}
		if objects += max(1, len(o.Items)); objects > maxObjects {
			return "", fmt.Errorf("its manifest has more than %d objects: %w", maxObjects, ErrTooLarge)
		}
		head, err := o.encodeHead(annotations)
		if err != nil {
			return "", err
		}
		if heads.Len()+len(head) > maxHeads {
			return "", errHeadsTooLong
		}
		heads.WriteString(HeadStart)
		heads.Write(head)
	}
	return heads.String(), nil
}

// writtenObject is an object of a manifest, or a list of objects. Its other fields are not decoded.
type writtenObject struct {
	identity `yaml:",inline"`

	Items []*identity `yaml:"items"`
}

// identity is what identifies an object. Values that are not text count as missing.
type identity struct {
	Version  text `yaml:"apiVersion"`
	Kind     text `yaml:"kind"`
	Metadata struct {
		Name        text            `yaml:"name"`
		Namespace   text            `yaml:"namespace"`
		Annotations map[string]text `yaml:"annotations"`
	} `yaml:"metadata"`
}

// text is a string. Any other value leaves it empty and is not decoded, whatever aliases repeat in it.
type text struct {
	value string
	found bool
}

// UnmarshalYAML is for the decoder, which also turns a number into a string if it is asked for one.
func (t *text) UnmarshalYAML(decode func(any) error) error {
	*t = text{}
	var scalar string
	if decode(&scalar) != nil {
		return nil //nolint:nilerr // a list or a map is not text
	}
	var value any
	if err := decode(&value); err != nil {
		return err
	}
	t.value, t.found = value.(string)
	return nil
}

// encodeHead returns the head of an object, or of a list of objects.
func (w *writtenObject) encodeHead(annotations []string) ([]byte, error) {
	length := w.textLength()
	for _, item := range w.Items {
		if item == nil {
			return nil, errors.New("its manifest has a list with an item that is not an object")
		}
		length += item.textLength()
	}
	if length > maxHeads {
		return nil, errHeadsTooLong
	}
	kept := w.toMap()
	metadata := map[string]any{"annotations": w.keepAnnotations(annotations)}
	maps.Copy(metadata, kept["metadata"].(map[string]any)) //nolint:forcetypeassert // toMap makes it
	kept["metadata"] = metadata
	if w.Items != nil {
		list := make([]any, 0, len(w.Items))
		for _, item := range w.Items {
			list = append(list, item.toMap())
		}
		kept["items"] = list
	}
	return json.Marshal(kept)
}

// textLength is the length of the text that is kept of an object, without its annotations.
func (i *identity) textLength() int {
	return len(i.Version.value) + len(i.Kind.value) + len(i.Metadata.Name.value) + len(i.Metadata.Namespace.value)
}

func (i *identity) toMap() map[string]any {
	kept, metadata := map[string]any{}, map[string]any{}
	setText(kept, "apiVersion", i.Version)
	setText(kept, "kind", i.Kind)
	setText(metadata, "name", i.Metadata.Name)
	setText(metadata, "namespace", i.Metadata.Namespace)
	kept["metadata"] = metadata
	return kept
}

func setText(to map[string]any, field string, t text) {
	if t.found {
		to[field] = t.value
	}
}

// keepAnnotations returns the annotations with these names, each cut to what is kept. They are made valid also where they are not cut, as
// sanitize.CutToBytes does not do.
func (i *identity) keepAnnotations(names []string) map[string]string {
	kept := map[string]string{}
	for _, name := range names {
		if written, has := i.Metadata.Annotations[name]; has {
			kept[name] = strings.ToValidUTF8(written.value[:min(len(written.value), maxAnnotation)], "")
		}
	}
	return kept
}
