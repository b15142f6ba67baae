// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestAFloodDelaysOthersByOneTurn shows that turns are taken one at a time, and that who waits behind many of one address does not
// wait for them all.
func TestAFloodDelaysOthersByOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns()
		order := make(chan string, 16)
		take := func(address string) {
			go func() {
				end, ok := turns.Take(t.Context(), address)
				if !ok {
					t.Error("there was no turn")
				}
				order <- address
				end()
			}()
		}
		end, _ := turns.Take(t.Context(), "10.0.0.1:1")
		for range 8 {
			take("10.0.0.1:2")
		}
		synctest.Wait()
		take("10.0.0.2:1")
		synctest.Wait()
		if len(order) > 0 {
			t.Error("two have a turn")
		}
		end()
		first, second := <-order, <-order
		if first != "10.0.0.2:1" && second != "10.0.0.2:1" {
			t.Errorf("another address comes after %s and %s", first, second)
		}
		for range 7 {
			<-order
		}
		synctest.Wait()
		if n := len(turns.byCaller); n > 0 {
			t.Errorf("%d callers are remembered", n)
		}
	})
}

// TestATurnIsNotWaitedForBeyondTheTime shows that whose time is over does not wait, and leaves nothing behind.
func TestATurnIsNotWaitedForBeyondTheTime(t *testing.T) {
	turns := NewTurns()
	end, _ := turns.Take(t.Context(), "10.0.0.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, address := range []string{"10.0.0.1:1", "10.0.0.2:1"} {
		if _, ok := turns.Take(ctx, address); ok {
			t.Errorf("%s has a turn", address)
		}
	}
	end()
	if len(turns.byCaller) > 0 || len(turns.all) > 0 {
		t.Error("something is left")
	}
}
