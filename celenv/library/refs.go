// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/references"
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

func findRefs(v, kind ref.Val) ref.Val {
	s := refSearch{search: references.NewSearch(string(kind.(types.String))), accounts: kind == types.String("ServiceAccount"), visited: map[any]bool{}}
	if s.search == nil {
		return types.NewErr("refs knows ConfigMap, Secret, PersistentVolumeClaim and ServiceAccount, and not %s", quoteValue(kind))
	}
	if err := s.visitObjects(v); err != nil {
		return err
	}
	return types.NewStringList(types.DefaultTypeAdapter, s.search.ListKeys())
}

// refSearch looks for the references to objects of one kind.
type refSearch struct {
	search *references.Search
	// accounts says that it looks for ServiceAccounts.
	accounts bool
	// visited are the objects and lists that were looked at already: one that occurs many times has nothing new.
	visited map[any]bool
}

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
	s.search.VisitObject(object)
	if s.accounts {
		s.addAccounts(v)
	}
	if s.search.IsFull() {
		return types.NewErr("refs: there are more than %d references", references.Max)
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

// addAccounts adds the ServiceAccounts of a pod spec. One that names none has one all the same.
func (s *refSearch) addAccounts(v ref.Val) {
	o, ok := findPodSpec(v).(*types.Optional)
	if !ok || !o.HasValue() {
		return
	}
	if spec, ok := convertToMap(o.GetValue()); ok {
		for _, name := range findServiceAccounts(spec) {
			s.search.AddName(name)
		}
	}
}
