// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
)

// The bounds of a review, in bytes of JSON without blanks. A longer part is never held in memory.
const (
	// maxReview bounds a whole review: two objects of up to 3 MiB each, and the user.
	maxReview = 7 << 20
	// maxSpecText bounds a spec. It leaves room for empty fields, which validation.MaxSpecBytes does not count.
	maxSpecText = 2 * validation.MaxSpecBytes
	// maxUserText bounds the user. An author has at most 64 KiB.
	maxUserText = 256 << 10
	// maxMetadataText bounds each of the operator's annotations. An author has at most 64 KiB before its quotes are escaped.
	maxMetadataText = 256 << 10
	// maxValueText bounds each other value, such as a name.
	maxValueText = 4 << 10
	// maxTrimmed bounds a trimmed review.
	maxTrimmed = 2<<20 + 64<<10
	// maxDecoded bounds the memory of a decoded spec. It is several times what the schema allows.
	maxDecoded = 4 << 20
	// maxLevels bounds how deep objects and lists are nested.
	maxLevels = 256
)

var (
	errNoJSON         = errors.New("cannot read the review: it is not JSON")
	errReviewTooLarge = fmt.Errorf("the review is too large: at most %d bytes are read, and at most %d are kept once its status is left out", maxReview, maxTrimmed)
)

// excess says which part of a review is too large, and why.
type excess struct{ path, message string }

// trimmed is the part of a review that the handlers read, within bounds.
type trimmed struct {
	text []byte
	// refused says why the object or the user is refused; nil if nothing that the handlers read is missing.
	refused *excess
	// decoded estimates the memory of the decoded specs, in bytes.
	decoded uintptr
}

// trimmer reads a review as a stream, and keeps what the handlers read. It compares names exactly, so that the handlers decode the
// very members that it has measured.
type trimmer struct {
	in  *bufio.Reader
	out []byte
	// spec is the type that specs are decoded into.
	spec   reflect.Type
	layout layouts

	// keeping means that the trimmer adds what it reads to out, up to a length of end.
	keeping bool
	end     int
	levels  int
	// part is the path of the part that is being read, field the path of its field, and decoded its memory once it is decoded.
	part, field string
	decoded     uintptr
	// over says why the part that is being read is not kept. The rest of it is skipped.
	over *excess

	total   uintptr
	refused *excess
}

// trimReview reads and trims a review of objects whose specs have this type.
func trimReview(in io.Reader, spec reflect.Type) (*trimmed, error) {
	limited := &io.LimitedReader{R: in, N: maxReview + 1}
	t := &trimmer{in: bufio.NewReader(limited), spec: spec, layout: layouts{}}
	err := t.pickReview()
	switch {
	case limited.N <= 0, len(t.out) > maxTrimmed:
		return nil, errReviewTooLarge
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("cannot read the review: it ends too early: %w", err)
	case err != nil:
		return nil, err
	}
	return &trimmed{text: t.out, refused: t.refused, decoded: t.total}, nil
}

