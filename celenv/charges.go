// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"math"
	"strings"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// charge is what a function costs.
//
// A function whose work is at most proportional to the length of its arguments, and that builds nothing, is free: one
// such call is short, and the loop around it is counted. All others pay.
type charge struct {
	// before pays for what is known from the arguments, before anything is allocated. It may refuse the call by an error.
	before func(m *meter, args []ref.Val) ref.Val
	// match stands in the place of before, where an argument is a regular expression: of this size.
	match func(m *meter, pattern int64, args []ref.Val)
	// after pays for the result.
	after func(m *meter, result ref.Val)
}

func (c charge) free() bool { return c.before == nil && c.match == nil && c.after == nil }

// charges says of every function of the environment what it costs. One that is missing here fails a test.
func charges() map[string]charge {
	table := map[string]charge{
		operators.Add:       {before: chargeAdd},
		operators.Equals:    {before: chargeOperands},
		operators.NotEquals: {before: chargeOperands},
		operators.In:        {before: chargeSearch},
		operators.OldIn:     {before: chargeSearch},
		"in":                {before: chargeSearch},

		"format":       {before: chargeFormat, after: chargeResult},
		"indexOf":      {before: chargeSearchIn},
		"lastIndexOf":  {before: chargeSearchIn},
		"includes":     {before: chargeSearchIn},
		"join":         {before: chargeJoin},
		"replace":      {before: chargeReplace},
		"flatten":      {before: chargeDeep},
		"lists.range":  {before: chargeRange},
		"distinct":     {before: chargePairs, after: chargeResult},
		"sort":         {before: chargeSort, after: chargeResult},
		"slice":        {after: chargeResult},
		"quantity":     {before: refuseLargeExponent},
		"isQuantity":   {before: refuseLargeExponent},
		"matches":      {match: chargeMatch},
		"find":         {match: chargeMatch},
		"findAll":      {match: chargeMatches, after: chargeResult},
		"json.marshal": {before: chargeDeep, after: chargeResult},
		"json.valid":   {before: chargeDecoding},

		"certificates":    {before: chargeCertificates},
		"matchesSelector": {before: chargeWalk},
		"podRefs":         {before: chargeWalk, after: chargeResult},
		"refs":            {before: chargeWalk, after: chargeResult},
		"selects":         {before: chargeWalk},
		"setCondition":    {before: chargeWalk, after: chargeResult},

		"regex.extract": {match: chargeMatch},
		"regex.replace": {match: chargeReplaceMatches},

		"@sortByAssociatedKeys": {before: chargeSort, after: chargeResult},
		"cel.@mapInsert":        {before: chargeInsert},
		"json.unmarshal":        {before: chargeDecoding},
		"regex.extractAll":      {match: chargeMatches, after: chargeResult},
		"sets.contains":         {before: chargePairs},
		"sets.equivalent":       {before: chargePairs},
		"sets.intersects":       {before: chargePairs},
	}
	for _, name := range strings.Fields(building) {
		table[name] = charge{after: chargeResult}
	}
	for _, name := range strings.Fields(free) {
		table[name] = charge{}
	}
	return table
}

// building are the functions whose work is proportional to the length of their arguments, and that build a result of
// about that length.
const building = `
	@countBy @groupBy @indexBy base64.decode base64.encode bytes getEscapedPath getHost getHostname getQuery key
	lowerAscii optional.unwrap reverse split string strings.quote substring toSet trim unwrapOpt upperAscii url`

// free are the functions whose work is at most proportional to the length of their arguments, and that give a number, a
// bool, or something that is part of an argument.
const free = `
	!_ -_ @not_strictly_false __not_strictly_false__ _%_ _&&_ _*_ _-_ _/_ _<=_ _<_ _>=_ _>_ _?._ _?_:_ _[?_] _[_] _||_
	add asApproximateFloat asInteger bool charAt cidr cidrUsable compareTo condition contains containsCIDR containsIP controller
	double duration dyn endsWith family first format.byte format.date format.datetime format.dns1035Label format.dns1035LabelPrefix
	format.dns1123Label format.dns1123LabelPrefix format.dns1123Subdomain format.dns1123SubdomainPrefix
	format.labelValue format.named format.qualifiedName format.uri format.uuid getDate getDayOfMonth getDayOfWeek
	getDayOfYear getFullYear getHours getMilliseconds getMinutes getMonth getPort getScheme getSeconds hasValue int ip
	ip.isCanonical isCIDR isGlobalUnicast isGreaterThan isIP isInteger isLessThan isLinkLocalMulticast
	isLinkLocalUnicast isLoopback isSemver isSorted isURL isUnspecified last major masked math.@max math.@min math.abs
	math.bitAnd math.bitNot math.bitOr math.bitShiftLeft math.bitShiftRight math.bitXor math.ceil math.floor
	math.isFinite math.isInf math.isNaN math.round math.sign math.sqrt math.trunc max min minor optional.none
	optional.of optional.ofNonZeroValue or orValue parseDuration parseTimestamp patch podLabels podSpec prefixLength seconds
	semver sign size startsWith sub sum timestamp type uint validate value`

func chargeResult(m *meter, result ref.Val) { m.build(flatSize(result)) }

func chargeAdd(m *meter, args []ref.Val) ref.Val {
	switch left := args[0].(type) {
	case traits.MutableLister: // a loop that collects: only what is appended is new
		m.build(flatSize(args[1]))
	case types.String, types.Bytes, traits.Lister:
		m.build(sum(flatSize(left), flatSize(args[1])))
	}
	return nil
}

