// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import "testing"

func TestSelects(t *testing.T) {
	checkExamples(t, Selectors(), map[string]example{
		"Same":             {`selects({"app": "web"}, {"app": "web"})`, `true`},
		"FewerThanLabels":  {`selects({"app": "web"}, {"app": "web", "x": "y"})`, `true`},
		"MoreThanLabels":   {`selects({"app": "web", "x": "y"}, {"app": "web"})`, `false`},
		"AnotherValue":     {`selects({"app": "web"}, {"app": "db"})`, `false`},
		"EmptyValue":       {`selects({"app": ""}, {"app": ""})`, `true`},
		"EmptyIsNotAbsent": {`selects({"app": ""}, {})`, `false`},
		"NumberIsNoLabel":  {`selects({"app": 1}, {"app": 1})`, `false`},
		"NullIsNoLabel":    {`selects({"app": null}, {"app": null})`, `false`},
		"Empty":            {`selects({}, {"app": "web"})`, `false`},
		"EmptyOfNothing":   {`selects({}, {})`, `false`},
		"Null":             {`selects(null, {"app": "web"})`, `false`},
		"None":             {`selects(optional.none(), {"app": "web"})`, `false`},
		"Optional":         {`selects(optional.of({"app": "web"}), optional.of({"app": "web"}))`, `true`},
		"NullLabels":       {`selects({"app": "web"}, null)`, `false`},
		"NoLabels":         {`selects({"app": "web"}, optional.none())`, `false`},
		"OfGo":             {`selects({"name": "web"}, object.metadata)`, `true`},
		"SelectorOfGo":     {`selects(object.metadata, {"name": "web"})`, `false`},
		"SelectorIsAText":  {`selects("app", {})`, `error: selects: a selector is a map, and this is a string`},
		"SelectorInside":   {`selects(optional.of([]), {})`, `error: selects: a selector is a map, and this is a list`},
		"LabelsAreAList":   {`selects({}, [])`, `error: selects: labels are a map, and these are a list`},
		"KeyIsNoText":      {`selects({1: "web"}, {})`, `error: selects: a selector is a map, and this is a map`},
	})
}

func TestMatchesSelector(t *testing.T) {
	const labels = `{"app": "web", "tier": "front"}`
	checkExamples(t, Selectors(), map[string]example{
		"Null":            {`matchesSelector(null, ` + labels + `)`, `false`},
		"None":            {`matchesSelector(optional.none(), ` + labels + `)`, `false`},
		"Empty":           {`matchesSelector({}, ` + labels + `)`, `true`},
		"EmptyOfNull":     {`matchesSelector({}, null)`, `true`},
		"EmptyWithin":     {`matchesSelector({"matchLabels": {}, "matchExpressions": []}, ` + labels + `)`, `true`},
		"NullWithin":      {`matchesSelector({"matchLabels": null, "matchExpressions": null}, ` + labels + `)`, `true`},
		"Optional":        {`matchesSelector(optional.of({"matchLabels": {"app": "web"}}), optional.of(` + labels + `))`, `true`},
		"Labels":          {`matchesSelector({"matchLabels": {"app": "web", "tier": "front"}}, ` + labels + `)`, `true`},
		"OneLabelDiffers": {`matchesSelector({"matchLabels": {"app": "web", "tier": "back"}}, ` + labels + `)`, `false`},
		"LabelIsMissing":  {`matchesSelector({"matchLabels": {"zone": "a"}}, ` + labels + `)`, `false`},
		"LabelsOfNull":    {`matchesSelector({"matchLabels": {"app": "web"}}, null)`, `false`},
		"PlainMap":        {`matchesSelector({"app": "web"}, ` + labels + `)`, `error: matchesSelector: a label selector has matchLabels and matchExpressions only; for a plain map of labels write selects(...)`},
		"PlainMapBeside":  {`matchesSelector({"matchLabels": {}, "app": "web"}, ` + labels + `)`, `error: matchesSelector: a label selector has matchLabels and matchExpressions only; for a plain map of labels write selects(...)`},
		"SelectorIsAList": {`matchesSelector([], {})`, `error: matchesSelector: a selector is a map, and this is a list`},
		"LabelsAreAText":  {`matchesSelector({}, "x")`, `error: matchesSelector: labels are a map, and these are a string`},
		"MatchLabels":     {`matchesSelector({"matchLabels": ["app"]}, {})`, `error: matchesSelector: matchLabels is no map`},
		"Expressions":     {`matchesSelector({"matchExpressions": {"key": "app"}}, {})`, `error: matchesSelector: matchExpressions is no list`},
	})
}

