// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// extract returns the heads of documents, with two annotations.
func extract(t *testing.T, docs ...string) (string, error) {
	t.Helper()
	return ExtractHeads(t.Context(), docs, "helm.sh/resource-policy", "helm.sh/hook")
}

// TestHeads shows what is kept of the objects of a manifest.
func TestHeads(t *testing.T) {
	const long = `"metadata":{"annotations":{"helm.sh/resource-policy":"%s"},"name":"a"}`
	for name, tc := range map[string]struct {
		docs  []string
		heads []string
	}{
		"None":    {},
		"Comment": {docs: []string{"# Source: a.yaml\n"}},
		"Null":    {docs: []string{"null", "~\n"}},
		"Object": {
			docs:  []string{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b, uid: c, labels: {d: e}}\ndata: {f: g}\n"},
			heads: []string{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{},"name":"a","namespace":"b"}}`},
		},
		"Order": {
			docs: []string{"kind: B", "kind: A"},
			heads: []string{
				`{"kind":"B","metadata":{"annotations":{}}}`, `{"kind":"A","metadata":{"annotations":{}}}`,
			},
		},
		"Annotations": {
			docs:  []string{"metadata: {name: a, annotations: {helm.sh/resource-policy: keep, helm.sh/hook: pre-delete, other: x}}"},
			heads: []string{`{"metadata":{"annotations":{"helm.sh/hook":"pre-delete","helm.sh/resource-policy":"keep"},"name":"a"}}`},
		},
		"EmptyAnnotation": {
			docs:  []string{`metadata: {name: a, annotations: {helm.sh/resource-policy: ""}}`},
			heads: []string{"{" + fmt.Sprintf(long, "") + "}"},
		},
		"LongAnnotation": {
			docs:  []string{"metadata: {name: a, annotations: {helm.sh/resource-policy: " + many("k", 2*maxAnnotation) + "}}"},
			heads: []string{"{" + fmt.Sprintf(long, many("k", maxAnnotation)) + "}"},
		},
		"AnnotationCutInACharacter": {
			docs:  []string{"metadata: {name: a, annotations: {helm.sh/resource-policy: " + many("k", maxAnnotation-1) + "é}}"},
			heads: []string{"{" + fmt.Sprintf(long, many("k", maxAnnotation-1)) + "}"},
		},
		"List": {
			docs:  []string{"apiVersion: v1\nkind: List\nitems:\n- {kind: A, metadata: {name: a}, data: x}\n- {kind: B, metadata: {namespace: b}}\n"},
			heads: []string{`{"apiVersion":"v1","items":[{"kind":"A","metadata":{"name":"a"}},{"kind":"B","metadata":{"namespace":"b"}}],"kind":"List","metadata":{"annotations":{}}}`},
		},
		"EmptyList": {
			docs:  []string{"kind: List\nitems: []\n"},
			heads: []string{`{"items":[],"kind":"List","metadata":{"annotations":{}}}`},
		},
		"Aliases": {
			docs:  []string{"x: &a {name: b}\nkind: A\nmetadata: *a\n"},
			heads: []string{`{"kind":"A","metadata":{"annotations":{},"name":"b"}}`},
		},
		"NoTexts": {
			docs:  []string{"a: &a [1, 2]\nb: &b {c: d}\ne: &e name\nkind: *a\napiVersion: *b\nmetadata: {name: *e, namespace: 12, annotations: {helm.sh/resource-policy: *a, other: *b}}\n"},
			heads: []string{`{"metadata":{"annotations":{"helm.sh/resource-policy":""},"name":"name"}}`},
		},
		"Escaped": {
			docs:  []string{`kind: "<\"\u2028>"`},
			heads: []string{`{"kind":"\u003c\"\u2028\u003e","metadata":{"annotations":{}}}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := ""
			for _, head := range tc.heads {
				want += HeadStart + head
			}
			if got, err := extract(t, tc.docs...); err != nil || got != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
}

// TestNoHeads shows which manifests are refused, and what is said.
func TestNoHeads(t *testing.T) {
	for name, tc := range map[string]struct {
		docs     []string
		says     string
		tooLarge bool
	}{
		"NotYAML":      {docs: []string{"kind: A", "a: ["}, says: "its manifest, in document 2, is not YAML of objects: yaml: line 1: "},
		"Text":         {docs: []string{"nothing"}, says: "its manifest, in document 1, is not YAML of objects: "},
		"ListOfNull":   {docs: []string{"items: [~]"}, says: "its manifest has a list with an item that is not an object"},
		"ListOfTexts":  {docs: []string{"items: [a]"}, says: "its manifest, in document 1, is not YAML of objects: "},
		"NoAnchor":     {docs: []string{"kind: A", "kind: B", "a: [&a b, *c]"}, says: "its manifest, in document 3, is not YAML: yaml: unknown anchor 'c'"},
		"AsManyItems":  {docs: []string{"items:\n" + many("- {kind: a}\n", 12*maxObjects)}},
		"ManyItems":    {docs: []string{"items:\n" + many("- {kind: a}\n", 12*maxObjects), "kind: A"}, says: "more than 5000 objects", tooLarge: true},
		"LongName":     {docs: []string{"kind: " + many("a", maxHeads+1)}, says: "more than 2048 KiB of names and kinds", tooLarge: true},
		"LongNames":    {docs: []string{"kind: " + many("a", maxHeads/2), "kind: " + many("a", maxHeads/2)}, says: "more than 2048 KiB of names and kinds", tooLarge: true},
		"LongDocument": {docs: []string{"a: " + many("a", maxDocument)}, says: "its manifest has a document of more than 3072 KiB", tooLarge: true},
		"ManyValues":   {docs: []string{many("- a\n", 4*149_000), many("- a\n", 4*149_000), "- a", "- a"}, says: "not YAML of objects"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := extract(t, tc.docs...)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) || errors.Is(err, ErrTooLarge) != tc.tooLarge {
				t.Errorf("got %v, want %q, too large: %t", err, tc.says, tc.tooLarge)
			}
		})
	}
}

