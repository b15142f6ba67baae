// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// mutant is a mistake in one file: text stands where the source has what lies between two offsets.
type mutant struct {
	code       *code
	file       *file
	in         declaration
	operator   string
	start, end int
	text       string
}

// source is the file with the mistake in it.
func (m *mutant) source() []byte {
	return slices.Concat(m.file.source[:m.start], []byte(m.text), m.file.source[m.end:])
}

// line is the line that the mistake begins in.
func (m *mutant) line() int { return 1 + bytes.Count(m.file.source[:m.start], []byte("\n")) }

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d %s (%s)", m.file.name, m.line(), m.in.name, m.operator)
}

// lines are the whole lines that the mistake touches, before and after, as offsets into the source and as text.
func (m *mutant) lines() (from, to int, was, now string) {
	from = bytes.LastIndexByte(m.file.source[:m.start], '\n') + 1
	to = len(m.file.source)
	if i := bytes.IndexByte(m.file.source[m.end:], '\n'); i >= 0 {
		to = m.end + i
	}
	return from, to, string(m.file.source[from:to]), string(m.file.source[from:m.start]) + m.text + string(m.file.source[m.end:to])
}

// diff is the mistake, as lines that go and lines that come.
func (m *mutant) diff() string {
	_, _, was, now := m.lines()
	out := &strings.Builder{}
	for line := range strings.Lines(was) {
		fmt.Fprintf(out, "    -%s\n", strings.TrimRight(line, "\n"))
	}
	for line := range strings.Lines(now) {
		if strings.TrimSpace(line) != "" {
			fmt.Fprintf(out, "    +%s\n", strings.TrimRight(line, "\n"))
		}
	}
	return out.String()
}

// edit describes the mistake for the list: by as many whole lines as it takes to be the only such place in its declaration.
func (m *mutant) edit() edit {
	from, to, _, _ := m.lines()
	text := m.file.source[m.in.start:m.in.end]
	from, to = max(from, m.in.start), min(to, m.in.end)
	for bytes.Count(text, bytes.TrimSpace(m.file.source[from:to])) != 1 {
		switch next := bytes.IndexByte(m.file.source[min(to+1, m.in.end):m.in.end], '\n'); {
		case next >= 0:
			to += 1 + next
		case from > m.in.start:
			from = max(m.in.start, bytes.LastIndexByte(m.file.source[:from-1], '\n')+1)
		default:
			to = m.in.end
		}
	}
	for from < m.start && bytes.IndexByte([]byte(" \t\n"), m.file.source[from]) >= 0 {
		from++
	}
	for to > m.end && bytes.IndexByte([]byte(" \t\n"), m.file.source[to-1]) >= 0 {
		to--
	}
	return edit{
		In: m.in.name, Was: string(m.file.source[from:to]),
		Now: string(m.file.source[from:m.start]) + m.text + string(m.file.source[m.end:to]),
	}
}

// rank places a mutant in the choice of a seed. It depends on the seed, the declaration's name, the lines that change and
// how often the same change was met before, and on nothing else: code that changes elsewhere does not move the mutant.
func (m *mutant) rank(seed int64, nth int) string {
	_, _, was, now := m.lines()
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s\x00%s\x00%s\x00%d", seed, m.in.name, strings.TrimSpace(was), strings.TrimSpace(now), nth))
	return string(sum[:])
}

// same says that two mutants make the same file.
func (m *mutant) same(o *mutant) bool {
	return m.file == o.file && bytes.Equal(m.source(), o.source())
}

// choose takes so many of a package's mutants, those first that the seed ranks first, and returns them by file and line. What does not compile, and what was chosen already, is passed over.
func choose(all []*mutant, seed int64, count int) []*mutant {
	ranks, met := map[*mutant]string{}, map[string]int{}
	for _, m := range all {
		key := m.rank(seed, 0)
		ranks[m] = m.rank(seed, met[key])
		met[key]++
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *mutant) int { return cmp.Compare(ranks[a], ranks[b]) })
	var chosen []*mutant
	for _, m := range all {
		if len(chosen) == count {
			break
		}
		if !slices.ContainsFunc(chosen, m.same) && m.code.compiles(m) {
			chosen = append(chosen, m)
		}
	}
	slices.SortStableFunc(chosen, func(a, b *mutant) int {
		return cmp.Or(cmp.Compare(a.file.name, b.file.name), cmp.Compare(a.start, b.start))
	})
	return chosen
}