func chargeInsert(m *meter, args []ref.Val) ref.Val {
	if _, ok := args[0].(traits.MutableMapper); !ok {
		m.build(flatSize(args[0]))
	}
	if update, ok := args[1].(traits.Mapper); ok {
		m.build(flatSize(update))
		return nil
	}
	m.build(entrySize)
	return nil
}

func chargeOperands(m *meter, args []ref.Val) ref.Val {
	chargeEquality(m, args[0], args[1])
	return nil
}

// chargeEquality pays for comparing what two lists or maps hold: at most all of the smaller one.
func chargeEquality(m *meter, left, right ref.Val) {
	if holds(left) && holds(right) {
		n := m.values(left, math.MaxInt64)
		m.work(min(n, m.values(right, n)))
	}
}

// holds says whether the value has other values in it.
func holds(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper, *types.Optional:
		return true
	default:
		return false
	}
}

// chargeSearch pays for "in": a map finds its key at once.
func chargeSearch(m *meter, args []ref.Val) ref.Val {
	if list, ok := args[1].(traits.Lister); ok {
		comparisons(m, args[0], list)
	}
	return nil
}

// chargeSearchIn pays for a search in the first argument.
func chargeSearchIn(m *meter, args []ref.Val) ref.Val {
	switch in := args[0].(type) {
	case types.String: // cel-go tries each place
		m.work(product(int64(len(in)), length(args[1])) / valueSize)
	case traits.Lister:
		comparisons(m, args[1], in)
	}
	return nil
}

// comparisons pays for comparing one value with each element of a list.
func comparisons(m *meter, one ref.Val, list traits.Lister) {
	if !holds(one) { // comparing it with anything is one step
		m.work(length(list))
		return
	}
	m.work(m.values(list, math.MaxInt64))
}

// chargePairs pays for comparing each element of a list with each of another, or of itself.
func chargePairs(m *meter, args []ref.Val) ref.Val {
	left, right := args[0], args[len(args)-1]
	m.work(product(length(left), m.values(right, math.MaxInt64)))
	return nil
}

func chargeSort(m *meter, args []ref.Val) ref.Val {
	n := length(args[0])
	m.work(product(n, int64(math.Log2(float64(n)+1))))
	return nil
}

// walkStep is how many values of objects are one step for a function that only looks at them.
const walkStep = 32

// chargeWalk pays for looking at all that the arguments hold.
func chargeWalk(m *meter, args []ref.Val) ref.Val {
	n := int64(1)
	for _, arg := range args {
		n = sum(n, size(arg, product(valueSize*walkStep, m.steps+1))/(valueSize*walkStep))
	}
	m.work(n)
	return nil
}

// chargeDeep pays for all that a value holds.
func chargeDeep(m *meter, args []ref.Val) ref.Val {
	m.build(size(args[0], m.growth))
	return nil
}

// chargeDecoding pays for what a text of JSON becomes, by what begins and separates its values.
func chargeDecoding(m *meter, args []ref.Val) ref.Val {
	const objectSize = 256 // an empty map takes about this
	text, _ := args[0].(types.String)
	objects := strings.Count(string(text), "{")
	lists := strings.Count(string(text), "[")
	values := strings.Count(string(text), ",") + 1
	m.build(sum(int64(len(text)), product(objectSize, int64(objects)), product(entrySize, int64(lists+values))))
	return nil
}

func chargeRange(m *meter, args []ref.Val) ref.Val {
	if n, ok := args[0].(types.Int); ok && n > 0 {
		m.build(product(valueSize, int64(n)))
	}
	return nil
}

// chargeCertificates pays for what a text becomes: names, keys and extensions, several times as large.
func chargeCertificates(m *meter, args []ref.Val) ref.Val {
	const parsedSize = 8 // for each byte
	m.build(product(parsedSize, length(args[0])))
	return nil
}

func chargeJoin(m *meter, args []ref.Val) ref.Val {
	separators := int64(0)
	if len(args) > 1 {
		separators = product(length(args[0]), length(args[1]))
	}
	m.build(sum(separators, size(args[0], m.growth)))
	return nil
}

func chargeReplace(m *meter, args []ref.Val) ref.Val {
	text, isText := args[0].(types.String)
	old, isOld := args[1].(types.String)
	if isText && isOld {
		times := int64(strings.Count(string(text), string(old)))
		m.build(sum(int64(len(text)), product(times, length(args[2]))))
	}
	return nil
}

// chargeFormat pays for the values that are written, and for each clause of the format as much as a number can take.
func chargeFormat(m *meter, args []ref.Val) ref.Val {
	const clauseSize = 512
	text, _ := args[0].(types.String)
	clauses := int64(strings.Count(string(text), "%"))
	m.build(sum(int64(len(text)), product(clauses, clauseSize), size(args[1], m.growth)))
	return nil
}

// refuseLargeExponent keeps quantities away whose comparison would take a number of billions of digits.
func refuseLargeExponent(_ *meter, args []ref.Val) ref.Val {
	text, _ := args[0].(types.String)
	const suffix = len("e+99")
	digits := strings.TrimRight(string(text), "0123456789")
	mantissa := strings.TrimRight(digits, "+-")
	if len(text)-len(mantissa) >= suffix && strings.HasSuffix(strings.ToLower(mantissa), "e") {
		return types.NewErr("the exponent of the quantity %q is too large", cut(string(text), 32))
	}
	return nil
}
