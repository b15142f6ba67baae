// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"math"
	"net/url"
	"strings"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// charge is what a function costs: it is paid before the call, so that nothing large is made, read or compared that is not
// paid for. Only what is done in constant time, whatever the arguments, is free.
type charge struct {
	// beforeCall pays for what is known from the arguments, before anything is allocated. It may refuse the call by an error.
	beforeCall func(m *meter, args []ref.Val) ref.Val
	// forPattern stands in the place of beforeCall, where an argument is a regular expression: of this size.
	forPattern func(m *meter, pattern int64, args []ref.Val)
	// afterCall pays for the result, of functions whose result is smaller than what beforeCall has paid for while it is made.
	afterCall func(m *meter, result ref.Val)
}

func (c charge) isFree() bool {
	return c.beforeCall == nil && c.forPattern == nil && c.afterCall == nil
}

// newChargeTable says of every function of the environment what it costs. One that is missing here fails a test, and so does one
// that allocates much more, or takes many more elements of a list, than it pays for before.
func newChargeTable() map[string]charge {
	table := map[string]charge{
		operators.Add:       {beforeCall: chargeAdd},
		operators.Equals:    {beforeCall: chargeOperands},
		operators.NotEquals: {beforeCall: chargeOperands},
		operators.In:        {beforeCall: chargeSearch},
		operators.OldIn:     {beforeCall: chargeSearch},
		"in":                {beforeCall: chargeSearch},

		"base64.decode":   {beforeCall: chargeCopy},
		"base64.encode":   {beforeCall: chargeCopy},
		"bytes":           {beforeCall: chargeCopy},
		"distinct":        {beforeCall: chargePairs, afterCall: chargeResult},
		"flatten":         {beforeCall: chargeFlatten},
		"format":          {beforeCall: chargeFormat, afterCall: chargeResult},
		"getQuery":        {beforeCall: chargeQuery},
		"includes":        {beforeCall: chargeSearchIn},
		"indexOf":         {beforeCall: chargeSearchIn},
		"join":            {beforeCall: chargeJoin},
		"key":             {beforeCall: chargeKey},
		"lastIndexOf":     {beforeCall: chargeSearchIn},
		"lists.range":     {beforeCall: chargeRange},
		"optional.unwrap": {beforeCall: chargeCopy},
		"replace":         {beforeCall: chargeReplace},
		"reverse":         {beforeCall: chargeRunes, afterCall: chargeResult},
		"slice":           {beforeCall: chargeSlice},
		"split":           {beforeCall: chargeSplit},
		"string":          {beforeCall: chargeCopy},
		"strings.quote":   {beforeCall: chargeQuote},
		"toSet":           {beforeCall: chargeIndex, afterCall: chargeResult},
		"trim":            {beforeCall: chargeCopy},
		"unwrapOpt":       {beforeCall: chargeCopy},
		"validate":        {beforeCall: chargeValidate, afterCall: chargeResult},

		"isQuantity": {beforeCall: chargeQuantity},
		"quantity":   {beforeCall: chargeQuantity},

		"find":    {forPattern: chargeMatch},
		"findAll": {forPattern: chargeMatches, afterCall: chargeResult},
		"matches": {forPattern: chargeMatch},

		"json.marshal":   {beforeCall: chargeMarshal},
		"json.unmarshal": {beforeCall: chargeDecoding},
		"json.valid":     {beforeCall: chargeDecoding},

		"certificates":    {beforeCall: chargeCertificates},
		"condition":       {beforeCall: chargeListSearch("status", "conditions")},
		"controller":      {beforeCall: chargeListSearch("metadata", "ownerReferences")},
		"matchesSelector": {beforeCall: chargeWalk},
		"podRefs":         {beforeCall: chargeWalk, afterCall: chargeResult},
		"refs":            {beforeCall: chargeRefs, afterCall: chargeResult},
		"selects":         {beforeCall: chargeWalk},
		"setCondition":    {beforeCall: chargeSetCondition},

		"regex.extract":    {forPattern: chargeMatch},
		"regex.extractAll": {forPattern: chargeMatches, afterCall: chargeResult},
		"regex.replace":    {forPattern: chargeReplaceMatches},

		"@countBy":              {beforeCall: chargeIndex, afterCall: chargeResult},
		"@groupBy":              {beforeCall: chargeIndex, afterCall: chargeResult},
		"@indexBy":              {beforeCall: chargeIndex, afterCall: chargeResult},
		"@sortByAssociatedKeys": {beforeCall: chargeSort},
		"cel.@mapInsert":        {beforeCall: chargeInsert},
		"sets.contains":         {beforeCall: chargePairs},
		"sets.equivalent":       {beforeCall: chargePairs},
		"sets.intersects":       {beforeCall: chargePairs},
		"sort":                  {beforeCall: chargeSort},
	}
	for names, before := range map[string]func(*meter, []ref.Val) ref.Val{
		shortTextFunctions: chargeShortText, urlTextFunctions: chargeURLText, scanFunctions: chargeScan, runeFunctions: chargeRunes, listElementFunctions: chargeElements, urlPartFunctions: chargeURL, zoneFunctions: chargeZone,
	} {
		for _, name := range strings.Fields(names) {
			table[name] = charge{beforeCall: before}
		}
	}
	for _, name := range strings.Fields(freeFunctions) {
		table[name] = charge{}
	}
	return table
}

