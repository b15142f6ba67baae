// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"net/netip"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/vtex/cleaner/celenv/addresses"
)

// Network is what expressions ask about ranges of addresses, besides what Kubernetes' cidr() knows.
//
//	cidrUsable(<string>, <int>) -> <int>    // how many addresses a range has, less those that are reserved; never below 0
//
// A range with more addresses than an int can count has as many as that.
func Network() cel.EnvOption { return cel.Lib(networkLibrary{}) }

type networkLibrary struct{}

func (networkLibrary) LibraryName() string { return "cleaner.network" }

func (networkLibrary) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("cidrUsable",
			cel.Overload("cidr_usable_string_int", []*cel.Type{cel.StringType, cel.IntType}, cel.IntType, cel.BinaryBinding(countUsable))),
	}
}

func (networkLibrary) ProgramOptions() []cel.ProgramOption { return nil }

func countUsable(cidr, reserved ref.Val) ref.Val {
	text, less := string(cidr.(types.String)), int64(reserved.(types.Int))
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return types.NewErr("cidrUsable: %s is no range of addresses: write one such as 10.0.0.0/24", quoteValue(text))
	}
	if less < 0 {
		return types.NewErr("cidrUsable: %d addresses cannot be reserved", less)
	}
	return types.Int(addresses.Usable(prefix, less))
}
