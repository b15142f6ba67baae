// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Patch is what changes an object.
type Patch struct {
	Type v1alpha1.PatchType
	// Subresource is what is patched; empty: the object itself.
	Subresource string
	// Force says that an Apply takes fields over from others.
	Force bool
	// Body is the patch as JSON, without the resourceVersion: equal patches are equal bytes.
	Body []byte
}

// Forbidden says why the patch must not be sent, whatever object it is for; empty if it may. What is no patch of its type
// is not looked at.
func (p *Patch) Forbidden() string {
	var value any
	d := json.NewDecoder(bytes.NewReader(p.Body))
	d.UseNumber() // one of any size
	if d.Decode(&value) != nil {
		return ""
	}
	return forbidden(p.Type, value)
}

// forbidden is Forbidden of a patch that was read. Owners are set by nobody: an object whose owner is not there is deleted by
// Kubernetes, for somebody who may patch it and need not have the right to delete it; and an API server that asks who may set
// owners would ask it of the operator.
func forbidden(kind v1alpha1.PatchType, patch any) string {
	if operations, ok := patch.([]any); ok && kind == v1alpha1.PatchJSON {
		for i, operation := range operations {
			if o, ok := operation.(map[string]any); ok && operatesOnOwners(o) {
				return fmt.Sprintf("operation %d is about metadata.ownerReferences, by which Kubernetes deletes objects", i)
			}
		}
		return ""
	}
	root, _ := patch.(map[string]any)
	metadata, _ := root["metadata"].(map[string]any)
	for key := range metadata {
		if field := key[strings.LastIndex(key, "/")+1:]; strings.EqualFold(field, ownerReferences) { // $setElementOrder/…, too
			return "it sets metadata.ownerReferences, by which Kubernetes deletes objects"
		}
	}
	if kind != v1alpha1.PatchStrategic {
		return ""
	}
	if _, ok := root["$patch"]; ok {
		return "$patch is about metadata.ownerReferences too, by which Kubernetes deletes objects"
	}
	for _, directive := range []string{"$patch", "$retainKeys"} {
		if _, ok := metadata[directive]; ok {
			return fmt.Sprintf("metadata.%s is about metadata.ownerReferences too, by which Kubernetes deletes objects", directive)
		}
	}
	return ""
}

// hintForbidden says what to write instead of what is forbidden.
const hintForbidden = "patch other fields by their names, such as metadata.labels"

const ownerReferences = "ownerReferences"

// operatesOnOwners says that an operation of a JSON patch changes owners, or what they are a part of.
func operatesOnOwners(operation map[string]any) bool {
	if operation["op"] == "test" {
		return false
	}
	path, _ := operation["path"].(string) // without one it is the whole object
	if isAboutOwners(path) {
		return true
	}
	from, _ := operation["from"].(string)
	return operation["op"] != "copy" && from != "" && isAboutOwners(from)
}

// isAboutOwners says that a JSON pointer leads to owners, into them, or to what they are a part of. API servers read over what
// comes before its first slash.
func isAboutOwners(pointer string) bool {
	_, rest, named := strings.Cut(pointer, "/")
	if !named {
		return true
	}
	path := strings.Split(rest, "/")
	for i, want := range []string{"metadata", ownerReferences}[:min(2, len(path))] {
		if !strings.EqualFold(strings.NewReplacer("~1", "/", "~0", "~").Replace(path[i]), want) {
			return false
		}
	}
	return true
}
