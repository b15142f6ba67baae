// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vtex/cleaner/celenv/references"
)

// Projection is what is kept of a value. Nil and its zero value keep the type alone: an empty map, an empty list, "", 0 or false. It never
// changes once others can see it.
type Projection struct {
	// Whole keeps all.
	Whole bool
	// Scalar keeps a value that is no list and no map.
	Scalar bool
	// Shape keeps which keys a map has, and how many elements a list has.
	Shape bool
	// Fields are kept of a map, by their keys.
	Fields map[string]*Projection
	// Elements are kept of a list: each so.
	Elements *Projection
	// ByType are kept of a list that has an element for each type, as status.conditions: those whose field type is a key, each so. Where all
	// elements are kept, these are kept besides.
	ByType map[string]*Projection
	// Entries are kept of a map: each so, whatever its key. Fields are kept besides.
	Entries *Projection
	// References keeps, of an object, a target, or a list of these, what searches for references to objects of these kinds depend on. Sorted.
	References []string
}

// All returns the Projection that keeps all.
func All() *Projection { return &Projection{Whole: true} }

// KeepPath returns a Projection that keeps the value at a path of fields, as a whole.
func KeepPath(path ...string) *Projection {
	p := All()
	for _, key := range slices.Backward(path) {
		p = &Projection{Fields: map[string]*Projection{key: p}}
	}
	return p
}

// Merge returns a Projection that keeps what any of these keeps. Nil keeps nothing.
func Merge(all ...*Projection) *Projection {
	var out *Projection
	for _, p := range all {
		out = mergeTwo(out, p)
	}
	return out
}

func mergeTwo(a, b *Projection) *Projection {
	switch {
	case a == nil || b != nil && b.Whole:
		return b
	case b == nil || a.Whole:
		return a
	}
	out := &Projection{Scalar: a.Scalar || b.Scalar, Shape: a.Shape || b.Shape, Elements: mergeTwo(a.Elements, b.Elements), Entries: mergeTwo(a.Entries, b.Entries)}
	out.Fields, out.ByType = mergeKeyed(a.Fields, b.Fields), mergeKeyed(a.ByType, b.ByType)
	out.References = mergeKinds(a.References, b.References)
	return out
}

