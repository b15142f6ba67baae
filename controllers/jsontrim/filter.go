// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package jsontrim

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
	inAnnotations // if only some metadata of the object is kept
	inFinalizers  // the same
)

// filter removes managedFields from a stream of JSON, and other metadata that is not kept, and cuts what is too deep. It takes the stream
// in parts of any size. It does not check whether that is JSON: the decoder does.
type filter struct {
	shape shape
	// kept is what is kept of the metadata; nil if all but managedFields is.
	kept  *Kept
	place place
	// deep is how many more maps and lists are open since the place.
	deep int

	// inText says that a string is open, isKey that it is a key of the place, and escaped that its last byte was a backslash.
	inText, isKey, escaped bool
	// expectsKey says that the next string is a key of the place, and key is the last one, with its quotes, as far as it is of interest.
	expectsKey bool
	key        []byte

	// dropping means that a value is left out, such as managedFields, until the next key or entry. cutting counts the open maps and lists of
	// what is too deep.
	dropping bool
	cutting  int
	// written says that the metadata or the annotations have an entry, and cut that the object is one from which something was cut.
	written, cut bool
	// finalizers counts those that came before, and hasFinalizer says that the one to keep has come after the first ones.
	finalizers   int
	hasFinalizer bool
}

const (
	// maxKey is how many bytes of a key are of interest: longer ones are none of these.
	maxKey = 64

	metadataKey, managedFieldsKey = `"metadata"`, `"managedFields"`
	itemsKey, objectKey           = `"items"`, `"object"`
	labelsKey, ownersKey          = `"labels"`, `"ownerReferences"`
	annotationsKey, finalizersKey = `"annotations"`, `"finalizers"`
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
	if f.place < inMetadata {
		f.key = append(f.key, text[:min(len(text), maxKey+1-len(f.key))]...)
		return append(out, text...)
	}
	if waits := len(f.key) <= maxKey; !waits { // so that it is decided already
		if !f.dropping {
			out = append(out, text...)
		}
		return out
	}
	if room := maxKey + 1 - len(f.key); len(text) > room { // of a long one no more is kept here, however long it is
		return f.appendText(f.appendText(out, text[:room]), text[room:])
	}
	f.key = append(f.key, text...)
	if f.inText && len(f.key) <= maxKey {
		return out
	}
	return f.appendKey(out)
}

// appendKey writes a key of metadata that has come, or the beginning of a long one, if it is kept, and in the same way a finalizer after
// the first ones.
func (f *filter) appendKey(out []byte) []byte {
	if f.place == inFinalizers {
		if !f.hasFinalizer && f.kept.isFinalizer(f.key) {
			f.hasFinalizer = true
			out = append(append(out, ','), f.key...)
		}
		return out
	}
	if f.dropping = f.drops(); f.dropping {
		return out
	}
	if f.written {
		out = append(out, ',')
	}
	f.written = true
	return append(out, f.key...)
}

// drops says that what is under the key is not kept.
func (f *filter) drops() bool {
	if f.place == inAnnotations {
		return !f.kept.isAnnotation(f.key)
	}
	switch string(f.key) {
	case managedFieldsKey:
		return true
	case labelsKey, ownersKey:
		return f.kept != nil
	default:
		return false
	}
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
	case inAnnotations, inFinalizers:
		return 3 + f.deep
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
	switch next {
	case inObject:
		f.cut = false
	case inFinalizers:
		f.finalizers, f.hasFinalizer = 0, false
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
	case inMetadata:
		if f.kept != nil && string(f.key) == annotationsKey {
			return inAnnotations
		}
	}
	return outside
}

// findList returns the place that a list here is, or outside if it is none.
func (f *filter) findList() place {
	if f.place == inEnvelope && f.shape == list && string(f.key) == itemsKey {
		return inItems
	}
	// A single object has all of them: its reader may be about to write them.
	if f.place == inMetadata && f.kept != nil && f.shape != object && string(f.key) == finalizersKey {
		return inFinalizers
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
	f.written = f.place == inMetadata // which has had what ends here
	f.key = f.key[:0]
	return append(out, b)
}

// findOuter returns the place around the one that ends.
func (f *filter) findOuter() place {
	switch {
	case f.place == inAnnotations, f.place == inFinalizers:
		return inMetadata
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

// separate writes a comma. The comma before a field of metadata waits for the next key, and so does that before a finalizer after the
// first ones.
func (f *filter) separate(out []byte) []byte {
	if f.deep > 0 || f.cutting > 0 {
		if !f.isLeftOut() {
			out = append(out, ',')
		}
		return out
	}
	f.expectsKey, f.dropping = f.place != outside && f.place != inItems, false
	switch f.place {
	case inMetadata, inAnnotations:
		return out
	case inFinalizers:
		f.finalizers++
		f.dropping = f.finalizers >= f.kept.Finalizers
		if f.expectsKey = f.dropping; f.dropping {
			return out
		}
	}
	return append(out, ',')
}
