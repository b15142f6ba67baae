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
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/vtex/cleaner/api/protection"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/cmd/internal/protectedkinds"
	"github.com/vtex/cleaner/controllers"
	"github.com/vtex/cleaner/controllers/signing"
	"github.com/vtex/cleaner/webhooks"
)

const (
	// leaseName is the Lease by which earlier versions elect a leader, and which replicas hold together. It notes that there was a signing key. The names
	// of the other Leases begin with it.
	leaseName = "cleaner.vtex.dev"
	// minClockSkew is the smallest skew that the operator can measure: a Date has whole seconds, and a response takes time.
	minClockSkew = 2 * time.Second
	// minMemory is what the operator needs without objects, in bytes.
	minMemory = 64 << 20
	// keyPropagation is how long all replicas know a new signing key before it signs.
	keyPropagation = 10 * time.Minute
	// minKeyOverlap is the time that the operator needs to sign the authors of all Cleaners again.
	minKeyOverlap = 3 * time.Hour
	// namespaceFile contains the namespace of this process's Pod.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// flags are the settings of the command line.
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
	// serveWebhook says whether to serve the webhook. webhookCertificate says where its certificate comes from.
	serveWebhook       bool
	webhookCertificate string
	webhook            webhooks.Options
	selfSigned         webhooks.SelfSigned
	// signingSecret is the Secret with the signing keys, and signingRules says how they follow each other. newSigningKey
	// allows a new key in the place of a lost one.
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
	var memory resource.QuantityValue
	if err := f.declareFlags(&sinks, &memory).Parse(args); err != nil {
		return nil, err
	}
	if f.options.MemoryLimit = memory.Value(); f.options.MemoryLimit != 0 && f.options.MemoryLimit < minMemory {
		return nil, fmt.Errorf("--memory-limit must be at least %d MiB, or 0 for GOMEMLIMIT: the operator itself needs so much", minMemory>>20)
	}
	if f.version { // it ignores the other flags
		return f, nil
	}
	if err := f.checkBounds(); err != nil {
		return nil, err
	}
	return f, f.fillIn(&sinks)
}

// sinkRanges are the address ranges that events may and may not be sent to, as text.
type sinkRanges struct{ allow, deny []string }

