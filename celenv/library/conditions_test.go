// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"testing"

	"github.com/google/cel-go/common/types"
)

func TestCondition(t *testing.T) {
	of := func(conditions, kind string) string {
		return `condition({"status": {"conditions": ` + conditions + `}}, "` + kind + `")`
	}
	checkExamples(t, Conditions(), map[string]example{
		"Found":            {of(`[{"type": "Other"}, {"type": "Ready", "status": "True"}]`, "Ready") + `.status`, `optional.of("True")`},
		"FirstOfTwo":       {of(`[{"type": "Ready", "n": 1}, {"type": "Ready", "n": 2}]`, "Ready") + `.n`, `optional.of(1)`},
		"None":             {of(`[{"type": "Other"}]`, "Ready"), `optional.none()`},
		"OtherCase":        {of(`[{"type": "ready"}]`, "Ready"), `optional.none()`},
		"NoConditions":     {of(`[]`, "Ready"), `optional.none()`},
		"Null":             {of(`null`, "Ready"), `optional.none()`},
		"NoList":           {of(`{"type": "Ready"}`, "Ready"), `optional.none()`},
		"WhatIsNoMap":      {of(`["Ready", null, 1, {"type": "Ready", "n": 1}]`, "Ready") + `.n`, `optional.of(1)`},
		"WithoutType":      {of(`[{"status": "True"}]`, "Ready"), `optional.none()`},
		"TypeIsNoText":     {of(`[{"type": 1}, {"type": null}]`, "1"), `optional.none()`},
		"StatusIsNoMap":    {`condition({"status": "Ready"}, "Ready")`, `optional.none()`},
		"NoStatus":         {`condition({}, "Ready")`, `optional.none()`},
		"OnlyInTheStatus":  {`condition({"conditions": [{"type": "Ready"}]}, "Ready")`, `optional.none()`},
		"OfGo":             {`condition(object, "Ready")`, `optional.none()`},
		"ErrorForAList":    {`condition([], "Ready")`, `error: condition: this is no object, but a list`},
		"ErrorForAText":    {`condition("Ready", "Ready")`, `error: condition: this is no object, but a string`},
		"ErrorForNull":     {`condition(null, "Ready")`, `error: condition: this is no object, but a null_type`},
		"ErrorForOptional": {`condition(optional.of({}), "Ready")`, `error: condition: this is no object, but a optional_type`},
	})
}

func TestSetConditionPlacesIt(t *testing.T) {
	const list = `[{"type": "A", "status": "True"}, {"type": "B", "status": "True"}, {"type": "C", "status": "True"}]`
	set := func(list, kind string) string {
		return `setCondition(` + list + `, {"type": "` + kind + `", "status": "False"})`
	}
	checkExamples(t, Conditions(), map[string]example{
		"AtTheEnd":         {set(list, "D") + `.map(c, c.type + c.status)`, `["ATrue", "BTrue", "CTrue", "DFalse"]`},
		"First":            {set(list, "A") + `.map(c, c.type + c.status)`, `["AFalse", "BTrue", "CTrue"]`},
		"Between":          {set(list, "B") + `.map(c, c.type + c.status)`, `["ATrue", "BFalse", "CTrue"]`},
		"Last":             {set(list, "C") + `.map(c, c.type + c.status)`, `["ATrue", "BTrue", "CFalse"]`},
		"FirstOfItsType":   {set(`[{"type": "A", "status": "1"}, {"type": "A", "status": "2"}]`, "A") + `.map(c, c.status)`, `["False", "2"]`},
		"InAnEmptyList":    {set(`[]`, "A"), `[{"status": "False", "type": "A"}]`},
		"InNull":           {set(`null`, "A"), `[{"status": "False", "type": "A"}]`},
		"InNone":           {set(`optional.none()`, "A"), `[{"status": "False", "type": "A"}]`},
		"InAnOptional":     {set(`optional.of(`+list+`)`, "B") + `.map(c, c.type + c.status)`, `["ATrue", "BFalse", "CTrue"]`},
		"BesideWhatIsNone": {set(`[1, null, {}]`, "A"), `[1, null, {}, {"status": "False", "type": "A"}]`},
	})
}

