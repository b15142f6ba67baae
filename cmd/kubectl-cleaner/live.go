// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/cluster"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
	"github.com/vtex/cleaner/controllers/jsontrim"
)

// kubeconfig is the cluster that the command line selects.
type kubeconfig struct {
	flags *genericclioptions.ConfigFlags
	// warnings shows the API server's warnings.
	warnings output.Screen
}

// newRESTConfig returns the client configuration. It does not limit the rate of requests: a person waits for the answer.
func (k kubeconfig) newRESTConfig() (*rest.Config, error) {
	config, err := k.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot find a cluster: %w", err)
	}
	config.QPS, config.Burst = -1, -1
	config.WarningHandler = k.warnings
	jsontrim.LimitDepth(config)
	return config, nil
}

// readNamespace returns the namespace of -n or of the context.
func (k kubeconfig) readNamespace() (string, error) {
	namespace, _, err := k.flags.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

func (k kubeconfig) newClusterClient() (*cluster.Client, error) {
	config, err := k.newRESTConfig()
	if err != nil {
		return nil, err
	}
	return cluster.NewClient(config)
}