// pickReview keeps the parts of an AdmissionReview that describe the request.
func (t *trimmer) pickReview() error {
	value := func(path string) func() error {
		return func() error { return t.keepOrRefuse(path, maxValueText) }
	}
	request := map[string]func() error{
		"userInfo": func() error { return t.keepOrRefuse("userInfo", maxUserText) },
		"object":   func() error { return t.pickObject(true) },
		// A stored object may be larger than what may be written: users must be able to make it smaller.
		"oldObject": func() error { return t.pickObject(false) },
	}
	for _, name := range []string{"uid", "kind", "resource", "name", "namespace", "operation"} {
		request[name] = value("request." + name)
	}
	if err := t.pickMembers(byName(map[string]func() error{
		"apiVersion": value("apiVersion"), "kind": value("kind"), "request": func() error { return t.pickMembers(byName(request), "") },
	}), ""); err != nil {
		return err
	}
	switch _, err := t.peek(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errNoJSON
}

// pickObject keeps the parts of an object that the handlers read. If a part is too large, null replaces it, and an object that is being
// written is refused.
func (t *trimmer) pickObject(written bool) error {
	keep := func(path string, most int) func() error {
		return func() error {
			if written {
				return t.keepOrRefuse(path, most)
			}
			_, err := t.keepPart(path, most, nil)
			return err
		}
	}
	metadata := map[string]func() error{}
	for _, name := range []string{"name", "generateName", "namespace", "uid", "creationTimestamp"} {
		metadata[name] = keep("metadata."+name, maxValueText)
	}
	metadata["annotations"] = func() error {
		return t.pickMembers(func(name string) func() error {
			if slices.Contains(v1alpha1.CleanerAnnotations(), name) {
				return keep("metadata.annotations["+name+"]", maxMetadataText)
			}
			return nil
		}, `"others":""`) // a patch differs if there are no annotations
	}
	return t.pickMembers(byName(map[string]func() error{
		"apiVersion": keep("apiVersion", maxValueText), "kind": keep("kind", maxValueText), "metadata": func() error { return t.pickMembers(byName(metadata), "") },
		"spec": func() error {
			over, err := t.keepPart("spec", maxSpecText, t.spec)
			if t.total += t.decoded; over != nil && written {
				t.refused = over
			}
			return err
		},
	}), "")
}

// keepOrRefuse keeps a value, or refuses the review if the value is too large.
func (t *trimmer) keepOrRefuse(path string, most int) error {
	over, err := t.keepPart(path, most, nil)
	if over != nil {
		t.refused = over
	}
	return err
}

// keepPart reads a value, and keeps it if it has at most most bytes and takes at most maxDecoded once it is decoded into a type.
// Otherwise null replaces it.
func (t *trimmer) keepPart(path string, most int, as reflect.Type) (*excess, error) {
	start := len(t.out)
	t.keeping, t.end, t.decoded, t.part, t.field, t.over = true, start+most, 0, path, path, nil
	err := t.readValue(as)
	over := t.over
	if over != nil {
		t.out = append(t.out[:start], "null"...)
	}
	t.keeping, t.over = false, nil
	if len(t.out) > maxTrimmed && err == nil {
		err = errReviewTooLarge
	}
	return over, err
}

// exceed gives up the part that is being read.
func (t *trimmer) exceed(path, format string, args ...any) {
	t.over, t.keeping = &excess{path, fmt.Sprintf(format, args...)}, false
}

// byName returns a function that looks up how to keep a member of an object.
func byName(parts map[string]func() error) func(name string) func() error {
	return func(name string) func() error { return parts[name] }
}

// pickMembers reads an object, and keeps the members for which part returns a function, which keeps the value. Of all other members
// it keeps only others, once. Anything but an object is kept if it is short.
func (t *trimmer) pickMembers(part func(name string) func() error, others string) error {
	if c, err := t.peek(); err != nil || c != '{' {
		if err != nil {
			return err
		}
		return t.keepOrRefuse("request", maxValueText)
	}
	t.out = append(t.out, '{')
	first := true
	separate := func() {
		if !first {
			t.out = append(t.out, ',')
		}
		first = false
	}
	err := t.readMembers(func(name string) error {
		keep := part(name)
		if keep == nil {
			if others != "" {
				separate()
				t.out, others = append(t.out, others...), ""
			}
			return t.readValue(nil)
		}
		separate()
		t.out = append(append(append(t.out, '"'), name...), '"', ':')
		return keep()
	})
	t.out = append(t.out, '}')
	return err
}

// readValue reads a value that will be decoded into a type; nil if the type is unknown.
func (t *trimmer) readValue(as reflect.Type) error {
	c, err := t.peek()
	if err != nil {
		return err
	}
	if c == '{' || c == '[' {
		if t.keeping && t.levels == maxLevels {
			t.exceed(t.field, "is nested more than %d deep: write it flatter", maxLevels)
		}
		if !t.keeping {
			return t.skip(0)
		}
		t.levels++
		defer func() { t.levels-- }()
	}
	as = t.addDecoded(as)
	switch c {
	case '{':
		return t.readMembers(func(name string) error {
			if as != nil && as == t.spec {
				t.field = "spec." + name
			}
			return t.readValue(t.addMember(as, name))
		})
	case '[':
		return t.readEntries(as)
	case '"':
		return t.readText(nil)
	}
	return t.readWord()
}

// readMembers reads an object, and calls do with the name of each member. do reads the value.
func (t *trimmer) readMembers(do func(name string) error) error {
	if err := t.read('{'); err != nil {
		return err
	}
	for n := 0; ; n++ {
		if t.over != nil {
			return t.skip(1)
		}
		c, err := t.peek()
		switch {
		case err != nil:
			return err
		case c == '}':
			return t.read('}')
		case n > 0:
			if err := t.read(','); err != nil {
				return err
			}
		}
		var name []byte
		if err := t.readText(&name); err != nil {
			return err
		}
		if err := t.read(':'); err != nil {
			return err
		}
		if err := do(string(name)); err != nil {
			return err
		}
	}
}

// readEntries reads a list that will be decoded into a type.
func (t *trimmer) readEntries(as reflect.Type) error {
	if err := t.read('['); err != nil {
		return err
	}
	for n := 0; ; n++ {
		if t.over != nil {
			return t.skip(1)
		}
		c, err := t.peek()
		switch {
		case err != nil:
			return err
		case c == ']':
			return t.read(']')
		case n > 0:
			if err := t.read(','); err != nil {
				return err
			}
		}
		if err := t.readValue(t.addEntry(as)); err != nil {
			return err
		}
	}
}

// skip reads an object or a list of any depth without keeping it, or the rest of as many as are open.
func (t *trimmer) skip(open int) error {
	for inText, escaped := false, false; ; {
		chunk, err := t.buffered()
		if err != nil {
			return err
		}
		for i, c := range chunk {
			switch {
			case escaped:
				escaped = false
			case inText:
				escaped, inText = c == '\\', c != '"'
			case c == '"':
				inText = true
			case c == '{', c == '[':
				open++
			case c == '}', c == ']':
				if open--; open == 0 {
					_, err := t.in.Discard(i + 1)
					return err
				}
			}
		}
		if _, err := t.in.Discard(len(chunk)); err != nil {
			return err
		}
	}
}

// buffered returns the bytes that can be read at once, at least one.
func (t *trimmer) buffered() ([]byte, error) {
	if _, err := t.in.Peek(1); err != nil {
		return nil, err
	}
	return t.in.Peek(t.in.Buffered())
}

// maxNameText is longer than any name of a member that is kept.
const maxNameText = 256

// readText reads a string. If name is set, it becomes the string as written, or nil if it is longer than maxNameText.
func (t *trimmer) readText(name *[]byte) error {
	if err := t.read('"'); err != nil {
		return err
	}
	for escaped, ended := false, false; !ended; {
		chunk, err := t.buffered()
		if err != nil {
			return err
		}
		read := len(chunk)
		for i, c := range chunk {
			if ended = c == '"' && !escaped; ended {
				read = i + 1
				break
			}
			escaped = c == '\\' && !escaped
		}
		t.put(chunk[:read])
		if name != nil && len(*name) <= maxNameText {
			*name = append(*name, chunk[:min(read, maxNameText+2)]...)
		}
		if _, err := t.in.Discard(read); err != nil {
			return err
		}
	}
	switch {
	case name == nil:
	case len(*name) > maxNameText:
		*name = nil
	default:
		*name = (*name)[:len(*name)-1] // without the quote
	}
	return nil
}

// readWord reads a number, true, false or null.
func (t *trimmer) readWord() error {
	for n := 0; ; n++ {
		c, err := t.in.ReadByte()
		if errors.Is(err, io.EOF) && n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if !strings.ContainsRune("+-.0123456789Eaeflnrstu", rune(c)) {
			if n == 0 {
				return errNoJSON
			}
			return t.in.UnreadByte()
		}
		t.put([]byte{c})
	}
}

// peek returns the next character that is not a blank, without reading it.
func (t *trimmer) peek() (byte, error) {
	for {
		c, err := t.in.ReadByte()
		if err != nil {
			return 0, err
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, t.in.UnreadByte()
		}
	}
}

// read reads the character that must come next.
func (t *trimmer) read(want byte) error {
	c, err := t.peek()
	if err != nil {
		return err
	}
	if c != want {
		return errNoJSON
	}
	t.put([]byte{c})
	_, err = t.in.Discard(1)
	return err
}

// put adds text to out, if it is kept.
func (t *trimmer) put(text []byte) {
	switch {
	case !t.keeping:
	case len(t.out)+len(text) <= t.end:
		t.out = append(t.out, text...)
	case t.part == "spec":
		t.exceed(t.part, "is more than %d bytes long as JSON; at most %d are allowed: shorten the expressions or the parameters", maxSpecText, validation.MaxSpecBytes)
	default:
		t.exceed(t.part, "is too long: shorten it")
	}
}
