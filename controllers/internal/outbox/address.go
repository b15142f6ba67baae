// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// CheckSink says what is wrong with the shape of a sink's URL, for its author. What the host's name stands for is
// checked when it is connected to, each time.
func CheckSink(rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // without the URL, which may hold a password
		}
		return fmt.Errorf("is not a URL: %w", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must begin with http:// or https://")
	case u.User != nil:
		return errors.New("must not hold a user or a password: everyone who can read the Cleaner could read them, and they are not sent")
	case u.Hostname() == "":
		return errors.New("must name a host, such as http://sink.my-namespace.svc")
	case strings.Contains(rawURL, "#"):
		return errors.New("must not have a fragment (#): it is never sent")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("must have a port between 1 and 65535, not %q", port)
		}
	}
	return nil
}

// Policy says which addresses may be connected to. Loopback, link-local and multicast addresses, those of cloud
// metadata services, and all ways to write them in IPv6 are refused whatever Allow says.
type Policy struct {
	// AllowLoopback permits loopback addresses, for runs on one machine.
	AllowLoopback bool
	// Allow, unless empty, holds all addresses that may be connected to.
	Allow []netip.Prefix
	// Deny holds addresses that may not.
	Deny []netip.Prefix
}

var (
	// errRefused is what a connection to an address that the Policy does not permit fails with.
	errRefused = errors.New("the address is refused")
	// errUnknownCluster is the error of a connection while the cluster's own addresses are not known.
	errUnknownCluster = errors.New("the cluster's own addresses are not known")
)

// dialPolicy says which addresses the sinks of some Cleaners may have.
type dialPolicy struct {
	Policy
	// forTenants says that these Cleaners are written by people of one namespace: private addresses are refused, except those
	// in a range of Allow that is a part of the private one, and so are the cluster's own.
	forTenants bool
	// clusterAddresses are the addresses of the API server and the nodes, for tenants.
	clusterAddresses map[netip.Addr]bool
}

// checkAddress refuses a connection by the address that it is about to be made to, whatever name was resolved to it.
func (s dialPolicy) checkAddress(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !s.allowsAddress(to.Addr()) {
		return errRefused
	}
	return nil
}

func (s dialPolicy) allowsAddress(addr netip.Addr) bool {
	addr = normalizeAddress(addr)
	for _, form := range append(extractIPv4(addr), addr) {
		if containsAddress(s.Deny, form) || s.isNeverAllowed(form) || s.forTenants && s.isDeniedToTenants(form) {
			return false
		}
	}
	return len(s.Allow) == 0 || containsAddress(s.Allow, addr)
}

// isNeverAllowed says that no configuration permits the address.
func (s dialPolicy) isNeverAllowed(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return !s.AllowLoopback
	}
	return addr.IsUnspecified() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || containsAddress(specialPrefixes(), addr)
}

// isDeniedToTenants says that the address is no matter of a tenant: the cluster's own, or private and not allowed.
func (s dialPolicy) isDeniedToTenants(addr netip.Addr) bool {
	switch {
	case addr.IsLoopback(): // isNeverAllowed has decided on it; on one machine the API server has the same
		return false
	case s.clusterAddresses[addr]:
		return true
	}
	for _, p := range privatePrefixes() {
		opened := func(a netip.Prefix) bool { return a.Contains(addr) && a.Bits() >= p.Bits() }
		if p.Contains(addr) && !slices.ContainsFunc(s.Allow, opened) { // 0.0.0.0/0 allows what is public, and opens nothing
			return true
		}
	}
	return false
}

// normalizeAddress returns an address in the one form that others are compared with.
func normalizeAddress(addr netip.Addr) netip.Addr { return addr.WithZone("").Unmap() }

// privatePrefixes are the addresses that mean another host in each network: Pods, Services, and machines of the same network.
func privatePrefixes() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("100.64.0.0/10"), // shared by providers, and used for Pods
		netip.MustParsePrefix("192.0.0.0/24"),  // protocol assignments
		netip.MustParsePrefix("198.18.0.0/15"), // benchmarks
		netip.MustParsePrefix("240.0.0.0/4"),   // reserved, and used for Pods
		netip.MustParsePrefix("fc00::/7"),      // unique local
		netip.MustParsePrefix("fec0::/10"),     // site-local
	}
}

// specialPrefixes are the addresses that netip has no name for and that no sink has.
func specialPrefixes() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),          // "this host"
		netip.MustParsePrefix("255.255.255.255/32"), // broadcast
		netip.MustParsePrefix("100.100.100.200/32"), // metadata: Alibaba Cloud
		netip.MustParsePrefix("168.63.129.16/32"),   // metadata: Azure
		netip.MustParsePrefix("192.0.0.192/32"),     // metadata: Oracle Cloud
		netip.MustParsePrefix("fd00:ec2::/32"),      // metadata: AWS
		netip.MustParsePrefix("fd20:ce::254/128"),   // metadata: Google Cloud
		netip.MustParsePrefix("fd00:c1::/32"),       // metadata: Oracle Cloud
		netip.MustParsePrefix("fd00:a9fe::/32"),     // metadata: Akamai
		netip.MustParsePrefix("fd00:42::42/128"),    // metadata: Scaleway
		netip.MustParsePrefix("64:ff9b:1::/48"),     // local NAT64: where the IPv4 address lies in it is not known
		netip.MustParsePrefix("2001::/32"),          // Teredo
	}
}

// extractIPv4 returns the IPv4 addresses that an IPv6 address can stand for.
func extractIPv4(addr netip.Addr) []netip.Addr {
	if addr.Is4() || addr.IsLoopback() || addr.IsUnspecified() {
		return nil
	}
	forms := []struct {
		prefix string
		offset int
	}{
		{"::/96", 12},           // IPv4-compatible
		{"::ffff:0:0:0/96", 12}, // IPv4-translated
		{"64:ff9b::/96", 12},    // NAT64
		{"2002::/16", 2},        // 6to4
	}
	var all []netip.Addr
	for _, f := range forms {
		if netip.MustParsePrefix(f.prefix).Contains(addr) {
			b := addr.As16()
			all = append(all, netip.AddrFrom4([4]byte(b[f.offset:f.offset+4])))
		}
	}
	return all
}

func containsAddress(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
