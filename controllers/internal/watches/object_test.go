// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/queries"
)

// laterPod is a Pod whose rest is to be had when it is asked for, and asked counts how often it was.
func laterPod(name string, content map[string]any, err error) (pod *cachedobjects.Object, asked *int) {
	pod, asked = podOf("a", name, map[string]string{"app": "web"}), new(int)
	pod.Value = nil
	pod.LoadValue = func() (map[string]any, error) { *asked++; return content, err }
	return pod, asked
}

// What comes without its content is read when a query needs that, and not before.
func TestContentIsReadWhenItIsNeeded(t *testing.T) {
	content := map[string]any{"spec": map[string]any{"nodeName": "n"}, "status": map[string]any{"phase": "Running"}}
	metadata := queries.New("Pod")
	metadata.MetadataOnly = true
	byField := queries.New("Pod", queries.Fielded("status.phase=Running"))
	byField.MetadataOnly = true
	for name, tc := range map[string]struct {
		query snapshot.Query
		want  map[string]any // the Value; nil for an object without
		found bool
		reads bool
	}{
		"AllOfIt":        {queries.New("Pod"), content, true, true},
		"MetadataOnly":   {metadata, nil, true, false},
		"ByField":        {byField, nil, true, true},
		"FieldMatches":   {queries.New("Pod", queries.Fielded("status.phase=Running")), content, true, true},
		"FieldDiffers":   {queries.New("Pod", queries.Fielded("status.phase=Failed")), nil, false, true},
		"FieldOfName":    {queries.New("Pod", queries.Fielded("metadata.name=other")), nil, false, false},
		"LabelDiffers":   {queries.New("Pod", queries.Labelled("app=api"), queries.Fielded("status.phase=Running")), nil, false, false},
		"AnotherPlace":   {queries.New("Pod", queries.In("b"), queries.Fielded("status.phase=Running")), nil, false, false},
		"NameAndMatches": {queries.New("Pod", queries.Named("p"), queries.Fielded("spec.nodeName=n")), content, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			e, i := podEngine(0)
			pod, asked := laterPod("p", content, nil)
			feedsOf(e).replaceObjects(i, []*cachedobjects.Object{pod}, "")
			if *asked > 0 {
				t.Error("it was read before anybody asked")
			}
			got := e.Read(t.Context(), tc.query)
			if got.State != observed.Complete || (len(got.Objects) == 1) != tc.found {
				t.Fatalf("got %s %q, %d objects", got.State, got.Detail, len(got.Objects))
			}
			if tc.found && !cmp.Equal(got.Objects[0].Value, tc.want) {
				t.Errorf("got %v, want %v", got.Objects[0].Value, tc.want)
			}
			if (*asked > 0) != tc.reads {
				t.Errorf("its content was asked for %d times", *asked)
			}
		})
	}
}

// What cannot be read makes a target unknown that may have it, and no other.
func TestContentThatCannotBeRead(t *testing.T) {
	e, i := podEngine(0)
	broken, _ := laterPod("broken", nil, errors.New("no such thing"))
	feedsOf(e).replaceObjects(i, []*cachedobjects.Object{broken, podOf("b", "sound", map[string]string{"app": "api"})}, "")
	metadata := queries.New("Pod", queries.In(""), queries.Fielded("status.phase=Running"))
	metadata.MetadataOnly = true
	for name, q := range map[string]snapshot.Query{
		"AllOfIt": queries.New("Pod", queries.In("")), "Field": queries.New("Pod", queries.In(""), queries.Fielded("status.phase=Running")), "MetadataByField": metadata,
	} {
		got := e.Read(t.Context(), q)
		want := `cannot read pods a/broken: no such thing`
		if got.State != observed.Failed || len(got.Objects) > 0 || got.Detail != want {
			t.Errorf("%s: got %s %q with %d objects, want %q", name, got.State, got.Detail, len(got.Objects), want)
		}
	}
	for name, q := range map[string]snapshot.Query{
		"AnotherPlace": queries.New("Pod", queries.In("b")), "AnotherLabel": queries.New("Pod", queries.In(""), queries.Labelled("app=api"), queries.Fielded("status.phase=")),
	} {
		if got := e.Read(t.Context(), q); got.State != observed.Complete || strings.Join(queries.PlacesOf(got), " ") != "b/sound" {
			t.Errorf("%s: got %s %q, %v", name, got.State, got.Detail, queries.PlacesOf(got))
		}
	}
}
