// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// References is how expressions ask what objects of any kind refer to.
//
//	refs(<objects>, <string>) -> <list>    // the keys of all "ConfigMap", "Secret", "PersistentVolumeClaim" or "ServiceAccount" objects in them
//
// The objects are one, or a target, or a list of objects or of targets; one that is null is none.
//
// It goes by the conventions of the API, and not by kinds, so that it reads CRDs too: a field such as secretName, secretRef, tlsSecret or
// imagePullSecrets; {kind: Secret, name: x}; a key of an annotation that ends in -secret. What a container's command line and environment
// say in plain text counts too. So it may find more than there is, and is meant for the question what is not referred to. An object's
// labels, its owners and its own name are no references of it.
//
// The list is sorted and has each key once: namespace/name, in the reference's namespace, or else in the object's. If neither has a
// namespace, the key is the name alone. An object that makes Pods and names no ServiceAccount refers to the one called "default".
func References() cel.EnvOption { return cel.Lib(referencesLibrary{}) }

type referencesLibrary struct{}

func (referencesLibrary) LibraryName() string { return "cleaner.references" }

func (referencesLibrary) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("refs",
			cel.Overload("refs_dyn_string", []*cel.Type{cel.DynType, cel.StringType}, cel.ListType(cel.StringType), cel.BinaryBinding(findRefs))),
	}
}

func (referencesLibrary) ProgramOptions() []cel.ProgramOption { return nil }

// maxRefs bounds what a call finds: a text has many words, and each may be a name.
const maxRefs = 500_000

// listKindWords gives what names of fields call a kind.
func listKindWords(kind string) []string {
	switch kind {
	case "ConfigMap", "Secret", "ServiceAccount":
		return []string{strings.ToLower(kind)}
	case "PersistentVolumeClaim":
		return []string{"persistentvolumeclaim", "claim", "pvc"}
	}
	return nil
}

func findRefs(v, kind ref.Val) ref.Val {
	s := refSearch{kind: string(kind.(types.String)), roles: map[string]fieldRole{}, visited: map[any]bool{}, found: map[string]map[string]bool{}}
	if s.words = listKindWords(s.kind); s.words == nil {
		return types.NewErr("refs knows ConfigMap, Secret, PersistentVolumeClaim and ServiceAccount, and not %s", quoteValue(s.kind))
	}
	if err := s.visitObjects(v); err != nil {
		return err
	}
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
	keys = slices.Compact(keys) // a name with a slash has its namespace already
	return types.NewStringList(types.DefaultTypeAdapter, keys)
}

// refSearch looks for the references to objects of one kind.
type refSearch struct {
	kind  string
	words []string
	// roles are those of the names of fields that were met already.
	roles map[string]fieldRole
	// visited are the objects and lists that were looked at already: one that occurs many times has nothing new.
	visited map[any]bool
	// namespace is the object's namespace.
	namespace string
	// found are the names, by namespace: "" for those that say theirs, or have none. They are parts of what was looked at, so
	// that to find a name again costs nothing.
	found map[string]map[string]bool
	count int
}

// fieldRole is what a field may be for a search, by its name: nothing, or one of these.
type fieldRole int

const (
	// roleName has a name, as secretName has.
	roleName fieldRole = iota + 1
	// roleReference has a name, a map with a name, or a list of these, as secretRef and imagePullSecrets have.
	roleReference
)

// visitObjects looks at an object, or at those of a list or of a target.
func (s *refSearch) visitObjects(v ref.Val) ref.Val {
	if v = unwrapOptional(v); v == nil { // a target whose kind is not served
		return nil
	}
	list, many := v.(traits.Lister)
	if items, ok := lookupPath(v, "items").(traits.Lister); ok && lookupPath(v, "metadata") == nil {
		list, many = items, true
	}
	if s.markVisited(v) {
		return nil
	}
	if many {
		for it := list.Iterator(); it.HasNext() == types.True; {
			if err := s.visitObjects(it.Next()); err != nil {
				return err
			}
		}
		return nil
	}
	object, ok := convertToMap(v)
	if !ok {
		return types.NewErr("refs: this is no object, but a %s", v.Type().TypeName())
	}
	if s.visitObject(v, object); s.count > maxRefs {
		return types.NewErr("refs: there are more than %d references", maxRefs)
	}
	return nil
}

