// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Clients read objects and metadata of any kind, what is served, and what the operator may do.
type Clients struct {
	Dynamic   dynamic.Interface
	Metadata  metadata.Interface
	Discovery *discovery.DiscoveryClient
	Access    authorizationv1client.SelfSubjectAccessReviewInterface
}

// NewClients makes Clients that share one HTTP client.
func NewClients(config *rest.Config, c clock.WithTicker) (*Clients, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make an HTTP client: %w", err)
	}
	var all Clients
	if all.Dynamic, err = NewClient(config, http, c); err != nil {
		return nil, err
	}
	if all.Metadata, err = metadata.NewForConfigAndClient(config, http); err != nil {
		return nil, fmt.Errorf("cannot make a metadata client: %w", err)
	}
	if all.Discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, http); err != nil {
		return nil, fmt.Errorf("cannot make a discovery client: %w", err)
	}
	authorization, err := authorizationv1client.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for access reviews: %w", err)
	}
	all.Access = authorization.SelfSubjectAccessReviews()
	return &all, nil
}
