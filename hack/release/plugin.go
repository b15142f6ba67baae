// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The files of an archive.
const (
	completeName = "kubectl_complete-cleaner"
	licenseName  = "LICENSE"
)

// archive is the plugin for a platform.
type archive struct {
	platform platform
	name     string
	content  []byte
}

func (a *archive) sha256() string {
	return sumOf(a.content)
}

// sumOf is the SHA-256 of a file, in hexadecimal.
func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// plugin builds the plugin for each platform, and writes archives, their checksums, bills of materials, and the manifest by
// which krew finds them.
func (b *builder) plugin(ctx context.Context, to, url string, platforms []platform, out io.Writer) error {
	dir, err := os.MkdirTemp("", "cleaner-plugin-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	var archives []*archive
	files := map[string][]byte{}
	for _, p := range platforms {
		binary := filepath.Join(dir, binaryName(p))
		if err := b.build(ctx, pluginName, p, binary); err != nil {
			return err
		}
		a, err := b.pack(binary, p)
		if err != nil {
			return fmt.Errorf("cannot pack the plugin for %s: %w", p, err)
		}
		bill, err := b.sbom(binary, p)
		if err != nil {
			return err
		}
		archives = append(archives, a)
		files[a.name], files[pluginName+"_"+p.file()+".cdx.json"] = a.content, bill
	}
	manifest, err := yaml.Marshal(b.krew(url, archives))
	if err != nil {
		return err
	}
	files[checksumsName], files["cleaner.yaml"] = checksums(files), manifest
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(to, name), content, 0o644); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%s: version %s, %d archives\n", to, b.version, len(archives))
	return err
}

// checksums are what `sha256sum --check` reads of files, by their names.
func checksums(files map[string][]byte) []byte {
	var lines []string
	for name, content := range files {
		lines = append(lines, sumOf(content)+"  "+name+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[sha256.Size*2:], b[sha256.Size*2:]) })
	return []byte(strings.Join(lines, ""))
}

func binaryName(p platform) string {
	if p.os == "windows" {
		return pluginName + ".exe"
	}
	return pluginName
}

// packed is a file of an archive.
type packed struct {
	name    string
	mode    int64
	content []byte
}

// pack puts the plugin into an archive, as is usual on its platform.
func (b *builder) pack(binary string, p platform) (*archive, error) {
	files := []packed{{name: binaryName(p), mode: 0o755}, {name: licenseName, mode: 0o644}}
	paths := []string{binary, filepath.Join(b.root, licenseName)}
	if p.os != "windows" { // where a shell could not run it
		files = append(files, packed{name: completeName, mode: 0o755})
		paths = append(paths, filepath.Join(b.root, "cmd", pluginName, completeName))
	}
	var err error
	for i := range files {
		if files[i].content, err = os.ReadFile(paths[i]); err != nil {
			return nil, err
		}
	}
	a := &archive{platform: p, name: pluginName + "_v" + b.version + "_" + p.file() + ".tar.gz"}
	pack := b.tarGz
	if p.os == "windows" {
		a.name, pack = strings.TrimSuffix(a.name, ".tar.gz")+".zip", b.zip
	}
	a.content, err = pack(files)
	return a, err
}

func (b *builder) tarGz(files []packed) ([]byte, error) {
	var out bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(compressed)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: b.date}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (b *builder) zip(files []packed) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: b.date}
		header.SetMode(os.FileMode(f.mode))
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
