// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestDoors shows that what is sent to the ports of an operator that has nothing to do takes little of its memory.
func TestDoors(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs a control plane")
	}
	p := &play{T: t, env: shared, ctx: t.Context(), people: map[string]*objects{}, servers: serve(t)}
	p.run()
	t.Run("MillionRules", p.millionRules)
	t.Run("Probes", p.probes)
	(&witness{play: p}).judgeProcess(t)
}

// millionRules sends four Cleaners of a million rules through the API server, which asks the webhook before it holds them against
// the schema: they are refused at once, and take no memory to speak of.
func (p *play) millionRules(t *testing.T) {
	const most, long, tries = 64 << 20, 2 * time.Minute, 3
	config := p.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: senders()["editor"].user}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	const namespace = "million-rules"
	if err := p.makeNamespace(p.ctx, namespace, "editor"); err != nil {
		t.Fatal(err)
	}
	p.await("the rights of the editor", func(ctx context.Context) string {
		if allowed, err := p.mayCreate(ctx, senders()["editor"].user, namespace); err != nil || !allowed {
			return fmt.Sprint(err)
		}
		return ""
	})
	before, err := highWater(p.manager.PID())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			body := fmt.Sprintf(`{"apiVersion": "cleaner.vtex.dev/v1alpha1", "kind": "Cleaner", "metadata": {"name": "m-%d", "managedFields": [{}]}, "spec": {"ttl": "1d", "rules": [%s{}]}}`, i, strings.Repeat("{},", 950_000))
			const want = "spec.rules: has far more entries than are allowed: it would take more than 4 MiB of memory: leave some out"
			var answer string
			for range tries { // a busy API server may give up before it has the webhook's answer
				code, text, err := post(t.Context(), client, config.Host+"/apis/cleaner.vtex.dev/v1alpha1/namespaces/"+namespace+"/cleaners", body)
				if err == nil && code == http.StatusUnprocessableEntity && strings.Contains(text, want) {
					return
				}
				if answer = fmt.Sprintf("%d %s %v", code, shortened(text), err); code != http.StatusInternalServerError && code != http.StatusGatewayTimeout {
					break
				}
			}
			t.Errorf("the answer is %s", answer)
		})
	}
	all.Wait()
	if took := time.Since(began); took > long {
		t.Errorf("the answers took %s", took)
	}
	after, err := highWater(p.manager.PID())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("answered in %s; the operator has had %d MiB before, and %d MiB after", time.Since(began), before>>20, after>>20)
	if after-before > most {
		t.Errorf("the operator has had %d MiB more", (after-before)>>20)
	}
}

// post sends JSON, and returns what is answered.
func post(ctx context.Context, client *http.Client, url, body string) (code int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(all), err
}

// probes opens more than a thousand connections to the port of the probes, each with a megabyte of header that does not end.
func (p *play) probes(t *testing.T) {
	const connections, header, most = 1200, 1 << 20, 64 << 20
	address := strings.TrimPrefix(p.manager.Probes, "http://")
	before, err := highWater(p.manager.PID())
	if err != nil {
		t.Fatal(err)
	}
	sent := append([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: "), bytes.Repeat([]byte("x"), header)...)
	var all sync.WaitGroup
	slots := make(chan struct{}, 64)
	for range connections {
		slots <- struct{}{}
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all.Go(func() {
			defer func() { <-slots }()
			_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
			_, _ = c.Write(sent) // it is cut off
		})
	}
	all.Wait()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("the kubelet has no answer: %v", err)
	}
	_ = resp.Body.Close()
	after, err := highWater(p.manager.PID())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the operator has had %d MiB before, and %d MiB after", before>>20, after>>20)
	if resp.StatusCode != http.StatusOK || after-before > most {
		t.Errorf("the kubelet has %s, and the operator has had %d MiB more", resp.Status, (after-before)>>20)
	}
}
