// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fullest

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// mostObject is how large an object can be that etcd takes.
const mostObject = 1536 << 10

// reporter is what a test and a check of rapid have in common.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// readInto makes a manifest, and reads it as the webhook and the operator do.
func readInto(t reporter, kind string, f Filling, out any) (size int) {
	t.Helper()
	manifest, err := Manifest(kind, f)
	if err != nil {
		t.Fatalf("%v", err)
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatalf("%v", err)
	}
	return len(text)
}

// bounded runs what works on a spec, and holds it to so many bytes of memory for each byte of the manifest, and to a number of results.
type bounded struct {
	t    reporter
	name string
	size int
}

func (b bounded) holds(what string, perByte, results int, work func() int) {
	b.t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := work()
	runtime.ReadMemStats(&after)
	if took, most := int64(after.TotalAlloc-before.TotalAlloc), 2<<20+int64(perByte)*int64(b.size); took > most {
		b.t.Errorf("%s of %d KiB: to %s takes %d KiB, and at most %d are allowed", b.name, b.size>>10, what, took>>10, most>>10)
	}
	if n > results {
		b.t.Errorf("%s: to %s gives %d results, and at most %d are allowed", b.name, what, n, results)
	}
}

// driveOwner has all work on a Cleaner or a ClusterCleaner that does before and after it is admitted.
func driveOwner(t reporter, compiler *celenv.Compiler, c v1alpha1.Owner, name string, size int) {
	b, w := bounded{t, name, size}, c.Work()
	options := validation.Options{Namespace: c.GetNamespace()}
	b.holds("copy it", 8, 0, func() int { c.DeepCopyOwner(); return 0 })
	b.holds("make its defaults explicit", 64, 8*size, func() int {
		text, err := v1alpha1.EncodeExplicit(w)
		if err != nil {
			t.Errorf("%v", err)
		}
		return len(text)
	})
	b.holds("take its fingerprint", 64, 128, func() int {
		text, err := author.FingerprintSpec(c)
		if err != nil {
			t.Errorf("%v", err)
		}
		return len(text)
	})
	b.holds("validate it", 128, 64+size/16, func() int { return len(validation.Validate(w, options)) })
	b.holds("compile it", 1024, 1000, func() int {
		programs, errs := compiler.Compile(context.Background(), w)
		if programs == nil {
			return len(errs)
		}
		return len(programs.Warnings())
	})
	for i := range w.Targets {
		options.Served = append(options.Served, validation.ServedKind{Resource: fmt.Sprint("kinds", w.Targets[i].Reference.Kind), Namespaced: true})
	}
	b.holds("list the rights that it needs", 128, 5000, func() int { return len(rights.ListRequired(c.GetNamespace(), w, options)) })
	b.holds("make queries of it", 128, 64, func() int { return len(snapshot.NewQueries(c.GetNamespace(), w)) })
}

// driveTemplate has all work on a template that does before and after it is admitted.
func driveTemplate(t reporter, compiler *celenv.Compiler, template *v1alpha1.CleanerTemplate, name string, size int) {
	b := bounded{t, name, size}
	user := &v1alpha1.ClusterCleaner{}
	user.Name, user.Spec.TemplateRef = "user", &v1alpha1.TemplateRef{Name: template.Name}
	var work *v1alpha1.Work
	b.holds("take its fingerprint", 64, 128, func() int { return len(author.FingerprintTemplate(template)) })
	b.holds("validate it", 128, 64+size/16, func() int {
		return len(validation.ValidateTemplate(template, templates.Validate(template), validation.Options{}))
	})
	b.holds("stand in for what uses it", 64, 1000, func() int {
		_, errs := templates.StandIn(template)
		return len(errs)
	})
	b.holds("expand it", 64, 1000, func() int {
		made, errs := templates.Expand(user, template)
		work = made
		return len(errs)
	})
	if work != nil {
		b.holds("validate what it makes", 128, 64+size/16, func() int { return len(validation.Validate(work, validation.Options{Template: template.Name})) })
		b.holds("compile what it makes", 1024, 1000, func() int {
			_, errs := compiler.Compile(context.Background(), work)
			return len(errs)
		})
	}
}

// drive makes a manifest of a kind, and has all work on it.
func drive(t reporter, compiler *celenv.Compiler, kind string, f Filling) (full reflect.Value, size int) {
	t.Helper()
	name := fmt.Sprintf("%s with lists of %d (equal: %v)", kind, f.MaxEntries, f.Equal)
	switch kind {
	case "CleanerTemplate":
		made := &v1alpha1.CleanerTemplate{}
		if size = readInto(t, kind, f, made); size <= mostObject {
			driveTemplate(t, compiler, made, name, size)
		}
		return reflect.ValueOf(made.Spec), size
	case "ClusterCleaner":
		made := &v1alpha1.ClusterCleaner{}
		if size = readInto(t, kind, f, made); size <= mostObject {
			driveOwner(t, compiler, made, name, size)
		}
		return reflect.ValueOf(made.Spec), size
	default:
		made := &v1alpha1.Cleaner{}
		if size = readInto(t, kind, f, made); size <= mostObject {
			driveOwner(t, compiler, made, name, size)
		}
		return reflect.ValueOf(made.Spec), size
	}
}

// findEmpty finds the lists and maps of a value that are empty, by their Go names.
func findEmpty(at string, v reflect.Value, found map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			findEmpty(at, v.Elem(), found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				findEmpty(at+"."+v.Type().Field(i).Name, v.Field(i), found)
			}
		}
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 {
			found[at] = true
		}
		if v.Kind() == reflect.Slice && v.Len() > 0 {
			findEmpty(at+"[]", v.Index(0), found)
		}
	}
}

func newCompiler(t *testing.T) *celenv.Compiler {
	t.Helper()
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return compiler
}

var kinds = []string{"Cleaner", "ClusterCleaner", "CleanerTemplate"}

// TestTheFullestIsBounded fills every list and map at once, as far as an object fits into etcd and into what is admitted, with entries
// that differ and with equal ones. All that works on a spec takes memory that goes with its size, and gives few results.
func TestTheFullestIsBounded(t *testing.T) {
	compiler := newCompiler(t)
	for _, kind := range kinds {
		for _, equal := range []bool{false, true} {
			for entries := int64(8); entries <= 256; entries *= 2 {
				full, size := drive(t, compiler, kind, Filling{MaxEntries: entries, Equal: equal})
				if size > mostObject {
					break
				}
				empty := map[string]bool{}
				findEmpty(kind, full, empty)
				for name := range empty {
					t.Errorf("%s is empty: fill it", name)
				}
			}
		}
	}
}

// TestTheFullestWithoutSomeIsBounded is TestTheFullestIsBounded with some fields left out, which leaves room for more of the others.
func TestTheFullestWithoutSomeIsBounded(t *testing.T) {
	compiler := newCompiler(t)
	rapid.Check(t, func(t *rapid.T) {
		left := map[string]bool{}
		drive(t, compiler, rapid.SampledFrom(kinds).Draw(t, "kind"), Filling{
			MaxEntries: rapid.SampledFrom([]int64{8, 16, 32}).Draw(t, "entries"),
			Equal:      rapid.Bool().Draw(t, "equal"),
			Leaves: func(path string) bool {
				if _, known := left[path]; !known {
					left[path] = rapid.Bool().Draw(t, path)
				}
				return left[path]
			},
		})
	})
}
