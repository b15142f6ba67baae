// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nonroot is the user of the programs, without an account or rights. The Dockerfile says the same.
const nonroot = "65532:65532"

// image builds a program for each platform, and writes the image as an OCI layout to a folder; the bills of materials and the
// provenance are in it, and the bills beside it.
func (b *builder) image(ctx context.Context, program, to string, platforms []platform, out io.Writer) error {
	dir, err := os.MkdirTemp("", "cleaner-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var built []executable
	for _, p := range platforms {
		e := executable{platform: p, binary: filepath.Join(dir, program+"_"+p.file())}
		if err := b.build(ctx, program, p, e.binary); err != nil {
			return err
		}
		if e.sbom, err = b.sbom(e.binary, p); err != nil {
			return err
		}
		built = append(built, e)
	}
	index, err := b.assemble(program, built)
	if err != nil {
		return err
	}
	digest, err := writeLayout(to, index)
	if err != nil {
		return err
	}
	for _, e := range built {
		if err := os.WriteFile(filepath.Join(filepath.Dir(to), program+"_"+e.platform.file()+".cdx.json"), e.sbom, 0o644); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%s: version %s, %s\n", to, b.version, digest)
	return err
}

// executable is a program, built for a platform.
type executable struct {
	platform platform
	binary   string
	sbom     []byte
}

// assemble makes the index of the layout: the index of the image, under its version, and for each platform the bill of materials and the
// provenance, which refer to the image of that platform.
func (b *builder) assemble(program string, built []executable) (v1.ImageIndex, error) {
	all := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var bills, origins []mutate.IndexAddendum
	for _, e := range built {
		image, err := b.imageOf(program, e)
		if err != nil {
			return nil, fmt.Errorf("cannot make the image for %s: %w", e.platform, err)
		}
		all = mutate.AppendManifests(all, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: e.platform.os, Architecture: e.platform.arch}},
		})
		bill, err := referrer(image, e.sbom, mediaTypeSBOM)
		if err != nil {
			return nil, fmt.Errorf("cannot add the bill of materials for %s: %w", e.platform, err)
		}
		bills = append(bills, bill)
		origin, err := b.origin(program, image, e)
		if err != nil {
			return nil, fmt.Errorf("cannot add the provenance for %s: %w", e.platform, err)
		}
		origins = append(origins, origin)
	}
	all, ok := mutate.Annotations(all, b.about(program)).(v1.ImageIndex)
	if !ok {
		return nil, errors.New("an index with annotations is none any more")
	}
	named := mutate.IndexAddendum{Add: all, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": b.version}}}
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), append(append([]mutate.IndexAddendum{named}, bills...), origins...)...), nil
}

// about is what an image says of itself.
func (b *builder) about(program string) map[string]string {
	const prefix = "org.opencontainers.image."
	about := map[string]string{
		prefix + "title":       products()[program].title,
		prefix + "description": products()[program].description,
		prefix + "version":     b.version,
		prefix + "created":     b.date.Format(time.RFC3339),
		prefix + "source":      "https://" + module,
		prefix + "licenses":    "Apache-2.0",
	}
	if b.commit != "" {
		about[prefix+"revision"] = b.commit
	}
	return about
}

// imageOf is the image for one platform: the program and nothing else, as by the Dockerfile.
func (b *builder) imageOf(program string, e executable) (v1.Image, error) {
	layer, err := b.layer(program, e.binary)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: b.date}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(base, &v1.ConfigFile{
		OS: e.platform.os, Architecture: e.platform.arch, Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{User: nonroot, Entrypoint: []string{"/" + program}, WorkingDir: "/", Labels: b.about(program)},
	})
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: makes(program)}})
	if err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(image, b.about(program)).(v1.Image)
	if !ok {
		return nil, errors.New("an image with annotations is none any more")
	}
	return annotated, nil
}

// makes is the command that makes the image of a program.
func makes(program string) string {
	if program == schedulerName {
		return "make scheduler-image"
	}
	return "make image"
}

// layer has one file.
func (b *builder) layer(program, binary string) (v1.Layer, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: program, Mode: 0o755, Size: int64(len(content)), ModTime: b.date}); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

// origin is the provenance of an image as an artifact that refers to it.
func (b *builder) origin(program string, image v1.Image, e executable) (mutate.IndexAddendum, error) {
	digest, err := image.Digest()
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	text, err := b.provenance(program, digest, e)
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	return referrer(image, text, mediaTypeProvenance)
}

// referrer is a text as an artifact that refers to an image.
func referrer(image v1.Image, text []byte, mediaType types.MediaType) (mutate.IndexAddendum, error) {
	subject, err := partial.Descriptor(image)
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	// The type of the configuration says that this is no image.
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mediaType)
	artifact, err := mutate.AppendLayers(base, static.NewLayer(text, mediaType))
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	referring, ok := mutate.Subject(artifact, *subject).(v1.Image)
	if !ok {
		return mutate.IndexAddendum{}, errors.New("an artifact with a subject is none any more")
	}
	return mutate.IndexAddendum{Add: referring, Descriptor: v1.Descriptor{ArtifactType: string(mediaType)}}, nil
}

// writeLayout writes a layout, in the place of one that may be there, and returns the digest of its image.
func writeLayout(to string, index v1.ImageIndex) (string, error) {
	switch _, err := os.Stat(to); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	default:
		if _, err := os.Stat(filepath.Join(to, "oci-layout")); err != nil {
			return "", fmt.Errorf("%s is there, and is no OCI layout: remove it, or write to another folder", to)
		}
		if err := os.RemoveAll(to); err != nil {
			return "", err
		}
	}
	if _, err := layout.Write(to, index); err != nil {
		return "", fmt.Errorf("cannot write %s: %w", to, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return "", err
	}
	return manifest.Manifests[0].Digest.String(), nil
}
