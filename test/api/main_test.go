// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha"
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
)

const (
	namespace = "default"
	crdFolder = "../../config/crd/bases/"
)

// kind is one of ours, in one version.
type kind struct {
	schema.GroupVersionKind
	plural     string
	namespaced bool
}

func (k kind) String() string { return k.Kind + "." + k.Version }

// kinds are all of ours, in the version that the operator reads.
func kinds() []kind {
	return []kind{cleanerKind(v1alpha1.GroupVersion), clusterCleanerKind(), templateKind()}
}

func cleanerKind(version schema.GroupVersion) kind {
	return kind{version.WithKind("Cleaner"), "cleaners", true}
}

func clusterCleanerKind() kind {
	return kind{v1alpha1.GroupVersion.WithKind("ClusterCleaner"), "clustercleaners", false}
}

func templateKind() kind {
	return kind{v1alpha1.GroupVersion.WithKind("CleanerTemplate"), "cleanertemplates", false}
}

// shared is the control plane of all tests; nil with -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Suite{Ready: func(ctx context.Context, c *cluster.Cluster) error {
		shared = c
		return install(ctx, c)
	}}.Main(m)
}

// install creates the CRDs and waits until they are served.
func install(ctx context.Context, c *cluster.Cluster) error {
	client, err := apiextensions.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, k := range kinds() {
		crd, err := readCRD(k)
		if err != nil {
			return err
		}
		if _, err := crds.Create(ctx, crd, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			return err
		}
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		for _, version := range versions() {
			list, err := client.ServerResourcesForGroupVersion(version.String())
			if err != nil {
				return false, ignoreNotFound(err)
			}
			for _, k := range kinds() {
				if k.GroupVersion() == version && v1alpha1.FindKind(k.Kind, list.APIResources) == nil {
					return false, nil
				}
			}
		}
		return true, nil
	})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func readCRD(k kind) (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := os.ReadFile(crdFolder + k.Group + "_" + k.plural + ".yaml")
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, yaml.UnmarshalStrict(text, crd)
}

func needCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	if shared == nil {
		t.Skip("needs a control plane: not with -short")
	}
	return shared
}

// clientOf is a client of the objects of a kind.
func clientOf(t *testing.T, k kind) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(needCluster(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	all := client.Resource(k.GroupVersion().WithResource(k.plural))
	if k.namespaced {
		return all.Namespace(namespace)
	}
	return all
}

// cleaners is a client of Cleaners in a version.
func cleaners(t *testing.T, version schema.GroupVersion) dynamic.ResourceInterface {
	t.Helper()
	return clientOf(t, cleanerKind(version))
}

// versions are the versions in which Cleaners are served.
func versions() []schema.GroupVersion {
	return []schema.GroupVersion{v1alpha1.GroupVersion, v1alpha.GroupVersion}
}

// object makes a Cleaner of a YAML spec.
func object(t *testing.T, version schema.GroupVersion, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return objectOf(t, cleanerKind(version), name, spec)
}

// objectOf makes an object of a YAML spec.
func objectOf(t *testing.T, k kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]any{}
	if err := utiljson.Unmarshal(text, &content); err != nil { // integers stay integers
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	u.SetGroupVersionKind(k.GroupVersionKind)
	u.SetName(name)
	if k.namespaced {
		u.SetNamespace(namespace)
	}
	return u
}

// decode reads an object as the operator's watches do.
func decode(u *unstructured.Unstructured) (runtime.Object, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	text, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	o, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(text, nil, nil)
	return o, err
}

// decodeCleaner reads a Cleaner.
func decodeCleaner(t *testing.T, u *unstructured.Unstructured) *v1alpha1.Cleaner {
	t.Helper()
	o, err := decode(u)
	if err != nil {
		t.Fatal(err)
	}
	c, ok := o.(*v1alpha1.Cleaner)
	if !ok {
		t.Fatalf("it is a %T", o)
	}
	return c
}