// mergeKinds returns the kinds of two sorted lists.
func mergeKinds(a, b []string) []string {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// mergeKeyed merges the Projections of each key.
func mergeKeyed(a, b map[string]*Projection) map[string]*Projection {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make(map[string]*Projection, max(len(a), len(b)))
	maps.Copy(out, a)
	for key, p := range b {
		out[key] = mergeTwo(orEmpty(out[key]), orEmpty(p))
	}
	return out
}

// orEmpty is a Projection that keeps the type in the place of nil, because a field of it is kept.
func orEmpty(p *Projection) *Projection {
	if p == nil {
		return &Projection{}
	}
	return p
}

// Covers says that p keeps all that another one keeps.
func (p *Projection) Covers(other *Projection) bool {
	switch {
	case other == nil || p != nil && p.Whole:
		return true
	case p == nil || other.Whole || !p.keepsOwn(other):
		return false
	case !p.Elements.coversInner(other.Elements) || !p.Entries.coversInner(other.Entries):
		return false
	}
	for key, wanted := range other.Fields {
		kept, found := p.Fields[key]
		if !found && !p.keepsShape() || !orEmpty(mergeTwo(p.Entries, kept)).Covers(wanted) {
			return false
		}
	}
	return p.coversByType(other)
}

// coversByType is Covers for what another Projection keeps by type.
func (p *Projection) coversByType(other *Projection) bool {
	for kind, wanted := range other.ByType {
		kept, found := p.OfType(kind)
		if !found || !orEmpty(kept).Covers(Merge(wanted, keepType())) {
			return false
		}
	}
	return true
}

// keepsElements says that all elements of a list are kept, as far as they are.
func (p *Projection) keepsElements() bool { return p.Shape || p.Elements != nil }

// keepsOwn says that p keeps of a value itself what another Projection does.
func (p *Projection) keepsOwn(other *Projection) bool {
	return (p.Scalar || !other.Scalar) && (p.keepsShape() || !other.Shape) &&
		!slices.ContainsFunc(other.References, func(kind string) bool { return !slices.Contains(p.References, kind) })
}

// coversInner is Covers for elements and entries: what keeps nothing of them does not even keep how many there are.
func (p *Projection) coversInner(other *Projection) bool {
	return other == nil || p != nil && p.Covers(other)
}

// keepsShape says that all keys of a map are kept, and all elements of a list.
func (p *Projection) keepsShape() bool { return p.Shape || p.Entries != nil && p.Elements != nil }

// Apply returns what is kept of a value, which is a map[string]any, a []any, a string, a bool, a number or nil. It changes nothing, and
// shares with the value what is kept as a whole.
func (p *Projection) Apply(value any) any {
	switch {
	case p != nil && p.Whole:
		return value
	case p != nil && len(p.References) > 0:
		kept, _ := applyLooking(p, value, references.LookAtObjects(p.References))
		return kept
	}
	switch v := value.(type) {
	case map[string]any:
		return p.ApplyToMap(v)
	case []any:
		return p.applyToList(v)
	}
	if p != nil && p.Scalar {
		return value
	}
	switch value.(type) {
	case string:
		return ""
	case int64:
		return int64(0)
	case float64:
		return float64(0)
	case bool:
		return false
	default: // nil, and what no object has
		return value
	}
}

// ApplyToMap is Apply for a map.
func (p *Projection) ApplyToMap(m map[string]any) map[string]any {
	switch {
	case p == nil:
		return map[string]any{}
	case p.Whole:
		return m
	case len(p.References) > 0:
		kept, _ := mapLooking(p, m, references.LookAtObjects(p.References))
		return kept
	case p.Shape || p.Entries != nil:
		out := make(map[string]any, len(m))
		for key, value := range m {
			out[key] = mergeTwo(p.Entries, p.Fields[key]).Apply(value)
		}
		return out
	}
	out := make(map[string]any, min(len(p.Fields), len(m)))
	for key, kept := range p.Fields {
		if value, found := m[key]; found {
			out[key] = kept.Apply(value)
		}
	}
	return out
}

func (p *Projection) applyToList(list []any) []any {
	if p == nil || !p.keepsElements() && len(p.ByType) == 0 {
		return []any{}
	}
	out := make([]any, 0, len(list))
	for _, value := range list {
		if each, kept := p.OfElement(value); kept {
			out = append(out, each.Apply(value))
		}
	}
	return slices.Clip(out)
}

// OfElement returns what is kept of an element of a list, and whether it is.
func (p *Projection) OfElement(value any) (each *Projection, kept bool) {
	if len(p.ByType) > 0 {
		fields, _ := value.(map[string]any)
		if kind, isText := fields[typeKey].(string); isText {
			return p.OfType(kind)
		}
	}
	return p.Elements, p.keepsElements()
}

// typeKey is the field by which ByType tells elements apart. It is kept wherever there are such, so that they can be told apart again.
const typeKey = "type"

func keepType() *Projection {
	return &Projection{Fields: map[string]*Projection{typeKey: {Scalar: true}}}
}

// OfType is OfElement for an element whose field type is known.
func (p *Projection) OfType(kind string) (each *Projection, kept bool) {
	if len(p.ByType) == 0 {
		return p.Elements, p.keepsElements()
	}
	typed, found := p.ByType[kind]
	if !found && !p.keepsElements() {
		return nil, false
	}
	return Merge(p.Elements, typed, keepType()), true
}

// ListPaths returns what is kept, for people, sorted: such as metadata.name, status.conditions[*].type, and metadata.labels{keys}. Of a path
// that ends in {keys} only the keys of a map are kept, or how many elements a list has; of one that ends in ?, only its type; and of one that ends in
// {references to Secret}, what refs needs to find Secrets. The path of all is *.
func (p *Projection) ListPaths() []string {
	var paths []string
	switch {
	case p == nil:
	case p.Whole:
		return []string{"*"}
	default:
		for key, kept := range p.Fields {
			paths = kept.appendPaths(paths, joinPath("", key))
		}
		paths = p.Entries.appendInner(p.Elements.appendInner(paths, "[*]"), "[*]")
		paths = appendReferences(paths, p.References, "")
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// appendPaths appends the paths below one, or that itself.
func (p *Projection) appendPaths(paths []string, at string) []string {
	switch {
	case p == nil:
		return append(paths, at+"?")
	case p.Whole, p.Scalar && p.isLeaf():
		return append(paths, at)
	}
	before := len(paths)
	for key, kept := range p.Fields {
		paths = kept.appendPaths(paths, joinPath(at, key))
	}
	if len(p.Fields) == 0 || !p.Elements.isLeaf() { // what has fields is no list
		paths = p.Elements.appendInner(paths, at+"[*]")
	}
	for kind, kept := range p.ByType {
		paths = kept.appendPaths(paths, fmt.Sprintf("%s[type=%q]", at, kind))
	}
	paths = appendReferences(p.Entries.appendInner(paths, at+"[*]"), p.References, at)
	switch {
	case len(paths) > before:
		return paths
	case p.Shape || p.Elements != nil || p.Entries != nil:
		return append(paths, at+"{keys}")
	default:
		return append(paths, at+"?")
	}
}

// appendReferences appends what is kept for searches.
func appendReferences(paths, kinds []string, at string) []string {
	for _, kind := range kinds {
		paths = append(paths, fmt.Sprintf("%s{references to %s}", at, kind))
	}
	return paths
}

// appendInner is appendPaths for elements and entries. It appends nothing if only their types are kept.
func (p *Projection) appendInner(paths []string, at string) []string {
	if p == nil || !p.Whole && !p.Scalar && p.isLeaf() {
		return paths
	}
	return p.appendPaths(paths, at)
}

// isLeaf says that no field is named of what is kept.
func (p *Projection) isLeaf() bool {
	return p == nil || len(p.Fields)+len(p.ByType)+len(p.References) == 0 && p.Elements.isLeaf() && p.Entries.isLeaf()
}

// joinPath writes a key behind a path.
func joinPath(at, key string) string {
	switch {
	case strings.ContainsFunc(key, func(r rune) bool { return !strings.ContainsRune(plainLetters, r) }):
		return at + `["` + key + `"]`
	case at == "":
		return key
	default:
		return at + "." + key
	}
}

const plainLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// Identity returns the Projection of what identifies an object and its version, and says whether it ends. Every kept object has that. All callers
// get the same one.
func Identity() *Projection { return identity }

var identity = makeIdentity() //nolint:gochecknoglobals // it never changes

func makeIdentity() *Projection {
	scalar := &Projection{Scalar: true}
	metadata := &Projection{Fields: map[string]*Projection{}}
	for _, key := range []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		metadata.Fields[key] = scalar
	}
	return &Projection{Fields: map[string]*Projection{"apiVersion": scalar, "kind": scalar, "metadata": metadata}}
}
