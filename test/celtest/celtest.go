// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package celtest compiles the expressions of specs for tests.
package celtest

import (
	"testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
)

// CompileWork compiles the expressions of a spec that has no mistakes.
func CompileWork(tb testing.TB, work *v1alpha1.Work) *celenv.Programs {
	tb.Helper()
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	programs, errs := compiler.Compile(tb.Context(), work)
	if len(errs) > 0 {
		tb.Fatal(errs.ToAggregate())
	}
	return programs
}
