// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests reads which objects the manifest of a Helm release names. Any user may have written that manifest. So the package
// weighs each YAML document before it decodes it, and refuses documents that would cost a parser much more memory or time than their
// length suggests. It keeps only what identifies an object. It sends no requests, and decides nothing about the objects.
package manifests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// maxNodes is how many values all documents of a manifest may have, including those that aliases repeat. maxRepeated is how much
	// text aliases may repeat in them.
	maxNodes    = 300_000
	maxRepeated = 256 << 10
	// maxTreeNodes is how many values a document may have that is parsed into a tree to count them. All documents with aliases are.
	// The values of a document without aliases are not counted if there are fewNodes at most.
	maxTreeNodes = 150_000
	fewNodes     = 3_000
	// maxNested is how deep values may be nested, including aliases.
	maxNested = 1000
	// maxDocument bounds one YAML document. The API server accepts no larger object.
	maxDocument = 3 << 20
	// maxDirectives bounds the directives of a YAML document: a parser compares each with all before it. maxDirectiveText bounds their
	// characters: a parser repeats them for each tag.
	maxDirectives    = 8
	maxDirectiveText = 128
	// maxComments bounds the comments of all documents that are parsed into trees: a parser keeps each, with its position.
	maxComments = 20_000
	// maxCommentSteps bounds the steps of a parser for each byte of a document: it compares each comment with the blocks that end
	// after it.
	maxCommentSteps = 32
)

// ErrTooLarge says that the operator does not read a manifest because of its size.
var ErrTooLarge = errors.New("it is too large: uninstall it with Helm")

// Allowance is how much YAML may still be read: how many values, how much text that aliases repeat, and how many comments. It bounds the
// cost of all documents together.
type Allowance struct{ nodes, most, repeated, comments int }

// NewAllowance returns an Allowance for this many values.
func NewAllowance(nodes int) Allowance {
	return Allowance{nodes: nodes, most: nodes, repeated: maxRepeated, comments: maxComments}
}

// TakeDocument charges the Allowance for a YAML document. It refuses a document that costs a parser much more memory or time than its
// length suggests, or more than is left. The error wraps ErrTooLarge then, and completes a sentence such as "its manifest ...".
func (a *Allowance) TakeDocument(ctx context.Context, doc string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	all, err := a.weighDocument(ctx, doc)
	if err != nil {
		return err
	}
	if all.depth > maxNested {
		return fmt.Errorf("is nested deeper than %d: %w", maxNested, ErrTooLarge)
	}
	if a.repeated -= max(0, all.text-len(doc)); a.repeated < 0 {
		return fmt.Errorf("repeats too much by aliases: %w", ErrTooLarge)
	}
	if a.nodes -= all.nodes; a.nodes < 0 {
		return fmt.Errorf("has more than %d values, including those that aliases repeat: %w", a.most, ErrTooLarge)
	}
	return nil
}

// weighDocument returns an upper bound for the size of a document. It refuses a document that is too large by itself.
func (a *Allowance) weighDocument(ctx context.Context, doc string) (size, error) {
	if len(doc) > maxDocument {
		return size{}, fmt.Errorf("has a document of more than %d KiB: %w", maxDocument>>10, ErrTooLarge)
	}
	written := countLines(doc)
	if written.directives > maxDirectives {
		return size{}, fmt.Errorf("has a document with more than %d lines that begin with %%, as YAML directives do: %w", maxDirectives, ErrTooLarge)
	}
	if written.directiveText > maxDirectiveText {
		return size{}, fmt.Errorf("has a document with %d characters in lines that begin with %%, and the limit is %d: %w", written.directiveText, maxDirectiveText, ErrTooLarge)
	}
	most := size{nodes: countMaxNodes(doc), text: len(doc)}
	if most.nodes > maxNodes {
		return size{}, fmt.Errorf("has a document with up to %d values, and the limit is %d: %w", most.nodes, maxNodes, ErrTooLarge)
	}
	commented := written.comments > a.comments || written.comments*written.depth > maxCommentSteps*len(doc)
	if !strings.Contains(doc, "&") || !strings.Contains(doc, "*") {
		if most.nodes <= fewNodes || most.nodes > maxTreeNodes || commented {
			return most, nil
		}
		a.comments -= written.comments
		counted, err := weighTree(ctx, doc)
		if err != nil {
			return most, ctx.Err() // the other parser may accept it
		}
		return counted, nil
	}
	switch {
	case most.nodes > maxTreeNodes:
		return size{}, fmt.Errorf("has a document with aliases and up to %d values, and the limit is %d: %w", most.nodes, maxTreeNodes, ErrTooLarge)
	case commented:
		return size{}, fmt.Errorf("has too many comments: one document has %d, in up to %d nested blocks: %w", written.comments, written.depth, ErrTooLarge)
	}
	a.comments -= written.comments
	return weighTree(ctx, doc)
}

// weighTree parses a document, and adds up its values and what aliases repeat.
func weighTree(ctx context.Context, doc string) (size, error) {
	var root yaml.Node
	if err := yaml.NewDecoder(NewReader(ctx, strings.NewReader(doc))).Decode(&root); err != nil && !errors.Is(err, io.EOF) {
		return size{}, fmt.Errorf("is not YAML: %w", err)
	}
	return weight{of: map[*yaml.Node]size{}}.weighNode(&root), nil
}

// size is the number of values in a value, the length of their text, both including what aliases repeat, and the depth of their nesting.
type size struct{ nodes, text, depth int }

// addSize adds the size of a value inside this one. Sums stay below a large limit, so that they never overflow.
func (s size) addSize(inner size) size {
	const most = 1 << 40
	return size{min(s.nodes+inner.nodes, most), min(s.text+inner.text, most), min(max(s.depth, inner.depth+1), most)}
}

// weight computes the sizes of the values of a document. It remembers those that have anchors.
type weight struct{ of map[*yaml.Node]size }

func (w weight) weighNode(n *yaml.Node) size {
	if n.Kind == yaml.AliasNode {
		if known, ok := w.of[n.Alias]; ok {
			return known
		}
		return size{nodes: maxNodes + 1, text: math.MaxInt32} // it contains itself
	}
	sum := size{nodes: 1, text: len(n.Value)}
	for _, c := range n.Content {
		sum = sum.addSize(w.weighNode(c))
	}
	if n.Anchor != "" {
		w.of[n] = sum
	}
	return sum
}
