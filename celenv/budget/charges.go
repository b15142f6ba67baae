// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"math"
	"net/url"
	"strings"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/compact"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/library"
)

// Charge is what a function costs: it is paid before the call, so that nothing large is made, read or compared that is not
// paid for. Only what is done in constant time, whatever the arguments, is free.
type Charge struct {
	// BeforeCall pays for what is known from the arguments, before anything is allocated. It may refuse the call by an error.
	BeforeCall func(m *Meter, args []ref.Val) ref.Val
	// forPattern stands in the place of BeforeCall, where an argument is a regular expression: of this size.
	forPattern func(m *Meter, pattern int64, args []ref.Val)
	// AfterCall pays for the result, of functions whose result is smaller than what BeforeCall has paid for while it is made.
	AfterCall func(m *Meter, result ref.Val)
}

// IsFree says that nothing is paid.
func (c Charge) IsFree() bool {
	return c.BeforeCall == nil && c.forPattern == nil && c.AfterCall == nil
}

// newChargeTable says of every function of the environment what it costs. One that is missing here fails a test, and so does one
// that allocates much more, or takes many more elements of a list, than it pays for before.
func newChargeTable() map[string]Charge {
	table := map[string]Charge{
		operators.Add:       {BeforeCall: chargeAdd},
		operators.Equals:    {BeforeCall: chargeOperands},
		operators.NotEquals: {BeforeCall: chargeOperands},
		operators.In:        {BeforeCall: chargeSearch},
		operators.OldIn:     {BeforeCall: chargeSearch},
		"in":                {BeforeCall: chargeSearch},

		"base64.decode":   {BeforeCall: chargeCopy},
		"base64.encode":   {BeforeCall: chargeCopy},
		"bytes":           {BeforeCall: chargeCopy},
		"distinct":        {BeforeCall: chargePairs, AfterCall: chargeResult},
		"flatten":         {BeforeCall: chargeFlatten},
		"format":          {BeforeCall: chargeFormat, AfterCall: chargeResult},
		"getQuery":        {BeforeCall: chargeQuery},
		"includes":        {BeforeCall: chargeSearchIn},
		"indexOf":         {BeforeCall: chargeSearchIn},
		"join":            {BeforeCall: chargeJoin},
		"key":             {BeforeCall: chargeKey},
		"lastIndexOf":     {BeforeCall: chargeSearchIn},
		"lists.range":     {BeforeCall: chargeRange},
		"merge":           {BeforeCall: chargeMerge},
		"optional.of":     {BeforeCall: chargeOptional},
		"optional.unwrap": {BeforeCall: chargeCopy},
		"replace":         {BeforeCall: chargeReplace},
		"reverse":         {BeforeCall: chargeRunes, AfterCall: chargeResult},
		"slice":           {BeforeCall: chargeSlice},
		"split":           {BeforeCall: chargeSplit},
		"string":          {BeforeCall: chargeCopy},
		"strings.quote":   {BeforeCall: chargeQuote},
		"sum":             {BeforeCall: chargeSum},
		"toSet":           {BeforeCall: chargeIndex, AfterCall: chargeResult},
		"trim":            {BeforeCall: chargeCopy},
		"unwrapOpt":       {BeforeCall: chargeCopy},
		"validate":        {BeforeCall: chargeValidate, AfterCall: chargeMessages},

		"optional.ofNonZeroValue": {BeforeCall: chargeOptional},

		"isQuantity": {BeforeCall: chargeQuantity},
		"quantity":   {BeforeCall: chargeNewQuantity},
		"add":        {BeforeCall: chargeArithmetic},
		"sub":        {BeforeCall: chargeArithmetic},
		"semver":     {BeforeCall: chargeVersion},

		"find":    {forPattern: chargeMatch},
		"findAll": {forPattern: chargeMatches, AfterCall: chargeResult},
		"matches": {forPattern: chargeMatch},

		"json.marshal":   {BeforeCall: chargeMarshal},
		"json.unmarshal": {BeforeCall: chargeDecoding},
		"json.valid":     {BeforeCall: chargeValidation},

		"certificates":    {BeforeCall: chargeCertificates},
		"condition":       {BeforeCall: chargeListSearch("status", "conditions")},
		"controller":      {BeforeCall: chargeListSearch("metadata", "ownerReferences")},
		"double":          {BeforeCall: chargeDouble},
		"ipsShared":       {BeforeCall: chargeNamedRanges, AfterCall: chargeShared},
		"ipsValid":        {BeforeCall: chargeRanges},
		"ipsWithout":      {BeforeCall: chargeRanges, AfterCall: chargeShared},
		"matchesSelector": {BeforeCall: chargeWalk},
		"podRefs":         {BeforeCall: chargeWalk, AfterCall: chargeResult},
		"refs":            {BeforeCall: chargeRefs, AfterCall: chargeResult},
		"selects":         {BeforeCall: chargeWalk},
		"setCondition":    {BeforeCall: chargeSetCondition},

		"regex.extract":    {forPattern: chargeMatch},
		"regex.extractAll": {forPattern: chargeMatches, AfterCall: chargeResult},
		"regex.replace":    {forPattern: chargeReplaceMatches},

		"@countBy":              {BeforeCall: chargeIndex, AfterCall: chargeResult},
		"@groupBy":              {BeforeCall: chargeGroups, AfterCall: chargeResult},
		"@indexBy":              {BeforeCall: chargeIndex, AfterCall: chargeResult},
		"@sortByAssociatedKeys": {BeforeCall: chargeSort},
		"cel.@mapInsert":        {BeforeCall: chargeInsert},
		"sets.contains":         {BeforeCall: chargePairs},
		"sets.equivalent":       {BeforeCall: chargePairs},
		"sets.intersects":       {BeforeCall: chargePairs},
		"sort":                  {BeforeCall: chargeSort},
	}
	for names, before := range map[string]func(*Meter, []ref.Val) ref.Val{
		shortTextFunctions: chargeShortText, urlTextFunctions: chargeURLText, scanFunctions: chargeScan, runeFunctions: chargeRunes, listElementFunctions: chargeElements, urlPartFunctions: chargeURL, zoneFunctions: chargeZone,
	} {
		for _, name := range strings.Fields(names) {
			table[name] = Charge{BeforeCall: before}
		}
	}
	for _, name := range strings.Fields(freeFunctions) {
		table[name] = Charge{}
	}
	return table
}

