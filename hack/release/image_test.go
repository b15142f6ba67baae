// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// descriptor and the following are what the tests read of OCI: by themselves, and not by what has written it.
type descriptor struct {
	MediaType, Digest, ArtifactType string
	Size                            int64
	Annotations                     map[string]string
	Platform                        *struct{ OS, Architecture string }
}

type document struct {
	MediaType         string
	Config            descriptor
	Layers, Manifests []descriptor
	Annotations       map[string]string
	Subject           *descriptor
}

type configuration struct {
	OS, Architecture, Created string
	Config                    struct {
		User, WorkingDir      string
		Entrypoint, Cmd, Env  []string
		Labels                map[string]string
		ExposedPorts, Volumes map[string]any
	}
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

// ociLayout is a folder with one.
type ociLayout struct {
	t   *testing.T
	dir string
}

// blob reads what a descriptor means, and holds it to size and digest.
func (l ociLayout) blob(d descriptor) []byte {
	l.t.Helper()
	content, err := os.ReadFile(filepath.Join(l.dir, "blobs", strings.Replace(d.Digest, ":", "/", 1)))
	if err != nil {
		l.t.Fatal(err)
	}
	if got := "sha256:" + sum(content); got != d.Digest || int64(len(content)) != d.Size {
		l.t.Errorf("%+v has %d bytes with the sum %s", d, len(content), got)
	}
	return content
}

func (l ociLayout) read(content []byte, into any) {
	l.t.Helper()
	if err := json.Unmarshal(content, into); err != nil {
		l.t.Fatal(err)
	}
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}

// other is a platform that this machine is not.
func other() platform {
	if host().arch == "arm64" {
		return platform{"linux", "amd64"}
	}
	return platform{"linux", "arm64"}
}

// managers are the operator for this machine, and a tiny program in its place for another one.
func managers(t *testing.T, b *builder) []executable {
	t.Helper()
	all := []executable{{platform: host(), binary: built(t, "manager")}, {platform: other(), binary: tiny(t, other())}}
	for i := range all {
		var err error
		if all[i].sbom, err = b.sbom(all[i].binary, all[i].platform); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// written writes an image to a folder.
func written(t *testing.T, b *builder, of []executable, dir string) string {
	t.Helper()
	index, err := b.assemble(managerName, of)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := writeLayout(dir, index)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func TestImage(t *testing.T) {
	b := testBuilder()
	l := ociLayout{t: t, dir: filepath.Join(t.TempDir(), "image")}
	of := managers(t, b)
	digest := written(t, b, of, l.dir)

	var layout struct{ ImageLayoutVersion string }
	text, err := os.ReadFile(filepath.Join(l.dir, "oci-layout"))
	if err != nil {
		t.Fatal(err)
	}
	if l.read(text, &layout); layout.ImageLayoutVersion != "1.0.0" {
		t.Errorf("oci-layout is %s", text)
	}
	var top, image document
	if text, err = os.ReadFile(filepath.Join(l.dir, "index.json")); err != nil {
		t.Fatal(err)
	}
	l.read(text, &top)
	if len(top.Manifests) != 5 || top.Manifests[0].Digest != digest || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != testVersion {
		t.Fatalf("the layout has %s", text)
	}
	l.read(l.blob(top.Manifests[0]), &image)
	if image.MediaType != "application/vnd.oci.image.index.v1+json" || len(image.Manifests) != 2 || image.Annotations["org.opencontainers.image.version"] != testVersion {
		t.Fatalf("the image is %+v", image)
	}
	for i, m := range of {
		d := image.Manifests[i]
		if d.Platform == nil || d.Platform.OS != m.platform.os || d.Platform.Architecture != m.platform.arch {
			t.Errorf("%+v is not for %s", d, m.platform)
		}
		program := l.image(d, managerName, m)
		checkProgram(t, m, program)
		l.bill(top.Manifests[1+i], d, m)
		l.origin(top.Manifests[3+i], d, m)
	}

	// The same gives the same, and takes the place of what was there; another commit, and another day, do not.
	if again := written(t, b, of, l.dir); again != digest {
		t.Errorf("the second image is %s, and the first was %s", again, digest)
	}
	if blobs, err := os.ReadDir(filepath.Join(l.dir, "blobs", "sha256")); err != nil || len(blobs) != 16 { // an index; twice a manifest, a configuration and a layer, and a manifest and a layer of SBOM and provenance, which share a configuration
		t.Errorf("%d blobs: %v", len(blobs), err)
	}
	another := testBuilder()
	another.commit = strings.Repeat("f", 40)
	if got := written(t, another, of, filepath.Join(t.TempDir(), "image")); got == digest {
		t.Error("another commit is not to be seen")
	}
	if _, err := writeLayout(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "is no OCI layout") {
		t.Errorf("it would remove any folder: %v", err)
	}
}

// What make image and make scheduler-image do, for this machine alone.
func TestImageOfThisMachine(t *testing.T) {
	for _, program := range []string{managerName, schedulerName} {
		t.Run(program, func(t *testing.T) { imageOfThisMachine(t, program) })
	}
}

func imageOfThisMachine(t *testing.T, of string) {
	b := testBuilder()
	m := executable{platform: host(), binary: built(t, of)}
	l := ociLayout{t: t, dir: filepath.Join(t.TempDir(), "image")}
	var out strings.Builder
	if err := b.image(t.Context(), of, l.dir, []platform{m.platform}, &out); err != nil {
		t.Fatal(err)
	}
	var top, image document
	text, err := os.ReadFile(filepath.Join(l.dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	l.read(text, &top)
	if want := l.dir + ": version " + testVersion + ", " + top.Manifests[0].Digest + "\n"; out.String() != want {
		t.Errorf("it says %q, not %q", out.String(), want)
	}
	l.read(l.blob(top.Manifests[0]), &image)
	l.origin(top.Manifests[2], image.Manifests[0], m)
	checkProgram(t, m, l.image(image.Manifests[0], of, m)) // the linker gives the same at each time
	beside, err := os.ReadFile(filepath.Join(filepath.Dir(l.dir), of+"_"+m.platform.file()+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got := readBill(t, beside).Metadata.Component; got.Hashes[0].Content != sumOfFile(t, m.binary) {
		t.Errorf("the bill of materials beside it is about %+v", got)
	}
}

// image checks the image for one platform, and returns its program.
func (l ociLayout) image(d descriptor, of string, m executable) []byte {
	t := l.t
	t.Helper()
	var manifest document
	l.read(l.blob(d), &manifest)
	var config configuration
	l.read(l.blob(manifest.Config), &config)
	if manifest.MediaType != "application/vnd.oci.image.manifest.v1+json" || manifest.Config.MediaType != "application/vnd.oci.image.config.v1+json" ||
		len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != "application/vnd.oci.image.layer.v1.tar+gzip" {
		t.Fatalf("%s: %+v", m.platform, manifest)
	}
	about := map[string][2]string{
		managerName:   {"cleaner", "Kubernetes operator that cleans up by rules that its users can read"},
		schedulerName: {"cleaner-scheduler", "kube-scheduler that keeps Pods from Nodes without an address for them"},
	}[of]
	want := map[string]string{
		"org.opencontainers.image.title": about[0], "org.opencontainers.image.description": about[1],
		"org.opencontainers.image.version": testVersion, "org.opencontainers.image.revision": testCommit, "org.opencontainers.image.created": "2023-11-14T22:13:20Z",
		"org.opencontainers.image.source": "https://github.com/vtex/cleaner", "org.opencontainers.image.licenses": "Apache-2.0",
	}
	for place, got := range map[string]map[string]string{"annotations": manifest.Annotations, "labels": config.Config.Labels} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", place, diff)
		}
	}
	c := config.Config
	if c.User != "65532:65532" || c.WorkingDir != "/" || len(c.Entrypoint) != 1 || c.Entrypoint[0] != "/"+of || c.Cmd != nil || c.Env != nil || c.ExposedPorts != nil || c.Volumes != nil ||
		config.OS != m.platform.os || config.Architecture != m.platform.arch || config.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("%s is configured as %+v", m.platform, config)
	}
	docker, err := os.ReadFile("../../Dockerfile")
	if of == managerName && (err != nil || !strings.Contains(string(docker), "\nUSER "+c.User+"\nENTRYPOINT [\""+c.Entrypoint[0]+"\"]\n")) {
		t.Errorf("the Dockerfile makes another image: %v", err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(l.blob(manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	if len(config.RootFS.DiffIDs) != 1 || config.RootFS.DiffIDs[0] != "sha256:"+sum(archive) {
		t.Errorf("the layer is not %v", config.RootFS.DiffIDs)
	}
	r := tar.NewReader(bytes.NewReader(archive))
	h, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if h.Name != of || h.Mode != 0o755 || h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 1_700_000_000 {
		t.Errorf("the layer has %+v", h)
	}
	program, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if next, err := r.Next(); err != io.EOF {
		t.Errorf("the layer has %v too: %v", next, err)
	}
	return program
}

// The Dockerfile pulls no base image, so that there is none to trust: it has the program from make.
func TestDockerfilePullsNothing(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	bases := 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "FROM" {
			continue
		}
		if bases++; !slices.Equal(words, []string{"FROM", "scratch"}) {
			t.Errorf("%q: name no base, or one by its digest", line)
		}
	}
	if bases != 1 {
		t.Errorf("the Dockerfile has %d stages", bases)
	}
}

// checkProgram wants the program of an image to be the one that was built, and to need no other file.
func checkProgram(t *testing.T, m executable, program []byte) {
	t.Helper()
	if sum(program) != sumOfFile(t, m.binary) {
		t.Errorf("the image for %s has another program", m.platform)
	}
	if m.platform.os != "linux" {
		return
	}
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP || part.Type == elf.PT_DYNAMIC {
			t.Errorf("the program for %s is not static: it has a %s", m.platform, part.Type)
		}
	}
}

// bill checks that an artifact is the bill of materials of an image.
func (l ociLayout) bill(d, of descriptor, m executable) {
	t := l.t
	t.Helper()
	content := l.artifact(d, of, m, mediaTypeSBOM)
	if got := readBill(t, content).Metadata.Component; got.Hashes[0].Content != sumOfFile(t, m.binary) {
		t.Errorf("the bill of materials for %s is about %+v", m.platform, got)
	}
}

// origin checks that an artifact is the provenance of an image.
func (l ociLayout) origin(d, of descriptor, m executable) {
	t := l.t
	t.Helper()
	var got struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct{ Digest map[string]string }
		Predicate     struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   map[string]string
				InternalParameters   map[string]string
				ResolvedDependencies []struct {
					URI    string
					Digest map[string]string
				}
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	l.read(l.artifact(d, of, m, mediaTypeProvenance), &got)
	if got.Type != "https://in-toto.io/Statement/v1" || got.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("it is a %s of %s", got.Type, got.PredicateType)
	}
	if len(got.Subject) != 1 || "sha256:"+got.Subject[0].Digest["sha256"] != of.Digest {
		t.Errorf("it is about %+v, and the image is %s", got.Subject, of.Digest)
	}
	build := got.Predicate.BuildDefinition
	page, anchor, _ := strings.Cut(strings.TrimPrefix(build.BuildType, "https://"+module+"/blob/main/"), "#")
	text, err := os.ReadFile("../../" + page)
	if err != nil || !strings.Contains(strings.ToLower(string(text)), "\n## "+anchor+"\n") || got.Predicate.RunDetails.Builder.ID != build.BuildType {
		t.Errorf("nowhere is it said what a %s is: %v", build.BuildType, err)
	}
	want := map[string]string{"source": "git+https://" + module, "version": testVersion, "platform": m.platform.String()}
	if diff := cmp.Diff(want, build.ExternalParameters); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	if build.InternalParameters["go"] != runtime.Version() || build.InternalParameters["GOARCH"] != m.platform.arch {
		t.Errorf("it was built by %v", build.InternalParameters)
	}
	if from := build.ResolvedDependencies[0]; from.URI != "git+https://"+module+"@"+testCommit || from.Digest["gitCommit"] != testCommit {
		t.Errorf("it was built from %+v", from)
	}
	info, err := buildinfo.ReadFile(m.binary)
	if err != nil {
		t.Fatal(err)
	}
	if len(build.ResolvedDependencies) != len(info.Deps)+1 {
		t.Errorf("the program has %d modules, and it names %d things", len(info.Deps), len(build.ResolvedDependencies))
	}
	for i, module := range info.Deps {
		d := build.ResolvedDependencies[i+1]
		if module.Replace != nil && module.Replace.Path == "../" { // a folder of the same commit
			if d.URI != "pkg:golang/"+module.Path+"@v"+testVersion+"?type=module" || d.Digest != nil {
				t.Errorf("%+v is not %s of this repository", d, module.Path)
			}
			continue
		}
		if module.Replace != nil {
			module = module.Replace
		}
		hash, err := hex.DecodeString(d.Digest["dirHash"])
		if err != nil || "h1:"+base64.StdEncoding.EncodeToString(hash) != module.Sum || !strings.Contains(d.URI, module.Path+"@") {
			t.Errorf("%+v is not %s %s", d, module.Path, module.Sum)
		}
	}
}

// Where files differ from the commit, the commit is no digest of what was built.
func TestProvenanceOfChangedFiles(t *testing.T) {
	b := testBuilder()
	for commit, want := range map[string]int{testCommit: 1, testCommit + "-dirty": 0, "": 0} {
		b.commit = commit
		if got := b.source(); len(got.Digest) != want || want == 0 && strings.Contains(got.URI, "@") {
			t.Errorf("%q is %+v", commit, got)
		}
	}
}

// artifact is what an artifact of this type has that refers to an image.
func (l ociLayout) artifact(d, of descriptor, m executable, mediaType string) []byte {
	t := l.t
	t.Helper()
	var artifact document
	l.read(l.blob(d), &artifact)
	if d.ArtifactType != mediaType || artifact.Subject == nil || artifact.Subject.Digest != of.Digest || artifact.Subject.Size != of.Size || artifact.Config.MediaType != mediaType ||
		len(artifact.Layers) != 1 || artifact.Layers[0].MediaType != mediaType {
		t.Fatalf("%s: %+v %+v", m.platform, d, artifact)
	}
	l.blob(artifact.Config)
	return l.blob(artifact.Layers[0])
}

// A registry gets the image, and what refers to it, whether or not it knows of referrers.
func TestPush(t *testing.T) {
	b := testBuilder()
	dir := filepath.Join(t.TempDir(), "image")
	digest := written(t, b, managers(t, b), dir)
	for title, knows := range map[string]bool{"with referrers": true, "without": false} {
		t.Run(title, func(t *testing.T) {
			server := httptest.NewServer(registry.New(registry.WithReferrersSupport(knows), registry.Logger(log.New(io.Discard, "", 0))))
			defer server.Close()
			reference := strings.TrimPrefix(server.URL, "http://") + "/team/cleaner:" + testVersion
			var out strings.Builder
			if err := run(t.Context(), []string{"push", "--from", dir, reference}, &out); err != nil {
				t.Fatal(err)
			}
			ref, err := name.ParseReference(reference)
			if err != nil {
				t.Fatal(err)
			}
			if want := ref.Context().Digest(digest).String() + "\n"; out.String() != want {
				t.Errorf("it says %q, not %q", out.String(), want)
			}
			index, err := remote.Index(ref, remote.WithContext(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := index.IndexManifest()
			if err != nil || len(manifest.Manifests) != 2 {
				t.Fatalf("the registry has %+v: %v", manifest, err)
			}
			for _, d := range manifest.Manifests {
				image, err := index.Image(d.Digest)
				if err != nil {
					t.Fatal(err)
				}
				if layers, err := image.Layers(); err != nil || len(layers) != 1 {
					t.Errorf("the image has the layers %v: %v", layers, err)
				}
				referrers, err := remote.Referrers(ref.Context().Digest(d.Digest.String()), remote.WithContext(t.Context()))
				if err != nil {
					t.Fatal(err)
				}
				found, err := referrers.IndexManifest()
				if err != nil {
					t.Fatal(err)
				}
				var kinds []string
				for _, r := range found.Manifests {
					kinds = append(kinds, r.ArtifactType)
				}
				slices.Sort(kinds)
				if diff := cmp.Diff([]string{mediaTypeSBOM, mediaTypeProvenance}, kinds); diff != "" {
					t.Errorf("what refers to it (-want +got):\n%s", diff)
				}
			}
		})
	}
}
