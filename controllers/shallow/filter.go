// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package shallow

import "bytes"

// shape says where the objects in a response are.
type shape int

const (
	// opaque responses have none.
	opaque shape = iota
	// object is one object.
	object
	// list has them in items.
	list
	// events have one each.
	events
)

// place is where in a response the filter is.
type place int

const (
	outside    place = iota // before, between and after values
	inEnvelope              // in a list or an event
	inItems                 // in the items of a list
	inObject
	inMetadata
)

// filter removes managedFields from a stream of JSON, and cuts what is too deep. It takes the stream in parts of any size. It does not
// check whether that is JSON: the decoder does.
type filter struct {
	shape shape
	place place
	// deep is how many more maps and lists are open since the place.
	deep int

	// inText says that a string is open, isKey that it is a key of the place, and escaped that its last byte was a backslash.
	inText, isKey, escaped bool
	// expectsKey says that the next string is a key of the place, and key is the last one, with its quotes, as far as it is of interest.
	expectsKey bool
	key        []byte

	// dropping means that a value is left out: managedFields, until the next key, or what is too deep. cutting counts the open maps and
	// lists of the latter.
	dropping bool
	cutting  int
	// written says that the metadata has an entry, and cut that the object is one from which something was cut.
	written, cut bool
}

const (
	// maxKey is how many bytes of a key are of interest: longer ones are none of these.
	maxKey = 20

	metadataKey, managedFieldsKey = `"metadata"`, `"managedFields"`
	itemsKey, objectKey           = `"items"`, `"object"`
	// mark is what an object ends with from which something was cut.
	mark = `,"\u0000cut":true`
)

// appendShallow appends what remains of the next part of the stream.
func (f *filter) appendShallow(out, part []byte) []byte {
	for len(part) > 0 {
		if f.inText {
			var text []byte
			text, part = f.cutText(part)
			out = f.appendText(out, text)
			continue
		}
		n := findStructure(part)
		if !f.isLeftOut() {
			out = append(out, part[:n]...)
		}
		if part = part[n:]; len(part) > 0 {
			out = f.appendStructure(out, part[0])
			part = part[1:]
		}
	}
	return out
}

// findStructure returns how many bytes come before the next one that gives JSON its structure.
func findStructure(part []byte) int {
	for n, b := range part {
		switch b {
		case '"', '{', '}', '[', ']', ',':
			return n
		}
	}
	return len(part)
}

// isLeftOut says that nothing is written of what is read.
func (f *filter) isLeftOut() bool { return f.dropping || f.cutting > 0 }

// cutText returns what there is of the string that is open, and what follows it.
func (f *filter) cutText(part []byte) (text, rest []byte) {
	for i := 0; i < len(part); i++ {
		if f.escaped {
			f.escaped = false
			continue
		}
		end := bytes.IndexByte(part[i:], '"')
		if end < 0 {
			end = len(part) - i
		}
		if escape := bytes.IndexByte(part[i:i+end], '\\'); escape >= 0 {
			i += escape
			f.escaped = true
			continue
		}
		if i += end; i < len(part) {
			f.inText = false
			return part[:i+1], part[i+1:]
		}
	}
	return part, nil
}

// appendText writes a part of a string. Keys of metadata wait until it is known which they are.
func (f *filter) appendText(out, text []byte) []byte {
	if !f.isKey {
		if !f.isLeftOut() {
			out = append(out, text...)
		}
		return out
	}
	if f.place != inMetadata {
		f.key = append(f.key, text[:min(len(text), maxKey+1-len(f.key))]...)
		return append(out, text...)
	}
	waits := len(f.key) <= maxKey
	if !waits { // so that it is written already
		return append(out, text...)
	}
	f.key = append(f.key, text...)
	if f.inText && len(f.key) <= maxKey {
		return out
	}
	if !f.inText && string(f.key) == managedFieldsKey {
		f.dropping = true
		return out
	}
	if f.written {
		out = append(out, ',')
	}
	f.written = true
	return append(out, f.key...)
}

// appendStructure writes a byte that gives JSON its structure.
func (f *filter) appendStructure(out []byte, b byte) []byte {
	switch b {
	case '"':
		return f.beginText(out)
	case '{', '[':
		return f.open(out, b)
	case '}', ']':
		return f.close(out, b)
	default:
		return f.separate(out)
	}
}

func (f *filter) beginText(out []byte) []byte {
	f.inText = true
	if f.isKey = f.expectsKey && f.deep == 0 && f.cutting == 0; f.isKey {
		f.expectsKey = false
		f.key = f.key[:0]
	}
	return f.appendText(out, []byte{'"'})
}

// open begins a map or a list.
func (f *filter) open(out []byte, b byte) []byte {
	if f.cutting > 0 {
		f.cutting++
		return out
	}
	if f.deep == 0 && !f.dropping && f.enter(b) {
		return append(out, b)
	}
	if f.dropping {
		f.deep++
		return out
	}
	if f.depth() >= maxDepth {
		f.cutting, f.cut = 1, true
		return append(out, "null"...)
	}
	f.deep++
	return append(out, b)
}

// depth is how many maps and lists of the object are open.
func (f *filter) depth() int {
	switch f.place {
	case inObject:
		return 1 + f.deep
	case inMetadata:
		return 2 + f.deep
	default:
		return f.deep
	}
}

// enter says that a map or a list is the next place.
func (f *filter) enter(b byte) bool {
	next := f.findMap()
	if b == '[' {
		next = f.findList()
	}
	if next == outside {
		return false
	}
	if next == inObject {
		f.cut = false
	}
	f.place, f.expectsKey, f.written = next, b == '{', false
	f.key = f.key[:0]
	return true
}

// findMap returns the place that a map here is, or outside if it is none.
func (f *filter) findMap() place {
	switch f.place {
	case outside:
		if f.shape != object {
			return inEnvelope
		}
		return inObject
	case inItems:
		return inObject
	case inEnvelope:
		if f.shape == events && string(f.key) == objectKey {
			return inObject
		}
	case inObject:
		if string(f.key) == metadataKey {
			return inMetadata
		}
	}
	return outside
}

// findList returns the place that a list here is, or outside if it is none.
func (f *filter) findList() place {
	if f.place == inEnvelope && f.shape == list && string(f.key) == itemsKey {
		return inItems
	}
	return outside
}

// close ends a map or a list.
func (f *filter) close(out []byte, b byte) []byte {
	switch {
	case f.cutting > 0:
		f.cutting--
		return out
	case f.deep > 0:
		f.deep--
		if !f.dropping {
			out = append(out, b)
		}
		return out
	}
	f.dropping = false
	if f.place == inObject && f.cut {
		out = append(out, mark...)
	}
	f.place, f.expectsKey = f.findOuter(), false
	f.key = f.key[:0]
	return append(out, b)
}

// findOuter returns the place around the one that ends.
func (f *filter) findOuter() place {
	switch {
	case f.place == inMetadata:
		return inObject
	case f.place == inObject && f.shape == list:
		return inItems
	case f.place == inObject && f.shape == events, f.place == inItems:
		return inEnvelope
	default:
		return outside
	}
}

// separate writes a comma. The comma before a field of metadata waits for the next key.
func (f *filter) separate(out []byte) []byte {
	if f.deep > 0 || f.cutting > 0 {
		if !f.isLeftOut() {
			out = append(out, ',')
		}
		return out
	}
	f.expectsKey = f.place != outside && f.place != inItems
	f.dropping = false
	if f.place != inMetadata {
		out = append(out, ',')
	}
	return out
}
