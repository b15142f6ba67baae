// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"fmt"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

const howRangesAreWritten = ` is no range of addresses: write one such as 10.0.0.1, 10.0.0.1-10.0.0.9 or 10.0.0.0/24`

func TestCIDRUsable(t *testing.T) {
	checkExamples(t, Network(), map[string]example{
		"Some":         {`cidrUsable("10.0.0.0/24", 3)`, `253`},
		"AllReserved":  {`cidrUsable("10.0.0.0/30", 4)`, `0`},
		"OneLeft":      {`cidrUsable("10.0.0.0/30", 3)`, `1`},
		"MoreReserved": {`cidrUsable("10.0.0.0/30", 5)`, `0`},
		"One":          {`cidrUsable("10.0.0.1/32", 0)`, `1`},
		"IPv6":         {`cidrUsable("fd00::/112", 2)`, `65534`},
		"Large":        {`cidrUsable("fd00::/48", 2)`, `9223372036854775807`},
		"NotAtItsHead": {`cidrUsable("10.0.0.7/24", 0)`, `256`},
		"NoLength":     {`cidrUsable("10.0.0.0", 0)`, `error: cidrUsable: "10.0.0.0" is no range of addresses: write one such as 10.0.0.0/24`},
		"TooLong":      {`cidrUsable("10.0.0.0/33", 0)`, `error: cidrUsable: "10.0.0.0/33" is no range of addresses: write one such as 10.0.0.0/24`},
		"Empty":        {`cidrUsable("", 0)`, `error: cidrUsable: "" is no range of addresses: write one such as 10.0.0.0/24`},
		"NoneReserved": {`cidrUsable("10.0.0.0/24", 0)`, `256`},
		"Negative":     {`cidrUsable("10.0.0.0/24", -1)`, `error: cidrUsable: -1 addresses cannot be reserved`},
		"WrongType":    {`cidrUsable(dyn(1), 1)`, `error: no such overload: cidrUsable(int, int)`},
	})
}

func TestIPsWithout(t *testing.T) {
	checkExamples(t, Network(), map[string]example{
		"Between":      {`ipsWithout(["10.0.0.1-10.0.0.9"], ["10.0.0.5"])`, `["10.0.0.1-10.0.0.4", "10.0.0.6-10.0.0.9"]`},
		"AtBothEnds":   {`ipsWithout(["10.0.0.1-10.0.0.9"], ["10.0.0.9", "10.0.0.1"])`, `["10.0.0.2-10.0.0.8"]`},
		"All":          {`ipsWithout(["10.0.0.1"], ["10.0.0.0/8"])`, `[]`},
		"Nothing":      {`ipsWithout(["10.0.0.0/30"], [])`, `["10.0.0.0-10.0.0.3"]`},
		"FromNothing":  {`ipsWithout([], ["10.0.0.1"])`, `[]`},
		"Joined":       {`ipsWithout(["10.0.0.2", "10.0.0.1"], [])`, `["10.0.0.1-10.0.0.2"]`},
		"OtherFamily":  {`ipsWithout(["10.0.0.1"], ["fd00::1"])`, `["10.0.0.1"]`},
		"NoRange":      {`ipsWithout(["10.0.0.9-10.0.0.1"], [])`, `error: ipsWithout: "10.0.0.9-10.0.0.1"` + howRangesAreWritten},
		"NoRangeToGo":  {`ipsWithout(["10.0.0.1"], ["10.0.0.1", "a"])`, `error: ipsWithout: "a"` + howRangesAreWritten},
		"EmptyText":    {`ipsWithout([""], [])`, `error: ipsWithout: ""` + howRangesAreWritten},
		"NoText":       {`ipsWithout([dyn("10.0.0.1"), dyn(1)], [])`, `error: ipsWithout: a range is a string, and this is a int`},
		"NoTextToGo":   {`ipsWithout([], [dyn("10.0.0.1"), dyn(null)])`, `error: ipsWithout: a range is a string, and this is a null_type`},
		"NoList":       {`ipsWithout(dyn({}), [])`, `error: no such overload: ipsWithout(map, list)`},
		"ListOfLists":  {`ipsWithout([dyn("10.0.0.1"), dyn(["10.0.0.2"])], [])`, `error: ipsWithout: a range is a string, and this is a list`},
		"LongNoRanges": {`ipsWithout(["` + "0123456789012345678901234567890123456789012345678901234567890123456789" + `"], [])`, `error: ipsWithout: "0123456789012345678901234567890123456789012345678901234567890123"…` + howRangesAreWritten},
	})
}