// shortTextFunctions are the functions that read a text which is never long: a number, a time, an address.
const shortTextFunctions = `
	bool cidr cidrUsable containsCIDR containsIP duration int ip ip.isCanonical isCIDR isIP isSemver
	parseDuration parseTimestamp timestamp uint format.named`

// urlTextFunctions are the functions that read a URL.
const urlTextFunctions = `isURL url`

// scanFunctions are the functions that look at each byte of their texts once, quickly, and build nothing.
const scanFunctions = `_<=_ _<_ _>=_ _>_ contains endsWith size startsWith`

// runeFunctions are the functions that have a copy of a text with four bytes for each character.
const runeFunctions = `charAt lowerAscii substring upperAscii`

// listElementFunctions are the functions that compare or add up the elements of a list.
const listElementFunctions = `isSorted math.@max math.@min max min`

// urlPartFunctions are the functions that take a URL apart.
const urlPartFunctions = `getEscapedPath getHost getHostname getPort getScheme`

// zoneFunctions are the functions that may look a time zone up.
const zoneFunctions = `
	getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds getMinutes getMonth getSeconds`

// freeFunctions are the functions that take no longer for large arguments than for small ones.
const freeFunctions = `
	!_ -_ @not_strictly_false __not_strictly_false__ _%_ _&&_ _*_ _-_ _/_ _?._ _?_:_ _[?_] _[_] _||_
	asApproximateFloat asInteger compareTo dyn family first format.byte format.date format.datetime
	format.dns1035Label format.dns1035LabelPrefix format.dns1123Label format.dns1123LabelPrefix
	format.dns1123Subdomain format.dns1123SubdomainPrefix format.labelValue format.qualifiedName format.uri
	format.uuid hasValue isGlobalUnicast isGreaterThan isInteger isLessThan isLinkLocalMulticast
	isLinkLocalUnicast isLoopback isUnspecified last major masked math.abs math.bitAnd math.bitNot math.bitOr
	math.bitShiftLeft math.bitShiftRight math.bitXor math.ceil math.floor math.isFinite math.isInf math.isNaN
	math.round math.sign math.sqrt math.trunc minor optional.none or orValue
	patch podLabels podSpec prefixLength seconds sign type value`

// listSize is what a list takes besides its elements.
const listSize = 80

// chargeResult pays for a result, without what its elements hold.
func chargeResult(m *Meter, result ref.Val) {
	n, isMeasured := compact.CountBytes(result)
	_, isList := result.(traits.Lister)
	switch {
	case isMeasured:
		m.payBuilding(int64(n))
	case isList:
		m.payBuilding(listSize + measureFlat(result))
	default:
		m.payBuilding(measureFlat(result))
	}
}

