// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows the operator at work, on a control plane that it starts on this machine. In the first act the environment of one
// commit, two Knative Services in a Helm release, is cleaned up when its Revisions are no longer used. In the second a Node is lost, and
// a ClusterCleaner deletes its Pods: first in DryRun, then in earnest. In the third another one gives the addresses of these Pods back to
// a pool of Spiderpool. In the fourth one reports that two pools overlap. Before them, a tenant tries to do more than they may, and is
// refused; after them stands what of all that the originals do.
//
// Everything is real but Nodes and what runs on them: etcd, kube-apiserver and kube-controller-manager, the operator as the built binary
// with the rights of its ServiceAccount, Knative's CRDs, the Helm release, and the receiver of the CloudEvent. Spiderpool does not
// run: the tests' CRDs define five of its kinds, after what it documents. It needs Go and no cluster, and ends every process that it
// started.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/sink"
)

func main() {
	keep := pflag.Bool("keep", false, "leave everything running until Ctrl-C, to play with")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(logr.Discard())
	err := run(ctx, *keep)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		fmt.Println("\nStopped. Every process that was started has ended.")
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run starts everything, tells the story, and stops everything.
func run(ctx context.Context, keep bool) (err error) {
	t := newTeller(os.Stdout)
	t.chapter("A control plane on this machine")
	t.say("etcd, kube-apiserver and kube-controller-manager, built from Go modules: the first time takes ten minutes.")
	c, err := cluster.Start(ctx, cluster.Options{Log: os.Stdout, APIServerFlags: operator.Routing()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()

	t.chapter("The operator")
	t.say("Building and installing it: config/default, which has CRDs, rights, presets, the webhook and a policy; and the preset helm.")
	if err := install(ctx, c); err != nil {
		return err
	}
	t.say("It runs as %s, with no rights but its own, and serves the webhook.", operator.User)

	received := sink.New()
	defer received.Close()
	url, err := serve(ctx, received)
	if err != nil {
		return err
	}
	s, err := newStory(c, t)
	if err != nil {
		return err
	}
	for _, act := range []func(context.Context) error{
		tenantAct{s}.tell, previewAct{s, received, url}.tell, nodeAct{s}.tell, poolAct{s}.tell, conflictAct{s}.tell, s.compare,
	} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	kubeconfig := filepath.Join(c.Dir(), "admin.kubeconfig")
	if !keep {
		t.say("To play with it: make demo ARGS=--keep")
		return nil
	}
	t.chapter("Yours")
	t.say("export KUBECONFIG=%s", kubeconfig)
	t.say("%s get cleaning -A", c.KubectlPath())
	t.say("A CloudEvents receiver listens at %s, and the operator logs to %s.", url, filepath.Join(c.Dir(), "manager.log"))
	t.say("Ctrl-C ends it all.")
	<-ctx.Done()
	return nil
}

// install installs the operator and Knative's kinds, and runs the operator.
func install(ctx context.Context, c *cluster.Cluster) error {
	binary, err := operator.Build(ctx, c.Dir(), os.Stdout)
	if err != nil {
		return err
	}
	if err := operator.InstallWithWebhook(ctx, c); err != nil {
		return err
	}
	if err := operator.Grant(ctx, c, "helm", authorizationv1.ResourceAttributes{Verb: "delete", Resource: "secrets"}); err != nil {
		return err
	}
	gate, err := operator.OpenGate(ctx, c)
	if err != nil {
		return err
	}
	knative, err := cluster.KnativeServingCRDs(ctx)
	if err != nil {
		return err
	}
	if err := cluster.InstallCRDs(ctx, c.Config(), knative...); err != nil {
		return err
	}
	_, err = operator.Run(ctx, c, operator.Options{Binary: binary, Webhook: gate})
	return err
}

// serve serves the receiver of CloudEvents on a loopback address until ctx is done.
func serve(ctx context.Context, h http.Handler) (url string, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("cannot listen: %w", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "demo: the receiver of CloudEvents stopped:", err)
		}
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() }) // nothing receives an error at the end of the demo
	return "http://" + l.Addr().String(), nil
}

// proposal is the sample with another ttl and sink: all else is as it was proposed.
func proposal(url string) (string, error) {
	root, err := operator.Root()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, "config", "samples", "cleaner_v1alpha_preview.yaml"))
	if err != nil {
		return "", fmt.Errorf("cannot read the sample: %w", err)
	}
	return strings.NewReplacer("ttl: 360h", "ttl: 10s ", "http://my-sink", url).Replace(string(text)), nil
}
