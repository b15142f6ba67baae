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
	// before pays for what is known from the arguments, before anything is allocated. It may refuse the call by an error.
	before func(m *meter, args []ref.Val) ref.Val
	// match stands in the place of before, where an argument is a regular expression: of this size.
	match func(m *meter, pattern int64, args []ref.Val)
	// after pays for the result, of functions whose result is smaller than what before has paid for while it is made.
	after func(m *meter, result ref.Val)
}

func (c charge) free() bool { return c.before == nil && c.match == nil && c.after == nil }

// charges says of every function of the environment what it costs. One that is missing here fails a test, and so does one
// that allocates much more, or takes many more elements of a list, than it pays for before.
func charges() map[string]charge {
	table := map[string]charge{
		operators.Add:       {before: chargeAdd},
		operators.Equals:    {before: chargeOperands},
		operators.NotEquals: {before: chargeOperands},
		operators.In:        {before: chargeSearch},
		operators.OldIn:     {before: chargeSearch},
		"in":                {before: chargeSearch},

		"base64.decode":   {before: chargeCopy},
		"base64.encode":   {before: chargeCopy},
		"bytes":           {before: chargeCopy},
		"distinct":        {before: chargePairs, after: chargeResult},
		"flatten":         {before: chargeFlatten},
		"format":          {before: chargeFormat, after: chargeResult},
		"getQuery":        {before: chargeQuery},
		"includes":        {before: chargeSearchIn},
		"indexOf":         {before: chargeSearchIn},
		"join":            {before: chargeJoin},
		"key":             {before: chargeKey},
		"lastIndexOf":     {before: chargeSearchIn},
		"lists.range":     {before: chargeRange},
		"optional.unwrap": {before: chargeCopy},
		"replace":         {before: chargeReplace},
		"reverse":         {before: chargeRunes, after: chargeResult},
		"slice":           {before: chargeSlice},
		"split":           {before: chargeSplit},
		"string":          {before: chargeCopy},
		"strings.quote":   {before: chargeQuote},
		"toSet":           {before: chargeIndex, after: chargeResult},
		"trim":            {before: chargeCopy},
		"unwrapOpt":       {before: chargeCopy},
		"validate":        {before: chargeValidate, after: chargeResult},

		"isQuantity": {before: chargeQuantity},
		"quantity":   {before: chargeQuantity},

		"find":    {match: chargeMatch},
		"findAll": {match: chargeMatches, after: chargeResult},
		"matches": {match: chargeMatch},

		"json.marshal":   {before: chargeMarshal},
		"json.unmarshal": {before: chargeDecoding},
		"json.valid":     {before: chargeDecoding},

		"certificates":    {before: chargeCertificates},
		"condition":       {before: chargeFirst("status", "conditions")},
		"controller":      {before: chargeFirst("metadata", "ownerReferences")},
		"matchesSelector": {before: chargeWalk},
		"podRefs":         {before: chargeWalk, after: chargeResult},
		"refs":            {before: chargeRefs, after: chargeResult},
		"selects":         {before: chargeWalk},
		"setCondition":    {before: chargeSetCondition},

		"regex.extract":    {match: chargeMatch},
		"regex.extractAll": {match: chargeMatches, after: chargeResult},
		"regex.replace":    {match: chargeReplaceMatches},

		"@countBy":              {before: chargeIndex, after: chargeResult},
		"@groupBy":              {before: chargeIndex, after: chargeResult},
		"@indexBy":              {before: chargeIndex, after: chargeResult},
		"@sortByAssociatedKeys": {before: chargeSort},
		"cel.@mapInsert":        {before: chargeInsert},
		"sets.contains":         {before: chargePairs},
		"sets.equivalent":       {before: chargePairs},
		"sets.intersects":       {before: chargePairs},
		"sort":                  {before: chargeSort},
	}
	for names, before := range map[string]func(*meter, []ref.Val) ref.Val{
		short: chargeShort, long: chargeLong, scanning: chargeScan, ofRunes: chargeRunes, ofLists: chargeElements, ofURLs: chargeURL, ofZones: chargeZone,
	} {
		for _, name := range strings.Fields(names) {
			table[name] = charge{before: before}
		}
	}
	for _, name := range strings.Fields(free) {
		table[name] = charge{}
	}
	return table
}

