// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"fmt"
	"net/netip"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/addresses"

	"github.com/vtex/cleaner/celenv/compact"
)

// Network is what expressions ask about ranges of addresses, besides what Kubernetes' cidr() knows.
//
//	cidrUsable(<string>, <int>) -> <int>    // how many addresses a range has, less those that are reserved; never below 0
//	ipsWithout(<list(string)>, <list(string)>) -> <list(string)>    // the addresses of ranges less those of others, in as few ranges as there can be
//	ipsValid(<list(string)>) -> <bool>    // whether ipsWithout and ipsShared would read these ranges
//	ipsShared(<map(string, list(string))>) -> <list(map)>    // [{"ips": "10.0.0.5-10.0.0.9", "names": ["a", "b"]}]: what is in the ranges of several names
//
// A range with more addresses than an int can count has as many as that. Ranges are written as 10.0.0.1, 10.0.0.1-10.0.0.9 or
// 10.0.0.0/24.
func Network() cel.EnvOption { return cel.Lib(networkLibrary{}) }

type networkLibrary struct{}

func (networkLibrary) LibraryName() string { return "cleaner.network" }

func (networkLibrary) CompileOptions() []cel.EnvOption {
	ranges := cel.ListType(cel.StringType)
	return []cel.EnvOption{
		cel.Function("cidrUsable",
			cel.Overload("cidr_usable_string_int", []*cel.Type{cel.StringType, cel.IntType}, cel.IntType, cel.BinaryBinding(countUsable))),
		cel.Function("ipsWithout",
			cel.Overload("ips_without_list_list", []*cel.Type{ranges, ranges}, ranges, cel.BinaryBinding(ipsWithout))),
		cel.Function("ipsValid",
			cel.Overload("ips_valid_list", []*cel.Type{ranges}, cel.BoolType, cel.UnaryBinding(areValidIPs))),
		cel.Function("ipsShared",
			cel.Overload("ips_shared_map", []*cel.Type{cel.MapType(cel.StringType, ranges)}, cel.ListType(cel.MapType(cel.StringType, cel.DynType)), cel.UnaryBinding(ipsShared))),
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
	return types.Int(addresses.CountUsable(prefix, less))
}

func ipsWithout(ranges, without ref.Val) ref.Val {
	from, err := parseRanges("ipsWithout", ranges)
	if err != nil {
		return err
	}
	less, err := parseRanges("ipsWithout", without)
	if err != nil {
		return err
	}
	left := []string{}
	for _, r := range addresses.SubtractRanges(from, less) {
		left = append(left, r.String())
	}
	return types.NewStringList(types.DefaultTypeAdapter, left)
}

func areValidIPs(ranges ref.Val) ref.Val {
	_, err := parseRanges("ipsValid", ranges)
	return types.Bool(err == nil)
}

func ipsShared(all ref.Val) ref.Val {
	byName := map[string][]addresses.Range{}
	of, ok := all.(traits.Mapper)
	if !ok {
		return types.NewErr("ipsShared: this is no map")
	}
	for it := of.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return types.NewErr("ipsShared: a key of the map is no string, but a %s", key.Type().TypeName())
		}
		ranges, err := parseRanges("ipsShared", of.Get(key))
		if err != nil {
			return err
		}
		byName[string(name)] = ranges
	}
	shared, err := addresses.FindShared(byName)
	if err != nil {
		return types.WrapErr(fmt.Errorf("ipsShared: %w", err))
	}
	out, keys := []ref.Val{}, []ref.Val{types.String("ips"), types.String("names")}
	for _, s := range shared {
		out = append(out, compact.NewRecord(keys, []ref.Val{types.String(s.Range.String()), types.NewStringList(types.DefaultTypeAdapter, s.Names)}))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, out)
}

// parseRanges reads the ranges of a list. The second value is an error, or nil.
func parseRanges(function string, list ref.Val) ([]addresses.Range, ref.Val) {
	texts, ok := list.(traits.Lister)
	if !ok {
		return nil, types.NewErr("%s: the ranges are no list, but a %s", function, list.Type().TypeName())
	}
	size, _ := texts.Size().(types.Int)
	out := make([]addresses.Range, 0, size)
	for it := texts.Iterator(); it.HasNext() == types.True; {
		v := it.Next()
		text, ok := v.(types.String)
		if !ok {
			return nil, types.NewErr("%s: a range is a string, and this is a %s", function, v.Type().TypeName())
		}
		r, err := addresses.ParseRange(string(text))
		if err != nil {
			return nil, types.NewErr("%s: %s is no range of addresses: write one such as 10.0.0.1, 10.0.0.1-10.0.0.9 or 10.0.0.0/24", function, quoteValue(string(text)))
		}
		out = append(out, r)
	}
	return out, nil
}
