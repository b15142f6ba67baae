// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests reads Cleaners, templates and the objects of an imagined cluster from files. It checks them as the API server and
// the webhook would, and says for each problem where in the file it is. It never asks a cluster.
package manifests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

// Document is one YAML or JSON document of a file.
type Document struct {
	File string
	// Line is the line on which the text begins, from 1.
	Line int
	text []byte
	// Object has integers as int64, and no nulls in its maps: an API server drops those too.
	Object map[string]any
	// root is the same with positions; nil until a position is needed.
	root *yaml.Node
}

// Input reads documents from files, and from standard input for "-".
type Input struct{ Stdin io.Reader }

// ReadPaths returns the documents of files and folders, in the given order.
func (in Input) ReadPaths(paths []string) ([]*Document, error) {
	var all []*Document
	for _, path := range paths {
		documents, err := in.ReadDocuments(path)
		if err != nil {
			return nil, err
		}
		all = append(all, documents...)
	}
	return all, nil
}

// ReadDocuments returns the documents of a file, or of the *.yaml, *.yml and *.json files below a folder.
// The path may be a symbolic link; the files of a folder may not. Empty documents are left out.
func (in Input) ReadDocuments(path string) ([]*Document, error) {
	if path == "-" {
		text, err := io.ReadAll(in.Stdin)
		if err != nil {
			return nil, fmt.Errorf("cannot read standard input: %w", err)
		}
		return parseDocuments("<stdin>", text)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return parseDocuments(path, text)
	}
	f, err := OpenFolder(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []*Document
	err = f.WalkFiles(func(name string, _ fs.FileMode) error {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			return nil
		}
		documents, err := f.ReadDocuments(name)
		all = append(all, documents...)
		return err
	})
	return all, err
}

// NewDocument returns the document of an object that does not come from a file. The name stands for the file.
func NewDocument(name string, object map[string]any) (*Document, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	d := &Document{File: name, Line: 1, text: text}
	return d, d.DecodeJSON(text)
}

// parseDocuments splits a text into documents and parses them.
func parseDocuments(file string, text []byte) ([]*Document, error) {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && !bytes.Contains(text, []byte("\n---")) {
		d := &Document{File: file, Line: 1, text: text}
		return []*Document{d}, d.DecodeJSON(text)
	}
	var all []*Document
	for line := 1; len(text) > 0; {
		part, rest, lines := cutDocument(text)
		all = append(all, &Document{File: file, Line: line, text: part})
		text, line = rest, line+lines
	}
	var parsers errgroup.Group // YAML is slow, and there may be thousands of documents
	parsers.SetLimit(runtime.GOMAXPROCS(0))
	for _, d := range all {
		parsers.Go(d.parseYAML)
	}
	err := parsers.Wait()
	return slices.DeleteFunc(all, func(d *Document) bool { return d.Object == nil }), err
}

// parseYAML parses the text. The object of an empty text is nil.
func (d *Document) parseYAML() error {
	asJSON, err := sigsyaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return d.newYAMLError(err)
	}
	if string(asJSON) == "null" {
		return nil
	}
	return d.DecodeJSON(asJSON)
}

// cutDocument cuts the first document off a text. lines counts its lines, with the one that ends it.
func cutDocument(text []byte) (part, rest []byte, lines int) {
	for at := 0; at < len(text); {
		end := bytes.IndexByte(text[at:], '\n')
		next := at + end + 1
		if end < 0 {
			next = len(text)
		}
		lines++
		if line := bytes.TrimRight(text[at:next], "\r\n \t"); string(line) == "---" || bytes.HasPrefix(line, []byte("--- ")) {
			return text[:at], text[next:], lines
		}
		at = next
	}
	return text, nil, lines
}

// DecodeJSON decodes the object from JSON as Kubernetes does.
func (d *Document) DecodeJSON(text []byte) error {
	var value any
	if err := utiljson.Unmarshal(text, &value); err != nil {
		return fmt.Errorf("%s:%d: %w", d.File, d.Line, err)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%s:%d: is not an object: write a Kubernetes manifest, with apiVersion, kind and metadata", d.File, d.Line)
	}
	removeNulls(object)
	d.Object = object
	return nil
}

// removeNulls removes nulls from maps. In lists they stay, so that the others keep their index.
func removeNulls(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			if v == nil {
				delete(value, name)
				continue
			}
			removeNulls(v)
		}
	case []any:
		for _, v := range value {
			removeNulls(v)
		}
	}
}

var yamlLine = regexp.MustCompile(`line ([0-9]+): `)

// newYAMLError adds the position in the file: the parser counts lines from the beginning of the document.
func (d *Document) newYAMLError(err error) error {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
	text = strings.Replace(text, "unmarshal errors:\n  ", "", 1)
	line := d.Line
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1])
		line, text = d.Line+n-1, strings.Replace(text, m[0], "", 1)
	}
	return errors.New(Problem{File: d.File, line: line, column: 1, message: "is not YAML: " + text}.String())
}

// Problem is a problem of a file and its position.
type Problem struct {
	File         string
	line, column int
	// DocumentLine is the line on which the document begins.
	DocumentLine int
	field        string
	message      string
	Warning      bool
}

func (p Problem) String() string { return string(p.FormatWith(output.Painter{})) }

// FormatWith returns the problem on one line, with the source below it if the message has it.
func (p Problem) FormatWith(with output.Painter) output.SafeText {
	s := with.Bold(fmt.Sprintf("%s:%d:%d:", p.File, p.line, p.column)) + " "
	if p.Warning {
		s += with.Yellow("warning:") + " "
	}
	if p.field != "" {
		s += output.EscapeText(p.field) + ": "
	}
	return s + output.EscapeLines(output.ContinuationIndent, strings.ReplaceAll(p.message, "\n"+output.ContinuationIndent, "\n")) // the source is indented already
}

// NewProblem returns a problem of a field. If the file does not have the field, it returns the position of the nearest parent.
func (d *Document) NewProblem(field, message string) Problem {
	p := Problem{File: d.File, DocumentLine: d.Line, line: d.Line, column: 1, field: field, message: message}
	if node := d.findNode(field); node != nil {
		p.line, p.column = d.Line+node.Line-1, node.Column
	}
	return p
}

var pathPart = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// findNode returns the value of a field, or the value of its nearest parent.
func (d *Document) findNode(field string) *yaml.Node {
	if d.root == nil {
		d.root = &yaml.Node{}
		if err := yaml.Unmarshal(d.text, d.root); err != nil || len(d.root.Content) == 0 {
			return nil
		}
		d.root = d.root.Content[0]
	}
	node := d.root
	for _, part := range pathPart.FindAllString(field, -1) {
		next := findChild(node, part)
		if next == nil {
			return node
		}
		node = next
	}
	return node
}

// findChild returns an entry of a map or a list; nil if there is none.
func findChild(node *yaml.Node, part string) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if index, ok := strings.CutPrefix(part, "["); ok {
		i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		if node.Kind == yaml.SequenceNode && err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i]
		}
		part = strings.Trim(strings.TrimSuffix(index, "]"), `"`)
	}
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == part {
			return node.Content[i+1]
		}
	}
	return nil
}

// sortProblems sorts problems by file and position.
func sortProblems(all []Problem) {
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
}

// JoinErrors joins the problems that are errors; nil if all are warnings.
func JoinErrors(problems []Problem) error {
	var lines []string
	for _, p := range problems {
		if !p.Warning {
			lines = append(lines, p.String())
		}
	}
	if lines == nil {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}
