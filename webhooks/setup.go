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
	"github.com/vtex/cleaner/controllers/signing"
	"github.com/vtex/cleaner/webhooks/serving"
)

// Where the webhooks are served: for Cleaners, for ClusterCleaners, and for CleanerTemplates.
const (
	Path         = "/validate-cleaner-vtex-dev-v1alpha1-cleaner"
	ClusterPath  = "/validate-cleaner-vtex-dev-v1alpha1-clustercleaner"
	TemplatePath = "/validate-cleaner-vtex-dev-v1alpha1-cleanertemplate"
	// Where the authors of Cleaners and of ClusterCleaners are stored.
	AuthorPath        = "/mutate-cleaner-vtex-dev-v1alpha1-cleaner"
	ClusterAuthorPath = "/mutate-cleaner-vtex-dev-v1alpha1-clustercleaner"
)

// Options are what an administrator sets.
type Options struct {
	// Port is where the webhook is served, on all addresses.
	Port int
	// CertDir is the folder with tls.crt and tls.key. It may be empty at first, and its files may change at any time.
	CertDir string
	// SelfSigned says whose certificates are made and renewed here; nil when somebody else does both.
	SelfSigned *SelfSigned
	// HTTP2 lets callers use HTTP/2.
	HTTP2 bool
	// ClientCA, unless empty, is a file with the authorities that the API server's client certificate is signed by: no other
	// caller is answered. ClientNames, unless empty, are the names that the certificate may have.
	ClientCA    string
	ClientNames []string
	// Validation are the administrator's rules for all Cleaners.
	Validation validation.Options
	// Keys sign who wrote a spec. Required.
	Keys signing.Keys
	// AuthorExtraKeys are those of a user's extra attributes that are stored with an author.
	AuthorExtraKeys []string
}

// maxRequests is how many requests one replica answers at a time. Each may read 7 MiB, keep 2 of them, compile, and ask for rights.
const maxRequests = 16

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
	identity, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client that says who the operator is: %w", err)
	}
	serve := make(chan struct{})
	if opts.SelfSigned == nil {
		close(serve)
	} else if err := opts.SelfSigned.addRotator(mgr, opts.CertDir, serve); err != nil {
		return err
	}
	hooks := webhook.NewServer(webhook.Options{}) // counts requests, and is never started
	v := &validator{
		compiler: compiler, options: opts.Validation, discovery: kinds, reviews: reviews.SubjectAccessReviews(), live: mgr.GetAPIReader(),
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
		return fmt.Errorf("cannot make the webhook's server: %w", err)
	}
	if err := mgr.Add(&delayedServer{Server: server, ready: serve}); err != nil {
		return fmt.Errorf("cannot add the webhook's server to the manager: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", server.CheckReady); err != nil {
		return fmt.Errorf("cannot add the webhook's readiness check: %w", err)
	}
	return nil
}

// newHandlers makes what is served, by path.
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
		TemplatePath:      {handler: &templateValidator{v}, spec: reflect.TypeFor[v1alpha1.CleanerTemplateSpec](), turns: ofTemplates, all: true}, // it reads all Cleaners
		AuthorPath:        {handler: &authorMutator{cleaners, now}, spec: ofCleaner, turns: large},
		ClusterAuthorPath: {handler: &authorMutator{clusters, now}, spec: ofCluster, turns: large},
	} {
		out[path] = limiter.WrapHandler(reader)
	}
	return out
}

// delayedServer is a server that begins when there is a certificate to serve with. It needs no leadership.
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
