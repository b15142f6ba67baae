// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	// mediaTypeProvenance is what registries call an unsigned statement of in-toto.
	mediaTypeProvenance = "application/vnd.in-toto+json"
	// documented is the page that says what a build of this kind is, and who its builder is: the user who runs make.
	documented = "https://" + module + "/blob/main/docs/releasing.md#provenance"
)

// statement is one of in-toto, version 1, with the predicate of SLSA's provenance, version 1.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     predicate  `json:"predicate"`
}

// resource names something by its digests.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// predicate has no times and no name of a run: the same commit gives the same bytes.
type predicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		InternalParameters   map[string]string `json:"internalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

// provenance says of the image for one platform what it was built from and how: the commit, the version of Go, and each module
// with what go.sum says of it. It claims no more than the compiler has written into the program.
func (b *builder) provenance(program string, image v1.Hash, e executable) ([]byte, error) {
	info, err := buildinfo.ReadFile(e.binary)
	if err != nil {
		return nil, fmt.Errorf("cannot read what %s was built from: %w", e.binary, err)
	}
	s := statement{
		Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1",
		Subject: []resource{{Name: products()[program].title + ":" + b.version + " for " + e.platform.String(), Digest: map[string]string{image.Algorithm: image.Hex}}},
	}
	build := &s.Predicate.BuildDefinition
	build.BuildType = documented
	build.ExternalParameters = map[string]string{"source": "git+https://" + module, "version": b.version, "platform": e.platform.String()}
	build.InternalParameters = map[string]string{"go": info.GoVersion}
	for _, setting := range info.Settings {
		if strings.HasPrefix(setting.Key, "-") || setting.Key == "CGO_ENABLED" || strings.HasPrefix(setting.Key, "GO") {
			build.InternalParameters[setting.Key] = setting.Value
		}
	}
	build.ResolvedDependencies = append(build.ResolvedDependencies, b.source())
	for _, d := range info.Deps {
		d = b.resolve(d)
		dependency := resource{URI: purl(d.Path, d.Version, map[string]string{"type": "module"}, "")}
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(d.Sum, "h1:")); err == nil && len(sum) > 0 {
			dependency.Digest = map[string]string{"dirHash": hex.EncodeToString(sum)}
		}
		build.ResolvedDependencies = append(build.ResolvedDependencies, dependency)
	}
	s.Predicate.RunDetails.Builder.ID = documented
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(s); err != nil {
		return nil, fmt.Errorf("cannot write the provenance for %s: %w", e.platform, err)
	}
	return text.Bytes(), nil
}

// source is the commit. Files that differ from it make it no digest of what was built, so then there is none.
func (b *builder) source() resource {
	d := resource{URI: "git+https://" + module}
	if b.commit != "" && !strings.HasSuffix(b.commit, "-dirty") {
		d.URI += "@" + b.commit
		d.Digest = map[string]string{"gitCommit": b.commit}
	}
	return d
}