// short are the functions that read a text which is never long: a number, a time, an address.
const short = `
	bool cidr cidrUsable containsCIDR containsIP double duration int ip ip.isCanonical isCIDR isIP isSemver
	parseDuration parseTimestamp semver timestamp uint format.named`

// long are the functions that read a URL.
const long = `isURL url`

// scanning are the functions that look at each byte of their texts once, quickly, and build nothing.
const scanning = `_<=_ _<_ _>=_ _>_ contains endsWith size startsWith`

// ofRunes are the functions that have a copy of a text with four bytes for each character.
const ofRunes = `charAt lowerAscii substring upperAscii`

// ofLists are the functions that compare or add up the elements of a list.
const ofLists = `isSorted math.@max math.@min max min sum`

// ofURLs are the functions that take a URL apart.
const ofURLs = `getEscapedPath getHost getHostname getPort getScheme`

// ofZones are the functions that may look a time zone up.
const ofZones = `
	getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds getMinutes getMonth getSeconds`

// free are the functions that take no longer for large arguments than for small ones.
const free = `
	!_ -_ @not_strictly_false __not_strictly_false__ _%_ _&&_ _*_ _-_ _/_ _?._ _?_:_ _[?_] _[_] _||_
	add asApproximateFloat asInteger compareTo dyn family first format.byte format.date format.datetime
	format.dns1035Label format.dns1035LabelPrefix format.dns1123Label format.dns1123LabelPrefix
	format.dns1123Subdomain format.dns1123SubdomainPrefix format.labelValue format.qualifiedName format.uri
	format.uuid hasValue isGlobalUnicast isGreaterThan isInteger isLessThan isLinkLocalMulticast
	isLinkLocalUnicast isLoopback isUnspecified last major masked math.abs math.bitAnd math.bitNot math.bitOr
	math.bitShiftLeft math.bitShiftRight math.bitXor math.ceil math.floor math.isFinite math.isInf math.isNaN
	math.round math.sign math.sqrt math.trunc minor optional.none optional.of optional.ofNonZeroValue or orValue
	patch podLabels podSpec prefixLength seconds sign sub type value`

func chargeResult(m *meter, result ref.Val) { m.build(flatSize(result)) }

// textSize is how long a text is; 0 for what is none.
func textSize(v ref.Val) int64 {
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
		n = sum(n, textSize(arg))
	}
	m.read(n)
	return nil
}

// The longest texts of functions whose argument is never long.
const (
	maxShort = 1 << 10
	maxURL   = 16 << 10
)

// chargeShort refuses a text that is too long to be what the function reads, and pays for the others: such functions take
// some nanoseconds for each byte.
func chargeShort(m *meter, args []ref.Val) ref.Val { return chargeText(m, args, maxShort) }

// chargeLong is the same for a URL.
func chargeLong(m *meter, args []ref.Val) ref.Val { return chargeText(m, args, maxURL) }

func chargeText(m *meter, args []ref.Val, most int64) ref.Val {
	const slow = 16
	for _, arg := range args {
		n := textSize(arg)
		if n > most {
			return types.NewErr("the text is %d bytes long, and at most %d are read here", n, most)
		}
		if n >= slow {
			m.work(n / slow)
		}
	}
	return nil
}

// chargeZone pays for looking a time zone up by its name, which reads a file.
func chargeZone(m *meter, args []ref.Val) ref.Val {
	const lookup = 256
	if len(args) > 1 {
		m.work(lookup)
	}
	return chargeShort(m, args)
}

// chargeURL pays for what a URL becomes: at most a map with an entry for each few characters of its query.
func chargeURL(m *meter, args []ref.Val) ref.Val {
	const part = 64
	if u, ok := args[0].Value().(*url.URL); ok {
		m.copies(product(part, int64(len(u.RawQuery))))
		m.build(int64(len(u.RawQuery) + len(u.Path) + len(u.Host)))
	}
	return nil
}

// chargeQuery pays also for the map, and for a list for each of its keys.
func chargeQuery(m *meter, args []ref.Val) ref.Val {
	if u, ok := args[0].Value().(*url.URL); ok && u.RawQuery != "" {
		m.build(product(4*entrySize, int64(strings.Count(u.RawQuery, "&"))+1))
	}
	return chargeURL(m, args)
}