// TestWhatADocumentMayBe shows the bounds of a single document, and of all that are taken from one allowance.
func TestWhatADocumentMayBe(t *testing.T) {
	for name, tc := range map[string]struct {
		doc   string
		times int
		says  string
	}{
		"Plain":            {doc: configMap, times: 100},
		"Long":             {doc: "a: " + many("a", maxDocument-3), times: 2},
		"TooLong":          {doc: "a: " + many("a", maxDocument), says: "has a document of more than 3072 KiB"},
		"LongDirective":    {doc: "%" + many("a", maxDirectiveText+1) + "\n---\na: b", says: "has a document with 129 characters in lines that begin with %, and the limit is 128"},
		"Nested":           {doc: "a: " + many("[", 900) + many("]", 900), times: 2},
		"TooNested":        {doc: "a: " + many("[", 1100) + many("]", 1100), says: "is nested deeper than 1000"},
		"NestedByAliases":  {doc: "a: &a " + many("[", 600) + many("]", 600) + "\nb: " + many("[", 600) + "*a" + many("]", 600), says: "is nested deeper than 1000"},
		"ManyValues":       {doc: "a: [" + many("[],", 3*99_000) + "]", says: "has a document with up to"},
		"ManyWithAliases":  {doc: "a: [&a a, *a, " + many("a,", 2*60_000) + "]", says: "has a document with aliases and up to"},
		"ValuesInAll":      {doc: "a: [" + many("[],", 3*40_000) + "]", times: 1, says: "has more than 300000 values, including those that aliases repeat"},
		"Repeated":         {doc: "a: &a " + many("a", maxRepeated/2) + "\nb: *a\n", times: 2, says: "repeats too much by aliases"},
		"ItContainsItself": {doc: "a: &a [*a]", says: "repeats too much by aliases"},
		"Comments":         {doc: "a: [&a a, *a]\n" + many("#\n", 2*maxComments), times: 1, says: "has too many comments"},
		"BrokenAlias":      {doc: "a: [&a a, *a", says: "is not YAML: "},
		"BrokenPlain":      {doc: "a: [" + many("a,", 2*fewNodes), times: 3},
	} {
		t.Run(name, func(t *testing.T) {
			left := NewAllowance(maxNodes)
			for range tc.times {
				if err := left.TakeDocument(t.Context(), tc.doc); err != nil {
					t.Fatalf("one of %d: %v", tc.times, err)
				}
			}
			if tc.says == "" {
				return
			}
			err := left.TakeDocument(t.Context(), tc.doc)
			for n := 0; err == nil && n < 2; n++ {
				err = left.TakeDocument(t.Context(), tc.doc)
			}
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

// TestReadingEndsWithItsContext shows that neither the weighing nor the decoding goes on when nobody waits for it any more.
func TestReadingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := NewReader(ctx, strings.NewReader("abc"))
	if n, err := r.Read(make([]byte, 2)); n != 2 || err != nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
	cancel()
	if n, err := r.Read(make([]byte, 2)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: got %d bytes, %v", n, err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	left := NewAllowance(maxNodes)
	if err := left.TakeDocument(ctx, configMap); !errors.Is(err, context.Canceled) {
		t.Errorf("a document is weighed: %v", err)
	}
	if _, err := weighTree(ctx, configMap); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("a tree is made: %v", err)
	}
	if _, err := ExtractHeads(ctx, []string{configMap}); !errors.Is(err, context.Canceled) {
		t.Errorf("a manifest is read: %v", err)
	}
	if heads, err := ExtractHeads(ctx, nil); heads != "" || err != nil {
		t.Errorf("nothing to read: %q, %v", heads, err)
	}
}