// MeasureText measures how long a text is; 0 for what is none.
func MeasureText(v ref.Val) int64 {
	switch v := v.(type) {
	case types.String:
		return int64(len(v))
	case types.Bytes:
		return int64(len(v))
	default:
		return 0
	}
}

// chargeScan pays for looking at each byte of the arguments.
func chargeScan(m *Meter, args []ref.Val) ref.Val {
	n := int64(0)
	for _, arg := range args {
		n = AddCapped(n, MeasureText(arg))
	}
	m.payReading(n)
	return nil
}

// The longest texts of functions whose argument is never long.
const (
	maxShortText = 1 << 10
	MaxURLText   = 16 << 10
)

// chargeShortText refuses a text that is too long to be what the function reads, and pays for the others: such functions take
// some nanoseconds for each byte.
func chargeShortText(m *Meter, args []ref.Val) ref.Val { return chargeText(m, args, maxShortText) }

// chargeDouble is the same for a text that becomes a double, and pays for a slow one.
func chargeDouble(m *Meter, args []ref.Val) ref.Val {
	if text, isText := args[0].(types.String); isText && library.IsSlowNumber(string(text)) {
		m.PaySteps(library.SlowNumberSteps)
	}
	return chargeShortText(m, args)
}

// chargeURLText is the same for a URL, which becomes a value of its parts.
func chargeURLText(m *Meter, args []ref.Val) ref.Val {
	const urlSize = 112
	n := int64(urlSize)
	if text, _ := args[0].(types.String); strings.Contains(string(text), "%") { // a URL keeps its escapes, and the text without them
		n += 2 * int64(len(text))
	}
	if err := chargeText(m, args, MaxURLText); err != nil {
		return err
	}
	m.payBuilding(n)
	return nil
}

func chargeText(m *Meter, args []ref.Val, most int64) ref.Val {
	const slow = 16
	for _, arg := range args {
		n := MeasureText(arg)
		if n > most {
			return types.NewErr("the text is %d bytes long, and at most %d are read here", n, most)
		}
		if n >= slow {
			m.PaySteps(n / slow)
		}
	}
	return nil
}

// chargeZone pays for looking a time zone up by its name, which reads a file.
func chargeZone(m *Meter, args []ref.Val) ref.Val {
	const lookup = 256
	if len(args) > 1 {
		m.PaySteps(lookup)
	}
	return chargeShortText(m, args)
}

// chargeURL pays for what a URL becomes: at most a map with an entry for each few characters of its query.
func chargeURL(m *Meter, args []ref.Val) ref.Val {
	const part = 64
	if u, ok := args[0].Value().(*url.URL); ok {
		m.payCopying(MultiplyCapped(part, int64(len(u.RawQuery))))
		m.payBuilding(int64(len(u.RawQuery) + len(u.Path) + len(u.Host)))
	}
	return nil
}

// chargeQuery pays also for the map, and for a list for each of its keys.
func chargeQuery(m *Meter, args []ref.Val) ref.Val {
	m.payBuilding(listSize)
	if u, ok := args[0].Value().(*url.URL); ok && u.RawQuery != "" {
		m.payBuilding(MultiplyCapped(4*entrySize, int64(strings.Count(u.RawQuery, "&"))+1))
	}
	return chargeURL(m, args)
}

// chargeCopy pays for a result that is about as large as the argument.
func chargeCopy(m *Meter, args []ref.Val) ref.Val {
	m.payBuilding(measureFlat(args[0]))
	return nil
}

// chargeRunes pays for a text of four bytes for each character, and for what is made of it.
func chargeRunes(m *Meter, args []ref.Val) ref.Val {
	const runeBytes = 4
	switch v := args[0].(type) {
	case types.String:
		m.payCopying(MultiplyCapped(runeBytes, int64(len(v))))
		m.payBuilding(int64(len(v)))
	case traits.Lister:
		m.payCopying(MultiplyCapped(ValueSize, MeasureLength(v)))
		m.payBuilding(MultiplyCapped(int64(library.MeasureElements(v)-ValueSize), MeasureLength(v)))
		m.payElements(v)
	}
	return nil
}

// elementStep is how many elements of a list are one step for a function that takes each once.
const elementStep = 4

// payElements pays for taking each element of a list once.
func (m *Meter) payElements(list ref.Val) {
	if n := MeasureLength(list); n >= elementStep {
		m.PaySteps(n / elementStep)
	}
}

// chargeElements pays for comparing or adding up the elements of a list, or the arguments.
func chargeElements(m *Meter, args []ref.Val) ref.Val {
	for _, arg := range args {
		if list, ok := arg.(traits.Lister); ok {
			m.payElements(list)
			m.payReading(sumTexts(list))
		}
	}
	return nil
}

