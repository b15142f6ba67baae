// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"runtime/debug"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
	"github.com/package-url/packageurl-go"
)

// mediaTypeSBOM is what registries call a bill of materials.
const mediaTypeSBOM = "application/vnd.cyclonedx+json"

// sbom is the bill of materials of a program, as CycloneDX in JSON: each module that the compiler says is in it, and the
// standard library.
func (b *builder) sbom(binary string, p platform) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("cannot read what %s was built from: %w", binary, err)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)

	main := purl(info.Main.Path, "v"+b.version, map[string]string{"type": "module", "goos": p.os, "goarch": p.arch}, strings.TrimPrefix(info.Path, info.Main.Path+"/"))
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, sum[:]).URN() // another program has another one
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: b.date.Format(time.RFC3339),
		Component: &cyclonedx.Component{
			BOMRef: main, Type: cyclonedx.ComponentTypeApplication, Name: info.Path, Version: "v" + b.version, PackageURL: main,
			Hashes:   &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
			Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
		},
	}
	components := []cyclonedx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		m = b.resolve(m)
		components = append(components, library(m.Path, m.Version, m.Sum))
	}
	refs := make([]string, len(components))
	for i := range components {
		refs[i] = components[i].BOMRef
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main, Dependencies: &refs}}

	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return nil, fmt.Errorf("cannot write the bill of materials of %s: %w", binary, err)
	}
	return text.Bytes(), nil
}

// resolve returns the module that was built: the one that replaces it, if there is one. A folder that replaces a module is a module of
// this repository, with the version of the release.
func (b *builder) resolve(m *debug.Module) *debug.Module {
	switch {
	case m.Replace == nil:
		return m
	case strings.HasPrefix(m.Replace.Path, "."):
		return &debug.Module{Path: m.Path, Version: "v" + b.version}
	}
	return m.Replace
}

// library is a module, with what go.sum says of it.
func library(name, version, sum string) cyclonedx.Component {
	ref := purl(name, version, map[string]string{"type": "module"}, "")
	c := cyclonedx.Component{BOMRef: ref, Type: cyclonedx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: ref, Scope: cyclonedx.ScopeRequired}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(hash) == sha256.Size {
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	}
	return c
}

// purl is how vulnerability databases name a module, or a package of one.
func purl(name, version string, qualifiers map[string]string, subpath string) string {
	dir, base := path.Split(name)
	return packageurl.NewPackageURL(packageurl.TypeGolang, strings.TrimSuffix(dir, "/"), base, version, packageurl.QualifiersFromMap(qualifiers), subpath).ToString()
}
