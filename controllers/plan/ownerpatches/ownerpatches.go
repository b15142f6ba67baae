// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownerpatches finds patches that would change the owners of an object, by which Kubernetes deletes objects.
//
// It never sends or changes a patch, and does not say whether a patch is valid.
package ownerpatches

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Hint says what to write instead.
const Hint = "patch other fields by their names, such as metadata.labels"

// FindChange says why a patch must not be sent, as it changes owners, or all of metadata; empty if it may. What is no patch of its type
// is not looked at.
func FindChange(kind v1alpha1.PatchType, body []byte) string {
	var value any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // one of any size
	if d.Decode(&value) != nil {
		return ""
	}
	return FindChangeIn(kind, value)
}

// FindChangeIn is FindChange of a patch that was read. No patch sets owners: an object whose owner is not there is deleted by
// Kubernetes, for a user who may patch it and need not have the right to delete it; and an API server that asks who may set
// owners would ask it of the operator. Who replaces all of metadata sets them too.
func FindChangeIn(kind v1alpha1.PatchType, patch any) string {
	if kind == v1alpha1.PatchJSON {
		operations, _ := patch.([]any)
		return forbiddenOperation(operations)
	}
	root, ok := patch.(map[string]any)
	if !ok { // which takes the place of the object
		return "it " + replacesMetadata
	}
	for key, value := range root {
		if !strings.EqualFold(key, "metadata") {
			continue
		}
		metadata, ok := value.(map[string]any)
		if !ok {
			return "it " + replacesMetadata
		}
		if because := forbiddenMetadata(kind, metadata); because != "" {
			return because
		}
	}
	if kind != v1alpha1.PatchStrategic {
		return ""
	}
	if _, ok := root["$patch"]; ok {
		return "$patch also changes metadata.ownerReferences, which Kubernetes garbage collection uses"
	}
	if kept, ok := root["$retainKeys"]; ok {
		if kept, _ := kept.([]any); !slices.Contains(kept, any("metadata")) {
			return "$retainKeys removes metadata as a whole: list metadata there too"
		}
	}
	return ""
}

// forbiddenMetadata says why a patch must not have this metadata; empty if it may.
func forbiddenMetadata(kind v1alpha1.PatchType, metadata map[string]any) string {
	for key := range metadata {
		if field := key[strings.LastIndex(key, "/")+1:]; strings.EqualFold(field, ownerReferences) { // $setElementOrder/…, too
			return "it sets metadata.ownerReferences, which Kubernetes garbage collection uses"
		}
	}
	if kind != v1alpha1.PatchStrategic {
		return ""
	}
	for _, directive := range []string{"$patch", "$retainKeys"} {
		if _, ok := metadata[directive]; ok {
			return fmt.Sprintf("metadata.%s also changes metadata.ownerReferences, which Kubernetes garbage collection uses", directive)
		}
	}
	return ""
}

const ownerReferences = "ownerReferences"

// replacesMetadata is said of what would leave nothing of the metadata that an object has.
const replacesMetadata = "replaces or removes metadata as a whole, with metadata.ownerReferences, which Kubernetes garbage collection uses"

// forbiddenOperation says which operation of a JSON patch changes owners, or what they are a part of; empty if none does.
func forbiddenOperation(operations []any) string {
	for i, operation := range operations {
		o, ok := operation.(map[string]any)
		if !ok || o["op"] == "test" {
			continue
		}
		path, _ := o["path"].(string) // without one it is the whole object
		changed := []string{path}
		if from, ok := o["from"].(string); ok && o["op"] != "copy" {
			changed = append(changed, from)
		}
		for _, pointer := range changed {
			switch about, whole := isAboutOwners(pointer); {
			case whole:
				return fmt.Sprintf("operation %d %s", i, replacesMetadata)
			case about:
				return fmt.Sprintf("operation %d touches metadata.ownerReferences, which Kubernetes garbage collection uses", i)
			}
		}
	}
	return ""
}

// isAboutOwners says that a JSON pointer leads to owners, into them, or to what they are a part of: then it is whole. API
// servers read over what comes before its first slash.
func isAboutOwners(pointer string) (about, whole bool) {
	_, rest, named := strings.Cut(pointer, "/")
	if !named {
		return true, true
	}
	path := strings.Split(rest, "/")
	for i, want := range []string{"metadata", ownerReferences}[:min(2, len(path))] {
		if !strings.EqualFold(strings.NewReplacer("~1", "/", "~0", "~").Replace(path[i]), want) {
			return false, false
		}
	}
	return true, len(path) == 1
}