// sumTexts adds up how long the texts in a list are.
func sumTexts(list traits.Lister) int64 {
	n := int64(0)
	for it := list.Iterator(); it.HasNext() == types.True; {
		n = AddCapped(n, MeasureText(it.Next()))
	}
	return n
}

// chargeSum pays for adding up numbers, or quantities: each may have as many digits as its text.
func chargeSum(m *Meter, args []ref.Val) ref.Val {
	chargeElements(m, args)
	list, ok := args[0].(traits.Lister)
	if ok && MeasureLength(list) > 0 && library.IsQuantity(list.Get(types.IntZero)) {
		m.PaySteps(MultiplyCapped(maxShortText/ReadStep, MeasureLength(list)))
	}
	return nil
}

// chargeMerge pays for a map that may have all entries of two.
func chargeMerge(m *Meter, args []ref.Val) ref.Val {
	const mapSize = 192
	m.payBuilding(mapSize)
	for _, arg := range args {
		entries, ok := arg.(traits.Mapper)
		if !ok {
			continue
		}
		m.payBuilding(MultiplyCapped(entrySize, MeasureLength(entries)))
		for it := entries.Iterator(); it.HasNext() == types.True; {
			m.payReading(MeasureText(it.Next()))
		}
	}
	return nil
}

func chargeAdd(m *Meter, args []ref.Val) ref.Val {
	switch left := args[0].(type) {
	case traits.MutableLister: // a loop that collects, or an empty list: only appended values are new
		m.checkValueSize(MultiplyCapped(ValueSize, MeasureLength(left)))
		m.payBuilding(measureFlat(args[1]))
	case types.String, types.Bytes:
		m.payBuilding(AddCapped(measureFlat(left), measureFlat(args[1])))
	case traits.Lister:
		m.payBuilding(AddCapped(listSize, measureAddition(left, args[1])))
	}
	return nil
}

// measureAddition measures what a list of the elements of two takes.
func measureAddition(left, right ref.Val) int64 {
	_, isNative := left.(*NativeList)
	if _, areNative := right.(*NativeList); isNative && areNative { // so is their sum
		return AddCapped(measureFlat(left), measureFlat(right))
	}
	return AddCapped(measureElements(left), measureElements(right))
}

// measureElements measures what the elements of a list take in another list.
func measureElements(v ref.Val) int64 {
	return MultiplyCapped(int64(library.MeasureElements(v)), MeasureLength(v))
}

func chargeInsert(m *Meter, args []ref.Val) ref.Val {
	m.checkValueSize(measureFlat(args[0]))
	if _, ok := args[0].(traits.MutableMapper); !ok {
		m.payBuilding(measureFlat(args[0]))
	}
	if update, ok := args[1].(traits.Mapper); ok {
		m.payBuilding(measureFlat(update))
		return nil
	}
	m.payReading(MeasureText(args[1]))
	m.payBuilding(entrySize)
	return nil
}

func chargeOperands(m *Meter, args []ref.Val) ref.Val {
	chargeEquality(m, args[0], args[1])
	return nil
}

// chargeEquality pays for comparing two texts, or what two lists or maps hold: at most all of the smaller one, which is
// looked for in small steps so that the larger one is not measured.
func chargeEquality(m *Meter, left, right ref.Val) {
	switch {
	case isContainer(left) && isContainer(right):
		for most := int64(64); ; most *= 4 {
			if n := min(m.countValues(left, most), m.countValues(right, most)); n <= most || most > m.Steps {
				m.PaySteps(n)
				return
			}
		}
	default:
		m.payReading(min(MeasureText(left), MeasureText(right)))
	}
}

// isContainer says whether the value has other values in it.
func isContainer(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper, *types.Optional:
		return true
	default:
		return false
	}
}

// chargeSearch pays for "in": a map finds its key at once.
func chargeSearch(m *Meter, args []ref.Val) ref.Val {
	if list, ok := args[1].(traits.Lister); ok {
		chargeComparisons(m, args[0], list)
		return nil
	}
	m.payReading(MeasureText(args[0]))
	return nil
}

// chargeSearchIn pays for a search in the first argument.
func chargeSearchIn(m *Meter, args []ref.Val) ref.Val {
	switch in := args[0].(type) {
	case types.String: // cel-go tries each place
		chargeRunes(m, args[:1])
		chargeRunes(m, args[1:2])
		m.PaySteps(MultiplyCapped(int64(len(in)), MeasureLength(args[1])) / ValueSize)
	case traits.Lister:
		chargeComparisons(m, args[1], in)
	default:
		chargeEquality(m, args[0], args[1])
	}
	return nil
}

