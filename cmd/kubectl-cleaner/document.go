// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
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
)

// document is one YAML or JSON document, and where it stands.
type document struct {
	file string
	// line is that on which its text begins, from 1.
	line int
	text []byte
	// object is what it says, with integers as int64, and without nulls in objects: an API server drops those too.
	object map[string]any
	// root is the same with positions; nil until somebody asks where a field stands.
	root *yaml.Node
}

// input is where commands read "-" from.
type input struct{ stdin io.Reader }

// readDocuments returns the documents of a file, or of the *.yaml, *.yml and *.json files of a folder and of those below it.
// Such a file of a folder may be no link; the path itself may. Documents that are empty are left out.
func (in input) readDocuments(path string) ([]*document, error) {
	if path == "-" {
		text, err := io.ReadAll(in.stdin)
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
	f, err := openFolder(path)
	if err != nil {
		return nil, err
	}
	defer f.close()
	var all []*document
	err = f.walkFiles(func(name string, _ fs.FileMode) error {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			return nil
		}
		documents, err := f.readDocuments(name)
		all = append(all, documents...)
		return err
	})
	return all, err
}

// parseDocuments reads the documents of a text.
func parseDocuments(file string, text []byte) ([]*document, error) {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && !bytes.Contains(text, []byte("\n---")) {
		d := &document{file: file, line: 1, text: text}
		return []*document{d}, d.decodeJSON(text)
	}
	var all []*document
	for line := 1; len(text) > 0; {
		part, rest, lines := cutDocument(text)
		all = append(all, &document{file: file, line: line, text: part})
		text, line = rest, line+lines
	}
	var parsers errgroup.Group // YAML takes its time, and there may be thousands
	parsers.SetLimit(runtime.GOMAXPROCS(0))
	for _, d := range all {
		parsers.Go(d.parseYAML)
	}
	err := parsers.Wait()
	return slices.DeleteFunc(all, func(d *document) bool { return d.object == nil }), err
}

// parseYAML reads the text, which may be empty.
func (d *document) parseYAML() error {
	asJSON, err := sigsyaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return d.newYAMLError(err)
	}
	if string(asJSON) == "null" {
		return nil
	}
	return d.decodeJSON(asJSON)
}

// cutDocument takes the first document off a text, and says how many lines it takes, with the line that ends it.
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

// decodeJSON reads JSON as Kubernetes does.
func (d *document) decodeJSON(text []byte) error {
	var value any
	if err := utiljson.Unmarshal(text, &value); err != nil {
		return fmt.Errorf("%s:%d: %w", d.file, d.line, err)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%s:%d: is no object: write a Kubernetes manifest, with apiVersion, kind and metadata", d.file, d.line)
	}
	removeNulls(object)
	d.object = object
	return nil
}

// removeNulls takes the nulls out of objects. In lists they keep the places of the others.
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

// newYAMLError says where in the file the YAML is broken: the parser counts from where the document begins.
func (d *document) newYAMLError(err error) error {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
	text = strings.Replace(text, "unmarshal errors:\n  ", "", 1)
	line := d.line
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1])
		line, text = d.line+n-1, strings.Replace(text, m[0], "", 1)
	}
	return errors.New(problem{file: d.file, line: line, column: 1, message: "is no YAML: " + text}.String())
}

// problem is what is wrong with a file, and where.
type problem struct {
	file         string
	line, column int
	// documentLine is the line on which the document begins.
	documentLine int
	field        string
	message      string
	warning      bool
}

func (p problem) String() string { return string(p.formatWith(painter{})) }

// formatWith returns the problem on a line, and the source below it if the message has it, with colours if there are any.
func (p problem) formatWith(with painter) safeText {
	s := with.bold(fmt.Sprintf("%s:%d:%d:", p.file, p.line, p.column)) + " "
	if p.warning {
		s += with.yellow("warning:") + " "
	}
	if p.field != "" {
		s += escapeText(p.field) + ": "
	}
	return s + escapeLines(continuationIndent, strings.ReplaceAll(p.message, "\n"+continuationIndent, "\n")) // the source is indented already
}

// printProblem writes a problem.
func (t *tool) printProblem(p problem) { t.err.printf("%s\n", p.formatWith(t.err.newPainter())) }

// newProblem makes a problem of a field, which may have a path into what the file leaves out: then that which would hold it is
// shown.
func (d *document) newProblem(field, message string) problem {
	p := problem{file: d.file, documentLine: d.line, line: d.line, column: 1, field: field, message: message}
	if node := d.findNode(field); node != nil {
		p.line, p.column = d.line+node.Line-1, node.Column
	}
	return p
}

var pathPart = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// findNode returns the value of a field, or the nearest thing around it.
func (d *document) findNode(field string) *yaml.Node {
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

// findChild returns an entry of a map or of a list; nil if it is not there.
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

// sortProblems orders problems as they stand in the file.
func sortProblems(all []problem) {
	slices.SortStableFunc(all, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
}
