// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helmtest

import (
	"fmt"

	"helm.sh/helm/v3/pkg/action"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Configuration is how Helm gets at a cluster, for actions that are not among the functions here.
func Configuration(config *rest.Config, namespace string) (*action.Configuration, error) {
	cfg := &action.Configuration{}
	if err := cfg.Init(getter{config, namespace}, namespace, "secret", func(string, ...any) {}); err != nil {
		return nil, fmt.Errorf("cannot set up Helm: %w", err)
	}
	return cfg, nil
}

// getter gives Helm a client configuration that does not come from a file.
type getter struct {
	config    *rest.Config
	namespace string
}

// ToRESTConfig gives the configuration as it is.
func (g getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }

// ToDiscoveryClient returns a new client for each action.
func (g getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	client, err := discovery.NewDiscoveryClientForConfig(g.config)
	if err != nil {
		return nil, err
	}
	return memory.NewMemCacheClient(client), nil
}

// ToRESTMapper maps by that client.
func (g getter) ToRESTMapper() (meta.RESTMapper, error) {
	client, err := g.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	return restmapper.NewDeferredDiscoveryRESTMapper(client), nil
}

// ToRawKubeConfigLoader is asked for the namespace only.
func (g getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	overrides := &clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: g.namespace}}
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), overrides)
}
