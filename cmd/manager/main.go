// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager runs the operator. It reads flags and starts the packages controllers and webhooks, which connect their
// parts themselves.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
	_ "time/tzdata" // expressions name time zones, and an empty image has none

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	_ "golang.org/x/crypto/x509roots/fallback" // an image without CA roots still reaches https sinks
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/internal/version"
	"github.com/vtex/cleaner/controllers"
	"github.com/vtex/cleaner/controllers/cachetrim"
	"github.com/vtex/cleaner/controllers/jsontrim"
	"github.com/vtex/cleaner/controllers/requestdeadline"
	"github.com/vtex/cleaner/controllers/shards"
	"github.com/vtex/cleaner/controllers/signing/keyring"
	"github.com/vtex/cleaner/webhooks"
	"github.com/vtex/cleaner/webhooks/serving"
)

func main() {
	if err := runManager(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

// runManager runs the operator until a signal stops it.
func runManager(args []string, stdout io.Writer) error {
	f, err := parseFlags(args)
	if err != nil {
		return err
	}
	if f.version {
		_, err := fmt.Fprintln(stdout, "cleaner", version.Get())
		return err
	}
	log := newLog(os.Stderr, f.verbosity)
	ctrl.SetLogger(log)
	klog.SetLogger(log)

	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("cannot find the API server: %w", err)
	}
	config.UserAgent = "cleaner"
	jsontrim.LimitDepth(config)
	requestdeadline.LimitRequests(config, requestdeadline.RequestLimit)
	skew := controllers.MeasureSkew(config, f.maxClockSkew, clock.RealClock{}) // before any client uses config
	mgr, owned, err := newManager(config, f)
	if err != nil {
		return err
	}
	opts := f.options
	opts.Shards, opts.Skew = owned, skew
	opts.Namespace = f.namespace
	opts.ProtectedNamespaces = append(opts.ProtectedNamespaces, f.namespace)
	keys, err := newKeyring(mgr, f)
	if err != nil {
		return err
	}
	opts.Keys, f.webhook.Keys = keys, keys
	if err := controllers.SetupWithManager(mgr, opts); err != nil {
		return err
	}
	if f.serveWebhook {
		if err := webhooks.SetupWithManager(mgr, f.webhook); err != nil {
			return err
		}
	}
	log.Info("Starting", "version", version.Get().String(), "namespace", f.namespace, "leaderElection", f.leaderElect, "protectedNamespaces", opts.ProtectedNamespaces)
	return runUntilStopped(ctrl.SetupSignalHandler(), mgr, owned, f.shutdownTimeout)
}

// ownership is what this process owns.
type ownership interface {
	shards.Ownership
	// Release lets other processes own it.
	Release(ctx context.Context) error
}

// releaseTimeout bounds the requests that release what this process owns. If they fail, its Lease expires.
const releaseTimeout = 5 * time.Second

// runUntilStopped runs the manager until ctx ends, then releases what this process owns, but only after all parts of the manager have stopped: until
// then they can still write. If one does not stop in time, the Lease has to expire. A manager says nothing of parts that did not stop if it waits
// for none.
func runUntilStopped(ctx context.Context, mgr interface {
	Start(ctx context.Context) error
}, owned interface {
	Release(ctx context.Context) error
}, waits time.Duration) error {
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	if waits == 0 {
		return nil
	}
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return owned.Release(releasing)
}

// newLog returns a log of JSON lines that drops none. controller-runtime's log drops lines when more than a hundred in a
// second are alike, but each deletion must be in the log before it is sent.
func newLog(w io.Writer, verbosity int8) logr.Logger {
	config := uberzap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder := &zap.KubeAwareEncoder{Encoder: zapcore.NewJSONEncoder(config)}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), zapcore.Level(-verbosity))
	return zapr.NewLogger(uberzap.New(core, uberzap.AddStacktrace(zapcore.ErrorLevel)))
}

// ownManager is a manager whose clients drop what the operator does not read of its own kinds. Others make theirs of its configuration, and
// read all: what Cleaners select may be Cleaners.
type ownManager struct {
	ctrl.Manager
	config *rest.Config
}

// GetConfig returns the configuration of clients that read all.
func (m *ownManager) GetConfig() *rest.Config { return m.config }

