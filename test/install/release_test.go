// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/base64"
	"os"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	"helm.sh/helm/v3/pkg/chart/loader"
	appsv1 "k8s.io/api/apps/v1"
)

// The chart and the bundle are of one release: they have one version, and run one image of it, on the same versions of
// Kubernetes, and are shown by one icon.
func TestOfOneRelease(t *testing.T) {
	chart, err := loader.Load("../../charts/cleaner")
	if err != nil {
		t.Fatal(err)
	}
	b, err := manifests.GetBundleFromDir("../../bundle")
	if err != nil {
		t.Fatal(err)
	}
	version := b.CSV.Spec.Version.String()
	if chart.Metadata.Version != version || chart.Metadata.AppVersion != version {
		t.Errorf("the bundle has the version %s, and the chart %s of %s", version, chart.Metadata.Version, chart.Metadata.AppVersion)
	}
	rendered := all[appsv1.Deployment](&installed{T: t, objects: template(t, "../../charts/cleaner")}, "Deployment")
	image := b.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec.Containers[0].Image
	if got := rendered[0].Spec.Template.Spec.Containers[0].Image; got != image {
		t.Errorf("the bundle runs %s, and the chart %s", image, got)
	}
	if got, want := chart.Metadata.KubeVersion, ">="+b.CSV.Spec.MinKubeVersion+"-0"; got != want {
		t.Errorf("the bundle is for Kubernetes %s, and the chart for %s", want, got)
	}
	icon, err := os.ReadFile("../../charts/cleaner/icon.svg")
	if err != nil {
		t.Fatal(err)
	}
	if len(b.CSV.Spec.Icon) != 1 || b.CSV.Spec.Icon[0].Data != base64.StdEncoding.EncodeToString(icon) {
		t.Error("the bundle and the chart have different icons")
	}
	if got, want := b.CSV.Annotations["capabilities"], chart.Metadata.Annotations["artifacthub.io/operatorCapabilities"]; got != want {
		t.Errorf("the bundle claims to be capable of %q, and the chart of %q", got, want)
	}
}
