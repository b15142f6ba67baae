// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/pkg/manifests"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const dir = "../../bundle"

// load reads the bundle.
func load(t *testing.T, dir string) *manifests.Bundle {
	t.Helper()
	b, err := manifests.GetBundleFromDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tree is the text of each file of a folder.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, folder := map[string]string{}, os.DirFS(dir)
	err := fs.WalkDir(folder, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(folder, path)
		files[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The bundle that is committed is the one that `make bundle` makes.
func TestBundleIsCurrent(t *testing.T) {
	out := filepath.Join(t.TempDir(), "bundle")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./hack/bundle", "--output", out)
	cmd.Dir = "../.."
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff(tree(t, out), tree(t, dir)); diff != "" {
		t.Errorf("run make bundle (-made +committed):\n%s", diff)
	}
}

// validators are those of OLM's that need nothing but the files. The one for several architectures asks a registry for the
// images, which are not there before a release; that for community operators is subsumed by the others.
func validators() interfaces.Validators {
	return append(interfaces.Validators{
		validation.OperatorHubV2Validator,
		validation.StandardCapabilitiesValidator,
		validation.StandardCategoriesValidator,
		validation.GoodPracticesValidator,
		validation.AlphaDeprecatedAPIsValidator,
		validation.ObjectValidator,
	}, validation.DefaultBundleValidators...)
}

// findings is all that the validators have to say, errors and warnings.
func findings(b *manifests.Bundle) []string {
	var found []string
	for _, result := range validators().Validate(b.ObjectsToValidate()...) {
		for _, e := range append(result.Errors, result.Warnings...) {
			found = append(found, e.Error())
		}
	}
	return found
}

// misled is what a validator says of the right to read EndpointSlices: it takes each version of them for the first one, which
// Kubernetes 1.25 dropped, and rights name no versions. It says more of a manifest that uses what is dropped.
const misled = "this bundle is using APIs which were deprecated and removed in v1.25. More info: https://kubernetes.io/docs/reference/using-api/deprecation-guide/#v1-25. " +
	"Migrate the API(s) for "

func TestValidatorsFindNothing(t *testing.T) {
	for _, f := range findings(load(t, dir)) {
		if _, what, ok := strings.Cut(f, misled); ok && strings.Contains(what, "endpointslices") && !strings.Contains(what, " and ") && strings.Count(what, ": (") == 1 {
			continue
		}
		t.Error(f)
	}
}

// And they would find something if there was something.
func TestValidatorsFindMistakes(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*manifests.Bundle)
		want   string
	}{
		"NoExample": {"Each kind has an example.", func(b *manifests.Bundle) { b.CSV.Annotations["alm-examples"] = "[]" }, "should have an example"},
		"NoIcon":    {"Catalogs show one.", func(b *manifests.Bundle) { b.CSV.Spec.Icon = nil }, "Icon not specified"},
		"NoCRD":     {"What is owned is shipped.", func(b *manifests.Bundle) { b.V1CRDs = b.V1CRDs[1:] }, "not found in bundle"},
		"Channel":   {"Channels have conventional names.", func(b *manifests.Bundle) { b.Channels = []string{"nightly"} }, "naming convention"},
		"Category":  {"Categories are those of OperatorHub.", func(b *manifests.Bundle) { b.CSV.Annotations["categories"] = "Brooms" }, "standard categories"},
		"Modes":     {"It is said where it may be installed.", func(b *manifests.Bundle) { b.CSV.Spec.InstallModes = nil }, "install modes not found"},
		"Resources": {"It is said what it needs.", func(b *manifests.Bundle) {
			b.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec.Containers[0].Resources.Requests = nil
		}, "resource requests"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := load(t, dir)
			tc.change(b)
			if found := findings(b); !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, tc.want) }) {
				t.Errorf("%s: found %q", tc.reason, found)
			}
		})
	}
}

// What bundle/ says of itself, its image says in labels.
func TestImageSaysWhatAnnotationsSay(t *testing.T) {
	files := tree(t, dir)
	var file struct{ Annotations map[string]string }
	if err := yaml.UnmarshalStrict([]byte(files["metadata/annotations.yaml"]), &file); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^LABEL ([^=]+)=(.*)$`).FindAllStringSubmatch(files["Dockerfile"], -1) {
		labels[m[1]] = m[2]
	}
	if diff := cmp.Diff(file.Annotations, labels); diff != "" || len(labels) < 6 {
		t.Errorf("annotations.yaml and Dockerfile differ (-annotations +labels):\n%s", diff)
	}
	for _, m := range regexp.MustCompile(`(?m)^COPY (\S+) /(\S+)/$`).FindAllStringSubmatch(files["Dockerfile"], -1) {
		if _, err := os.Stat(filepath.Join(dir, m[1])); err != nil || !slices.Contains([]string{labels["operators.operatorframework.io.bundle.manifests.v1"], labels["operators.operatorframework.io.bundle.metadata.v1"]}, m[2]+"/") {
			t.Errorf("the Dockerfile copies %s to /%s: %v", m[1], m[2], err)
		}
	}
}

// The descriptors describe fields that there are, in each version of each kind that is served.
func TestDescriptors(t *testing.T) {
	b := load(t, dir)
	schemas := map[string]apiextensionsv1.JSONSchemaProps{}
	for _, crd := range b.V1CRDs {
		for _, v := range crd.Spec.Versions {
			schemas[crd.Name+" "+v.Name] = *v.Schema.OpenAPIV3Schema
		}
	}
	for _, owned := range b.CSV.Spec.CustomResourceDefinitions.Owned {
		key := owned.Name + " " + owned.Version
		schema, served := schemas[key]
		if !served {
			t.Errorf("%s is not served", key)
		}
		delete(schemas, key)
		paths := map[string]bool{}
		for _, d := range owned.SpecDescriptors {
			paths["spec."+d.Path] = d.Description != "" && d.DisplayName != ""
		}
		for _, d := range owned.StatusDescriptors {
			paths["status."+d.Path] = d.Description != "" && d.DisplayName != ""
		}
		if len(paths) < 3 {
			t.Errorf("%s has only the descriptors %v", key, paths)
		}
		for path, described := range paths {
			if !described {
				t.Errorf("%s: %s is not described", key, path)
			}
			at := schema
			for name := range strings.SplitSeq(path, ".") {
				next, ok := at.Properties[name]
				if !ok {
					t.Errorf("%s has no field %s", key, path)
				}
				at = next
			}
		}
	}
	for key := range schemas {
		t.Errorf("the ClusterServiceVersion does not describe %s", key)
	}
}

// The image that runs is the one that catalogs mirror.
func TestImages(t *testing.T) {
	csv := load(t, dir).CSV
	image := csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec.Containers[0].Image
	if diff := cmp.Diff([]operatorsv1alpha1.RelatedImage{{Name: "manager", Image: image}}, csv.Spec.RelatedImages); diff != "" {
		t.Errorf("relatedImages (-want +got):\n%s", diff)
	}
	if got := csv.Annotations["containerImage"]; got != image {
		t.Errorf("containerImage is %q, and what runs is %q", got, image)
	}
	if !strings.HasSuffix(image, ":"+csv.Spec.Version.String()) || csv.Name != "cleaner.v"+csv.Spec.Version.String() {
		t.Errorf("%s of version %s runs %s", csv.Name, csv.Spec.Version, image)
	}
}
