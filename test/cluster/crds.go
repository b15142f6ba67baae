// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// crdTimeout is how long the API server may take to serve a new kind, or to let go of one.
const crdTimeout = 90 * time.Second

// InstallCRDs applies the CustomResourceDefinitions in these YAML files, or in the *.yaml files of these folders, and
// returns when the API server serves all their versions.
func InstallCRDs(ctx context.Context, cfg *rest.Config, paths ...string) error {
	client, err := clientset.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	crds, err := readCRDs(paths)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		body, err := crd.MarshalJSON()
		if err != nil {
			return fmt.Errorf("cannot encode CustomResourceDefinition %q: %w", crd.GetName(), err)
		}
		options := metav1.PatchOptions{FieldManager: "cleaner-test", Force: ptr.To(true)}
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, crd.GetName(), types.ApplyPatchType, body, options); err != nil {
			return fmt.Errorf("cannot apply CustomResourceDefinition %q: %w", crd.GetName(), err)
		}
	}
	for _, crd := range crds {
		if err := waitServed(ctx, client, crd.GetName()); err != nil {
			return err
		}
	}
	return nil
}

// RemoveCRD deletes a CustomResourceDefinition, and with it all objects of the kind, and returns when it is gone.
func RemoveCRD(ctx context.Context, cfg *rest.Config, name string) error {
	client, err := clientset.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	if err := crds.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("cannot delete CustomResourceDefinition %q: %w", name, err)
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, crdTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := crds.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("cannot see CustomResourceDefinition %q gone: %w", name, err)
	}
	return nil
}

// KnativeServingCRDs returns the files with the CustomResourceDefinitions of Knative Serving, out of its Go module, which
// is downloaded if need be.
func KnativeServingCRDs(ctx context.Context) ([]string, error) {
	return ThirdPartyCRDs(ctx, "knative.dev/serving", "config/core/300-resources/*.yaml")
}

// TektonCRDs returns the files with the CustomResourceDefinitions of Tekton Pipelines, out of its Go module, which is downloaded if need
// be. The webhook that converts between their versions is missing: only stored versions can be read.
func TektonCRDs(ctx context.Context) ([]string, error) {
	return ThirdPartyCRDs(ctx, "github.com/tektoncd/pipeline", "config/300-crds/*.yaml")
}

// ThirdPartyCRDs returns files of a module that test/thirdparty requires, which is downloaded if need be, by a pattern below its root.
func ThirdPartyCRDs(ctx context.Context, module, pattern string) ([]string, error) {
	dir, err := thirdParty(ctx, module)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("cannot find %s in %s: %w", pattern, dir, errors.Join(err, os.ErrNotExist))
	}
	return files, nil
}

// ReadCRDs reads the CustomResourceDefinitions in these YAML files, or in the *.yaml files of these folders.
func ReadCRDs(paths ...string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	read, err := readCRDs(paths)
	if err != nil {
		return nil, err
	}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(read))
	for _, u := range read {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd); err != nil {
			return nil, fmt.Errorf("cannot read CustomResourceDefinition %q: %w", u.GetName(), err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// thirdParty returns the folder with the files of a module that test/thirdparty requires, at the version required there.
func thirdParty(ctx context.Context, path string) (string, error) {
	source, err := sourceDir(ctx, "test", "thirdparty")
	if err != nil {
		return "", err
	}
	version, err := requiredVersion(ctx, source, path)
	if err != nil {
		return "", err
	}
	// With a version it looks at this one module, and not at what that requires.
	out, err := goCommand(ctx, source, "mod", "download", "-json", path+"@"+version)
	if err != nil {
		return "", err
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return "", fmt.Errorf("cannot find the files of %s: %w", path, err)
	}
	return downloaded.Dir, nil
}

// waitServed returns when the API server serves every version of a CustomResourceDefinition that it should. Being
// established is not quite enough: discovery follows a moment later, and clients ask it first.
func waitServed(ctx context.Context, client clientset.Interface, name string) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, crdTimeout, true, func(ctx context.Context) (bool, error) {
		live, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if !isEstablished(live) {
			return false, nil
		}
		for _, v := range live.Spec.Versions {
			if !v.Served {
				continue
			}
			list, err := client.Discovery().ServerResourcesForGroupVersion(live.Spec.Group + "/" + v.Name)
			if err != nil {
				return false, ignoreNotFound(err)
			}
			if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == live.Spec.Names.Plural }) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("cannot see CustomResourceDefinition %q served: %w", name, err)
	}
	return nil
}

func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// readCRDs reads the CustomResourceDefinitions in files and folders. Anything else in them is an error, and so is nothing.
func readCRDs(paths []string) ([]*unstructured.Unstructured, error) {
	var crds []*unstructured.Unstructured
	for _, path := range paths {
		files, err := yamlFiles(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			found, err := readCRDFile(file)
			if err != nil {
				return nil, fmt.Errorf("cannot read CustomResourceDefinitions from %q: %w", file, err)
			}
			crds = append(crds, found...)
		}
	}
	if len(crds) == 0 {
		return nil, fmt.Errorf("cannot find a CustomResourceDefinition in %q", paths)
	}
	return crds, nil
}

func readCRDFile(path string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var crds []*unstructured.Unstructured
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return crds, nil
		}
		if err != nil {
			return nil, err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &crd.Object); err != nil {
			return nil, err
		}
		switch crd.GetKind() {
		case "CustomResourceDefinition":
			crds = append(crds, crd)
		case "": // nothing but comments between two separators
		default:
			return nil, fmt.Errorf("there is a %s in it", crd.GetKind())
		}
	}
}

// yamlFiles returns the *.yaml files of a folder in the order of their names, or the path itself if it is a file.
func yamlFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot find the files: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	files, err := filepath.Glob(filepath.Join(path, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("cannot list %q: %w", path, err)
	}
	return files, nil
}
