// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// krewManifest tells krew where the plugin is, as a Plugin of krew.googlecontainertools.github.com/v1alpha2.
type krewManifest struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   krewMetadata `json:"metadata"`
	Spec       krewSpec     `json:"spec"`
}

type krewMetadata struct {
	// Name is the command behind kubectl, and the name of the manifest's file.
	Name string `json:"name"`
}

type krewSpec struct {
	// Version has a v before it.
	Version  string `json:"version"`
	Homepage string `json:"homepage"`
	// ShortDescription is one line of at most 50 characters.
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Caveats          string         `json:"caveats,omitempty"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	// Files are what is installed of the archive.
	Files []krewFile `json:"files"`
	Bin   string     `json:"bin"`
}

type krewSelector struct {
	MatchLabels krewLabels `json:"matchLabels"`
}

type krewLabels struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

type krewFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// krew is the manifest of archives that are going to be found below a URL.
func (b *builder) krew(url string, archives []*archive) krewManifest {
	m := krewManifest{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: krewMetadata{Name: "cleaner"},
		Spec: krewSpec{
			Version: "v" + b.version, Homepage: "https://" + module,
			ShortDescription: "Show what Cleaners would delete, and test them",
			Description: `Plans, checks and tests the Cleaners of the operator Cleaner, with files or with a
cluster: what would be deleted, evicted or patched, and why. It says why a Cleaner
of a cluster has or has not acted, stops it, and has it evaluated now.
`,
			Caveats: `Plans are made without the operator; suspend, resume, run and explain need its kinds
in the cluster. For completion, see: kubectl cleaner completion --help
`,
		},
	}
	for _, a := range archives {
		p := krewPlatform{
			Selector: krewSelector{krewLabels{a.platform.os, a.platform.arch}},
			URI:      url + "/" + a.name, SHA256: a.sha256(), Bin: binaryName(a.platform),
			Files: []krewFile{{binaryName(a.platform), "."}, {licenseName, "."}},
		}
		m.Spec.Platforms = append(m.Spec.Platforms, p)
	}
	return m
}
