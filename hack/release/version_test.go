// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// What the chart and the bundle install is the version that the programs say, and the image of that version. A page says how to
// require it, and the Kubernetes that it is built with.
func TestOneVersion(t *testing.T) {
	text, err := os.ReadFile("../../cmd/internal/version/VERSION")
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimSpace(string(text))

	var chart struct{ Version, AppVersion string }
	readYAML(t, "charts/cleaner/Chart.yaml", &chart)
	if chart.Version != version || chart.AppVersion != version {
		t.Errorf("Chart.yaml has version %q and appVersion %q, and the programs say %q", chart.Version, chart.AppVersion, version)
	}

	var csv struct {
		Metadata struct {
			Name        string
			Annotations map[string]string
		}
		Spec struct {
			Version       string
			RelatedImages []struct{ Image string }
		}
	}
	files, err := filepath.Glob("../../bundle/manifests/*clusterserviceversion.yaml")
	if err != nil || len(files) != 1 {
		t.Fatalf("the bundle has the ClusterServiceVersions %v: %v", files, err)
	}
	readYAML(t, strings.TrimPrefix(filepath.ToSlash(files[0]), "../../"), &csv)
	if csv.Spec.Version != version || csv.Metadata.Name != "cleaner.v"+version {
		t.Errorf("the ClusterServiceVersion is %s, version %q, and the programs say %q", csv.Metadata.Name, csv.Spec.Version, version)
	}
	images := []string{csv.Metadata.Annotations["containerImage"]}
	for _, i := range csv.Spec.RelatedImages {
		images = append(images, i.Image)
	}
	for _, image := range images {
		if !strings.HasSuffix(image, ":"+version) && !strings.Contains(image, "@sha256:") { // a digest is of the release that is made
			t.Errorf("the bundle installs %q, and the programs say %q", image, version)
		}
	}

	page, err := os.ReadFile("../../docs/scheduler.md")
	if err != nil {
		t.Fatal(err)
	}
	_, required, _ := strings.Cut(string(page), "\n```go.mod\nrequire (\n")
	required, _, _ = strings.Cut(required, "\n)\n```\n")
	module, err := os.ReadFile("../../scheduler/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	kubernetes := regexp.MustCompile(`\n(\tk8s\.io/kubernetes v.*)\n`).FindSubmatch(module)
	if kubernetes == nil {
		t.Fatal("the scheduler is built with no Kubernetes")
	}
	want := "\tgithub.com/vtex/cleaner v" + version + "\n\tgithub.com/vtex/cleaner/scheduler v" + version + "\n" + string(kubernetes[1])
	if required != want {
		t.Errorf("docs/scheduler.md says to require\n%s\nand the programs say\n%s", required, want)
	}
}

// readYAML reads a file of the repository.
func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
