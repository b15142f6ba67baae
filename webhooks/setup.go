// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"

	"k8s.io/client-go/discovery"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
)

// Where the webhooks are served: for Cleaners, for ClusterCleaners, and for CleanerTemplates.
const (
	Path         = "/validate-cleaner-vtex-dev-v1alpha1-cleaner"
	ClusterPath  = "/validate-cleaner-vtex-dev-v1alpha1-clustercleaner"
	TemplatePath = "/validate-cleaner-vtex-dev-v1alpha1-cleanertemplate"
)

// Options are what an administrator sets.
type Options struct {
	// Port is where the webhook is served, on all addresses.
	Port int
	// CertDir is the folder with tls.crt and tls.key. It may be empty at first, and its files may change at any time.
	CertDir string
	// SelfSigned says whose certificates are made and renewed here; nil when somebody else does both.
	SelfSigned *SelfSigned
	// Validation are the administrator's rules for all Cleaners.
	Validation validation.Options
}

// SetupWithManager adds the webhooks, and the making of its certificates, to a manager. The manager is not ready before
// the webhook is served.
func SetupWithManager(mgr ctrl.Manager, opts Options) error {
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS = -1 // one request makes as many reviews as its Cleaner has targets and verbs, and somebody waits for them
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		return fmt.Errorf("cannot make the environment of expressions: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client that finds kinds: %w", err)
	}
	reviews, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client that reviews rights: %w", err)
	}
	serve := make(chan struct{})
	if opts.SelfSigned == nil {
		close(serve)
	} else if err := opts.SelfSigned.addTo(mgr, opts.CertDir, serve); err != nil {
		return err
	}
	server := webhook.NewServer(webhook.Options{Port: opts.Port, CertDir: opts.CertDir})
	v := &validator{
		compiler: compiler, options: opts.Validation, kinds: kinds, reviews: reviews.SubjectAccessReviews(), live: mgr.GetAPIReader(),
	}
	for path, handler := range map[string]admission.Handler{
		Path:         &owners{v, func() v1alpha1.Owner { return &v1alpha1.Cleaner{} }},
		ClusterPath:  &owners{v, func() v1alpha1.Owner { return &v1alpha1.ClusterCleaner{} }},
		TemplatePath: &bodies{v},
	} {
		server.Register(path, &webhook.Admission{Handler: handler})
	}
	if err := mgr.Add(&later{Server: server, begin: serve}); err != nil {
		return fmt.Errorf("cannot add the webhook's server to the manager: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", server.StartedChecker()); err != nil {
		return fmt.Errorf("cannot add the webhook's readiness check: %w", err)
	}
	return nil
}

// later is a server that begins when there is a certificate to serve with. It needs no leadership.
type later struct {
	webhook.Server
	begin <-chan struct{}
}

// Start serves until ctx is done.
func (l *later) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.begin:
		return l.Server.Start(ctx)
	}
}