// newManager returns a manager with probes and metrics behind authentication, and what this process owns.
func newManager(config *rest.Config, f *flags) (ctrl.Manager, ownership, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme} { // the signing keys are a Secret, noted on a Lease
		if err := add(scheme); err != nil {
			return nil, nil, fmt.Errorf("cannot register the API: %w", err)
		}
	}
	options := ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 metricsserver.Options{BindAddress: "0"}, // serveMetrics serves them
		HealthProbeBindAddress:  "0",                                     // serving.Probes serves them
		LeaderElection:          false,                                   // shards are divided instead
		GracefulShutdownTimeout: &f.shutdownTimeout,
		Cache: cache.Options{
			ReaderFailOnMissingInformer: true, DefaultTransform: cachetrim.TrimObject,
			ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: { // the one with the signing keys
				Namespaces: map[string]cache.Config{f.namespace: {}}, Field: fields.OneTermEqualSelector("metadata.name", f.signingSecret),
			}},
		},
	}
	own := rest.CopyConfig(config)
	cachetrim.LimitMetadata(own)
	made, err := ctrl.NewManager(own, options)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot create the manager: %w", err)
	}
	mgr, err := serving.AddProbes(context.Background(), &ownManager{made, config}, f.probeAddress, made.GetLogger().WithName("probes"))
	if err != nil {
		return nil, nil, err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, nil, fmt.Errorf("cannot add a health check: %w", err)
	}
	caches, err := addCacheCheck(mgr)
	if err != nil {
		return nil, nil, err
	}
	if err := serveMetrics(mgr, f); err != nil {
		return nil, nil, err
	}
	owned, err := newOwnership(config, mgr, f, func() bool { return caches.checkReady(nil) == nil })
	return mgr, owned, err
}

// maxScrapes is how many requests for metrics the server answers at a time.
const maxScrapes = 8

// serveMetrics serves the metrics to callers that may get them. Its server limits what all other callers can use up.
func serveMetrics(mgr ctrl.Manager, f *flags) error {
	if f.metricsAddress == "0" {
		return nil
	}
	log := mgr.GetLogger().WithName("metrics")
	authorize, err := filters.WithAuthenticationAndAuthorization(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("cannot find out who may read metrics: %w", err)
	}
	authorized, err := authorize(log, controllers.MetricsHandler())
	if err != nil {
		return fmt.Errorf("cannot find out who may read metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", serving.NewRequestLimiter(maxScrapes).WrapHandler(authorized))
	server, err := serving.New(serving.Options{Address: f.metricsAddress, CertDir: f.metricsCertDir, HTTP2: f.http2, Log: log}, mux)
	if err != nil {
		return fmt.Errorf("cannot create the metrics server: %w", err)
	}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("cannot add the metrics server to the manager: %w", err)
	}
	return nil
}

// newKeyring returns the signing keys, and makes the manager watch their Secret. The manager is not ready before there is a key.
func newKeyring(mgr ctrl.Manager, f *flags) (*keyring.Keyring, error) {
	secret := types.NamespacedName{Namespace: f.namespace, Name: f.signingSecret}
	keys := keyring.New(mgr.GetAPIReader(), mgr.GetClient(), keyring.Options{
		Secret: secret, Policy: f.signingRules, Lease: leaseName, AllowNewKey: f.newSigningKey, Clock: clock.RealClock{}, Log: ctrl.Log.WithName("keys"),
	})
	informer, err := mgr.GetCache().GetInformer(context.Background(), &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("cannot watch Secret %s: %w", secret, err)
	}
	if err := keys.FollowInformer(informer); err != nil {
		return nil, fmt.Errorf("cannot watch Secret %s: %w", secret, err)
	}
	if err := mgr.Add(keys); err != nil {
		return nil, fmt.Errorf("cannot add the signing keys to the manager: %w", err)
	}
	if err := mgr.AddReadyzCheck("signing-key", keys.CheckReady); err != nil {
		return nil, fmt.Errorf("cannot add a readiness check: %w", err)
	}
	return keys, nil
}

// newOwnership returns what this process owns: a share of the Cleaners, or all without leader election.
func newOwnership(config *rest.Config, mgr ctrl.Manager, f *flags, ready func() bool) (ownership, error) {
	if !f.leaderElect {
		return shards.Alone{}, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot find the host's name: %w", err)
	}
	renewing := rest.CopyConfig(config)
	renewing.QPS = -1 // a few requests every two seconds
	client, err := coordinationclient.NewForConfig(renewing)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for Leases: %w", err)
	}
	owned := shards.New(shards.Options{
		Client: client, Namespace: f.namespace, Name: leaseName, Identity: host + "_" + string(uuid.NewUUID()), // two processes on one host must differ
		Ready: ready, Clock: clock.RealClock{}, Log: mgr.GetLogger().WithName("shards"),
	})
	if err := mgr.Add(owned); err != nil {
		return nil, fmt.Errorf("cannot add the shards to the manager: %w", err)
	}
	return owned, nil
}