// declareFlags returns the flags, which set fields of f, and the others.
func (f *flags) declareFlags(sinks *sinkRanges, memory *resource.QuantityValue) *pflag.FlagSet {
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	fs.StringVar(&f.namespace, "namespace", "", "namespace of the operator: its Leases are there, and it is protected (default: the namespace of its Pod)")
	fs.BoolVar(&f.leaderElect, "leader-elect", true, "divide the Cleaners among replicas, by Leases; if false, this process acts for all, and must be the only one")
	fs.StringVar(&f.metricsAddress, "metrics-bind-address", ":8443", "address on which metrics are served over HTTPS, to callers that may get /metrics; 0 turns them off")
	fs.StringVar(&f.metricsCertDir, "metrics-cert-dir", "", "folder with tls.crt and tls.key for the metrics (default: a self-signed certificate)")
	fs.StringVar(&f.probeAddress, "health-probe-bind-address", ":8081", "address on which /healthz and /readyz are served; 0 turns them off")
	fs.BoolVar(&f.http2, "enable-http2", false, "serve metrics and webhook over HTTP/2 too")
	fs.DurationVar(&f.shutdownTimeout, "shutdown-timeout", 25*time.Second, "how long the operator waits for work in progress when it stops")
	fs.Int8VarP(&f.verbosity, "verbosity", "v", 0, "how much to log: 0 logs each deletion before it is sent, 4 logs each request that a run decides on")
	fs.DurationVar(&f.options.MinInterval, "min-interval", controllers.DefaultMinInterval, "shortest time between two evaluations of one Cleaner")
	fs.DurationVar(&f.options.Settle, "settle", controllers.DefaultSettle, "how long deleted objects may still exist before a run continues without them")
	fs.BoolVar(&f.options.ObjectEvents, "object-events", true, "write an Event about each object that is cleaned, unless the Cleaner cleans more than 10 at a time")
	fs.DurationVar(&f.options.FinishGrace, "finish-grace", controllers.DefaultFinishGrace, "how long the operator holds a deleted Cleaner to finish its run and to report")
	fs.DurationVar(&f.maxClockSkew, "max-clock-skew", controllers.DefaultMaxClockSkew, "if this machine's clock differs from the API server's by more, the operator decides nothing and deletes nothing; 0 turns this off")
	fs.StringSliceVar(&f.options.ProtectedNamespaces, "protected-namespaces", protection.ProtectedNamespaces(), "namespaces in which nothing is deleted, in addition to the operator's own")
	fs.Var(protectedkinds.NewValue(&f.options.AllowProtectedKinds), "allow-protected-kinds", "protected resources that Cleaners may delete, as <resource> or <resource>.<group>")
	fs.StringSliceVar(&sinks.allow, "sink-allow", nil, "address ranges that events may be sent to, such as 10.0.0.0/8; Cleaners reach private ranges only if they are named here (default: all that are not refused)")
	fs.StringSliceVar(&sinks.deny, "sink-deny", nil, "address ranges that events may not be sent to")
	fs.BoolVar(&f.options.SinkAllowLoopback, "sink-allow-loopback", false, "allow events to this machine; for local runs")
	fs.IntVar(&f.options.Workers, "workers", controllers.DefaultWorkers, "how many Cleaners the operator handles at a time; namespaces share the workers")
	fs.IntVar(&f.options.Uninstalls, "uninstalls", controllers.DefaultUninstalls, "how many Helm releases the operator uninstalls at a time; namespaces share them")
	fs.Var(memory, "memory-limit", "memory that the operator may use, such as 680Mi; as it comes near, Cleaners wait that need the kind whose objects take most (default: GOMEMLIMIT)")
	fs.BoolVar(&f.options.RequireServiceAccount, "require-service-account", false, "refuse Cleaners that name no ServiceAccount, unless there is a default")
	fs.StringVar(&f.options.DefaultServiceAccount, "default-service-account", "", "ServiceAccount in the Cleaner's namespace that the operator acts as for Cleaners that name none (default: the operator itself)")
	fs.BoolVar(&f.serveWebhook, "webhook", true, "serve the webhook, which validates Cleaners and stores their authors")
	fs.StringVar(&f.webhookCertificate, "webhook-cert", selfSigned, "where the webhook's certificate comes from: self-signed (made and renewed by the operator) or files (of cert-manager, say)")
	fs.StringVar(&f.webhook.CertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs", "folder with tls.crt and tls.key for the webhook, where its Secret is mounted")
	fs.IntVar(&f.webhook.Port, "webhook-port", webhook.DefaultPort, "port on which the webhook is served")
	fs.StringVar(&f.webhook.ClientCA, "webhook-client-ca", "", "file with the certificate authority of the API server's client certificate; the webhook answers no other caller (default: it answers every caller)")
	fs.StringSliceVar(&f.webhook.ClientNames, "webhook-client-names", nil, "names that the client certificate may have, as common name or DNS name (default: all that --webhook-client-ca has signed)")
	fs.StringVar(&f.selfSigned.Secret, "webhook-secret", "cleaner-webhook-cert", "Secret in the operator's namespace that keeps the self-signed certificates")
	fs.StringVar(&f.selfSigned.Service, "webhook-service", "cleaner-webhook", "Service in the operator's namespace through which the API server calls the webhook")
	fs.StringVar(&f.selfSigned.Configuration, "webhook-configuration", "cleaner-webhook", "name of the ValidatingWebhookConfiguration and of the MutatingWebhookConfiguration; the operator writes the self-signed authority into both")
	fs.StringSliceVar(&f.webhook.AuthorExtraKeys, "author-extra-keys", nil, "extra attributes of a user that the operator stores with the author and uses when it reviews rights (default: none)")
	fs.BoolVar(&f.options.ActWithoutAuthor, "act-without-author", false, "let Cleaners without a known author act, with the operator's own rights or as the ServiceAccount that they name; for an upgrade, or for clusters without the webhook")
	fs.StringVar(&f.signingSecret, "signing-secret", "cleaner-signing-key", "Secret in the operator's namespace with the keys that sign authors and records")
	fs.DurationVar(&f.signingRules.Rotation, "signing-key-rotation", 90*24*time.Hour, "age at which a signing key gets a successor; 0 means never")
	fs.DurationVar(&f.signingRules.Overlap, "signing-key-overlap", 30*24*time.Hour, "how long a signing key is still accepted after its successor has started to sign")
	fs.BoolVar(&f.newSigningKey, "new-signing-key", false, "make a new signing key after one was lost; earlier signatures are no longer accepted")
	fs.BoolVar(&f.version, "version", false, "print the version, and exit")
	return fs
}

// checkBounds returns an error for flags that exclude each other or are out of range.
func (f *flags) checkBounds() error {
	rotation := f.signingRules.Rotation
	switch {
	case f.webhookCertificate != selfSigned && f.webhookCertificate != files:
		return fmt.Errorf("--webhook-cert: %q is not a source of certificates: write %s or %s", f.webhookCertificate, selfSigned, files)
	case len(f.webhook.ClientNames) > 0 && f.webhook.ClientCA == "":
		return errors.New("--webhook-client-names needs --webhook-client-ca, which verifies them")
	case f.options.Workers < 1 || f.options.Uninstalls < 1:
		return errors.New("--workers and --uninstalls must be at least 1")
	case rotation < 0 || rotation > 0 && rotation < time.Hour || f.signingRules.Overlap < minKeyOverlap:
		return fmt.Errorf("--signing-key-rotation must be 0 or at least 1h, and --signing-key-overlap at least %s: the operator needs this time to sign every author again", minKeyOverlap)
	case f.maxClockSkew < 0 || f.maxClockSkew > 0 && f.maxClockSkew < minClockSkew:
		return fmt.Errorf("--max-clock-skew must be 0 or at least %s: the Date header of the API server has whole seconds", minClockSkew)
	}
	return nil
}

// fillIn derives the other settings from the flags.
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
			return errors.New("--namespace is required outside a cluster: set it to the namespace of the operator")
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
			return nil, fmt.Errorf("%s: %q is not an address range: write one such as 10.0.0.0/8 or fd00::/8", flag, t)
		}
		out = append(out, p)
	}
	return out, nil
}