// chargeComparisons pays for comparing one value with each element of a list.
func chargeComparisons(m *Meter, one ref.Val, list traits.Lister) {
	if !isContainer(one) {
		m.PaySteps(MultiplyCapped(MeasureLength(list), 1+MeasureText(one)/ReadStep))
		return
	}
	m.PaySteps(m.countValues(list, math.MaxInt64))
}

// chargePairs pays for comparing each element of a list with each of another, or of itself.
func chargePairs(m *Meter, args []ref.Val) ref.Val {
	left, right := args[0], args[len(args)-1]
	m.payCopying(MultiplyCapped(ValueSize, MeasureLength(left)))
	m.PaySteps(MultiplyCapped(MeasureLength(left), m.countValues(right, math.MaxInt64)))
	if len(args) > 1 { // sets.equivalent looks both ways
		m.PaySteps(MultiplyCapped(MeasureLength(right), m.countValues(left, math.MaxInt64)))
	}
	return nil
}

// chargeRanges pays for reading and sorting the ranges of lists.
func chargeRanges(m *Meter, args []ref.Val) ref.Val {
	const size = 128
	m.PaySteps(1)
	ranges := int64(0)
	for _, list := range args {
		ranges = AddCapped(ranges, payRanges(m, list))
	}
	m.checkValueSize(MultiplyCapped(size, ranges))
	m.paySorting(int(ranges))
	return nil
}

// chargeNamedRanges pays for the ranges of the lists in a map, which are also sorted together, and for looking up their names.
func chargeNamedRanges(m *Meter, args []ref.Val) ref.Val {
	const size, nameSize = 256, 256 // of a range with its edges; of a name
	m.PaySteps(1)
	all, ok := args[0].(traits.Mapper)
	if !ok {
		return nil
	}
	ranges, names := int64(0), MeasureLength(all)
	m.payReading(MultiplyCapped(nameSize, names))
	for it := all.Iterator(); it.HasNext() == types.True; {
		name := it.Next()
		m.payReading(MultiplyCapped(MeasureText(name), 2+int64(math.Log2(float64(names)))))
		ranges = AddCapped(ranges, payRanges(m, all.Get(name)))
	}
	m.checkValueSize(AddCapped(MultiplyCapped(nameSize, names), MultiplyCapped(size, ranges)))
	m.paySorting(int(MultiplyCapped(4, ranges)))
	return nil
}

// payRanges pays for reading the ranges of a list, and returns how many there are; 0 if it is no list.
func payRanges(m *Meter, v ref.Val) int64 {
	list, ok := v.(traits.Lister)
	if !ok {
		return 0
	}
	ranges := MeasureLength(list)
	m.payReading(AddCapped(MultiplyCapped(2, sumTexts(list)), MultiplyCapped(ReadStep/2, ranges)))
	return ranges
}

// chargeSort pays for the comparisons, and for what they read of texts.
func chargeSort(m *Meter, args []ref.Val) ref.Val {
	keys := args[len(args)-1]
	n := max(MeasureLength(args[0]), MeasureLength(keys))
	rounds := int64(math.Log2(float64(n) + 1))
	m.PaySteps(MultiplyCapped(n, rounds))
	if list, ok := keys.(traits.Lister); ok {
		m.payReading(MultiplyCapped(sumTexts(list), rounds+1))
	}
	m.payCopying(MultiplyCapped(ValueSize, n))
	m.payBuilding(AddCapped(listSize, measureElements(args[0])))
	return nil
}

// paySorting pays for sorting so many keys, if an expression is evaluated.
func (m *Meter) paySorting(keys int) {
	if m == nil || m.Budget == nil || keys < ValueSize {
		return
	}
	n := int64(keys)
	m.PaySteps(MultiplyCapped(n, int64(math.Log2(float64(n)))) / ValueSize)
	m.payCopying(MultiplyCapped(ValueSize, n))
}

// chargeSlice pays for a part of a list.
func chargeSlice(m *Meter, args []ref.Val) ref.Val {
	from, isFrom := args[1].(types.Int)
	to, isTo := args[2].(types.Int)
	if isFrom && isTo && from >= 0 && to > from {
		m.payBuilding(AddCapped(listSize, MultiplyCapped(int64(library.MeasureElements(args[0])), min(int64(to-from), MeasureLength(args[0])))))
	}
	return nil
}

