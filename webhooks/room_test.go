// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// TestSlowReviewsLeaveRoomForOthers shows that reviews that two addresses begin and do not end keep no other address from its
// answer, and that they are told to try again.
func TestSlowReviewsLeaveRoomForOthers(t *testing.T) {
	hooks := webhook.NewServer(webhook.Options{})
	for path, handler := range newHandlers(town(t, nil), clock.RealClock{}) {
		hooks.Register(path, handler)
	}
	server := httptest.NewServer(hooks.WebhookMux())
	defer server.Close()
	var slow []*bufio.Reader
	for i := range maxRequests {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%2))}}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n{", Path); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		if line, err := in.ReadString('\n'); !strings.Contains(line, "100 Continue") { // the body is read from now on
			t.Fatalf("answered %q, %v", line, err)
		}
		_, _ = in.ReadString('\n')
		slow = append(slow, in)
	}
	for range 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+Path, strings.NewReader(reviewOf("Cleaner", marshal(t, podsOf()), "")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("another address is answered %d", resp.StatusCode)
		}
	}
	resp, err := http.ReadResponse(slow[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the first that was slow is answered %d, %v", resp.StatusCode, resp.Header)
	}
}
