// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package references

import (
	"slices"
	"strings"
	"sync"
)

// fieldRole is what a field may be for a search, by its name: nothing, or one of these.
type fieldRole int

const (
	// roleName has a name, as secretName has.
	roleName fieldRole = iota + 1
	// roleReference has a name, a map with a name, or a list of these, as secretRef and imagePullSecrets have.
	roleReference
)

// classify says what a field is for, by the end of its name: what is before says which one it is.
func classify(name string, words []string) (role fieldRole) {
	letters := strings.Map(func(r rune) rune {
		if r < 'a' || r > 'z' {
			return -1
		}
		return r
	}, strings.ToLower(name))
	for _, word := range words {
		switch {
		case strings.HasSuffix(letters, word+"name"):
			role = roleName
		case slices.ContainsFunc([]string{"", "s", "ref", "refs", "keyref", "keyselector", "reference", "references"}, func(end string) bool { return strings.HasSuffix(letters, word+end) }):
			role = roleReference
		}
	}
	return role
}

// nameNamespaceField returns the field that says the namespace of what a field with roleName names: secretNamespace is beside secretName.
func nameNamespaceField(name string) string { return strings.TrimSuffix(name, "ame") + "amespace" }

// place says where a value is, as far as searches treat it differently.
type place int8

const (
	// inObjects is an object, a target, or a list of these.
	inObjects place = iota
	// inFields is any other part of an object.
	inFields
	// inMetadata is metadata, of an object or of a Pod template.
	inMetadata
	// inEnvironment is env of a container, or an element of it.
	inEnvironment
)

// Look says which parts of a value the searches for some kinds depend on. The zero value depends on nothing.
type Look struct {
	kinds []string
	place place
	whole bool
	// root says that the value is the metadata of an object that a search visits: references are in its namespace.
	root bool
}

// LookAtObjects returns what searches depend on for references to objects of these kinds, of what refs is called with: an object, a target, or a list
// of these. The kinds are sorted.
func LookAtObjects(kinds []string) Look { return Look{kinds: kinds} }

// IsEmpty reports whether searches depend on nothing of the value.
func (l Look) IsEmpty() bool { return len(l.kinds) == 0 }

// IsWhole reports whether searches depend on all of the value.
func (l Look) IsWhole() bool { return l.whole }

// IsInside reports whether the value is a part of an object.
func (l Look) IsInside() bool { return !l.IsEmpty() && l.place != inObjects }

// Kinds lists the kinds whose references are searched for.
func (l Look) Kinds() []string { return l.kinds }

// WithKinds returns the Look of searches for other kinds at the same value. The kinds are sorted.
func (l Look) WithKinds(kinds []string) Look {
	l.kinds = kinds
	return l
}

// Field returns what searches depend on of the value of a key of a map. It is empty if that is nothing. needed says that they depend on whether there
// is such a key.
func (l Look) Field(m map[string]any, key string) (field Look, needed bool) {
	switch {
	case l.place == inMetadata:
		return l.findInMetadata(key)
	case l.place == inObjects && isTarget(m):
		if key != "items" {
			return Look{}, false
		}
		return l.at(inObjects), true
	case l.place == inObjects && key == "metadata":
		return Look{kinds: l.kinds, place: inMetadata, root: true}, true
	case l.place == inEnvironment && key == "value", key == "command", key == "args", l.isDecisive(m, key):
		return Look{kinds: l.kinds, whole: true}, true
	}
	switch key {
	case "metadata":
		return l.at(inMetadata), false
	case "env":
		return l.at(inEnvironment), false
	case "containers": // what has containers is the spec of a Pod, and that has a ServiceAccount
		return l.at(inFields), slices.Contains(l.kinds, kindServiceAccount)
	default:
		return l.at(inFields), false
	}
}

// findInMetadata is Field for metadata.
func (l Look) findInMetadata(key string) (field Look, needed bool) {
	switch {
	case key == "namespace" && l.root:
		return Look{kinds: l.kinds, whole: true}, true
	case key == "annotations":
		return l.at(inFields), false
	}
	return Look{}, false
}

// at returns the Look of the same searches in another place.
func (l Look) at(place place) Look { return Look{kinds: l.kinds, place: place} }

// isTarget reports whether a map is a target with many objects, and not an object.
func isTarget(m map[string]any) bool {
	_, many := m["items"].([]any)
	_, object := m["metadata"]
	return many && !object
}

// isDecisive reports whether a field by itself is, or belongs to, a reference.
func (l Look) isDecisive(m map[string]any, key string) bool {
	if key == "kind" || key == "name" || key == "namespace" {
		if kind, ok := m["kind"].(string); ok && slices.Contains(l.kinds, kind) {
			return true
		}
	}
	for _, kind := range l.kinds {
		if roles.find(kind, key) != 0 {
			return true
		}
	}
	return l.isNamespaceOfName(m, key)
}

// isNamespaceOfName reports whether a field says the namespace of what another field names.
func (l Look) isNamespaceOfName(m map[string]any, key string) bool {
	before, ok := strings.CutSuffix(key, "amespace")
	if !ok {
		return false
	}
	for _, name := range []string{before + "ame", before} {
		if _, named := m[name]; !named || nameNamespaceField(name) != key {
			continue
		}
		if slices.ContainsFunc(l.kinds, func(kind string) bool { return roles.find(kind, name) == roleName }) {
			return true
		}
	}
	return false
}

// NeedsElements reports whether searches depend on how many elements a list has: one that is not an object is an error.
func (l Look) NeedsElements() bool { return l.place == inObjects }

// KeepsText reports whether a text is a reference wherever it is: the user name of a ServiceAccount is.
func (l Look) KeepsText(text string) bool {
	return l.place != inObjects && strings.HasPrefix(text, userPrefix) && slices.Contains(l.kinds, kindServiceAccount)
}

// roles are the roles of fields.
var roles roleCache //nolint:gochecknoglobals // remembers what classify gives

const (
	maxRoles = 10_000
	// longName is the length of names that are not remembered.
	longName = 64
)

// roleCache remembers the roles of fields by kind and name.
type roleCache struct {
	mu sync.RWMutex
	of map[[2]string]fieldRole
}

// find is classify, once for each name that is not long.
func (c *roleCache) find(kind, name string) fieldRole {
	if len(name) > longName {
		return classify(name, listWords(kind))
	}
	key := [2]string{kind, name}
	c.mu.RLock()
	role, known := c.of[key]
	c.mu.RUnlock()
	if known {
		return role
	}
	role = classify(name, listWords(kind))
	key[1] = strings.Clone(name) // it may be a part of a longer text
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || len(c.of) >= maxRoles {
		c.of = map[[2]string]fieldRole{}
	}
	c.of[key] = role
	return role
}
