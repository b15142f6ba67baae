// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package mistakes

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// Whoever changes the code that a mistake quotes learns it here, and not after the control planes of test/e2e.
func TestMistakesCanBeMade(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	for _, m := range List() {
		if m.File == "" {
			continue
		}
		text, err := m.Make(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.File, text, 0); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

func TestMistakeInATextThatIsNotThere(t *testing.T) {
	t.Parallel()
	m := Mistake{Name: "Old", File: "mistakes.go", Was: "no such " + "text"}
	if _, err := m.Make("."); err == nil {
		t.Error("a mistake was made in a text that is not there")
	}
}
