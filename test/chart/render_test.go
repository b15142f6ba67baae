// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/release"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	path      = "../../charts/cleaner"
	namespace = "cleaner-system"
	// name is that of the release whose objects are named as those of config/default.
	name = "cleaner"
	// kind is what Helm calls the kind of the templates that are shipped, when a cluster serves it.
	kind = "cleaner.vtex.dev/v1alpha1/CleanerTemplate"
)

func load(t *testing.T, path string) *chart.Chart {
	t.Helper()
	c, err := loader.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// version is that of the chart, and of what it installs.
func version(t *testing.T) string {
	t.Helper()
	return load(t, path).Metadata.Version
}

// template does what `helm template` does, for a cluster that serves these kinds too.
func template(t *testing.T, release string, values string, kinds ...string) (*release.Release, error) {
	t.Helper()
	install := action.NewInstall(&action.Configuration{})
	install.ReleaseName, install.Namespace = release, namespace
	install.DryRun, install.ClientOnly = true, true
	install.KubeVersion = &chartutil.KubeVersion{Version: "v1.36.0", Major: "1", Minor: "36"}
	install.APIVersions = kinds
	return install.Run(load(t, path), parse(t, values))
}

func parse(t *testing.T, values string) map[string]any {
	t.Helper()
	v, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// objects are what is rendered, by kind and name.
type objects map[string]*unstructured.Unstructured

func render(t *testing.T, release string, values string, kinds ...string) objects {
	t.Helper()
	r, err := template(t, release, values, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, r.Manifest)
}

func read(t *testing.T, manifest string) objects {
	t.Helper()
	var all []*unstructured.Unstructured
	for doc := range strings.SplitSeq(manifest, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(doc), &u.Object); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if len(u.Object) > 0 {
			all = append(all, u)
		}
	}
	return collect(t, all)
}

// collect has objects by their kind and name, and by their namespace if that is not the operator's.
func collect(t *testing.T, list []*unstructured.Unstructured) objects {
	t.Helper()
	all := objects{}
	for _, u := range list {
		id := u.GetKind() + " " + u.GetName()
		if ns := u.GetNamespace(); ns != "" && ns != namespace {
			id += " in " + ns
		}
		if all[id] != nil {
			t.Errorf("there are two of %s", id)
		}
		all[id] = u
	}
	return all
}

func (o objects) names() []string { return slices.Sorted(maps.Keys(o)) }

// get reads one object into what it is.
func get[T any](t *testing.T, o objects, id string) *T {
	t.Helper()
	if o[id] == nil {
		t.Fatalf("there is no %s among %v", id, o.names())
	}
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o[id].Object, into, true); err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	return into
}

func manager(t *testing.T, o objects) *appsv1.Deployment {
	t.Helper()
	for id := range o {
		if strings.HasPrefix(id, "Deployment ") && !strings.HasSuffix(id, "-scheduler") {
			return get[appsv1.Deployment](t, o, id)
		}
	}
	t.Fatalf("there is no Deployment among %v", o.names())
	return nil
}
