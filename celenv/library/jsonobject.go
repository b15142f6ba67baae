// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/vtex/cleaner/celenv/compact"
)

// jsonText is a text of JSON that was read. It has a node for each key and value of its objects, which says where in the text it is, so that a text takes
// little more memory than its own bytes. Values are made when they are asked for.
type jsonText struct {
	text  string
	nodes []jsonNode
	made  []ref.Val // what is no part of the text: strings with escapes, and lists
}

// jsonNode is a key or a value: its kind, and two numbers.
type jsonNode uint64

// The kinds of nodes, and their numbers.
const (
	jsonNull   jsonNode = iota
	jsonBool            // 1 for true
	jsonNumber          // where it begins, and its length
	jsonString          // where what is in the quotes begins, and its length
	jsonMade            // where in made it is
	jsonNested          // an object: where its nodes are, and how many keys it has
)

const (
	kindBits   = 3
	numberBits = 30 // the longest text has 2^22 bytes
)

func newJSONNode(kind jsonNode, first, second int) jsonNode {
	return kind | jsonNode(first)<<kindBits | jsonNode(second)<<(kindBits+numberBits) //nolint:gosec // no text is that long
}

func (n jsonNode) kind() jsonNode { return n & (1<<kindBits - 1) }
func (n jsonNode) first() uint32  { return uint32(n >> kindBits & (1<<numberBits - 1)) }
func (n jsonNode) second() uint32 { return uint32(n >> (kindBits + numberBits)) }

// makeValue makes the value of a node.
func (t *jsonText) makeValue(n jsonNode) ref.Val {
	switch n.kind() {
	case jsonBool:
		return types.Bool(n.first() == 1)
	case jsonNumber:
		value, err := convertNumber(json.Number(t.readText(n)))
		if err != nil { // it was read before
			return types.WrapErr(err)
		}
		return value
	case jsonString:
		return types.String(t.readText(n))
	case jsonMade:
		return t.made[n.first()]
	case jsonNested:
		return compact.NewMapOf(jsonObject{t, n.first(), n.second()})
	default:
		return types.NullValue
	}
}

// readText returns the text of a string or a number.
func (t *jsonText) readText(n jsonNode) string {
	if n.kind() == jsonMade {
		return string(t.made[n.first()].(types.String))
	}
	return t.text[n.first() : n.first()+n.second()]
}

// addMade adds a value that is no part of the text.
func (t *jsonText) addMade(v ref.Val) jsonNode {
	t.made = append(t.made, v)
	return newJSONNode(jsonMade, len(t.made)-1, 0)
}

// jsonObject is an object of a text of JSON: its keys, which are sorted and each once, and after these their values.
type jsonObject struct {
	of      *jsonText
	at, len uint32
}

func (o jsonObject) listKeys() []jsonNode { return o.of.nodes[o.at : o.at+o.len] }

// CountKeys returns how many keys there are.
func (o jsonObject) CountKeys() int { return int(o.len) }

// KeyAt returns the key at a place.
func (o jsonObject) KeyAt(place int) ref.Val { return o.of.makeValue(o.of.nodes[int(o.at)+place]) }

// ValueAt returns the value at a place.
func (o jsonObject) ValueAt(place int) ref.Val {
	return o.of.makeValue(o.of.nodes[int(o.at+o.len)+place])
}

// nodeBytes is what a node takes.
const nodeBytes = 8

// CountBytes returns about how many bytes the entries take.
func (o jsonObject) CountBytes() int { return nodeBytes * (1 + 2*int(o.len)) }

// FindPlace returns the place of a key.
func (o jsonObject) FindPlace(key ref.Val) (place int, found bool) {
	text, isText := key.(types.String)
	if !isText {
		return 0, false
	}
	return slices.BinarySearchFunc(o.listKeys(), string(text), func(n jsonNode, text string) int { return strings.Compare(o.of.readText(n), text) })
}

