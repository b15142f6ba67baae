// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package helmtest makes real Helm releases for tests and demonstrations: from charts that are written where they are
// used, with Helm's own code, in the Secrets where Helm keeps them.
//
// It is no part of the operator, which only ever uninstalls.
package helmtest

import (
	"context"
	"fmt"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"
	"k8s.io/client-go/rest"
)

// Chart is what a release is made of.
type Chart struct {
	// Templates are the files of the chart by name, such as "config.yaml". They are templates as in any chart: objects without a
	// namespace are in the release's namespace, and `{{ .Values.x }}` is replaced.
	Templates map[string]string
	// Values are what the templates read as .Values.
	Values map[string]any
}

func (c Chart) chart() *chart.Chart {
	made := &chart.Chart{Metadata: &chart.Metadata{APIVersion: chart.APIVersionV2, Name: "helmtest", Version: "0.1.0"}}
	for name, text := range c.Templates {
		made.Templates = append(made.Templates, &chart.File{Name: "templates/" + name, Data: []byte(text)})
	}
	return made
}

// Install does what `helm install NAME` does. It does not wait for anything to become ready.
func Install(ctx context.Context, config *rest.Config, namespace, name string, c Chart) (*release.Release, error) {
	cfg, err := Configuration(config, namespace)
	if err != nil {
		return nil, err
	}
	install := action.NewInstall(cfg)
	install.ReleaseName, install.Namespace = name, namespace
	install.DisableOpenAPIValidation = true
	r, err := install.RunWithContext(ctx, c.chart(), c.Values)
	if err != nil {
		return nil, fmt.Errorf("cannot install release %q: %w", name, err)
	}
	return r, nil
}

// Upgrade does what `helm upgrade NAME` does.
func Upgrade(ctx context.Context, config *rest.Config, namespace, name string, c Chart) (*release.Release, error) {
	cfg, err := Configuration(config, namespace)
	if err != nil {
		return nil, err
	}
	upgrade := action.NewUpgrade(cfg)
	upgrade.Namespace = namespace
	upgrade.DisableOpenAPIValidation = true
	r, err := upgrade.RunWithContext(ctx, name, c.chart(), c.Values)
	if err != nil {
		return nil, fmt.Errorf("cannot upgrade release %q: %w", name, err)
	}
	return r, nil
}

// Rollback does what `helm rollback NAME REVISION` does.
func Rollback(config *rest.Config, namespace, name string, revision int) error {
	cfg, err := Configuration(config, namespace)
	if err != nil {
		return err
	}
	rollback := action.NewRollback(cfg)
	rollback.Version = revision
	if err := rollback.Run(name); err != nil {
		return fmt.Errorf("cannot roll back release %q: %w", name, err)
	}
	return nil
}

// Uninstall does what `helm uninstall NAME` does, with --keep-history or without.
func Uninstall(config *rest.Config, namespace, name string, keepHistory bool) error {
	cfg, err := Configuration(config, namespace)
	if err != nil {
		return err
	}
	uninstall := action.NewUninstall(cfg)
	uninstall.KeepHistory = keepHistory
	if _, err := uninstall.Run(name); err != nil {
		return fmt.Errorf("cannot uninstall release %q: %w", name, err)
	}
	return nil
}

// SetStatus writes a status on the newest revision, as a Helm that died in the middle leaves it.
func SetStatus(config *rest.Config, namespace, name string, status release.Status) error {
	cfg, err := Configuration(config, namespace)
	if err != nil {
		return err
	}
	newest, err := cfg.Releases.Last(name)
	if err != nil {
		return fmt.Errorf("cannot find release %q: %w", name, err)
	}
	newest.SetStatus(status, "set by hand")
	if err := cfg.Releases.Update(newest); err != nil {
		return fmt.Errorf("cannot set the status of release %q: %w", name, err)
	}
	return nil
}
