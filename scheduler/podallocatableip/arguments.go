// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package podallocatableip

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Arguments are the args of the plugin's pluginConfig.
type Arguments struct {
	// ReservedIPv4 is how many addresses of an IPv4 range no Pod gets. By default 3, as with the CNI plugin host-local: the
	// network, the gateway and the broadcast.
	ReservedIPv4 int64 `json:"reservedIPv4"`
	// ReservedIPv6 is how many addresses of an IPv6 range no Pod gets. By default 2: the first one and the gateway.
	ReservedIPv6 int64 `json:"reservedIPv6"`
}

// readArguments reads the arguments in a KubeSchedulerConfiguration. It refuses unknown fields, so that a typo is not ignored.
func readArguments(object runtime.Object) (Arguments, error) {
	a := Arguments{ReservedIPv4: 3, ReservedIPv6: 2}
	switch args := object.(type) {
	case nil:
	case *runtime.Unknown:
		if err := yaml.UnmarshalStrict(args.Raw, &a); err != nil { // JSON is YAML
			return Arguments{}, fmt.Errorf("cannot read the args of %s: %w; write such as {reservedIPv4: 3, reservedIPv6: 2}", Name, err)
		}
	default:
		return Arguments{}, fmt.Errorf("the args of %s are of type %T: write such as {reservedIPv4: 3, reservedIPv6: 2}", Name, object)
	}
	var errs field.ErrorList
	if a.ReservedIPv4 < 0 {
		errs = append(errs, field.Invalid(field.NewPath("args", "reservedIPv4"), a.ReservedIPv4, "write 0 or more"))
	}
	if a.ReservedIPv6 < 0 {
		errs = append(errs, field.Invalid(field.NewPath("args", "reservedIPv6"), a.ReservedIPv6, "write 0 or more"))
	}
	return a, errs.ToAggregate()
}

// of is how many addresses of a range are reserved.
func (a Arguments) of(r netip.Prefix) int64 {
	if r.Addr().Is4() {
		return a.ReservedIPv4
	}
	return a.ReservedIPv6
}
