// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/vtex/cleaner/api/facts"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers"
	"github.com/vtex/cleaner/controllers/signing"
	"github.com/vtex/cleaner/webhooks"
)

const (
	// leaseName is the Lease that replicas of the operator compete for.
	leaseName = "cleaner.vtex.dev"
	// renewDeadline is controller-runtime's default; the lock's client needs it to time out in time.
	renewDeadline = 10 * time.Second
	// minClockSkew is what can be told from the resolution of a Date, and from the time that an answer takes.
	minClockSkew = 2 * time.Second
	// keyPropagation is how long a new signing key is known to replicas before it signs.
	keyPropagation = 10 * time.Minute
	// minKeyOverlap is the time in which the operator comes to each Cleaner, and signs its author again.
	minKeyOverlap = 3 * time.Hour
	// namespaceFile names the namespace of the Pod that this process runs in.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// flags are what the command line says.
type flags struct {
	options         controllers.Options
	namespace       string
	leaderElect     bool
	metricsAddress  string
	metricsCertDir  string
	probeAddress    string
	http2           bool
	shutdownTimeout time.Duration
	verbosity       int8
	version         bool
	maxClockSkew    time.Duration
	// serveWebhook says whether the webhook is served, with certificates of our own or with files of somebody else's.
	serveWebhook       bool
	webhookCertificate string
	webhook            webhooks.Options
	selfSigned         webhooks.SelfSigned
	// signingSecret is the Secret with the signing keys, which follow each other by rules. A lost one is made again if
	// newSigningKey says so.
	signingSecret string
	signingRules  signing.RotationPolicy
	newSigningKey bool
}

// The values of --webhook-cert.
const (
	selfSigned = "self-signed"
	files      = "files"
)

// parseFlags reads the command line.
func parseFlags(args []string) (*flags, error) {
	f := &flags{}
	var sinks sinkRanges
	if err := f.declareFlags(&sinks).Parse(args); err != nil {
		return nil, err
	}
	if f.version { // whatever else is asked for
		return f, nil
	}
	if err := f.checkBounds(); err != nil {
		return nil, err
	}
	return f, f.fillIn(&sinks)
}

// sinkRanges are the address ranges that events may be sent to, and those that they may not, as they are written.
type sinkRanges struct{ allow, deny []string }

// declareFlags lists the flags.
func (f *flags) declareFlags(sinks *sinkRanges) *pflag.FlagSet {
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	fs.StringVar(&f.namespace, "namespace", "", "namespace of the operator: of its Lease, and protected (default: that of its Pod)")
	fs.BoolVar(&f.leaderElect, "leader-elect", true, "let one replica at a time act")
	fs.StringVar(&f.metricsAddress, "metrics-bind-address", ":8443", "where metrics are served over HTTPS to whoever may get /metrics; 0 turns them off")
	fs.StringVar(&f.metricsCertDir, "metrics-cert-dir", "", "folder with tls.crt and tls.key for the metrics (default: a self-signed certificate)")
	fs.StringVar(&f.probeAddress, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served; 0 turns them off")
	fs.BoolVar(&f.http2, "enable-http2", false, "serve metrics and webhook over HTTP/2 too")
	fs.DurationVar(&f.shutdownTimeout, "shutdown-timeout", 25*time.Second, "how long a stop waits for what is under way")
	fs.Int8VarP(&f.verbosity, "verbosity", "v", 0, "how much to log: 0 decisions and deeds, 4 also each request that follows from a run")
	fs.DurationVar(&f.options.MinInterval, "min-interval", controllers.DefaultMinInterval, "shortest time between two evaluations of one Cleaner")
	fs.DurationVar(&f.options.Settle, "settle", controllers.DefaultSettle, "how long deleted objects may take to go before a run goes on without them")
	fs.DurationVar(&f.options.FinishGrace, "finish-grace", controllers.DefaultFinishGrace, "how long a deleted Cleaner is held to finish and to report")
	fs.DurationVar(&f.maxClockSkew, "max-clock-skew", controllers.DefaultMaxClockSkew, "how far this machine's clock may be from the API server's before nothing is decided and deleted; 0 trusts it")
	fs.StringSliceVar(&f.options.ProtectedNamespaces, "protected-namespaces", facts.ProtectedNamespaces(), "namespaces in which nothing is deleted, besides the operator's own")
	fs.StringSliceVar(&f.options.AllowProtectedKinds, "allow-protected-kinds", nil, "protected resources that may be deleted all the same, as <resource> or <resource>.<group>")
	fs.StringSliceVar(&sinks.allow, "sink-allow", nil, "address ranges that events may be sent to, such as 10.0.0.0/8; Cleaners reach private ranges only if they are named here (default: all that are not refused)")
	fs.StringSliceVar(&sinks.deny, "sink-deny", nil, "address ranges that events may not be sent to")
	fs.BoolVar(&f.options.SinkAllowLoopback, "sink-allow-loopback", false, "let events be sent to this machine; for local runs")
	fs.IntVar(&f.options.Workers, "workers", controllers.DefaultWorkers, "how many Cleaners are worked on at a time")
	fs.IntVar(&f.options.Uninstalls, "uninstalls", controllers.DefaultUninstalls, "how many Helm releases are uninstalled at a time")
	fs.BoolVar(&f.options.RequireServiceAccount, "require-service-account", false, "refuse Cleaners that name no ServiceAccount to act as, unless there is a default")
	fs.StringVar(&f.options.DefaultServiceAccount, "default-service-account", "", "ServiceAccount, in each Cleaner's own namespace, as which Cleaners act that name none (default: the operator itself)")
	fs.BoolVar(&f.serveWebhook, "webhook", true, "serve the validating webhook")
	fs.StringVar(&f.webhookCertificate, "webhook-cert", selfSigned, "where the webhook's certificate comes from: self-signed (made and renewed here) or files (of cert-manager, say)")
	fs.StringVar(&f.webhook.CertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs", "folder with tls.crt and tls.key for the webhook: where its Secret is mounted")
	fs.IntVar(&f.webhook.Port, "webhook-port", webhook.DefaultPort, "port on which the webhook is served")
	fs.StringVar(&f.webhook.ClientCA, "webhook-client-ca", "", "file with the authority of the API server's client certificate: the webhook answers no other caller (default: it answers all)")
	fs.StringSliceVar(&f.webhook.ClientNames, "webhook-client-names", nil, "names, common name or DNS name, that the client certificate may have (default: all that --webhook-client-ca has signed)")
	fs.StringVar(&f.selfSigned.Secret, "webhook-secret", "cleaner-webhook-cert", "Secret in the operator's namespace that keeps the self-signed certificates")
	fs.StringVar(&f.selfSigned.Service, "webhook-service", "cleaner-webhook", "Service in the operator's namespace by which the API server calls the webhook")
	fs.StringVar(&f.selfSigned.Configuration, "webhook-configuration", "cleaner-webhook", "ValidatingWebhookConfiguration and MutatingWebhookConfiguration that are told the self-signed authority")
	fs.StringSliceVar(&f.webhook.AuthorExtraKeys, "author-extra-keys", nil, "extra attributes of a user that are stored with the author of a Cleaner and reviewed with it (default: none)")
	fs.BoolVar(&f.options.ActWithoutAuthor, "act-without-author", false, "let Cleaners whose author is not known act, with the operator's own rights or as the ServiceAccount that they name; for clusters where the webhook does not run")
	fs.StringVar(&f.signingSecret, "signing-secret", "cleaner-signing-key", "Secret in the operator's namespace with the keys that sign authors and records")
	fs.DurationVar(&f.signingRules.Rotation, "signing-key-rotation", 90*24*time.Hour, "age at which a signing key gets a successor; 0: never")
	fs.DurationVar(&f.signingRules.Overlap, "signing-key-overlap", 30*24*time.Hour, "for how long a signing key is still accepted after its successor has begun to sign")
	fs.BoolVar(&f.newSigningKey, "new-signing-key", false, "make a signing key although one was lost: what was signed before does not count any more")
	fs.BoolVar(&f.version, "version", false, "print which version this is, and end")
	return fs
}

// checkBounds says which flags do not go together, or are out of bounds.
func (f *flags) checkBounds() error {
	rotation := f.signingRules.Rotation
	switch {
	case f.webhookCertificate != selfSigned && f.webhookCertificate != files:
		return fmt.Errorf("--webhook-cert: %q is no source of certificates: write %s or %s", f.webhookCertificate, selfSigned, files)
	case len(f.webhook.ClientNames) > 0 && f.webhook.ClientCA == "":
		return errors.New("--webhook-client-names needs --webhook-client-ca, which verifies them")
	case f.options.Workers < 1 || f.options.Uninstalls < 1:
		return errors.New("--workers and --uninstalls must be at least 1")
	case rotation < 0 || rotation > 0 && rotation < time.Hour || f.signingRules.Overlap < minKeyOverlap:
		return fmt.Errorf("--signing-key-rotation must be 0 or at least 1h, and --signing-key-overlap at least %s: until each author is signed again", minKeyOverlap)
	case f.maxClockSkew < 0 || f.maxClockSkew > 0 && f.maxClockSkew < minClockSkew:
		return fmt.Errorf("--max-clock-skew must be 0 or at least %s: a Date has whole seconds", minClockSkew)
	}
	return nil
}

// fillIn fills in what follows from the flags.
func (f *flags) fillIn(sinks *sinkRanges) (err error) {
	if f.options.SinkAllow, err = parsePrefixes("--sink-allow", sinks.allow); err != nil {
		return err
	}
	if f.options.SinkDeny, err = parsePrefixes("--sink-deny", sinks.deny); err != nil {
		return err
	}
	f.webhook.HTTP2, f.signingRules.Propagation = f.http2, keyPropagation
	if f.namespace == "" {
		text, err := os.ReadFile(namespaceFile)
		if err != nil {
			return errors.New("--namespace is required outside a cluster: the namespace of the operator")
		}
		f.namespace = strings.TrimSpace(string(text))
	}
	if f.webhookCertificate == selfSigned {
		f.selfSigned.Namespace = f.namespace
		f.webhook.SelfSigned = &f.selfSigned
	}
	f.webhook.Validation = validation.Options{
		AllowProtectedKinds:   f.options.AllowProtectedKinds,
		RequireServiceAccount: f.options.RequireServiceAccount,
		DefaultServiceAccount: f.options.DefaultServiceAccount,
		OperatorNamespace:     f.namespace,
	}
	return nil
}

func parsePrefixes(flag string, texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, t := range texts {
		p, err := netip.ParsePrefix(t)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is no address range: write it as 10.0.0.0/8 or fd00::/8", flag, t)
		}
		out = append(out, p)
	}
	return out, nil
}
