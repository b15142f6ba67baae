// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"math"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Durations is how expressions measure time, and how they read what people write of it.
//
//	parseDuration(<string>) -> <duration>      // parseDuration("7d12h"): as duration(), and days (d) and weeks (w) too
//	parseDuration(<duration>) -> <duration>    // itself, so that a parameter may be either
//	seconds(<int>) -> <duration>               // seconds(item.spec.terminationGracePeriodSeconds)
//	parseTimestamp(<string>) -> <timestamp>    // as timestamp(), and in UTC "2026-01-31", "2026-01-31T10:30", and for labels "2026-01-31T103000Z"
//	age(<object>) -> <duration>                // time - timestamp(object.metadata.creationTimestamp), and nothing else
func Durations() cel.EnvOption { return cel.Lib(durationsLibrary{}) }

type durationsLibrary struct{}

func (durationsLibrary) LibraryName() string { return "cleaner.durations" }

func (durationsLibrary) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("parseDuration",
			cel.Overload("parse_duration_string", []*cel.Type{cel.StringType}, cel.DurationType, cel.UnaryBinding(parseDuration)),
			cel.Overload("parse_duration_duration", []*cel.Type{cel.DurationType}, cel.DurationType,
				cel.UnaryBinding(func(d ref.Val) ref.Val { return d }))),
		cel.Function("parseTimestamp",
			cel.Overload("parse_timestamp_string", []*cel.Type{cel.StringType}, cel.TimestampType, cel.UnaryBinding(parseTimestamp))),
		cel.Function("seconds",
			cel.Overload("seconds_int", []*cel.Type{cel.IntType}, cel.DurationType, cel.UnaryBinding(convertSeconds))),
		cel.Macros(cel.GlobalMacro("age", 1, expandAge)),
	}
}

func (durationsLibrary) ProgramOptions() []cel.ProgramOption { return nil }

func parseDuration(v ref.Val) ref.Val {
	d, err := v1alpha1.ParseDuration(string(v.(types.String)))
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Duration{Duration: d}
}

func parseTimestamp(v ref.Val) ref.Val {
	text := v.(types.String)
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02T150405Z"} {
		if t, err := time.Parse(layout, string(text)); err == nil {
			text = types.String(t.Format(time.RFC3339))
			break
		}
	}
	at := text.ConvertToType(types.TimestampType)
	if types.IsError(at) {
		return types.NewErr("%s is not a time: write one such as \"2026-01-31T10:30:00Z\", \"2026-01-31T10:30\", \"2026-01-31\" or, in a label, \"2026-01-31T103000Z\"", quoteValue(v))
	}
	return at
}

func convertSeconds(v ref.Val) ref.Val {
	n := int64(v.(types.Int))
	if n > math.MaxInt64/int64(time.Second) || n < math.MinInt64/int64(time.Second) {
		return types.NewErr("seconds(%d) is longer than a duration can be (292 years)", n)
	}
	return types.Duration{Duration: time.Duration(n) * time.Second}
}

func expandAge(f cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
	created := f.NewSelect(f.NewSelect(args[0], "metadata"), "creationTimestamp")
	return f.NewCall(operators.Subtract, f.NewIdent("time"), f.NewCall("timestamp", created)), nil
}