// markVisited says whether an object or a list was looked at before, and notes that it was.
func (s *refSearch) markVisited(v ref.Val) bool {
	var id any
	switch value, ok := v.Value().(map[string]any); {
	case ok:
		id = reflect.ValueOf(value).Pointer()
	case reflect.ValueOf(v).Kind() == reflect.Pointer:
		id = v
	default:
		return false
	}
	before := s.visited[id]
	s.visited[id] = true
	return before
}

func (s *refSearch) visitObject(v ref.Val, object map[string]any) {
	s.namespace, _ = lookupNative(object, "metadata", "namespace").(string)
	s.visitFields(object)
	if s.kind != "ServiceAccount" {
		return
	}
	if o, ok := findPodSpec(v).(*types.Optional); ok && o.HasValue() {
		if spec, ok := convertToMap(o.GetValue()); ok {
			for _, name := range findServiceAccounts(spec) {
				s.addName(name, nil)
			}
		}
	}
}

// visitFields looks at the fields of a map, and at all that is in them.
func (s *refSearch) visitFields(m map[string]any) {
	if m["kind"] == any(s.kind) {
		s.addName(m["name"], m["namespace"])
	}
	for name, value := range m {
		switch s.findRole(name) {
		case roleName:
			s.addName(value, m[strings.TrimSuffix(name, "ame")+"amespace"]) // secretNamespace is beside secretName
		case roleReference:
			s.addReference(value)
		}
		switch name {
		case "metadata": // labels and owners are no references
			annotations, _ := lookupNative(m, name, "annotations").(map[string]any)
			s.visitValue(annotations)
		case "command", "args":
			list, _ := value.([]any)
			for _, text := range list {
				s.addWords(text)
			}
		case "env":
			for _, variable := range listMaps(value) {
				s.addWords(variable["value"])
			}
			s.visitValue(value)
		default:
			s.visitValue(value)
		}
	}
}

// visitValue looks at a value, and at all that is in it.
func (s *refSearch) visitValue(v any) {
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
func (s *refSearch) addUser(name string) {
	if rest, ok := strings.CutPrefix(name, "system:serviceaccount:"); ok && s.kind == "ServiceAccount" {
		if namespace, account, ok := strings.Cut(rest, ":"); ok {
			s.addName(account, namespace)
		}
	}
}

// findRole says what a field is for, by its name: endings count, since what is before them says which one it is.
func (s *refSearch) findRole(name string) fieldRole {
	known, ok := s.roles[name]
	if ok {
		return known
	}
	letters := strings.Map(func(r rune) rune {
		if r < 'a' || r > 'z' {
			return -1
		}
		return r
	}, strings.ToLower(name))
	for _, word := range s.words {
		switch {
		case strings.HasSuffix(letters, word+"name"):
			known = roleName
		case slices.ContainsFunc([]string{"", "s", "ref", "refs", "keyref", "keyselector", "reference", "references"}, func(end string) bool { return strings.HasSuffix(letters, word+end) }):
			known = roleReference
		}
	}
	s.roles[name] = known
	return known
}

// addReference adds what stands where a reference does. A map that says another kind is none to this one.
func (s *refSearch) addReference(v any) {
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
func (s *refSearch) addWords(v any) {
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
func (s *refSearch) addName(name, namespace any) {
	in, _ := namespace.(string)
	if in == "" {
		in = s.namespace
	}
	switch name, _ := name.(string); {
	case name == "" || len(name) > maxQualifiedName || len(in) > maxQualifiedName || s.count > maxRefs: // nothing has a longer name
	case in == "" || strings.Contains(name, "/"):
		s.recordName("", name)
	default:
		s.recordName(in, name)
	}
}

// maxQualifiedName is how long a namespace and a name can be together, with a slash between them.
const maxQualifiedName = 63 + 1 + 253

func (s *refSearch) recordName(namespace, name string) {
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