// shortTextFunctions are the functions that read a text which is never long: a number, a time, an address.
const shortTextFunctions = `
	bool cidr cidrUsable containsCIDR containsIP double duration int ip ip.isCanonical isCIDR isIP isSemver
	parseDuration parseTimestamp semver timestamp uint format.named`

// urlTextFunctions are the functions that read a URL.
const urlTextFunctions = `isURL url`

// scanFunctions are the functions that look at each byte of their texts once, quickly, and build nothing.
const scanFunctions = `_<=_ _<_ _>=_ _>_ contains endsWith size startsWith`

// runeFunctions are the functions that have a copy of a text with four bytes for each character.
const runeFunctions = `charAt lowerAscii substring upperAscii`

// listElementFunctions are the functions that compare or add up the elements of a list.
const listElementFunctions = `isSorted math.@max math.@min max min sum`

// urlPartFunctions are the functions that take a URL apart.
const urlPartFunctions = `getEscapedPath getHost getHostname getPort getScheme`

// zoneFunctions are the functions that may look a time zone up.
const zoneFunctions = `
	getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds getMinutes getMonth getSeconds`

// freeFunctions are the functions that take no longer for large arguments than for small ones.
const freeFunctions = `
	!_ -_ @not_strictly_false __not_strictly_false__ _%_ _&&_ _*_ _-_ _/_ _?._ _?_:_ _[?_] _[_] _||_
	add asApproximateFloat asInteger compareTo dyn family first format.byte format.date format.datetime
	format.dns1035Label format.dns1035LabelPrefix format.dns1123Label format.dns1123LabelPrefix
	format.dns1123Subdomain format.dns1123SubdomainPrefix format.labelValue format.qualifiedName format.uri
	format.uuid hasValue isGlobalUnicast isGreaterThan isInteger isLessThan isLinkLocalMulticast
	isLinkLocalUnicast isLoopback isUnspecified last major masked math.abs math.bitAnd math.bitNot math.bitOr
	math.bitShiftLeft math.bitShiftRight math.bitXor math.ceil math.floor math.isFinite math.isInf math.isNaN
	math.round math.sign math.sqrt math.trunc minor optional.none optional.of optional.ofNonZeroValue or orValue
	patch podLabels podSpec prefixLength seconds sign sub type value`

func chargeResult(m *meter, result ref.Val) { m.payBuilding(measureFlat(result)) }