// chargeIndex pays for a map that may have an entry for each element of a list.
func chargeIndex(m *Meter, args []ref.Val) ref.Val {
	m.payIndexing(args, 2*ValueSize)
	return nil
}

// chargeGroups pays for a map that may have a list for each element of a list.
func chargeGroups(m *Meter, args []ref.Val) ref.Val {
	m.payIndexing(args, entrySize)
	return nil
}

// payIndexing pays for hashing keys, and for so many bytes for each while a map is made of them.
func (m *Meter) payIndexing(args []ref.Val, each int64) {
	if keys, ok := args[len(args)-1].(traits.Lister); ok {
		m.payCopying(MultiplyCapped(each, MeasureLength(keys)))
		m.payReading(sumTexts(keys))
	}
}

// chargeKey pays for the namespace and the name of an object.
func chargeKey(m *Meter, args []ref.Val) ref.Val {
	metadata := LookupField(args[0], "metadata")
	m.payBuilding(AddCapped(1, MeasureText(LookupField(metadata, "namespace")), MeasureText(LookupField(metadata, "name"))))
	return nil
}

// chargeListSearch pays for looking for an entry in the list at a path of an object.
func chargeListSearch(path ...types.String) func(*Meter, []ref.Val) ref.Val {
	return func(m *Meter, args []ref.Val) ref.Val {
		list := args[0]
		for _, name := range path {
			list = LookupField(list, name)
		}
		each := int64(1)
		if len(args) > 1 {
			each += MeasureText(args[1]) / ReadStep
		}
		m.PaySteps(MultiplyCapped(each, MeasureLength(list)))
		return nil
	}
}

// walkStep is how many values of objects are one step for a function that only looks at them.
const walkStep = 32

// chargeWalk pays for looking at all that the arguments hold, and for the copy of what is no object of the Input.
func chargeWalk(m *Meter, args []ref.Val) ref.Val {
	for _, arg := range args {
		m.payBuilding(m.measureCopy(arg))
	}
	return chargeVisit(m, args)
}

// chargeVisit pays for looking at all that the arguments hold.
func chargeVisit(m *Meter, args []ref.Val) ref.Val {
	m.payVisit(args, nil)
	return nil
}

// payVisit pays for looking at values, where texts below an entry of a map may count so many times more, by its key.
func (m *Meter) payVisit(values []ref.Val, more func(key string) int64) {
	n := int64(1)
	for _, v := range values {
		walk := sizeWalk{meter: m, limit: MultiplyCapped(ValueSize*walkStep, m.Steps+1), factorBelow: more}
		n = AddCapped(n, walk.measureValue(v)/(ValueSize*walkStep))
	}
	m.PaySteps(n)
}

// chargeRefs pays for looking at objects, or at those of lists and targets, one after the other, and for each word that may
// be a name. An object that occurs many times is looked at once.
func chargeRefs(m *Meter, args []ref.Val) ref.Val {
	m.payBuilding(m.measureCopy(args[0]))
	m.payVisit(args[:1], func(key string) int64 {
		const words = 20
		switch key {
		case "command", "args", "value":
			return words
		default:
			return 0
		}
	})
	return nil
}

// measureCopy measures how large the copy in Go is that a function takes of a value: what is one in Go already is not copied, nor are
// lists of such.
func (m *Meter) measureCopy(v ref.Val) int64 {
	switch v := v.(type) {
	case *SortedMap:
		m.payElementVisits(v.Native)
		return 0
	case *NativeList:
		m.payElementVisits(v.Native)
		return 0
	case *types.Optional:
		if v.HasValue() {
			return m.measureCopy(v.GetValue())
		}
		return 0
	case traits.Lister:
		return m.measureListCopy(v)
	case traits.Mapper:
		if list, ok := LookupField(v, "items").(traits.Lister); ok && LookupField(v, "metadata") == types.NullValue {
			return m.measureCopy(list)
		}
		walk := sizeWalk{meter: m, limit: m.Growth}
		return walk.measureValue(v)
	default:
		return 0
	}
}

// payElementVisits pays for making values of the elements of a list in Go, or of those of a target.
func (m *Meter) payElementVisits(v any) {
	switch v := v.(type) {
	case map[string]any:
		if items, ok := v["items"].([]any); ok && v["metadata"] == nil {
			m.payElementVisits(items)
		}
	case []any:
		m.PaySteps(int64(len(v)))
		for _, elem := range v {
			m.payElementVisits(elem)
		}
	}
}

func (m *Meter) measureListCopy(list traits.Lister) int64 {
	n := MultiplyCapped(ValueSize, MeasureLength(list))
	m.PaySteps(1 + n/ReadStep)
	for it := list.Iterator(); it.HasNext() == types.True && n <= m.Growth; {
		n = AddCapped(n, m.measureCopy(it.Next()))
	}
	return n
}

