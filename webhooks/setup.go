// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"k8s.io/client-go/discovery"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/kindschemas"
	"github.com/vtex/cleaner/controllers/signing"
	"github.com/vtex/cleaner/webhooks/serving"
)

// The paths of the validating webhooks.
const (
	Path         = "/validate-cleaner-vtex-dev-v1alpha1-cleaner"
	ClusterPath  = "/validate-cleaner-vtex-dev-v1alpha1-clustercleaner"
	TemplatePath = "/validate-cleaner-vtex-dev-v1alpha1-cleanertemplate"
	// The paths of the mutating webhooks, which store authors.
	AuthorPath        = "/mutate-cleaner-vtex-dev-v1alpha1-cleaner"
	ClusterAuthorPath = "/mutate-cleaner-vtex-dev-v1alpha1-clustercleaner"
)

// Options are what an administrator sets.
type Options struct {
	// Port is the port of the webhook, on all addresses.
	Port int
	// CertDir is the folder with tls.crt and tls.key. It may be empty at first, and the files may change at any time.
	CertDir string
	// SelfSigned makes the operator create and renew the certificates; nil if something else does.
	SelfSigned *SelfSigned
	// HTTP2 lets callers use HTTP/2.
	HTTP2 bool
	// ClientCA is a file with the authorities of the API server's client certificate. If it is set, the webhook answers no
	// other caller. ClientNames are the names that the certificate may have; empty allows all.
	ClientCA    string
	ClientNames []string
	// Validation are the administrator's rules for all Cleaners.
	Validation validation.Options
	// Keys sign the author of a spec. Required.
	Keys signing.Keys
	// AuthorExtraKeys are the extra attributes of a user that are stored with the author.
	AuthorExtraKeys []string
}

// maxRequests is how many requests one replica answers at a time. Each may read 7 MiB, keep 2 MiB, compile, and review rights.
const maxRequests = 16

// SetupWithManager adds the webhooks and the rotation of their certificates to a manager. The manager is not ready before the
// webhook is served.
func SetupWithManager(mgr ctrl.Manager, opts Options) error {
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS = -1 // a request makes a review for each target and verb of its Cleaner, and a user waits for them
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		return fmt.Errorf("cannot create the CEL environment: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot create the discovery client: %w", err)
	}
	reviews, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot create the client for access reviews: %w", err)
	}
	identity, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot create the client for self-reviews: %w", err)
	}
	serve := make(chan struct{})
	if opts.SelfSigned == nil {
		close(serve)
	} else if err := opts.SelfSigned.addRotator(mgr, opts.CertDir, serve); err != nil {
		return err
	}
	hooks := webhook.NewServer(webhook.Options{}) // only counts requests; it is never started
	v := &validator{
		compiler: compiler, options: opts.Validation, discovery: kinds, allKinds: kinds, rules: reviews.SelfSubjectRulesReviews(), fields: newFieldChecker(kindschemas.NewReader(kinds.RESTClient(), clock.RealClock{})), reviews: reviews.SubjectAccessReviews(), live: mgr.GetAPIReader(),
		keys: opts.Keys, extraKeys: opts.AuthorExtraKeys, operator: &operatorIdentity{reviews: identity.SelfSubjectReviews()},
	}
	for path, handler := range newHandlers(v, clock.RealClock{}) {
		hooks.Register(path, handler)
	}
	server, err := serving.New(serving.Options{
		Address: ":" + strconv.Itoa(opts.Port), CertDir: opts.CertDir, HTTP2: opts.HTTP2, ClientCA: opts.ClientCA, ClientNames: opts.ClientNames,
		Log: mgr.GetLogger().WithName("webhook"),
	}, hooks.WebhookMux())
	if err != nil {
		return fmt.Errorf("cannot create the webhook's server: %w", err)
	}
	if err := mgr.Add(&delayedServer{Server: server, ready: serve}); err != nil {
		return fmt.Errorf("cannot add the webhook's server to the manager: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", server.CheckReady); err != nil {
		return fmt.Errorf("cannot add the webhook's readiness check: %w", err)
	}
	return nil
}

// newHandlers returns the handlers by path.
func newHandlers(v *validator, now clock.PassiveClock) map[string]http.Handler {
	limiter := serving.NewRequestLimiter(maxRequests)
	large, ofTemplates := serving.NewTurns(), serving.NewTurns()
	cleaners := &ownerValidator{v, func() v1alpha1.Owner { return &v1alpha1.Cleaner{} }}
	clusters := &ownerValidator{v, func() v1alpha1.Owner { return &v1alpha1.ClusterCleaner{} }}
	ofCleaner, ofCluster := reflect.TypeFor[v1alpha1.CleanerSpec](), reflect.TypeFor[v1alpha1.ClusterCleanerSpec]()
	out := map[string]http.Handler{}
	for path, reader := range map[string]*reviewReader{
		Path:              {handler: cleaners, spec: ofCleaner, turns: large},
		ClusterPath:       {handler: clusters, spec: ofCluster, turns: large},
		TemplatePath:      {handler: &templateValidator{v, now}, spec: reflect.TypeFor[v1alpha1.CleanerTemplateSpec](), turns: ofTemplates, all: true}, // it reads all Cleaners
		AuthorPath:        {handler: &authorMutator{cleaners, now}, spec: ofCleaner, turns: large},
		ClusterAuthorPath: {handler: &authorMutator{clusters, now}, spec: ofCluster, turns: large},
	} {
		out[path] = limiter.WrapHandler(reader)
	}
	return out
}

// delayedServer is a server that starts when it has a certificate.
type delayedServer struct {
	*serving.Server
	ready <-chan struct{}
}

// Start serves until ctx is done.
func (l *delayedServer) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.ready:
		return l.Server.Start(ctx)
	}
}
