// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"sort"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/kube"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
)

const (
	// maxDocuments is how many YAML documents a manifest may have, and maxObjects how many objects.
	maxDocuments = 5000
	maxObjects   = 5000
	// maxNodes is how many values one YAML document may have, and maxHookNodes all hooks of a deletion together; those that
	// are repeated by aliases included. maxRepeated bounds the text that is repeated.
	maxNodes     = 300_000
	maxHookNodes = 50_000
	maxRepeated  = 256 << 10
	// maxDocument bounds one YAML document: the API server takes no object that is larger.
	maxDocument = 3 << 20
	// maxDirectives bounds the directives of a YAML document, each of which a parser compares with all before it, and
	// maxDirectiveText their characters, which it repeats for each tag.
	maxDirectives    = 8
	maxDirectiveText = 128
	// maxComments bounds the lines of comments in a YAML document with aliases: a parser keeps each, with where it stands.
	maxComments = 20_000
	// maxCommentSteps bounds what a parser does for each byte of a YAML document: it compares comments with each of the blocks that
	// end after them.
	maxCommentSteps = 32
	// maxPolicy bounds what is kept of a resource policy.
	maxPolicy = 100
)

// errTooMany refuses what is more than the operator reads.
var errTooMany = errors.New("it is too large: uninstall it with Helm")

// extractHeads reads a manifest, and writes it with nothing left of each object but what says which it is. Nothing else ever
// parses what somebody wrote in it: neither Helm nor anybody after it.
func extractHeads(ctx context.Context, manifest string) (string, error) {
	docs, err := splitDocuments(manifest)
	if err != nil {
		return "", err
	}
	var heads strings.Builder
	objects := 0
	for _, doc := range docs {
		if _, err := weighDocument(ctx, doc, maxNodes); err != nil {
			return "", err
		}
		var o *writtenObject
		if err := yamlv2.NewDecoder(contextReader{ctx, strings.NewReader(doc)}).Decode(&o); err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("its manifest is not YAML of objects: %w", err)
		}
		if o == nil {
			continue
		}
		head, count, err := o.encodeHead()
		if err != nil {
			return "", err
		}
		if objects += count; objects > maxObjects {
			return "", fmt.Errorf("its manifest has more than %d objects: %w", maxObjects, errTooMany)
		}
		heads.WriteString("\n---\n")
		heads.Write(head)
	}
	return heads.String(), nil
}

// splitDocuments parts a text into YAML documents, as Helm does.
func splitDocuments(text string) ([]string, error) {
	if strings.Count(text, "\n---") >= maxDocuments {
		return nil, fmt.Errorf("its manifest has more than %d documents: %w", maxDocuments, errTooMany)
	}
	files := releaseutil.SplitManifests(text)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Sort(releaseutil.BySplitManifestsOrder(names))
	docs := make([]string, 0, len(files))
	for _, name := range names {
		docs = append(docs, files[name])
	}
	return docs, nil
}

// writtenObject is an object of a manifest as it is written, or a list of some: of the rest nothing is decoded.
type writtenObject struct {
	identity `yaml:",inline"`

	Items []*identity `yaml:"items"`
}

// identity is what says which object it is. What is no text says nothing.
type identity struct {
	Version  any `yaml:"apiVersion"`
	Kind     any `yaml:"kind"`
	Metadata struct {
		Name        any            `yaml:"name"`
		Namespace   any            `yaml:"namespace"`
		Annotations map[string]any `yaml:"annotations"`
	} `yaml:"metadata"`
}

// encodeHead returns the JSON of what is left of an object, or of a list of some.
func (w *writtenObject) encodeHead() (head []byte, objects int, err error) {
	kept := w.toMap()
	metadata := map[string]any{"annotations": w.policyAnnotations()}
	maps.Copy(metadata, kept["metadata"].(map[string]any)) //nolint:forcetypeassert // toMap makes it
	kept["metadata"], objects = metadata, 1
	if w.Items != nil {
		list := make([]any, 0, len(w.Items))
		for _, item := range w.Items {
			if item == nil {
				return nil, 0, errors.New("its manifest has a list of something else than objects")
			}
			list = append(list, item.toMap())
		}
		kept["items"], objects = list, len(list)
	}
	head, err = json.Marshal(kept)
	return head, objects, err
}

func (i *identity) toMap() map[string]any {
	kept, metadata := map[string]any{}, map[string]any{}
	setText(kept, "apiVersion", i.Version)
	setText(kept, "kind", i.Kind)
	setText(metadata, "name", i.Metadata.Name)
	setText(metadata, "namespace", i.Metadata.Namespace)
	kept["metadata"] = metadata
	return kept
}

func setText(to map[string]any, field string, value any) {
	if text, ok := value.(string); ok {
		to[field] = text
	}
}

// policyAnnotations are the annotations that Helm heeds when it deletes what a manifest has.
func (i *identity) policyAnnotations() map[string]string {
	kept := map[string]string{}
	for _, name := range []string{kube.ResourcePolicyAnno, release.HookAnnotation} {
		if value, has := i.Metadata.Annotations[name]; has {
			text, _ := value.(string)
			kept[name] = strings.ToValidUTF8(text[:min(len(text), maxPolicy)], "")
		}
	}
	return kept
}