// chargeSetCondition pays for a list of conditions, in which one is looked for.
func chargeSetCondition(m *Meter, args []ref.Val) ref.Val {
	list := args[0]
	if o, ok := list.(*types.Optional); ok && o.HasValue() {
		list = o.GetValue()
	}
	n := MeasureLength(list)
	m.payBuilding(AddCapped(MultiplyCapped(ValueSize, n+1), measureFlat(args[1])))
	m.PaySteps(MultiplyCapped(n+1, 1+MeasureText(LookupField(args[1], "type"))/ReadStep))
	return nil
}

// chargeFlatten pays for the lists that are made at each level of lists in lists.
func chargeFlatten(m *Meter, args []ref.Val) ref.Val {
	levels := int64(1)
	if len(args) > 1 {
		if n, ok := args[1].(types.Int); ok && n > 1 {
			levels = int64(n)
		}
	}
	m.payFlattening(args[0], levels)
	return nil
}

// payFlattening pays for a list that becomes flat, and gives how many elements it has then.
func (m *Meter) payFlattening(v ref.Val, levels int64) int64 {
	list, ok := v.(traits.Lister)
	if !ok || levels < 0 {
		return 1
	}
	n := int64(0)
	for it := list.Iterator(); it.HasNext() == types.True; {
		n += m.payFlattening(it.Next(), levels-1)
	}
	m.payCopying(MultiplyCapped(ValueSize, n+1))
	m.payBuilding(AddCapped(listSize, MultiplyCapped(int64(library.MeasureElements(list)), n)))
	return n
}

// chargeMarshal pays for a copy of all that a value holds, and for the characters that JSON writes as several.
func chargeMarshal(m *Meter, args []ref.Val) ref.Val {
	walk := sizeWalk{meter: m, limit: m.Growth, extraBytes: countEscapes}
	m.payBuilding(walk.measureValue(args[0]))
	return nil
}

// chargeShared pays for ranges, which are new texts, and for the names of those that share them.
func chargeShared(m *Meter, result ref.Val) {
	walk := sizeWalk{meter: m, limit: m.Growth}
	m.payBuilding(AddCapped(listSize, walk.measureValue(result), MultiplyCapped(ValueSize, MeasureLength(result))))
}

// chargeDecoding pays for what a text of JSON becomes.
func chargeDecoding(m *Meter, args []ref.Val) ref.Val {
	m.payBuilding(measureDecoded(m, args[0]))
	return nil
}

// chargeValidation charges for reading a text, and, where it must be decoded for that, for the copy while it exists: it is not kept.
func chargeValidation(m *Meter, args []ref.Val) ref.Val {
	text, _ := args[0].(types.String)
	m.checkValueSize(int64(len(text)))
	m.PaySteps(1)
	m.payReading(int64(len(text) / 2)) // quickly
	if !library.IsPlainJSON(string(text)) {
		m.payCopying(measureDecoded(m, args[0]))
	}
	return nil
}

// measureDecoded measures what a text of JSON becomes, and pays for reading it: what has more values takes longer.
func measureDecoded(m *Meter, v ref.Val) int64 {
	text, _ := v.(types.String)
	size, steps := library.MeasureJSON(string(text))
	m.PaySteps(1 + int64(steps))
	m.payReading(AddCapped(int64(len(text)), int64(size)) / 2)
	return int64(size)
}

func chargeRange(m *Meter, args []ref.Val) ref.Val {
	if n, ok := args[0].(types.Int); ok && n > 0 {
		m.payBuilding(MultiplyCapped(ValueSize, int64(n)))
	}
	return nil
}

// chargeCertificates pays for what a text becomes: names, keys and extensions, several times as large.
func chargeCertificates(m *Meter, args []ref.Val) ref.Val {
	const parsedSize = 8 // for each byte
	n := MeasureLength(args[0])
	m.PaySteps(n / elementStep)
	m.payBuilding(MultiplyCapped(parsedSize, n))
	return nil
}

// chargeJoin pays for a text. It refuses what is no text, which cel-go would write into its error in time that doubles with each
// level of values in values.
func chargeJoin(m *Meter, args []ref.Val) ref.Val {
	if list, ok := args[0].(traits.Lister); ok {
		m.payElements(list)
		for it := list.Iterator(); it.HasNext() == types.True; {
			if v := it.Next(); TypeOf(v) != types.StringType {
				return types.NewErr("join: the elements must be strings, and this is a %s", TypeOf(v).TypeName())
			}
		}
	}
	separators := int64(0)
	if len(args) > 1 {
		separators = MultiplyCapped(MeasureLength(args[0]), MeasureLength(args[1]))
	}
	walk := sizeWalk{meter: m, limit: m.Growth}
	m.payBuilding(AddCapped(separators, walk.measureValue(args[0])))
	return nil
}

