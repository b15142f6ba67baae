// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"net/netip"
	"strings"
	"testing"
)

func TestPermits(t *testing.T) {
	var usual dialPolicy
	loopback := dialPolicy{Policy: Policy{AllowLoopback: true}}
	narrow := dialPolicy{Policy: Policy{
		Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("64:ff9b::/96")},
		Deny:  []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
	}}
	own := map[netip.Addr]bool{}
	for _, addr := range []string{"10.96.0.1", "10.5.0.1", "34.1.2.3", "2001:db8::1", "127.0.0.1", "127.0.0.9"} {
		own[netip.MustParseAddr(addr)] = true
	}
	tenant := dialPolicy{forTenants: true, clusterAddresses: own}
	inside := dialPolicy{Policy: Policy{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("34.0.0.0/8"), netip.MustParsePrefix("64:ff9b::/96")}}, forTenants: true, clusterAddresses: own}
	wide := dialPolicy{Policy: Policy{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("10.96.0.0/12")}}, forTenants: true, clusterAddresses: own}
	here := dialPolicy{Policy: Policy{AllowLoopback: true}, forTenants: true, clusterAddresses: own}
	cases := map[string]struct {
		reason string
		policy dialPolicy
		want   bool
		addrs  string
	}{
		"Usual": {"sinks live in the cluster and elsewhere", usual, true,
			"10.0.0.1 172.16.3.4 192.168.1.1 100.64.0.1 8.8.8.8 fd12:3456::1 2606:4700::1111"},
		"UsualInOtherForms": {"an IPv6-only cluster reaches IPv4 so", usual, true,
			"::ffff:10.0.0.1 64:ff9b::808:808 2002:808:808::1"},
		"Loopback": {"the operator's own ports", usual, false,
			"127.0.0.1 127.1.2.3 ::1 ::ffff:127.0.0.1 ::127.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::7f00:1 2002:7f00:1::1"},
		"LoopbackAllowed": {"a run on one machine", loopback, true, "127.0.0.1 ::1 ::ffff:127.0.0.1"},
		"LinkLocal": {"metadata of most clouds", usual, false,
			"169.254.169.254 169.254.0.1 fe80::1 fe80::1%eth0 ::ffff:169.254.169.254 ::169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::"},
		"LinkLocalWithLoopback": {"one permission is not another", loopback, false, "169.254.169.254 fe80::1 0.0.0.0 ::"},
		"Metadata":              {"metadata elsewhere", usual, false, "fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:c1::a9fe:a9fe fd00:a9fe:a9fe::1 fd00:42::42 100.100.100.200 168.63.129.16 192.0.0.192 ::ffff:100.100.100.200"},
		"Multicast":             {"nobody in particular", usual, false, "224.0.0.1 239.255.255.250 ff02::1 ::ffff:224.0.0.1 64:ff9b::e000:1 255.255.255.255"},
		"Unspecified":           {"means this host on Linux", usual, false, "0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0 ::ffff:0.1.2.3 64:ff9b::1 2002::1"},
		"Tunnels":               {"what is inside is not known", usual, false, "64:ff9b:1::a9fe:a9fe 64:ff9b:1:a9fe:a9:fe00:: 2001::1"},
		"Allowed":               {"in Allow", narrow, true, "10.0.0.1 ::ffff:10.0.0.1 64:ff9b::808:808"},
		"NotAllowed":            {"not in Allow", narrow, false, "8.8.8.8 fd12:3456::1 127.0.0.1"},
		"Denied":                {"in Deny, however it is written", narrow, false, "10.1.0.1 ::ffff:10.1.0.1 64:ff9b::a01:1"},
		"TenantPublic":          {"receivers elsewhere", tenant, true, "8.8.8.8 2606:4700::1111 64:ff9b::808:808 2002:808:808::1"},
		"TenantPrivate": {"other tenants, and machines of the network", tenant, false,
			"10.0.0.1 172.16.3.4 172.31.255.255 192.168.1.1 100.64.0.1 198.18.0.1 240.0.0.1 fd12:3456::1 fec0::1 ::ffff:10.0.0.1 ::10.0.0.1 ::ffff:0:10.0.0.1 64:ff9b::a00:1 2002:a00:1::1"},
		"TenantPrivateAllowed":      {"in --sink-allow", inside, true, "10.0.0.1 ::ffff:10.0.0.1 64:ff9b::a00:1"},
		"TenantPrivateOtherAllowed": {"not in --sink-allow", inside, false, "172.16.3.4 192.168.1.1 8.8.8.8 64:ff9b::c0a8:1 fd12::1"},
		"TenantWide":                {"all that is public, and Services", wide, true, "8.8.8.8 2606:4700::1111 10.96.0.2 10.111.255.255"},
		"TenantWideOpensNoPrivate":  {"what is wider than a private range is not about it", wide, false, "10.0.0.1 10.112.0.1 192.168.1.1 172.16.3.4 fd12::1 ::ffff:10.0.0.1"},
		"TenantCluster": {"the API server and nodes, also in --sink-allow", inside, false,
			"10.96.0.1 10.5.0.1 34.1.2.3 ::ffff:10.96.0.1 64:ff9b::a60:1 64:ff9b::2201:203"},
		"TenantClusterPublic": {"the API server and nodes, where anybody can reach them", tenant, false, "34.1.2.3 2001:db8::1 2001:db8::1%eth0 2002:2201:203::1"},
		"TenantLoopback":      {"one machine is all of a cluster", here, true, "127.0.0.1 127.0.0.9 ::1"},
		"TenantNotHere":       {"the operator's own ports", tenant, false, "127.0.0.1 127.0.0.2 ::1"},
		"NeverAllowed":        {"Allow opens nothing", narrow, false, "169.254.169.254"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, addr := range strings.Fields(tc.addrs) {
				if got := tc.policy.allowsAddress(netip.MustParseAddr(addr)); got != tc.want {
					t.Errorf("%s: permits(%s) = %v", tc.reason, addr, got)
				}
				to := netip.AddrPortFrom(netip.MustParseAddr(addr), 80).String()
				if err := tc.policy.checkAddress("tcp", to, nil); (err == nil) != tc.want {
					t.Errorf("%s: control(%q) = %v", tc.reason, to, err)
				}
			}
		})
	}
}

