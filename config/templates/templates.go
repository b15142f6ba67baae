// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
)

//go:embed */template.yaml
var shipped embed.FS

// LoadAll returns the shipped templates, ordered by name. The caller may change them.
func LoadAll() ([]*v1alpha1.CleanerTemplate, error) {
	paths, err := fs.Glob(shipped, "*/template.yaml") // sorted
	if err != nil {
		return nil, fmt.Errorf("cannot list the templates: %w", err)
	}
	all := make([]*v1alpha1.CleanerTemplate, 0, len(paths))
	for _, p := range paths {
		t, err := Load(path.Dir(p))
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// Load returns a shipped template by its name. The caller may change it.
func Load(name string) (*v1alpha1.CleanerTemplate, error) {
	text, err := shipped.ReadFile(path.Join(name, "template.yaml"))
	if err != nil {
		return nil, fmt.Errorf("no template %q is shipped: there are %s", name, strings.Join(listNames(), ", "))
	}
	t := &v1alpha1.CleanerTemplate{}
	if err := decodeYAML(text, t); err != nil {
		return nil, fmt.Errorf("cannot read the template %q: %w", name, err)
	}
	return t, nil
}

// decodeYAML decodes one document, and returns an error for unknown fields. It converts to JSON first, because
// yaml.UnmarshalStrict sets parameters where the document has none.
func decodeYAML(text []byte, into any) error {
	text, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// listNames returns the names of the shipped templates, sorted.
func listNames() []string {
	paths, err := fs.Glob(shipped, "*/template.yaml")
	if err != nil { // only a malformed pattern fails
		return nil
	}
	for i := range paths {
		paths[i] = path.Dir(paths[i])
	}
	return paths
}
