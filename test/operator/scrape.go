// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// Scrape reads the metrics of a manager, whose certificate is self-signed, with the token of a config; nil: without one.
func Scrape(ctx context.Context, url string, as *rest.Config) (status int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, "", fmt.Errorf("cannot read metrics: %w", err)
	}
	if as != nil {
		req.Header.Set("Authorization", "Bearer "+as.BearerToken)
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer c.CloseIdleConnections() // a caller may have so many, and no more
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("cannot read metrics: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", fmt.Errorf("cannot read metrics: %w", err)
	}
	return resp.StatusCode, string(body), nil
}