func TestMatchExpressions(t *testing.T) {
	match := func(expressions string) string {
		return `matchesSelector({"matchExpressions": [` + expressions + `]}, {"app": "web", "empty": ""})`
	}
	checkExamples(t, Selectors(), map[string]example{
		"In":               {match(`{"key": "app", "operator": "In", "values": ["db", "web"]}`), `true`},
		"InOthers":         {match(`{"key": "app", "operator": "In", "values": ["db", "we"]}`), `false`},
		"InWithoutLabel":   {match(`{"key": "zone", "operator": "In", "values": ["", "a"]}`), `false`},
		"InEmptyText":      {match(`{"key": "empty", "operator": "In", "values": [""]}`), `true`},
		"NotIn":            {match(`{"key": "app", "operator": "NotIn", "values": ["db"]}`), `true`},
		"NotInThese":       {match(`{"key": "app", "operator": "NotIn", "values": ["db", "web"]}`), `false`},
		"NotInWithoutIt":   {match(`{"key": "zone", "operator": "NotIn", "values": ["a"]}`), `true`},
		"Exists":           {match(`{"key": "app", "operator": "Exists"}`), `true`},
		"EmptyExists":      {match(`{"key": "empty", "operator": "Exists"}`), `true`},
		"ExistsNot":        {match(`{"key": "zone", "operator": "Exists"}`), `false`},
		"DoesNotExist":     {match(`{"key": "zone", "operator": "DoesNotExist"}`), `true`},
		"DoesExist":        {match(`{"key": "app", "operator": "DoesNotExist"}`), `false`},
		"AllMustBeMet":     {match(`{"key": "app", "operator": "Exists"}, {"key": "zone", "operator": "Exists"}`), `false`},
		"AlsoTheFirst":     {match(`{"key": "zone", "operator": "Exists"}, {"key": "app", "operator": "Exists"}`), `false`},
		"AllAreMet":        {match(`{"key": "app", "operator": "Exists"}, {"key": "zone", "operator": "DoesNotExist"}`), `true`},
		"NoKey":            {match(`{"operator": "Exists"}`), `error: matchesSelector: an entry of matchExpressions has no key`},
		"EmptyKey":         {match(`{"key": "", "operator": "Exists"}`), `error: matchesSelector: an entry of matchExpressions has no key`},
		"KeyIsNoText":      {match(`{"key": 1, "operator": "Exists"}`), `error: matchesSelector: an entry of matchExpressions has no key`},
		"NoMap":            {match(`"app"`), `error: matchesSelector: an entry of matchExpressions has no key`},
		"NoValues":         {match(`{"key": "app", "operator": "In", "values": []}`), `error: matchesSelector: In of "app" has no values`},
		"ValuesAreNoList":  {match(`{"key": "app", "operator": "NotIn", "values": "web"}`), `error: matchesSelector: NotIn of "app" has no values`},
		"UnknownOperator":  {match(`{"key": "app", "operator": "Gt", "values": ["1"]}`), `error: matchesSelector: Gt of "app" is no operator: In, NotIn, Exists and DoesNotExist are`},
		"NoOperator":       {match(`{"key": "app"}`), `error: matchesSelector: a <nil> of "app" is no operator: In, NotIn, Exists and DoesNotExist are`},
		"ErrorAfterNoMeet": {match(`{"key": "zone", "operator": "Exists"}, {"operator": "Exists"}`), `error: matchesSelector: an entry of matchExpressions has no key`},
		"LabelsAreNotMet": {`matchesSelector({"matchLabels": {"app": "db"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"app": "web"})`,
			`false`},
		"ExpressionsAreNotMet": {`matchesSelector({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {"app": "web"})`,
			`false`},
	})
}

// What is wrong with a requirement must not read as a match, or a mistake would match everything.
func TestAWrongRequirementIsNotMet(t *testing.T) {
	labels := map[string]any{"app": "web"}
	for name, requirement := range map[string]any{
		"NoMap":      "app",
		"NoKey":      map[string]any{"operator": "Exists"},
		"NoValues":   map[string]any{"key": "app", "operator": "NotIn"},
		"NoOperator": map[string]any{"key": "app"},
	} {
		if met, err := meetsRequirement(requirement, labels); met || err == nil {
			t.Errorf("%s: it is met: %t, %v", name, met, err)
		}
	}
}