// chargeCopy pays for a result that is about as large as the argument.
func chargeCopy(m *meter, args []ref.Val) ref.Val {
	m.build(flatSize(args[0]))
	return nil
}

// chargeRunes pays for a text of four bytes for each character, and for what is made of it.
func chargeRunes(m *meter, args []ref.Val) ref.Val {
	const runeBytes = 4
	switch v := args[0].(type) {
	case types.String:
		m.copies(product(runeBytes, int64(len(v))))
		m.build(int64(len(v)))
	case traits.Lister:
		m.copies(product(valueSize, length(v)))
		m.elements(v)
	}
	return nil
}

// elementStep is how many elements of a list are one step for a function that takes each once.
const elementStep = 4

// elements pays for taking each element of a list once.
func (m *meter) elements(list ref.Val) {
	if n := length(list); n >= elementStep {
		m.work(n / elementStep)
	}
}

// chargeElements pays for comparing or adding up the elements of a list, or the arguments.
func chargeElements(m *meter, args []ref.Val) ref.Val {
	for _, arg := range args {
		if list, ok := arg.(traits.Lister); ok {
			m.elements(list)
			m.read(m.texts(list))
		}
	}
	return nil
}

// texts is how long the texts in a list are together.
func (m *meter) texts(list traits.Lister) int64 {
	n := int64(0)
	for it := list.Iterator(); it.HasNext() == types.True; {
		n = sum(n, textSize(it.Next()))
	}
	return n
}

func chargeAdd(m *meter, args []ref.Val) ref.Val {
	switch left := args[0].(type) {
	case traits.MutableLister: // a loop that collects: only what is appended is new
		m.hold(product(valueSize, length(left)))
		m.build(flatSize(args[1]))
	case types.String, types.Bytes, traits.Lister:
		m.build(sum(flatSize(left), flatSize(args[1])))
	}
	return nil
}

func chargeInsert(m *meter, args []ref.Val) ref.Val {
	m.hold(flatSize(args[0]))
	if _, ok := args[0].(traits.MutableMapper); !ok {
		m.build(flatSize(args[0]))
	}
	if update, ok := args[1].(traits.Mapper); ok {
		m.build(flatSize(update))
		return nil
	}
	m.read(textSize(args[1]))
	m.build(entrySize)
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
	case holds(left) && holds(right):
		for most := int64(64); ; most *= 4 {
			if n := min(m.values(left, most), m.values(right, most)); n <= most || most > m.steps {
				m.work(n)
				return
			}
		}
	default:
		m.read(min(textSize(left), textSize(right)))
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
		return nil
	}
	m.read(textSize(args[0]))
	return nil
}

// chargeSearchIn pays for a search in the first argument.
func chargeSearchIn(m *meter, args []ref.Val) ref.Val {
	switch in := args[0].(type) {
	case types.String: // cel-go tries each place
		chargeRunes(m, args[:1])
		chargeRunes(m, args[1:2])
		m.work(product(int64(len(in)), length(args[1])) / valueSize)
	case traits.Lister:
		comparisons(m, args[1], in)
	default:
		chargeEquality(m, args[0], args[1])
	}
	return nil
}

// comparisons pays for comparing one value with each element of a list.
func comparisons(m *meter, one ref.Val, list traits.Lister) {
	if !holds(one) {
		m.work(product(length(list), 1+textSize(one)/readStep))
		return
	}
	m.work(m.values(list, math.MaxInt64))
}

// chargePairs pays for comparing each element of a list with each of another, or of itself.
func chargePairs(m *meter, args []ref.Val) ref.Val {
	left, right := args[0], args[len(args)-1]
	m.copies(product(valueSize, length(left)))
	m.work(product(length(left), m.values(right, math.MaxInt64)))
	if len(args) > 1 { // sets.equivalent looks both ways
		m.work(product(length(right), m.values(left, math.MaxInt64)))
	}
	return nil
}

// chargeSort pays for the comparisons, and for what they read of texts.
func chargeSort(m *meter, args []ref.Val) ref.Val {
	keys := args[len(args)-1]
	n := max(length(args[0]), length(keys))
	rounds := int64(math.Log2(float64(n) + 1))
	m.work(product(n, rounds))
	if list, ok := keys.(traits.Lister); ok {
		m.read(product(m.texts(list), rounds+1))
	}
	m.copies(product(valueSize, n))
	m.build(product(valueSize, n))
	return nil
}

