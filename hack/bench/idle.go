// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/vtex/cleaner/test/operator"
)

// listen is for how long idle Cleaners are listened to.
const listen = time.Minute

// idle measures what Cleaners cost that wait for their conditions: requests, and memory.
func idle(ctx context.Context, r *rig, s sizes) ([]figure, error) {
	ns, err := r.Namespace(ctx, "idle")
	if err != nil {
		return nil, err
	}
	if err := r.fixtures.gate(ctx, ns, "gate"); err != nil {
		return nil, err
	}
	empty, err := r.heap(ctx)
	if err != nil {
		return nil, err
	}
	add := func(from, to int) error {
		err := each(to-from, makers, func(i int) error {
			name := member(from + i)
			return r.admin.Create(ctx, gated(ns, name, "gate", name))
		})
		if err != nil {
			return err
		}
		return r.fixtures.waits(ctx, ns, to)
	}
	if err := add(0, s.idle); err != nil {
		return nil, err
	}
	made, err := r.listen(ctx)
	if err != nil {
		return nil, err
	}
	if err := add(s.idle, s.many); err != nil {
		return nil, err
	}
	full, err := r.heap(ctx)
	if err != nil {
		return nil, err
	}
	return []figure{
		{What: fmt.Sprintf("API requests of %d idle Cleaners in a minute, beyond the Lease and watches", s.idle), Value: fmt.Sprint(made), Aim: "0"},
		{What: fmt.Sprintf("Heap per idle Cleaner at %d", s.many), Value: fmt.Sprintf("%.1f KiB", (full-empty)/float64(s.many)/1024)},
	}, nil
}

// listen counts what the operator asks of the API server in a minute. The reports of what has just happened are waited
// for first: they are written at most once a second for each Cleaner.
func (r *rig) listen(ctx context.Context) (int, error) {
	count := func() (int, error) {
		events, err := r.audit.Events()
		if err != nil {
			return 0, err
		}
		n := 0
		for _, e := range events {
			if e.By(operator.User) && e.Verb != "watch" && (e.ObjectRef == nil || e.ObjectRef.Resource != "leases") {
				n++
			}
		}
		return n, nil
	}
	if err := pause(ctx, 5*time.Second); err != nil {
		return 0, err
	}
	before, err := count()
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, listen); err != nil {
		return 0, err
	}
	after, err := count()
	return after - before, err
}

// heap is what the operator's heap holds after a garbage collection that begins from now on: the runtime forces one at
// least every two minutes.
func (r *rig) heap(ctx context.Context) (float64, error) {
	first, err := r.metrics(ctx)
	if err != nil {
		return 0, err
	}
	smallest, looks := 0.0, 0
	err = wait.PollUntilContextTimeout(ctx, time.Second, patience, false, func(ctx context.Context) (bool, error) {
		now, err := r.metrics(ctx)
		if err != nil || now["go_memstats_last_gc_time_seconds"] == first["go_memstats_last_gc_time_seconds"] {
			return false, err
		}
		if held := now["go_memstats_heap_alloc_bytes"]; looks == 0 || held < smallest { // sweeping takes some time
			smallest = held
		}
		looks++
		return looks == 5, nil
	})
	if err != nil {
		return 0, fmt.Errorf("cannot see a garbage collection: %w", err)
	}
	return smallest, nil
}

// metrics are those of the operator.
func (r *rig) metrics(ctx context.Context) (map[string]float64, error) {
	return r.metricsOf(ctx, r.proc)
}

// metricsOf are the metrics of a replica, with their labels.
func (r *rig) metricsOf(ctx context.Context, replica *operator.Process) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, replica.Metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+r.as.BearerToken)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // self-signed
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot read the metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("cannot read the metrics: %s", resp.Status)
	}
	values := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			values[name] = value
		}
	}
	return values, lines.Err()
}
