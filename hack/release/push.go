// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// push writes a layout to a registry: the image under the reference, and then what refers to it. Who may is found as by
// docker: in ~/.docker/config.json.
func push(ctx context.Context, from, reference string, out io.Writer) error {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return fmt.Errorf("%s is no reference: write such as registry.example.com/cleaner:0.1.0: %w", reference, err)
	}
	index, err := layout.ImageIndexFromPath(from)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w; `make image` writes it", from, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", from, err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, d := range manifest.Manifests {
		if err := pushOne(index, d, ref, options); err != nil {
			return fmt.Errorf("cannot push %s to %s: %w", d.Digest, ref.Context(), err)
		}
		if d.MediaType.IsIndex() {
			fmt.Fprintf(out, "%s@%s\n", ref.Context(), d.Digest)
		}
	}
	return nil
}

// pushOne pushes the image, or an artifact that refers to it.
func pushOne(from v1.ImageIndex, d v1.Descriptor, ref name.Reference, options []remote.Option) error {
	if d.MediaType.IsIndex() {
		image, err := from.ImageIndex(d.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(ref, image, options...)
	}
	artifact, err := from.Image(d.Digest)
	if err != nil {
		return err
	}
	return remote.Write(ref.Context().Digest(d.Digest.String()), artifact, options...)
}