func TestControlRefusesWhatIsNoAddress(t *testing.T) {
	for _, address := range []string{"", "localhost:80", "/var/run/docker.sock", "10.0.0.1"} {
		if err := (dialPolicy{}).checkAddress("tcp", address, nil); err == nil {
			t.Errorf("%q was permitted", address)
		}
	}
}

func TestCheckSink(t *testing.T) {
	cases := map[string]struct {
		reason string
		sink   string
		want   string // a part of the message; empty: none
	}{
		"HTTP":       {"as in the proposal", "http://my-sink", ""},
		"HTTPS":      {"with all that it may have", "https://sink.ns.svc:8443/path?a=b", ""},
		"UpperCase":  {"schemes have no case", "HTTPS://SINK", ""},
		"IPv6":       {"an address", "http://[fd12::1]:80/", ""},
		"Scheme":     {"nothing else is spoken", "ftp://sink", "http://"},
		"File":       {"nothing else is spoken", "file:///etc/passwd", "http://"},
		"NoScheme":   {"a host alone", "my-sink", "http://"},
		"Opaque":     {"the slashes are missing", "http:my-sink", "host"},
		"NoHost":     {"nowhere to go", "http:///path", "host"},
		"PortAlone":  {"nowhere to go", "http://:80", "host"},
		"User":       {"credentials do not belong there", "http://me:secret@sink", "password"},
		"Fragment":   {"it is never sent", "http://sink/#x", "fragment"},
		"Hash":       {"an empty one neither", "http://sink/#", "fragment"},
		"Port":       {"no such port", "http://sink:70000", "70000"},
		"PortZero":   {"no such port", "http://sink:0", "port"},
		"NotParsed":  {"the message names no part of the URL before the host", "http://me:secret@sink:x", "not a URL"},
		"Whitespace": {"a typing error", "http://my sink", "not a URL"},
		"Empty":      {"none at all", "", "http://"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := CheckSink(tc.sink)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s: %v", tc.reason, err)
			case tc.want != "" && err == nil:
				t.Errorf("%s: %q passed", tc.reason, tc.sink)
			case tc.want != "" && !strings.Contains(err.Error(), tc.want):
				t.Errorf("%s: %q does not mention %q", tc.reason, err, tc.want)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("the password is in the message: %v", err)
			}
		})
	}
}
