// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha"
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
)

const (
	namespace = "default"
	crdFile   = "../../config/crd/bases/cleaner.vtex.dev_cleaners.yaml"
)

// shared is the control plane of all tests; nil with -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	ctx := context.Background()
	c, err := cluster.Start(ctx, cluster.Options{Log: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared = c
	code := 1
	if err := install(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	if err := c.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// install creates the CRD and waits until it is served.
func install(ctx context.Context, c *cluster.Cluster) error {
	crd, err := readCRD()
	if err != nil {
		return err
	}
	client, err := apiextensions.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(ctx, crd, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		for _, version := range versions() {
			if _, err := client.ServerResourcesForGroupVersion(version.String()); err != nil {
				return false, ignoreNotFound(err)
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

func readCRD() (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := os.ReadFile(crdFile)
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

// cleaners is a client of Cleaners in a version.
func cleaners(t *testing.T, version schema.GroupVersion) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(needCluster(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(version.WithResource("cleaners")).Namespace(namespace)
}

// versions are the versions that are served.
func versions() []schema.GroupVersion {
	return []schema.GroupVersion{v1alpha1.GroupVersion, v1alpha.GroupVersion}
}

// object makes a Cleaner of a YAML spec.
func object(t *testing.T, version schema.GroupVersion, name, spec string) *unstructured.Unstructured {
	t.Helper()
	var content any
	if err := yaml.Unmarshal([]byte(spec), &content); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	u.SetAPIVersion(version.String())
	u.SetKind("Cleaner")
	u.SetName(name)
	u.SetNamespace(namespace)
	return u
}

// decode reads a Cleaner as the operator's watches do.
func decode(u *unstructured.Unstructured) (*v1alpha1.Cleaner, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	text, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	c := &v1alpha1.Cleaner{}
	_, _, err = serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(text, nil, c)
	return c, err
}
