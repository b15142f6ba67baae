// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/vtex/cleaner/api/v1alpha1"
)

func TestEventCarriesTheData(t *testing.T) {
	run := finished(1)
	run.Data = `{"big":9007199254740993,"images":["shop:1"]}`
	e, err := NewEvent(identity("c"), run)
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Data json.RawMessage }
	if err := json.Unmarshal(e.Data(), &d); err != nil {
		t.Fatal(err)
	}
	if got := string(d.Data); got != run.Data {
		t.Errorf("got %s, want it as it was recorded: %s", got, run.Data)
	}

	run.Data = `{"made": up`
	if e, err := NewEvent(identity("c"), run); err == nil {
		t.Errorf("what is no JSON is not sent:\n%s", e)
	}
}

// However large the data is, written as JSON in JSON: the event has all of it, and less of the rest.
func TestEventFitsWithTheLargestData(t *testing.T) {
	run := finished(1)
	run.Message, run.Outcomes = strings.Repeat("<", 100_000), nil
	for i := range maxObjects {
		run.Outcomes = append(run.Outcomes, v1alpha1.RowOutcome{Row: fmt.Sprintf("targets.t pods/v1 ns/%s%03d u 1", strings.Repeat("x", 200), i), Outcome: v1alpha1.OutcomeDeleted})
	}
	run.Data = `"` + strings.Repeat("<", 8190) + `"`
	e, err := NewEvent(identity(strings.Repeat("c", 253)), run)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Data      string
		Truncated bool
		Objects   []eventObject
	}
	if err := json.Unmarshal(e.Data(), &d); err != nil {
		t.Fatal(err)
	}
	if len(e.Data()) > maxData || `"`+d.Data+`"` != run.Data || !d.Truncated || len(d.Objects) == 0 {
		t.Errorf("%d bytes, of them %d of data, %d objects, truncated: %t", len(e.Data()), len(d.Data), len(d.Objects), d.Truncated)
	}
}
