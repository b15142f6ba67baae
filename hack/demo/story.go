// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
)

// story is what the demo shows.
type story struct {
	*teller
	client  client.WithWatch
	cluster *cluster.Cluster
	audit   *cluster.Witness
	// told are the actions that were told.
	told []string
	// pods are the UIDs of the Pods of the second act, by name.
	pods map[string]types.UID
}

func newStory(c *cluster.Cluster, t *teller) (*story, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	w, err := client.NewWithWatch(c.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	audit, err := c.Witness()
	if err != nil {
		return nil, err
	}
	return &story{teller: t, client: w, cluster: c, audit: audit}, nil
}

// follow tells each change of what a Cleaner says of itself, until it is gone, or until what is done about a reason says
// that this is over.
func (s *story) follow(ctx context.Context, w watch.Interface, on func(c v1alpha1.Owner, reason string) (over bool, err error)) error {
	var said string
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-w.ResultChan():
			c, is := e.Object.(v1alpha1.Owner)
			switch {
			case !ok:
				return errors.New("cannot watch Cleaners: the watch ended")
			case !is:
				continue
			case e.Type == watch.Deleted:
				s.say("The Cleaner is gone.")
				return nil
			}
			ready := meta.FindStatusCondition(c.State().Conditions, v1alpha1.ConditionReady)
			if ready == nil || said == ready.Reason+ready.Message {
				continue
			}
			said = ready.Reason + ready.Message
			s.say("%s: %s%s", ready.Reason, ready.Message, next(c))
			if over, err := on(c, ready.Reason); over || err != nil {
				return err
			}
		}
	}
}

// next says until when a Cleaner waits if nothing happens.
func next(c v1alpha1.Owner) string {
	at := c.State().NextScheduledEvaluation
	if at == nil {
		return ""
	}
	return fmt.Sprintf(" [looks again at %s]", at.Local().Format(time.TimeOnly))
}

func short[T ~string](p *T) string {
	return value(p)[:min(8, len(value(p)))]
}

func value[T ~string](p *T) string {
	if p == nil {
		return "-"
	}
	return string(*p)
}