// chargeSplit pays for a list with an element for each part.
func chargeSplit(m *Meter, args []ref.Val) ref.Val {
	text, isText := args[0].(types.String)
	by, isSeparator := args[1].(types.String)
	if isText && isSeparator {
		m.payReading(int64(len(text)))
		parts := MultiplyCapped(ValueSize, int64(strings.Count(string(text), string(by)))+1)
		m.payCopying(parts)
		m.payBuilding(AddCapped(ValueSize, parts))
	}
	return nil
}

func chargeReplace(m *Meter, args []ref.Val) ref.Val {
	text, isText := args[0].(types.String)
	old, isOld := args[1].(types.String)
	if isText && isOld {
		m.payReading(int64(len(text)))
		times := int64(strings.Count(string(text), string(old)))
		m.payBuilding(AddCapped(int64(len(text)), MultiplyCapped(times, MeasureLength(args[2]))))
	}
	return nil
}

// chargeQuote pays for a text in which each character may become several.
func chargeQuote(m *Meter, args []ref.Val) ref.Val {
	m.payBuilding(AddCapped(2, MultiplyCapped(3, MeasureText(args[0]))))
	return nil
}

// chargeValidate pays for a text that is read by a regular expression.
func chargeValidate(m *Meter, args []ref.Val) ref.Val {
	n := MeasureText(args[len(args)-1])
	m.payCopying(MultiplyCapped(4, n))
	m.PaySteps(n / elementStep)
	return nil
}

// chargeFormat pays for the values that are written, and for each clause of the format as much as a number can take. What is in maps is
// copied once for each map around it.
func chargeFormat(m *Meter, args []ref.Val) ref.Val {
	const clauseSize = 512
	text, _ := args[0].(types.String)
	m.payReading(int64(len(text)))
	clauses := int64(strings.Count(string(text), "%"))
	walk := sizeWalk{meter: m, limit: m.Growth}
	size := AddCapped(int64(len(text)), MultiplyCapped(clauses, clauseSize), walk.measureValue(args[1]))
	m.payReading(walk.copied)
	m.payBuilding(size)
	return nil
}

// chargeNewQuantity pays for a quantity.
func chargeNewQuantity(m *Meter, args []ref.Val) ref.Val {
	chargeArithmetic(m, args)
	return chargeQuantity(m, args)
}

// chargeArithmetic pays for the quantity that is made of two.
func chargeArithmetic(m *Meter, _ []ref.Val) ref.Val {
	const quantitySize = 96
	m.payBuilding(quantitySize)
	return nil
}

// chargeVersion pays for a version, which may have an identifier for each two characters.
func chargeVersion(m *Meter, args []ref.Val) ref.Val {
	const versionSize, partSize = 96, 24
	if err := chargeShortText(m, args); err != nil {
		return err
	}
	m.payBuilding(AddCapped(versionSize, MultiplyCapped(partSize, MeasureText(args[0]))))
	return nil
}

// chargeOptional pays for an optional value of another one. Others are no more than what is around their value, and most exist for a moment.
func chargeOptional(m *Meter, args []ref.Val) ref.Val {
	if _, isNested := args[0].(*types.Optional); isNested {
		m.payBuilding(2 * ValueSize)
	}
	return nil
}

// chargeMessages pays for messages.
func chargeMessages(m *Meter, result ref.Val) {
	walk := sizeWalk{meter: m, limit: m.Growth}
	m.payBuilding(AddCapped(listSize, MultiplyCapped(2, walk.measureValue(result))))
}

// chargeQuantity keeps quantities away that are too long to be one, and whose comparison would take a number of billions of
// digits.
func chargeQuantity(m *Meter, args []ref.Val) ref.Val {
	if err := chargeShortText(m, args); err != nil {
		return err
	}
	text, _ := args[0].(types.String)
	const suffix = len("e+99")
	digits := strings.TrimRight(string(text), "0123456789")
	mantissa := strings.TrimRight(digits, "+-")
	if len(text)-len(mantissa) >= suffix && strings.HasSuffix(strings.ToLower(mantissa), "e") {
		return types.NewErr("the exponent of the quantity %q is too large", expr.TruncateText(string(text), 32))
	}
	return nil
}
