// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/celenv/projection"
)

// someOf is a Projection of some parts of a value, and of some that it has not.
func someOf(random *rand.Rand, value any) *projection.Projection {
	switch random.IntN(8) {
	case 0:
		return nil
	case 1:
		return projection.All()
	}
	p := &projection.Projection{Scalar: random.IntN(2) == 0, Shape: random.IntN(6) == 0}
	switch v := value.(type) {
	case map[string]any:
		p.Fields = map[string]*projection.Projection{"absent": projection.All()}
		for key, inner := range v {
			if random.IntN(3) > 0 {
				p.Fields[key] = someOf(random, inner)
			}
			if random.IntN(12) == 0 {
				p.Entries = someOf(random, inner)
			}
		}
	case []any:
		if len(v) > 0 && random.IntN(4) > 0 {
			p.Elements = someOf(random, v[0])
		}
		if len(v) > 0 && random.IntN(3) == 0 {
			fields, _ := v[random.IntN(len(v))].(map[string]any)
			kind, _ := fields["type"].(string)
			p.ByType = map[string]*projection.Projection{"absent": projection.All(), kind: someOf(random, fields)}
			if random.IntN(2) == 0 {
				p.Elements, p.Shape = nil, false
			}
		}
	}
	return p
}

// watchedObject is what a watch tells of an object that is sent in protobuf.
func watchedObject(t *testing.T, binary runtime.Decoder, data []byte) *Object {
	t.Helper()
	decoded, _, err := binary.Decode(data, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return decoded.(*Object)
}

// Whatever is in an object of any kind, and whatever is kept of it: it is what would be kept of the whole object.
func TestKeptPartsAreThoseOfTheWholeObject(t *testing.T) {
	const rounds = 10
	fill, random := newRandom(), rand.New(rand.NewPCG(1, 1))
	kept, whole := 0, 0
	for _, kind := range known() {
		if strings.HasSuffix(kind.Kind, "List") {
			continue
		}
		t.Run(kind.String(), func(t *testing.T) {
			binary := decoder(t, binaryConfig(&rest.Config{}, &atomic.Bool{}), runtime.ContentTypeProtobuf)
			for range rounds {
				data, _ := sent(t, fill, kind)
				content, err := watchedObject(t, binary, data).Content()
				if err != nil {
					t.Fatal(err)
				}
				p := projection.Merge(someOf(random, content), &projection.Projection{})
				want := p.ApplyToMap(content)
				got, err := watchedObject(t, binary, data).KeepParts(p)
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Fatalf("of %v, error %v (-kept of all +kept):\n%s", p.ListPaths(), err, diff)
				}
				if p.Whole {
					whole++
				} else {
					kept++
				}
			}
		})
	}
	if kept < whole {
		t.Errorf("%d were kept in part, and %d as a whole", kept, whole)
	}
}

// A field that is kept is there, also where nothing in it is; and a value that writes its JSON itself stays as it is.
func TestWhatIsThereShowsAsThere(t *testing.T) {
	type inner struct {
		A string `json:"a,omitempty"`
	}
	type outer struct {
		metav1.TypeMeta `json:",inline"`
		Zero            inner       `json:"zero,omitempty,omitzero"`
		Pointer         *inner      `json:"pointer,omitempty"`
		List            []inner     `json:"list,omitempty"`
		Time            metav1.Time `json:"time"`
		Untagged        inner
		Other           string `json:"other"`
	}
	o := outer{TypeMeta: metav1.TypeMeta{Kind: "K"}, Zero: inner{"a"}, Pointer: &inner{"a"}, List: []inner{{"a"}, {"b"}}, Untagged: inner{"a"}, Other: "x"}
	p := &projection.Projection{Fields: map[string]*projection.Projection{
		"kind": {Scalar: true}, "zero": {}, "pointer": nil, "list": nil, "time": {}, "Untagged": projection.KeepPath("a"),
	}}
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o)
	if err != nil {
		t.Fatal(err)
	}
	pruneValue(reflect.ValueOf(&o), p)
	if o.Other != "" || o.Pointer == nil || o.Pointer.A != "" || len(o.List) != 1 || o.Untagged.A != "a" {
		t.Errorf("left is %+v", o)
	}
	after, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o)
	if diff := cmp.Diff(p.ApplyToMap(before), p.ApplyToMap(after)); err != nil || diff != "" {
		t.Errorf("error %v (-before +after):\n%s", err, diff)
	}
}

// What was not read has no parts, and all of an object is its content.
func TestKeptPartsOfOtherObjects(t *testing.T) {
	wrong := errors.New("no such thing")
	broken := &Object{Content: func() (map[string]any, error) { return nil, wrong }}
	if got, err := broken.KeepParts(projection.KeepPath("a")); got != nil || !errors.Is(err, wrong) {
		t.Errorf("got %v, %v", got, err)
	}
	made := &Object{Content: func() (map[string]any, error) { return map[string]any{"a": "b", "c": "d"}, nil }}
	if got, err := made.KeepParts(projection.KeepPath("a")); err != nil || !cmp.Equal(got, map[string]any{"a": "b"}) {
		t.Errorf("got %v, %v", got, err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	o, err := newLazyObject(pod, corev1.SchemeGroupVersion.WithKind("Pod"), 1)
	if err != nil {
		t.Fatal(err)
	}
	all, err := o.KeepParts(projection.All())
	if want, _ := o.Content(); err != nil || !cmp.Equal(all, want) {
		t.Errorf("got %v, %v, want %v", all, err, want)
	}
	if o.DeepCopyObject().(*Object).typed != nil {
		t.Error("a copy shares what KeepParts changes")
	}
	poison := poisoned()[policies]
	o, err = newLazyObject(poison, policies, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.KeepParts(projection.KeepPath("spec")); !errors.Is(err, errNoJSON) {
		t.Errorf("got %v", err)
	}
}
