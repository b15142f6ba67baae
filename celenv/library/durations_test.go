// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import "testing"

func TestParseDuration(t *testing.T) {
	const wanted = ` is not a duration: write numbers with the units ns, us, ms, s, m, h, d or w, such as "360h" or "1h30m"`
	checkExamples(t, Durations(), map[string]example{
		"DaysAndHours": {`parseDuration("7d12h")`, `duration("648000s")`},
		"Weeks":        {`parseDuration("2w")`, `duration("1209600s")`},
		"Fraction":     {`parseDuration("1.5h")`, `duration("5400s")`},
		"Zero":         {`parseDuration("0s")`, `duration("0s")`},
		"Longest":      {`parseDuration("106751d")`, `duration("9223286400s")`},
		"TooLong":      {`parseDuration("106752d")`, `error: "106752d" is too long: the longest duration is 292 years (106751d)`},
		"OfADuration":  {`parseDuration(duration("90s"))`, `duration("90s")`},
		"Empty":        {`parseDuration("")`, `error: ""` + wanted},
		"NoUnit":       {`parseDuration("7")`, `error: "7"` + wanted},
		"Negative":     {`parseDuration("-1h")`, `error: "-1h"` + wanted},
		"Space":        {`parseDuration("1h ")`, `error: "1h "` + wanted},
		"WrongType":    {`parseDuration(dyn(1))`, `error: no such overload: parseDuration(int)`},
	})
}

func TestParseTimestamp(t *testing.T) {
	const wanted = ` is not a time: write one such as "2026-01-31T10:30:00Z", "2026-01-31T10:30", "2026-01-31" or, in a label, "2026-01-31T103000Z"`
	checkExamples(t, Durations(), map[string]example{
		"Day":            {`parseTimestamp("2026-01-31")`, `timestamp("2026-01-31T00:00:00Z")`},
		"LeapDay":        {`parseTimestamp("2024-02-29")`, `timestamp("2024-02-29T00:00:00Z")`},
		"Minute":         {`parseTimestamp("2026-01-31T10:30")`, `timestamp("2026-01-31T10:30:00Z")`},
		"Label":          {`parseTimestamp("2026-01-31T103015Z")`, `timestamp("2026-01-31T10:30:15Z")`},
		"Full":           {`parseTimestamp("2026-01-31T10:30:15Z")`, `timestamp("2026-01-31T10:30:15Z")`},
		"Fraction":       {`parseTimestamp("2026-01-31T10:30:15.5Z")`, `timestamp("2026-01-31T10:30:15.5Z")`},
		"Offset":         {`parseTimestamp("2026-01-31T10:30:15+02:00")`, `timestamp("2026-01-31T08:30:15Z")`},
		"FirstYear":      {`parseTimestamp("0001-01-01")`, `timestamp("0001-01-01T00:00:00Z")`},
		"LastYear":       {`parseTimestamp("9999-12-31T23:59")`, `timestamp("9999-12-31T23:59:00Z")`},
		"BeforeTheFirst": {`parseTimestamp("0000-12-31")`, `error: "0000-12-31"` + wanted},
		"AfterTheLast":   {`parseTimestamp("10000-01-01")`, `error: "10000-01-01"` + wanted},
		"NoLeapDay":      {`parseTimestamp("2026-02-29")`, `error: "2026-02-29"` + wanted},
		"NoSuchHour":     {`parseTimestamp("2026-01-31T24:00")`, `error: "2026-01-31T24:00"` + wanted},
		"NoZone":         {`parseTimestamp("2026-01-31T10:30:15")`, `error: "2026-01-31T10:30:15"` + wanted},
		"LabelNoZone":    {`parseTimestamp("2026-01-31T103015")`, `error: "2026-01-31T103015"` + wanted},
		"Empty":          {`parseTimestamp("")`, `error: ""` + wanted},
		"WrongType":      {`parseTimestamp(dyn(1))`, `error: no such overload: parseTimestamp(int)`},
	})
}

func TestSeconds(t *testing.T) {
	checkExamples(t, Durations(), map[string]example{
		"None":             {`seconds(0)`, `duration("0s")`},
		"Some":             {`seconds(90)`, `duration("90s")`},
		"Negative":         {`seconds(-1)`, `duration("-1s")`},
		"Most":             {`seconds(9223372036)`, `duration("9223372036s")`},
		"TooMany":          {`seconds(9223372037)`, `error: seconds(9223372037) is longer than a duration can be (292 years)`},
		"MostNegative":     {`seconds(-9223372036)`, `duration("-9223372036s")`},
		"TooManyNegative":  {`seconds(-9223372037)`, `error: seconds(-9223372037) is longer than a duration can be (292 years)`},
		"LeastOfAllInts":   {`seconds(-9223372036854775807 - 1)`, `error: seconds(-9223372036854775808) is longer than a duration can be (292 years)`},
		"GreatestOfAllInt": {`seconds(9223372036854775807)`, `error: seconds(9223372036854775807) is longer than a duration can be (292 years)`},
	})
}

func TestAge(t *testing.T) {
	checkExamples(t, Durations(), map[string]example{
		"OfAnObject":   {`age(object)`, `duration("5400s")`},
		"OfTheFuture":  {`age({"metadata": {"creationTimestamp": "2026-01-31T12:00:01Z"}})`, `duration("-1s")`},
		"OfNow":        {`age({"metadata": {"creationTimestamp": "2026-01-31T12:00:00Z"}})`, `duration("0s")`},
		"NoTime":       {`age({"metadata": {"name": "x"}})`, `error: no such key: creationTimestamp`},
		"NoMetadata":   {`age({"spec": {}})`, `error: no such key: metadata`},
		"NoTimeAtAll":  {`age({"metadata": {"creationTimestamp": "yesterday"}})`, `error: type conversion error from 'string' to 'google.protobuf.Timestamp'`},
		"OfEachObject": {`[object].map(o, age(o))`, `[duration("5400s")]`},
	})
}
