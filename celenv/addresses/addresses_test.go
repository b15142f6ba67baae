// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"encoding/json"
	"go/build"
	"math"
	"net/netip"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The cases of testdata are those of everything that counts addresses: the function cidrUsable of expressions
// (celenv), the template pod-ip-pressure (config/templates) and the scheduler's plugin (scheduler) are held to them too.
func TestUsable(t *testing.T) {
	text, err := os.ReadFile("testdata/ranges.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		CIDR             string
		Reserved, Usable int64
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 20 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		if got := CountUsable(netip.MustParsePrefix(c.CIDR), c.Reserved); got != c.Usable {
			t.Errorf("%s less %d: want %d, got %d", c.CIDR, c.Reserved, c.Usable, got)
		}
	}
}

// Of small ranges the addresses can be counted one by one.
func TestUsableByCounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr := netip.AddrFrom4([4]byte{10, 1, 2, 3})
		if rapid.Bool().Draw(t, "IPv6") {
			addr = netip.MustParseAddr("fd00::1:2:3")
		}
		r := netip.PrefixFrom(addr, addr.BitLen()-rapid.IntRange(0, 10).Draw(t, "bits"))
		reserved := rapid.Int64Range(0, 40).Draw(t, "reserved")
		n := int64(0)
		for a := r.Masked().Addr(); a.IsValid() && r.Contains(a); a = a.Next() {
			n++
		}
		if got, want := CountUsable(r, reserved), max(0, n-reserved); got != want {
			t.Fatalf("%s less %d: %d, and %d are counted", r, reserved, got, want)
		}
	})
}

// Whatever the range and whatever is reserved, the number fits, and more that is reserved never makes it larger.
func TestUsableIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := netip.PrefixFrom(netip.MustParseAddr("fd00::"), rapid.IntRange(0, 128).Draw(t, "bits"))
		less := rapid.Int64Range(0, math.MaxInt64-1).Draw(t, "reserved")
		a, b := CountUsable(r, less), CountUsable(r, less+1)
		if b < 0 || b > a {
			t.Fatalf("%s: %d less %d, %d less one more", r, a, less, b)
		}
	})
}

// The scheduler's module imports this package, and nothing else of this module must come along.
func TestImportsTheStandardLibraryAlone(t *testing.T) {
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pkg.Imports {
		if strings.Contains(path, ".") {
			t.Errorf("it imports %s", path)
		}
	}
}