// The time of the last change is kept for as long as the status is.
func TestSetConditionKeepsTheTimeOfTheLastChange(t *testing.T) {
	set := func(old, now string) string {
		return `setCondition([{"type": "A", ` + old + `}], {"type": "A", ` + now + `})`
	}
	checkExamples(t, Conditions(), map[string]example{
		"SameStatus": {set(`"status": "True", "reason": "Old", "lastTransitionTime": "then"`, `"status": "True", "reason": "New", "lastTransitionTime": "now"`),
			`[{"lastTransitionTime": "then", "reason": "New", "status": "True", "type": "A"}]`},
		"SameStatusAndNoTimeGiven": {set(`"status": "True", "lastTransitionTime": "then"`, `"status": "True"`),
			`[{"lastTransitionTime": "then", "status": "True", "type": "A"}]`},
		"SameStatusAndNoTimeBefore": {set(`"status": "True"`, `"status": "True", "lastTransitionTime": "now"`),
			`[{"lastTransitionTime": "now", "status": "True", "type": "A"}]`},
		"AnotherStatus": {set(`"status": "True", "lastTransitionTime": "then"`, `"status": "False", "lastTransitionTime": "now"`),
			`[{"lastTransitionTime": "now", "status": "False", "type": "A"}]`},
		"AnotherStatusAndNoTimeGiven": {set(`"status": "True", "lastTransitionTime": "then"`, `"status": "False"`),
			`[{"status": "False", "type": "A"}]`},
		"NoStatusBefore": {set(`"lastTransitionTime": "then"`, `"status": "False", "lastTransitionTime": "now"`),
			`[{"lastTransitionTime": "now", "status": "False", "type": "A"}]`},
		"IteratesOverTheTimeOnce": {set(`"status": "True", "lastTransitionTime": "then"`, `"status": "True", "lastTransitionTime": "now"`) + `[0].map(k, k).filter(k, k == "lastTransitionTime")`,
			`["lastTransitionTime"]`},
		"IteratesOverAll": {set(`"status": "True", "lastTransitionTime": "then"`, `"status": "True", "reason": "New"`) + `[0].map(k, k).size()`, `4`},
	})
}

func TestSetConditionErrors(t *testing.T) {
	const noCondition = `error: setCondition: a condition is a map with the strings type and status`
	checkExamples(t, Conditions(), map[string]example{
		"NoMap":         {`setCondition([], "Ready")`, noCondition},
		"Null":          {`setCondition([], null)`, noCondition},
		"NoType":        {`setCondition([], {"status": "True"})`, noCondition},
		"EmptyType":     {`setCondition([], {"type": "", "status": "True"})`, noCondition},
		"TypeIsNoText":  {`setCondition([], {"type": 1, "status": "True"})`, noCondition},
		"NoStatus":      {`setCondition([], {"type": "Ready"})`, noCondition},
		"StatusIsBool":  {`setCondition([], {"type": "Ready", "status": true})`, noCondition},
		"EmptyStatusIs": {`setCondition([], {"type": "Ready", "status": ""})`, `[{"status": "", "type": "Ready"}]`},
		"NoListButAMap": {`setCondition({}, {"type": "Ready", "status": "True"})`, `error: setCondition: the conditions are no list, but a map`},
		"NoListInside":  {`setCondition(optional.of("x"), {"type": "Ready", "status": "True"})`, `error: setCondition: the conditions are no list, but a string`},
	})
}

// Expressions share what they read.
func TestSetConditionLeavesTheListAlone(t *testing.T) {
	before := types.DefaultTypeAdapter.NativeToValue([]any{map[string]any{"type": "Ready", "status": "True"}})
	setCondition(before, types.DefaultTypeAdapter.NativeToValue(map[string]any{"type": "Ready", "status": "False"}))
	if got, want := types.Format(before), `[{"status": "True", "type": "Ready"}]`; got != want {
		t.Errorf("the list is %s now", got)
	}
}
