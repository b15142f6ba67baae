// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package references

import (
	"slices"
	"strings"
)

// Max bounds what a search finds: a text has many words, and each may be a name.
const Max = 500_000

const (
	kindServiceAccount = "ServiceAccount"
	// userPrefix begins the user name of a ServiceAccount.
	userPrefix = "system:serviceaccount:"
	// maxQualifiedName is how long a namespace and a name can be together, with a slash between them.
	maxQualifiedName = 63 + 1 + 253
)

// Kinds lists the kinds whose references can be found.
func Kinds() []string {
	return []string{"ConfigMap", "Secret", "PersistentVolumeClaim", kindServiceAccount}
}

// listWords gives what names of fields call a kind.
func listWords(kind string) []string {
	switch kind {
	case "ConfigMap", "Secret", kindServiceAccount:
		return []string{strings.ToLower(kind)}
	case "PersistentVolumeClaim":
		return []string{"persistentvolumeclaim", "claim", "pvc"}
	}
	return nil
}

// Search looks for the references to objects of one kind. NewSearch makes one.
type Search struct {
	kind string
	// namespace is the object's namespace.
	namespace string
	// found are the names, by namespace: "" for those that say theirs, or have none. They are parts of what was looked at, so
	// that to find a name again costs nothing.
	found map[string]map[string]bool
	count int
}

// NewSearch returns a Search for references to objects of a kind; nil if it is none of Kinds.
func NewSearch(kind string) *Search {
	if listWords(kind) == nil {
		return nil
	}
	return &Search{kind: kind, found: map[string]map[string]bool{}}
}

// VisitObject looks at an object.
func (s *Search) VisitObject(object map[string]any) {
	metadata, _ := object["metadata"].(map[string]any)
	s.namespace, _ = metadata["namespace"].(string)
	s.visitFields(object)
}

// IsFull reports whether more than Max references were found.
func (s *Search) IsFull() bool { return s.count > Max }

// AddName adds a name that the last object refers to by other means.
func (s *Search) AddName(name string) { s.addName(name, nil) }

// ListKeys returns what was found: namespace/name, or the name alone, sorted, each once.
func (s *Search) ListKeys() []string {
	keys := make([]string, 0, s.count)
	for namespace, names := range s.found {
		for name := range names {
			if namespace != "" {
				name = namespace + "/" + name
			}
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys) // a name with a slash has its namespace already
}

// visitFields looks at the fields of a map, and at all that is in them.
func (s *Search) visitFields(m map[string]any) {
	if m["kind"] == any(s.kind) {
		s.addName(m["name"], m["namespace"])
	}
	for name, value := range m {
		switch roles.find(s.kind, name) {
		case roleName:
			s.addName(value, m[nameNamespaceField(name)])
		case roleReference:
			s.addReference(value)
		}
		switch name {
		case "metadata": // labels and owners are no references
			metadata, _ := value.(map[string]any)
			annotations, _ := metadata["annotations"].(map[string]any)
			s.visitFields(annotations)
		case "command", "args":
			list, _ := value.([]any)
			for _, text := range list {
				s.addWords(text)
			}
		case "env":
			list, _ := value.([]any)
			for _, elem := range list {
				variable, _ := elem.(map[string]any)
				s.addWords(variable["value"])
			}
			s.visitValue(value)
		default:
			s.visitValue(value)
		}
	}
}

// visitValue looks at a value, and at all that is in it.
func (s *Search) visitValue(v any) {
	switch v := v.(type) {
	case map[string]any:
		s.visitFields(v)
	case []any:
		for _, elem := range v {
			s.visitValue(elem)
		}
	case string:
		s.addUser(v)
	}
}

// addUser finds the ServiceAccount in the name of a user.
func (s *Search) addUser(name string) {
	if rest, ok := strings.CutPrefix(name, userPrefix); ok && s.kind == kindServiceAccount {
		if namespace, account, ok := strings.Cut(rest, ":"); ok {
			s.addName(account, namespace)
		}
	}
}

// addReference adds what stands where a reference does. A map that says another kind is none to this one.
func (s *Search) addReference(v any) {
	switch v := v.(type) {
	case string:
		s.addName(v, nil)
	case map[string]any:
		if kind, said := v["kind"].(string); !said || kind == "" || kind == s.kind {
			s.addName(v["name"], v["namespace"])
		}
	case []any:
		for _, elem := range v {
			s.addReference(elem)
		}
	}
}

// addWords adds each word of a text that may be a name, as in --configmap=ingress/settings.
func (s *Search) addWords(v any) {
	text, _ := v.(string)
	for path := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '/'
	}) {
		before := ""
		for name := range strings.SplitSeq(path, "/") {
			if name = strings.Trim(name, "-."); name == "" {
				before = ""
				continue
			}
			s.addName(name, nil)
			if before != "" {
				s.addName(name, before)
			}
			before = name
		}
	}
	s.addUser(text)
}

// addName adds a name, in a namespace if one is said. A name with a slash has one itself.
func (s *Search) addName(name, namespace any) {
	in, _ := namespace.(string)
	if in == "" {
		in = s.namespace
	}
	switch name, _ := name.(string); {
	case name == "" || len(name) > maxQualifiedName || len(in) > maxQualifiedName || s.count > Max: // nothing has a longer name
	case in == "" || strings.Contains(name, "/"):
		s.recordName("", name)
	default:
		s.recordName(in, name)
	}
}

func (s *Search) recordName(namespace, name string) {
	names := s.found[namespace]
	if names == nil {
		names = map[string]bool{}
		s.found[namespace] = names
	}
	if !names[name] {
		names[name] = true
		s.count++
	}
}