// addObject adds the nodes of an object: keys as they were read, and the value after each. The last value of a key counts.
func (t *jsonText) addObject(read []jsonNode) jsonNode {
	at, n := len(t.nodes), len(read)/2
	order := make([]int32, 0, smallObject)
	for i := range n {
		order = append(order, int32(i))
	}
	compare := func(a, b int32) int { return strings.Compare(t.readText(read[2*a]), t.readText(read[2*b])) }
	if !slices.IsSortedFunc(order, compare) {
		slices.SortFunc(order, func(a, b int32) int { return cmp.Or(compare(a, b), cmp.Compare(a, b)) })
	}
	isLast := func(i int) bool { return i+1 == n || compare(order[i], order[i+1]) != 0 }
	keys := 0
	for i, from := range order {
		if isLast(i) {
			t.nodes = append(t.nodes, read[2*from])
			keys++
		}
	}
	for i, from := range order {
		if isLast(i) {
			t.nodes = append(t.nodes, read[2*from+1])
		}
	}
	return newJSONNode(jsonNested, at, keys)
}

// smallObject is how many keys most objects have at most.
const smallObject = 16

// jsonReader reads a text of JSON that is known to be valid. encoding/json would tell its tokens four times as slowly, and not where they are.
type jsonReader struct {
	*jsonText
	at    int        // up to where the text is read
	stack []jsonNode // of the objects that are being read: each key, and its value after it
}

// readNode reads the next value, if at most so many lists and maps are nested in it.
func (r *jsonReader) readNode(depth int) (jsonNode, error) {
	token := r.findToken()
	switch token {
	case '"':
		return r.readString()
	case '[', '{':
		if depth == 0 {
			return 0, errTooDeep
		}
		r.at++
		if token == '[' {
			return r.readList(depth - 1)
		}
		return r.readObject(depth - 1)
	case 'n':
		r.at += len("null")
		return jsonNull, nil
	case 't':
		r.at += len("true")
		return newJSONNode(jsonBool, 1, 0), nil
	case 'f':
		r.at += len("false")
		return jsonBool, nil
	default:
		return r.readNumber()
	}
}

// findToken goes to the next byte that is no space and does not separate values, and returns it.
func (r *jsonReader) findToken() byte {
	for ; ; r.at++ {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
		default:
			return c
		}
	}
}

// findValue is findToken, and says whether there is another value before the end of the list or the object, which it passes.
func (r *jsonReader) findValue() bool {
	if c := r.findToken(); c != ']' && c != '}' {
		return true
	}
	r.at++
	return false
}

// readString reads a string: as a part of the text, unless it has escapes, or bytes that are no UTF-8.
func (r *jsonReader) readString() (jsonNode, error) {
	begin, end, isPart := r.at+1, r.at+1, true
	for ; r.text[end] != '"'; end++ {
		if r.text[end] == '\\' {
			isPart = false
			end++
		}
	}
	r.at = end + 1
	if isPart && utf8.ValidString(r.text[begin:end]) {
		return newJSONNode(jsonString, begin, end-begin), nil
	}
	var made string
	if err := json.Unmarshal([]byte(r.text[begin-1:end+1]), &made); err != nil {
		return 0, err
	}
	return r.addMade(types.String(made)), nil
}

// readNumber reads a number.
func (r *jsonReader) readNumber() (jsonNode, error) {
	begin := r.at
	for r.at < len(r.text) && isOfNumber(r.text[r.at]) {
		r.at++
	}
	text := r.text[begin:r.at]
	value, err := convertNumber(json.Number(text))
	switch {
	case err != nil:
		return 0, err
	case IsSlowNumber(text): // to read it at each use would take long
		return r.addMade(value), nil
	}
	return newJSONNode(jsonNumber, begin, r.at-begin), nil
}

// readList reads the rest of a list.
func (r *jsonReader) readList(depth int) (jsonNode, error) {
	elements := []ref.Val{}
	for r.findValue() {
		element, err := r.readNode(depth)
		if err != nil {
			return 0, err
		}
		elements = append(elements, r.makeValue(element))
	}
	return r.addMade(types.NewRefValList(types.DefaultTypeAdapter, compact.TrimSlice(elements))), nil
}

// readObject reads the rest of an object.
func (r *jsonReader) readObject(depth int) (jsonNode, error) {
	begin := len(r.stack)
	for r.findValue() { // a key, or the value of the last one
		node, err := r.readNode(depth)
		if err != nil {
			return 0, err
		}
		r.stack = append(r.stack, node)
	}
	object := r.addObject(r.stack[begin:])
	r.stack = r.stack[:begin]
	return object, nil
}