// measureText measures how long a text is; 0 for what is none.
func measureText(v ref.Val) int64 {
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
func chargeScan(m *meter, args []ref.Val) ref.Val {
	n := int64(0)
	for _, arg := range args {
		n = addCapped(n, measureText(arg))
	}
	m.payReading(n)
	return nil
}

// The longest texts of functions whose argument is never long.
const (
	maxShortText = 1 << 10
	maxURLText   = 16 << 10
)

// chargeShortText refuses a text that is too long to be what the function reads, and pays for the others: such functions take
// some nanoseconds for each byte.
func chargeShortText(m *meter, args []ref.Val) ref.Val { return chargeText(m, args, maxShortText) }

// chargeURLText is the same for a URL.
func chargeURLText(m *meter, args []ref.Val) ref.Val { return chargeText(m, args, maxURLText) }

func chargeText(m *meter, args []ref.Val, most int64) ref.Val {
	const slow = 16
	for _, arg := range args {
		n := measureText(arg)
		if n > most {
			return types.NewErr("the text is %d bytes long, and at most %d are read here", n, most)
		}
		if n >= slow {
			m.paySteps(n / slow)
		}
	}
	return nil
}

// chargeZone pays for looking a time zone up by its name, which reads a file.
func chargeZone(m *meter, args []ref.Val) ref.Val {
	const lookup = 256
	if len(args) > 1 {
		m.paySteps(lookup)
	}
	return chargeShortText(m, args)
}

// chargeURL pays for what a URL becomes: at most a map with an entry for each few characters of its query.
func chargeURL(m *meter, args []ref.Val) ref.Val {
	const part = 64
	if u, ok := args[0].Value().(*url.URL); ok {
		m.payCopying(multiplyCapped(part, int64(len(u.RawQuery))))
		m.payBuilding(int64(len(u.RawQuery) + len(u.Path) + len(u.Host)))
	}
	return nil
}

// chargeQuery pays also for the map, and for a list for each of its keys.
func chargeQuery(m *meter, args []ref.Val) ref.Val {
	if u, ok := args[0].Value().(*url.URL); ok && u.RawQuery != "" {
		m.payBuilding(multiplyCapped(4*entrySize, int64(strings.Count(u.RawQuery, "&"))+1))
	}
	return chargeURL(m, args)
}

// chargeCopy pays for a result that is about as large as the argument.
func chargeCopy(m *meter, args []ref.Val) ref.Val {
	m.payBuilding(measureFlat(args[0]))
	return nil
}

// chargeRunes pays for a text of four bytes for each character, and for what is made of it.
func chargeRunes(m *meter, args []ref.Val) ref.Val {
	const runeBytes = 4
	switch v := args[0].(type) {
	case types.String:
		m.payCopying(multiplyCapped(runeBytes, int64(len(v))))
		m.payBuilding(int64(len(v)))
	case traits.Lister:
		m.payCopying(multiplyCapped(valueSize, measureLength(v)))
		m.payElements(v)
	}
	return nil
}

// elementStep is how many elements of a list are one step for a function that takes each once.
const elementStep = 4

// payElements pays for taking each element of a list once.
func (m *meter) payElements(list ref.Val) {
	if n := measureLength(list); n >= elementStep {
		m.paySteps(n / elementStep)
	}
}

// chargeElements pays for comparing or adding up the elements of a list, or the arguments.
func chargeElements(m *meter, args []ref.Val) ref.Val {
	for _, arg := range args {
		if list, ok := arg.(traits.Lister); ok {
			m.payElements(list)
			m.payReading(m.sumTexts(list))
		}
	}
	return nil
}

// sumTexts adds up how long the texts in a list are.
func (m *meter) sumTexts(list traits.Lister) int64 {
	n := int64(0)
	for it := list.Iterator(); it.HasNext() == types.True; {
		n = addCapped(n, measureText(it.Next()))
	}
	return n
}

func chargeAdd(m *meter, args []ref.Val) ref.Val {
	switch left := args[0].(type) {
	case traits.MutableLister: // a loop that collects: only what is appended is new
		m.checkValueSize(multiplyCapped(valueSize, measureLength(left)))
		m.payBuilding(measureFlat(args[1]))
	case types.String, types.Bytes, traits.Lister:
		m.payBuilding(addCapped(measureFlat(left), measureFlat(args[1])))
	}
	return nil
}

func chargeInsert(m *meter, args []ref.Val) ref.Val {
	m.checkValueSize(measureFlat(args[0]))
	if _, ok := args[0].(traits.MutableMapper); !ok {
		m.payBuilding(measureFlat(args[0]))
	}
	if update, ok := args[1].(traits.Mapper); ok {
		m.payBuilding(measureFlat(update))
		return nil
	}
	m.payReading(measureText(args[1]))
	m.payBuilding(entrySize)
	return nil
}

func chargeOperands(m *meter, args []ref.Val) ref.Val {
	chargeEquality(m, args[0], args[1])
	return nil
}

// chargeEquality pays for comparing two texts, or what two lists or maps hold: at most all of the smaller one, which is
// looked for in small steps so that the larger one is not measured.
func chargeEquality(m *meter, left, right ref.Val) {
	switch {
	case isContainer(left) && isContainer(right):
		for most := int64(64); ; most *= 4 {
			if n := min(m.countValues(left, most), m.countValues(right, most)); n <= most || most > m.steps {
				m.paySteps(n)
				return
			}
		}
	default:
		m.payReading(min(measureText(left), measureText(right)))
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
func chargeSearch(m *meter, args []ref.Val) ref.Val {
	if list, ok := args[1].(traits.Lister); ok {
		chargeComparisons(m, args[0], list)
		return nil
	}
	m.payReading(measureText(args[0]))
	return nil
}

// chargeSearchIn pays for a search in the first argument.
func chargeSearchIn(m *meter, args []ref.Val) ref.Val {
	switch in := args[0].(type) {
	case types.String: // cel-go tries each place
		chargeRunes(m, args[:1])
		chargeRunes(m, args[1:2])
		m.paySteps(multiplyCapped(int64(len(in)), measureLength(args[1])) / valueSize)
	case traits.Lister:
		chargeComparisons(m, args[1], in)
	default:
		chargeEquality(m, args[0], args[1])
	}
	return nil
}

// chargeComparisons pays for comparing one value with each element of a list.
func chargeComparisons(m *meter, one ref.Val, list traits.Lister) {
	if !isContainer(one) {
		m.paySteps(multiplyCapped(measureLength(list), 1+measureText(one)/readStep))
		return
	}
	m.paySteps(m.countValues(list, math.MaxInt64))
}

// chargePairs pays for comparing each element of a list with each of another, or of itself.
func chargePairs(m *meter, args []ref.Val) ref.Val {
	left, right := args[0], args[len(args)-1]
	m.payCopying(multiplyCapped(valueSize, measureLength(left)))
	m.paySteps(multiplyCapped(measureLength(left), m.countValues(right, math.MaxInt64)))
	if len(args) > 1 { // sets.equivalent looks both ways
		m.paySteps(multiplyCapped(measureLength(right), m.countValues(left, math.MaxInt64)))
	}
	return nil
}

// chargeSort pays for the comparisons, and for what they read of texts.
func chargeSort(m *meter, args []ref.Val) ref.Val {
	keys := args[len(args)-1]
	n := max(measureLength(args[0]), measureLength(keys))
	rounds := int64(math.Log2(float64(n) + 1))
	m.paySteps(multiplyCapped(n, rounds))
	if list, ok := keys.(traits.Lister); ok {
		m.payReading(multiplyCapped(m.sumTexts(list), rounds+1))
	}
	m.payCopying(multiplyCapped(valueSize, n))
	m.payBuilding(multiplyCapped(valueSize, n))
	return nil
}

// paySorting pays for sorting so many keys, if an expression is evaluated.
func (m *meter) paySorting(keys int) {
	if m == nil || m.budget == nil || keys < valueSize {
		return
	}
	n := int64(keys)
	m.paySteps(multiplyCapped(n, int64(math.Log2(float64(n)))) / valueSize)
	m.payCopying(multiplyCapped(valueSize, n))
}

// chargeSlice pays for a part of a list.
func chargeSlice(m *meter, args []ref.Val) ref.Val {
	from, isFrom := args[1].(types.Int)
	to, isTo := args[2].(types.Int)
	if isFrom && isTo && from >= 0 && to > from {
		m.payBuilding(multiplyCapped(valueSize, min(int64(to-from), measureLength(args[0]))))
	}
	return nil
}

// chargeIndex pays for a map that may have an entry for each element of a list.
func chargeIndex(m *meter, args []ref.Val) ref.Val {
	keys, ok := args[len(args)-1].(traits.Lister)
	if !ok {
		return nil
	}
	m.payCopying(multiplyCapped(entrySize, measureLength(keys)))
	m.payReading(m.sumTexts(keys))
	return nil
}

// chargeKey pays for the namespace and the name of an object.
func chargeKey(m *meter, args []ref.Val) ref.Val {
	metadata := lookupField(args[0], "metadata")
	m.payBuilding(addCapped(1, measureText(lookupField(metadata, "namespace")), measureText(lookupField(metadata, "name"))))
	return nil
}

// chargeListSearch pays for looking for an entry in the list at a path of an object.
func chargeListSearch(path ...types.String) func(*meter, []ref.Val) ref.Val {
	return func(m *meter, args []ref.Val) ref.Val {
		list := args[0]
		for _, name := range path {
			list = lookupField(list, name)
		}
		each := int64(1)
		if len(args) > 1 {
			each += measureText(args[1]) / readStep
		}
		m.paySteps(multiplyCapped(each, measureLength(list)))
		return nil
	}
}

// walkStep is how many values of objects are one step for a function that only looks at them.
const walkStep = 32

// chargeWalk pays for looking at all that the arguments hold, and for the copy of what is no object of the Input.
func chargeWalk(m *meter, args []ref.Val) ref.Val {
	for _, arg := range args {
		m.payBuilding(m.measureCopy(arg))
	}
	return chargeVisit(m, args)
}

// chargeVisit pays for looking at all that the arguments hold.
func chargeVisit(m *meter, args []ref.Val) ref.Val {
	m.payVisit(args, nil)
	return nil
}

// payVisit pays for looking at values, where texts below an entry of a map may count so many times more, by its key.
func (m *meter) payVisit(values []ref.Val, more func(key string) int64) {
	n := int64(1)
	for _, v := range values {
		walk := &sizeWalk{limit: multiplyCapped(valueSize*walkStep, m.steps+1), factorBelow: more, ended: m.ended}
		n = addCapped(n, m.walkValue(walk, v)/(valueSize*walkStep))
	}
	m.paySteps(n)
}

// chargeRefs pays for looking at objects, or at those of lists and targets, one after the other, and for each word that may
// be a name. An object that occurs many times is looked at once.
func chargeRefs(m *meter, args []ref.Val) ref.Val {
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
func (m *meter) measureCopy(v ref.Val) int64 {
	switch v := v.(type) {
	case *sortedMap, *nativeList:
		return 0
	case *types.Optional:
		if v.HasValue() {
			return m.measureCopy(v.GetValue())
		}
		return 0
	case traits.Lister:
		return m.measureListCopy(v)
	case traits.Mapper:
		if list, ok := lookupField(v, "items").(traits.Lister); ok && lookupField(v, "metadata") == types.NullValue {
			return m.measureCopy(list)
		}
		return m.measureValue(v, m.growth)
	default:
		return 0
	}
}

func (m *meter) measureListCopy(list traits.Lister) int64 {
	n := multiplyCapped(valueSize, measureLength(list))
	m.paySteps(1 + n/readStep)
	for it := list.Iterator(); it.HasNext() == types.True && n <= m.growth; {
		n = addCapped(n, m.measureCopy(it.Next()))
	}
	return n
}

// chargeSetCondition pays for a list of conditions, in which one is looked for.
func chargeSetCondition(m *meter, args []ref.Val) ref.Val {
	list := args[0]
	if o, ok := list.(*types.Optional); ok && o.HasValue() {
		list = o.GetValue()
	}
	n := measureLength(list)
	m.payBuilding(addCapped(multiplyCapped(valueSize, n+1), measureFlat(args[1])))
	m.paySteps(multiplyCapped(n+1, 1+measureText(lookupField(args[1], "type"))/readStep))
	return nil
}

// chargeFlatten pays for the lists that are made at each level of lists in lists.
func chargeFlatten(m *meter, args []ref.Val) ref.Val {
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
func (m *meter) payFlattening(v ref.Val, levels int64) int64 {
	list, ok := v.(traits.Lister)
	if !ok || levels < 0 {
		return 1
	}
	n := int64(0)
	for it := list.Iterator(); it.HasNext() == types.True; {
		n += m.payFlattening(it.Next(), levels-1)
	}
	m.payCopying(multiplyCapped(valueSize, n+1))
	m.payBuilding(multiplyCapped(valueSize, n+1))
	return n
}

// chargeMarshal pays for a copy of all that a value holds, and for the characters that JSON writes as several.
func chargeMarshal(m *meter, args []ref.Val) ref.Val {
	m.payBuilding(m.measureWith(args[0], m.growth, countEscapes))
	return nil
}

// chargeDecoding pays for what a text of JSON becomes, by what begins and separates its values.
func chargeDecoding(m *meter, args []ref.Val) ref.Val {
	const objectSize = 256 // an empty map takes about this
	text, _ := args[0].(types.String)
	m.payReading(multiplyCapped(4, int64(len(text))))
	objects := strings.Count(string(text), "{")
	lists := strings.Count(string(text), "[")
	values := strings.Count(string(text), ",") + 1
	m.payBuilding(addCapped(int64(len(text)), multiplyCapped(objectSize, int64(objects)), multiplyCapped(entrySize, int64(lists+values))))
	return nil
}

func chargeRange(m *meter, args []ref.Val) ref.Val {
	if n, ok := args[0].(types.Int); ok && n > 0 {
		m.payBuilding(multiplyCapped(valueSize, int64(n)))
	}
	return nil
}

// chargeCertificates pays for what a text becomes: names, keys and extensions, several times as large.
func chargeCertificates(m *meter, args []ref.Val) ref.Val {
	const parsedSize = 8 // for each byte
	n := measureLength(args[0])
	m.paySteps(n / elementStep)
	m.payBuilding(multiplyCapped(parsedSize, n))
	return nil
}

func chargeJoin(m *meter, args []ref.Val) ref.Val {
	separators := int64(0)
	if len(args) > 1 {
		separators = multiplyCapped(measureLength(args[0]), measureLength(args[1]))
	}
	m.payElements(args[0])
	m.payBuilding(addCapped(separators, m.measureValue(args[0], m.growth)))
	return nil
}

// chargeSplit pays for a list with an element for each part.
func chargeSplit(m *meter, args []ref.Val) ref.Val {
	text, isText := args[0].(types.String)
	by, isSeparator := args[1].(types.String)
	if isText && isSeparator {
		m.payReading(int64(len(text)))
		parts := multiplyCapped(valueSize, int64(strings.Count(string(text), string(by)))+1)
		m.payCopying(parts)
		m.payBuilding(addCapped(valueSize, parts))
	}
	return nil
}

func chargeReplace(m *meter, args []ref.Val) ref.Val {
	text, isText := args[0].(types.String)
	old, isOld := args[1].(types.String)
	if isText && isOld {
		m.payReading(int64(len(text)))
		times := int64(strings.Count(string(text), string(old)))
		m.payBuilding(addCapped(int64(len(text)), multiplyCapped(times, measureLength(args[2]))))
	}
	return nil
}

// chargeQuote pays for a text in which each character may become several.
func chargeQuote(m *meter, args []ref.Val) ref.Val {
	m.payBuilding(addCapped(2, multiplyCapped(3, measureText(args[0]))))
	return nil
}

// chargeValidate pays for a text that is read by a regular expression.
func chargeValidate(m *meter, args []ref.Val) ref.Val {
	n := measureText(args[len(args)-1])
	m.payCopying(multiplyCapped(4, n))
	m.paySteps(n / elementStep)
	return nil
}

// chargeFormat pays for the values that are written, and for each clause of the format as much as a number can take.
func chargeFormat(m *meter, args []ref.Val) ref.Val {
	const clauseSize = 512
	text, _ := args[0].(types.String)
	m.payReading(int64(len(text)))
	clauses := int64(strings.Count(string(text), "%"))
	m.payBuilding(addCapped(int64(len(text)), multiplyCapped(clauses, clauseSize), m.measureValue(args[1], m.growth)))
	return nil
}

// chargeQuantity keeps quantities away that are too long to be one, and whose comparison would take a number of billions of
// digits.
func chargeQuantity(m *meter, args []ref.Val) ref.Val {
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