func TestIPsValid(t *testing.T) {
	checkExamples(t, Network(), map[string]example{
		"All":       {`ipsValid(["10.0.0.1", "10.0.0.1-10.0.0.9", "10.0.0.0/24", "fd00::/64"])`, `true`},
		"None":      {`ipsValid([])`, `true`},
		"Backwards": {`ipsValid(["10.0.0.9-10.0.0.1"])`, `false`},
		"TheLast":   {`ipsValid(["10.0.0.1", "a"])`, `false`},
		"NoText":    {`ipsValid([dyn("10.0.0.1"), dyn(1)])`, `false`},
	})
}

func TestIPsShared(t *testing.T) {
	checkExamples(t, Network(), map[string]example{
		"OfTwo":       {`ipsShared({"b": ["10.0.0.1-10.0.0.9"], "a": ["10.0.0.8/29"], "c": ["fd00::1"]})`, `[{"ips": "10.0.0.8-10.0.0.9", "names": ["a", "b"]}]`},
		"OrderOfKeys": {`ipsShared({"b": ["10.0.0.1"], "a": ["10.0.0.1"]})[0].map(k, k)`, `["ips", "names"]`},
		"Order":       {`ipsShared({"a": ["10.0.0.9", "10.0.0.1"], "b": ["10.0.0.9"], "c": ["10.0.0.1"]}).map(s, s.ips)`, `["10.0.0.1", "10.0.0.9"]`},
		"OfItself":    {`ipsShared({"a": ["10.0.0.1", "10.0.0.1"]})`, `[]`},
		"None":        {`ipsShared({"a": ["10.0.0.1"], "b": ["10.0.0.2"]})`, `[]`},
		"NoNames":     {`ipsShared({})`, `[]`},
		"NoRanges":    {`ipsShared({"a": [], "b": []})`, `[]`},
		"NoRange":     {`ipsShared({"a": ["10.0.0"]})`, `error: ipsShared: "10.0.0"` + howRangesAreWritten},
	})
}

// What is shared by many names is a long list.
func TestIPsSharedIsBounded(t *testing.T) {
	all := map[string][]string{}
	for n := range 320 {
		for i := range 320 {
			all[fmt.Sprint(n)] = append(all[fmt.Sprint(n)], fmt.Sprintf("10.0.%d.%d", i/100, 2*(i%100)))
		}
	}
	got := ipsShared(types.DefaultTypeAdapter.NativeToValue(all))
	if err, failed := got.(*types.Err); !failed || err.Error() != "ipsShared: the ranges that are shared have more than 100000 names" {
		t.Errorf("got %T, %v", got, err)
	}
}

// CEL checks the types of the first entries only.
func TestNetworkFunctionsRefuseOtherTypes(t *testing.T) {
	adapt := types.DefaultTypeAdapter.NativeToValue
	for name, tc := range map[string]struct {
		got  ref.Val
		want string
	}{
		"SharedOfAText":  {ipsShared(types.String("a")), "ipsShared: this is no map"},
		"NameIsNoText":   {ipsShared(adapt(map[int][]string{1: {"10.0.0.1"}})), "ipsShared: a key of the map is no string, but a int"},
		"RangesAreAnInt": {ipsShared(adapt(map[string]int{"a": 1})), "ipsShared: the ranges are no list, but a int"},
		"FromAText":      {ipsWithout(types.String("10.0.0.1"), adapt([]string{})), "ipsWithout: the ranges are no list, but a string"},
		"LessAText":      {ipsWithout(adapt([]string{}), types.String("10.0.0.1")), "ipsWithout: the ranges are no list, but a string"},
	} {
		t.Run(name, func(t *testing.T) {
			if err, failed := tc.got.(*types.Err); !failed || err.Error() != tc.want {
				t.Errorf("got %v, want %s", tc.got, tc.want)
			}
		})
	}
}