// sorts pays for sorting so many keys, if an expression is evaluated.
func (m *meter) sorts(keys int) {
	if m == nil || m.budget == nil || keys < valueSize {
		return
	}
	n := int64(keys)
	m.work(product(n, int64(math.Log2(float64(n)))) / valueSize)
	m.copies(product(valueSize, n))
}

// chargeSlice pays for a part of a list.
func chargeSlice(m *meter, args []ref.Val) ref.Val {
	from, isFrom := args[1].(types.Int)
	to, isTo := args[2].(types.Int)
	if isFrom && isTo && from >= 0 && to > from {
		m.build(product(valueSize, min(int64(to-from), length(args[0]))))
	}
	return nil
}

// chargeIndex pays for a map that may have an entry for each element of a list.
func chargeIndex(m *meter, args []ref.Val) ref.Val {
	keys, ok := args[len(args)-1].(traits.Lister)
	if !ok {
		return nil
	}
	m.copies(product(entrySize, length(keys)))
	m.read(m.texts(keys))
	return nil
}

// chargeKey pays for the namespace and the name of an object.
func chargeKey(m *meter, args []ref.Val) ref.Val {
	metadata := fieldOf(args[0], "metadata")
	m.build(sum(1, textSize(fieldOf(metadata, "namespace")), textSize(fieldOf(metadata, "name"))))
	return nil
}

// chargeFirst pays for looking for an entry in the list at a path of an object.
func chargeFirst(path ...types.String) func(*meter, []ref.Val) ref.Val {
	return func(m *meter, args []ref.Val) ref.Val {
		list := args[0]
		for _, name := range path {
			list = fieldOf(list, name)
		}
		each := int64(1)
		if len(args) > 1 {
			each += textSize(args[1]) / readStep
		}
		m.work(product(each, length(list)))
		return nil
	}
}

// walkStep is how many values of objects are one step for a function that only looks at them.
const walkStep = 32

// chargeWalk pays for looking at all that the arguments hold, and for the copy of what is no object of the Input.
func chargeWalk(m *meter, args []ref.Val) ref.Val {
	for _, arg := range args {
		m.build(m.copied(arg))
	}
	return chargeLook(m, args)
}

// chargeLook pays for looking at all that the arguments hold.
func chargeLook(m *meter, args []ref.Val) ref.Val {
	m.look(args, nil)
	return nil
}

// look pays for looking at values, where texts below an entry of a map may count so many times more, by its key.
func (m *meter) look(values []ref.Val, more func(key string) int64) {
	n := int64(1)
	for _, v := range values {
		walk := &measuring{limit: product(valueSize*walkStep, m.steps+1), under: more, ended: m.ended}
		n = sum(n, m.walked(walk, v)/(valueSize*walkStep))
	}
	m.work(n)
}

