// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const testURL = "https://example.com/releases/v" + testVersion

// unpack reads an archive into a folder, and returns the names of its files.
func unpack(t *testing.T, name string, content []byte, to string) []string {
	t.Helper()
	var files []string
	write := func(name string, mode os.FileMode, r io.Reader) {
		files = append(files, name)
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), text, mode); err != nil {
			t.Fatal(err)
		}
	}
	if strings.HasSuffix(name, ".zip") {
		r, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.File {
			in, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			write(f.Name, f.Mode().Perm(), in)
		}
		return files
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(unzipped)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		write(h.Name, h.FileInfo().Mode().Perm(), r)
	}
}

// What is built for this machine is what its checksum and krew's manifest say, and works once it is unpacked.
func TestPlugin(t *testing.T) {
	built(t, pluginName) // or it is not tested
	b, dir := testBuilder(), t.TempDir()
	if err := b.plugin(t.Context(), dir, testURL, []platform{host()}, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "cleaner.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m := checkManifest(t, text)
	if len(m.Spec.Platforms) != 1 {
		t.Fatalf("the manifest has %+v", m.Spec.Platforms)
	}
	p := m.Spec.Platforms[0]
	archive := path.Base(p.URI)
	content, err := os.ReadFile(filepath.Join(dir, archive))
	if err != nil {
		t.Fatal(err)
	}
	if sum(content) != p.SHA256 || p.URI != testURL+"/kubectl-cleaner_v"+testVersion+"_"+host().file()+".tar.gz" {
		t.Errorf("krew is told of %+v, and the archive's sum is %s", p, sum(content))
	}

	unpacked := t.TempDir()
	files := unpack(t, archive, content, unpacked)
	if diff := cmp.Diff([]string{pluginName, licenseName, completeName}, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got := output(t, filepath.Join(unpacked, p.Bin), "version", "--client"); !strings.HasPrefix(got, "Client: "+testVersion+" (commit "+testCommit) {
		t.Errorf("it says %q", got)
	}
	if got := output(t, filepath.Join(unpacked, p.Bin), "completion", "kubectl"); sum([]byte(got)) != sumOfFile(t, filepath.Join(unpacked, completeName)) {
		t.Errorf("the script of the archive is not\n%s", got)
	}
	if sumOfFile(t, filepath.Join(unpacked, licenseName)) != sumOfFile(t, "../../LICENSE") {
		t.Error("the archive has another license")
	}
	for _, f := range p.Files {
		if !slices.Contains(files, f.From) {
			t.Errorf("krew is to install %s, which is not in the archive", f.From)
		}
	}

	// Each file beside the manifest is in the list of checksums.
	list, err := os.ReadFile(filepath.Join(dir, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "checksums.txt" && e.Name() != "cleaner.yaml" {
			want[e.Name()] = sumOfFile(t, filepath.Join(dir, e.Name()))
		}
	}
	got := map[string]string{}
	for line := range strings.Lines(string(list)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		got[name] = sum
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 2 {
		t.Errorf("checksums (-files +list):\n%s", diff)
	}
}

// Each platform has an archive of its kind, the same bytes each time, and a place in the manifest.
func TestPluginForAllPlatforms(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	platforms := regexp.MustCompile(`(?m)^PLUGIN_PLATFORMS \?= (.*)$`).FindSubmatch(makefile)
	if platforms == nil {
		t.Fatal("the Makefile does not say what the plugin is built for")
	}
	all, err := parsePlatforms(strings.Split(string(platforms[1]), ","))
	if err != nil {
		t.Fatal(err)
	}
	b := testBuilder()
	binary := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(binary, []byte("one for each"), 0o600); err != nil {
		t.Fatal(err)
	}
	var archives []*archive
	for _, p := range all {
		a, err := b.pack(binary, p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := b.pack(binary, p)
		if err != nil || !bytes.Equal(a.content, again.content) {
			t.Errorf("the archive for %s is another one at the next time: %v", p, err)
		}
		dir := t.TempDir()
		files := unpack(t, a.name, a.content, dir)
		want := []string{pluginName, licenseName, completeName}
		if p.os == "windows" {
			want = []string{pluginName + ".exe", licenseName}
		}
		if diff := cmp.Diff(want, files); diff != "" {
			t.Errorf("%s (-want +got):\n%s", a.name, diff)
		}
		if info, err := os.Stat(filepath.Join(dir, files[0])); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s has a program with mode %s: %v", a.name, info.Mode(), err)
		}
		archives = append(archives, a)
	}
	text, err := yaml.Marshal(b.krew(testURL, archives))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range checkManifest(t, text).Spec.Platforms {
		names = append(names, path.Base(p.URI))
	}
	want := []string{
		"kubectl-cleaner_v0.1.2-test_linux_amd64.tar.gz", "kubectl-cleaner_v0.1.2-test_linux_arm64.tar.gz", "kubectl-cleaner_v0.1.2-test_darwin_amd64.tar.gz",
		"kubectl-cleaner_v0.1.2-test_darwin_arm64.tar.gz", "kubectl-cleaner_v0.1.2-test_windows_amd64.zip",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("archives (-want +got):\n%s", diff)
	}
}

// checkManifest holds a manifest to what krew, and the index of its plugins, want.
func checkManifest(t *testing.T, text []byte) krewManifest {
	t.Helper()
	var m krewManifest
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		t.Fatal(err)
	}
	for _, problem := range krewProblems(&m) {
		t.Errorf("%s in:\n%s", problem, text)
	}
	return m
}

// krewProblems are what krew would refuse, or those who keep the index of its plugins.
func krewProblems(m *krewManifest) []string {
	var found []string
	wants := func(ok bool, what string) {
		if !ok {
			found = append(found, what)
		}
	}
	s := &m.Spec
	wants(m.APIVersion == "krew.googlecontainertools.github.com/v1alpha2" && m.Kind == "Plugin", "another kind of manifest")
	wants(m.Metadata.Name == "cleaner", "another name than that of its file")
	wants(regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(s.Version), "a version that is none, or without v")
	wants(s.ShortDescription != "" && len(s.ShortDescription) <= 50 && !strings.ContainsAny(s.ShortDescription, "\r\n") && !strings.HasSuffix(s.ShortDescription, "."), "no short description, or a long one")
	wants(s.Description != "" && slices.Max(lengths(s.Description+s.Caveats)) <= 90, "no description, or long lines")
	wants(strings.HasPrefix(s.Homepage, "https://"), "no homepage")
	wants(len(s.Platforms) > 0, "no platform")
	seen := map[krewLabels]bool{}
	for _, p := range s.Platforms {
		l := p.Selector.MatchLabels
		wants(l.OS != "" && l.Arch != "" && !seen[l], "a selector that selects nothing, or what another one does")
		seen[l] = true
		wants(strings.HasPrefix(p.URI, "https://") && (strings.HasSuffix(p.URI, ".tar.gz") || strings.HasSuffix(p.URI, ".zip")), "an archive that krew cannot fetch or unpack")
		wants(regexp.MustCompile(`^[a-f0-9]{64}$`).MatchString(p.SHA256), "no checksum")
		wants(p.Bin == binaryName(platform{l.OS, l.Arch}), "a program of another name")
		from := map[string]bool{}
		for _, f := range p.Files {
			wants(f.From != "" && f.To == ".", "a file that goes elsewhere")
			from[f.From] = true
		}
		wants(from[p.Bin] && from["LICENSE"], "no program, or no license")
	}
	return found
}

func lengths(text string) []int {
	var all []int
	for line := range strings.Lines(text) {
		all = append(all, len(line))
	}
	return all
}

func TestKrewProblemsAreFound(t *testing.T) {
	wrong := map[string]func(*krewManifest){
		"version":     func(m *krewManifest) { m.Spec.Version = "0.1.0" },
		"description": func(m *krewManifest) { m.Spec.ShortDescription = strings.Repeat("x", 51) },
		"platforms":   func(m *krewManifest) { m.Spec.Platforms = nil },
		"twice":       func(m *krewManifest) { m.Spec.Platforms = append(m.Spec.Platforms, m.Spec.Platforms[0]) },
		"checksum":    func(m *krewManifest) { m.Spec.Platforms[0].SHA256 = "" },
		"program":     func(m *krewManifest) { m.Spec.Platforms[0].Bin = "kubectl-cleaner.exe" },
		"files":       func(m *krewManifest) { m.Spec.Platforms[0].Files = m.Spec.Platforms[0].Files[:1] },
	}
	b := testBuilder()
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		m := b.krew(testURL, []*archive{{platform: platform{"linux", "amd64"}, name: "a.tar.gz", content: []byte("x")}})
		if found := krewProblems(&m); len(found) > 0 {
			t.Fatal(found)
		}
		if wrong[name](&m); len(krewProblems(&m)) == 0 {
			t.Errorf("nobody would notice a wrong %s", name)
		}
	}
}