// weighHooks refuses hooks that are too much together: all of their objects are in memory while they are run.
func weighHooks(ctx context.Context, hooks []*release.Hook) error {
	var all size
	for _, h := range hooks {
		docs, err := splitDocuments(h.Manifest)
		if err != nil {
			return fmt.Errorf("its hook %q: %w", h.Name, err)
		}
		for _, doc := range docs {
			one, err := weighDocument(ctx, doc, maxHookNodes)
			if err != nil {
				return fmt.Errorf("its hook %q: %w", h.Name, err)
			}
			all = all.addSize(one)
			if all.nodes > maxHookNodes || all.text > maxHooksText+maxRepeated {
				return fmt.Errorf("its hooks have more than %d values, or repeat too much by aliases: %w", maxHookNodes, errTooMany)
			}
		}
	}
	return nil
}

// weighDocument refuses a YAML document that takes much more memory or time than its text, and says how much it is at most.
func weighDocument(ctx context.Context, doc string, nodes int) (size, error) {
	if err := ctx.Err(); err != nil {
		return size{}, err
	}
	if len(doc) > maxDocument {
		return size{}, fmt.Errorf("its manifest has a document of more than %d KiB: %w", maxDocument>>10, errTooMany)
	}
	written := countLines(doc)
	if written.directives > maxDirectives {
		return size{}, fmt.Errorf("its manifest has a document with more than %d lines that begin with %%, as YAML directives do: %w", maxDirectives, errTooMany)
	}
	if written.directiveText > maxDirectiveText {
		return size{}, fmt.Errorf("its manifest has a document with %d characters in lines that begin with %%, and %d are read at most: %w", written.directiveText, maxDirectiveText, errTooMany)
	}
	all := size{countMaxNodes(doc), len(doc)}
	if all.nodes > nodes {
		return size{}, fmt.Errorf("its manifest has a document with up to %d values, and %d are read at most: %w", all.nodes, nodes, errTooMany)
	}
	if !strings.Contains(doc, "&") || !strings.Contains(doc, "*") {
		return all, nil
	}
	if written.comments > maxComments || written.comments*written.depth > maxCommentSteps*len(doc) {
		return size{}, fmt.Errorf("its manifest has a document with %d lines of comments and up to %d blocks in each other: %w", written.comments, written.depth, errTooMany)
	}
	var root yaml.Node
	if err := yaml.NewDecoder(contextReader{ctx, strings.NewReader(doc)}).Decode(&root); err != nil && !errors.Is(err, io.EOF) {
		return size{}, fmt.Errorf("its manifest is not YAML: %w", err)
	}
	repeated := weight{of: map[*yaml.Node]size{}}.weighNode(&root)
	all = size{max(all.nodes, repeated.nodes), max(all.text, repeated.text)}
	if all.nodes > nodes || all.text > len(doc)+maxRepeated {
		return size{}, fmt.Errorf("its manifest repeats too much by aliases: %w", errTooMany)
	}
	return all, nil
}

// contextReader reads until its context ends: a parser takes a piece at a time.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(into []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(into)
}

// lines is what the lines of a YAML text may be at most, whatever is meant by them.
type lines struct {
	// directives begin with a percent sign, and comments with nothing before them but what blocks begin with.
	// directiveText is how many characters the directives have.
	directives, comments, directiveText int
	// depth is how many blocks are open at once: each begins in another column, and before anything else in its line.
	depth int
}

// countLines tells lines apart by each of YAML's line breaks. A byte order mark is no character of a line.
func countLines(text string) lines {
	all := lines{depth: 2}
	column, leading, directive := 0, true, false
	for _, c := range text {
		switch c {
		case '\n', '\r', '\u0085', '\u2028', '\u2029':
			column, leading, directive = 0, true, false
			continue
		case '\ufeff':
			continue
		}
		if directive {
			all.directiveText++
		}
		if !leading {
			continue
		}
		switch c {
		case ' ', '\t', '-', '?', ':':
			column++
			all.depth = max(all.depth, column+2)
			continue
		case '#':
			all.comments++
		case '%':
			if column == 0 {
				all.directives++
				directive = true
			}
		}
		leading = false
	}
	return all
}

// countMaxNodes returns how many values a YAML text has at most, whatever is meant by it: each but the first needs a character that
// tells it from the others. In a flow there is a comma or a bracket for each three of them at most; outside, a dash, a
// question mark or a colon with a space after it.
func countMaxNodes(text string) int {
	n := 3
	for i := range len(text) {
		switch text[i] {
		case ',', '[', '{':
			n += 3
		case '-', '?', ':':
			if i+1 == len(text) || strings.IndexByte(" \t\r\n", text[i+1]) >= 0 {
				n += 2
			}
		}
	}
	return n
}

// size is how much a value is, with all that it repeats.
type size struct{ nodes, text int }

// addSize adds up sizes, no further than what is too much.
func (s size) addSize(other size) size {
	const most = 1 << 40
	return size{min(s.nodes+other.nodes, most), min(s.text+other.text, most)}
}

// weight adds up the sizes of the values of a document.
type weight struct{ of map[*yaml.Node]size }

func (w weight) weighNode(n *yaml.Node) size {
	if n.Kind == yaml.AliasNode {
		if known, ok := w.of[n.Alias]; ok {
			return known
		}
		return size{maxNodes + 1, 0} // it contains itself
	}
	sum := size{1, len(n.Value)}
	for _, c := range n.Content {
		sum = sum.addSize(w.weighNode(c))
	}
	if n.Anchor != "" {
		w.of[n] = sum
	}
	return sum
}