// chargeRefs pays for looking at objects, or at those of lists and targets, one after the other, and for each word that may
// be a name. An object that occurs many times is looked at once.
func chargeRefs(m *meter, args []ref.Val) ref.Val {
	m.build(m.copied(args[0]))
	m.look(args[:1], func(key string) int64 {
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

// copied is how large the copy in Go is that a function takes of a value: what is one in Go already is not copied, nor are
// lists of such.
func (m *meter) copied(v ref.Val) int64 {
	switch v := v.(type) {
	case *sortedMap, *nativeList:
		return 0
	case *types.Optional:
		if v.HasValue() {
			return m.copied(v.GetValue())
		}
		return 0
	case traits.Lister:
		return m.copiedOf(v)
	case traits.Mapper:
		if list, ok := fieldOf(v, "items").(traits.Lister); ok && fieldOf(v, "metadata") == types.NullValue {
			return m.copied(list)
		}
		return m.size(v, m.growth)
	default:
		return 0
	}
}

func (m *meter) copiedOf(list traits.Lister) int64 {
	n := product(valueSize, length(list))
	m.work(1 + n/readStep)
	for it := list.Iterator(); it.HasNext() == types.True && n <= m.growth; {
		n = sum(n, m.copied(it.Next()))
	}
	return n
}

// chargeSetCondition pays for a list of conditions, in which one is looked for.
func chargeSetCondition(m *meter, args []ref.Val) ref.Val {
	list := args[0]
	if o, ok := list.(*types.Optional); ok && o.HasValue() {
		list = o.GetValue()
	}
	n := length(list)
	m.build(sum(product(valueSize, n+1), flatSize(args[1])))
	m.work(product(n+1, 1+textSize(fieldOf(args[1], "type"))/readStep))
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
	m.flattened(args[0], levels)
	return nil
}

// flattened pays for a list that becomes flat, and gives how many elements it has then.
func (m *meter) flattened(v ref.Val, levels int64) int64 {
	list, ok := v.(traits.Lister)
	if !ok || levels < 0 {
		return 1
	}
	n := int64(0)
	for it := list.Iterator(); it.HasNext() == types.True; {
		n += m.flattened(it.Next(), levels-1)
	}
	m.copies(product(valueSize, n+1))
	m.build(product(valueSize, n+1))
	return n
}

// chargeMarshal pays for a copy of all that a value holds, and for the characters that JSON writes as several.
func chargeMarshal(m *meter, args []ref.Val) ref.Val {
	m.build(m.measure(args[0], m.growth, escaped))
	return nil
}

// chargeDecoding pays for what a text of JSON becomes, by what begins and separates its values.
func chargeDecoding(m *meter, args []ref.Val) ref.Val {
	const objectSize = 256 // an empty map takes about this
	text, _ := args[0].(types.String)
	m.read(product(4, int64(len(text))))
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
	n := length(args[0])
	m.work(n / elementStep)
	m.build(product(parsedSize, n))
	return nil
}

func chargeJoin(m *meter, args []ref.Val) ref.Val {
	separators := int64(0)
	if len(args) > 1 {
		separators = product(length(args[0]), length(args[1]))
	}
	m.elements(args[0])
	m.build(sum(separators, m.size(args[0], m.growth)))
	return nil
}

// chargeSplit pays for a list with an element for each part.
func chargeSplit(m *meter, args []ref.Val) ref.Val {
	text, isText := args[0].(types.String)
	by, isSeparator := args[1].(types.String)
	if isText && isSeparator {
		m.read(int64(len(text)))
		parts := product(valueSize, int64(strings.Count(string(text), string(by)))+1)
		m.copies(parts)
		m.build(sum(valueSize, parts))
	}
	return nil
}

func chargeReplace(m *meter, args []ref.Val) ref.Val {
	text, isText := args[0].(types.String)
	old, isOld := args[1].(types.String)
	if isText && isOld {
		m.read(int64(len(text)))
		times := int64(strings.Count(string(text), string(old)))
		m.build(sum(int64(len(text)), product(times, length(args[2]))))
	}
	return nil
}

// chargeQuote pays for a text in which each character may become several.
func chargeQuote(m *meter, args []ref.Val) ref.Val {
	m.build(sum(2, product(3, textSize(args[0]))))
	return nil
}

// chargeValidate pays for a text that is read by a regular expression.
func chargeValidate(m *meter, args []ref.Val) ref.Val {
	n := textSize(args[len(args)-1])
	m.copies(product(4, n))
	m.work(n / elementStep)
	return nil
}

// chargeFormat pays for the values that are written, and for each clause of the format as much as a number can take.
func chargeFormat(m *meter, args []ref.Val) ref.Val {
	const clauseSize = 512
	text, _ := args[0].(types.String)
	m.read(int64(len(text)))
	clauses := int64(strings.Count(string(text), "%"))
	m.build(sum(int64(len(text)), product(clauses, clauseSize), m.size(args[1], m.growth)))
	return nil
}

// chargeQuantity keeps quantities away that are too long to be one, and whose comparison would take a number of billions of
// digits.
func chargeQuantity(m *meter, args []ref.Val) ref.Val {
	if err := chargeShort(m, args); err != nil {
		return err
	}
	text, _ := args[0].(types.String)
	const suffix = len("e+99")
	digits := strings.TrimRight(string(text), "0123456789")
	mantissa := strings.TrimRight(digits, "+-")
	if len(text)-len(mantissa) >= suffix && strings.HasSuffix(strings.ToLower(mantissa), "e") {
		return types.NewErr("the exponent of the quantity %q is too large", cut(string(text), 32))
	}
	return nil
}
