// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package signedrecords

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

func newRing(t *testing.T) signing.Ring {
	t.Helper()
	ring, err := signing.NewRing([]signing.Key{signing.NewKey(time.Now())}, signing.RotationPolicy{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// sign signs the record of a Cleaner.
func sign(t *testing.T, ring signing.Ring, c v1alpha1.Owner) {
	t.Helper()
	if err := SignRecord(ring, c, c.State(), time.Unix(1700000000, 0)); err != nil {
		t.Fatal(err)
	}
}

func unchanged(*v1alpha1.Cleaner) {}

// withRecord is a Cleaner with an open run, and an event that is owed.
func withRecord() *v1alpha1.Cleaner {
	now := metav1.NewTime(time.Unix(1700000000, 0))
	return &v1alpha1.Cleaner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "uid"},
		Status: v1alpha1.CleanerStatus{
			Runs: 2, LastScheduleTime: &now, LastRequestedAt: "1",
			Unsent: &v1alpha1.Run{Number: 1, Decides: "v1:a", DecidedAt: now, Result: v1alpha1.ResultPartial, FinishedAt: &now},
			Run: &v1alpha1.Run{
				Number: 2, Decides: "v1:a", DecidedAt: now, ServiceAccountName: "bot", Rows: []string{"targets.pods pods/v1 shop/a 1 1"},
				Helm: &v1alpha1.HelmRelease{Name: "web", Revision: 3, UID: "9", FirstDeployed: metav1.NewMicroTime(time.Unix(1700000000, 123000)), Digest: "d"},
			},
		},
	}
}

// A record is believed as the API server gives it back, and not when anything in it differs.
func TestVerifyRecord(t *testing.T) {
	ring := newRing(t)
	for name, tc := range map[string]struct {
		change func(c *v1alpha1.Cleaner)
		want   error
	}{
		"AsWritten": {func(*v1alpha1.Cleaner) {}, nil},
		"AReport": {func(c *v1alpha1.Cleaner) {
			c.Status.ObservedGeneration = 7
			c.Status.Pending = []v1alpha1.Pending{{Rule: "r"}}
		}, nil},
		"AnotherSpec":       {func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"false"} }, nil},
		"AnotherUID":        {func(c *v1alpha1.Cleaner) { c.UID = "other" }, ErrForeign},
		"AnotherName":       {func(c *v1alpha1.Cleaner) { c.Name = "d" }, ErrForeign},
		"AnotherNamespace":  {func(c *v1alpha1.Cleaner) { c.Namespace = "other" }, ErrForeign},
		"AnotherRow":        {func(c *v1alpha1.Cleaner) { c.Status.Run.Rows[0] = "targets.pods pods/v1 shop/b 2 2" }, ErrForeign},
		"AnotherAccount":    {func(c *v1alpha1.Cleaner) { c.Status.Run.ServiceAccountName = "admin" }, ErrForeign},
		"TheOperator":       {func(c *v1alpha1.Cleaner) { c.Status.Run.ServiceAccountName = "" }, ErrForeign},
		"AnotherRelease":    {func(c *v1alpha1.Cleaner) { c.Status.Run.Helm.Name = "db" }, ErrForeign},
		"Hooks":             {func(c *v1alpha1.Cleaner) { c.Status.Run.Helm.DisableHooks = true }, ErrForeign},
		"AnotherSpecsRun":   {func(c *v1alpha1.Cleaner) { c.Status.Run.Decides = "v1:x" }, ErrForeign},
		"AnotherEvent":      {func(c *v1alpha1.Cleaner) { c.Status.Unsent.Message = "all is well" }, ErrForeign},
		"NoEvent":           {func(c *v1alpha1.Cleaner) { c.Status.Unsent = nil }, ErrForeign},
		"EventAsRun":        {func(c *v1alpha1.Cleaner) { c.Status.Run, c.Status.Unsent = c.Status.Unsent, nil }, ErrForeign},
		"FewerRuns":         {func(c *v1alpha1.Cleaner) { c.Status.Runs = 1 }, ErrForeign},
		"AnotherTick":       {func(c *v1alpha1.Cleaner) { c.Status.LastScheduleTime = nil }, ErrForeign},
		"AnotherRequest":    {func(c *v1alpha1.Cleaner) { c.Status.LastRequestedAt = "2" }, ErrForeign},
		"ARequestAlone":     {func(c *v1alpha1.Cleaner) { c.Status = v1alpha1.CleanerStatus{LastRequestedAt: "2"} }, ErrForeign},
		"AnotherTime":       {func(c *v1alpha1.Cleaner) { c.Status.RecordedAt.Time = c.Status.RecordedAt.Add(time.Hour) }, ErrForeign},
		"NoTime":            {func(c *v1alpha1.Cleaner) { c.Status.RecordedAt = nil }, ErrForeign},
		"NoSignature":       {func(c *v1alpha1.Cleaner) { c.Status.Signature = "" }, ErrForeign},
		"AnEarlierVersions": {func(c *v1alpha1.Cleaner) { c.Status = v1alpha1.CleanerStatus{Runs: 1} }, ErrForeign},
		"NoRecord":          {func(c *v1alpha1.Cleaner) { c.Status = v1alpha1.CleanerStatus{Signature: "forged"} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := withRecord()
			sign(t, ring, c)
			text, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			read := &v1alpha1.Cleaner{}
			if err := json.Unmarshal(text, read); err != nil {
				t.Fatal(err)
			}
			tc.change(read)
			if _, got := VerifyRecord(ring, read); !errors.Is(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// What a signature does not tell apart is no record of this operator either: it stores whole seconds, and leaves out what is empty.
func TestARecordIsReadAsItIsWritten(t *testing.T) {
	ring := newRing(t)
	for name, tc := range map[string]struct {
		old, altered string
		want         error
	}{
		"AsWritten":        {`"number":2`, `"number":2`, nil},
		"SameNumber":       {`"lastRequestedAt":"1"`, `"lastRequestedAt":"\u0031"`, nil},
		"PartOfASecond":    {`"run":{"decidedAt":"2023-11-14T22:13:20Z"`, `"run":{"decidedAt":"2023-11-14T22:13:20.999999Z"`, ErrForeign},
		"UnsentBetween":    {`"finishedAt":"2023-11-14T22:13:20Z"`, `"finishedAt":"2023-11-14T22:13:20.5Z"`, ErrForeign},
		"ScheduledBetween": {`"lastScheduleTime":"2023-11-14T22:13:20Z"`, `"lastScheduleTime":"2023-11-14T22:13:20.000000001Z"`, ErrForeign},
		"EmptyList":        {`"number":2`, `"number":2,"counts":[]`, ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			c := withRecord()
			sign(t, ring, c)
			var fields map[string]any // in the order of their names
			if text, err := json.Marshal(c); err != nil || json.Unmarshal(text, &fields) != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(fields)
			if err != nil || strings.Count(string(text), tc.old) != 1 {
				t.Fatalf("%v: %q is not once in %s", err, tc.old, text)
			}
			read := &v1alpha1.Cleaner{}
			if err := json.Unmarshal([]byte(strings.Replace(string(text), tc.old, tc.altered, 1)), read); err != nil {
				t.Fatal(err)
			}
			if _, got := VerifyRecord(ring, read); !errors.Is(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// ringOfAnEarlierVersion has the key that what is stored in these tests was signed with.
func ringOfAnEarlierVersion(t *testing.T) (signing.Ring, signing.Key) {
	t.Helper()
	key, err := signing.ParseKey("20260102T150405Z", []byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	ring, err := signing.NewRing([]signing.Key{key}, signing.RotationPolicy{}, key.CreatedAt())
	if err != nil {
		t.Fatal(err)
	}
	return ring, key
}

// What an earlier version has signed is read for ever, or open runs lose their record: never change this text. It has each field
// that a record may have, in the API server's order.
func TestRecordOfAnEarlierVersion(t *testing.T) {
	const stored = `{"metadata":{"name":"c","namespace":"shop","uid":"uid"},"status":{
"lastScheduleTime":"2026-01-02T15:04:00Z","runs":2,
"run":{"data":"{\"a\":1.50}","decidedAt":"2026-01-02T15:04:05Z","decides":"v1:a",
  "helm":{"digest":"d","disableHooks":true,"firstDeployed":"2026-01-02T15:04:05.000123Z","name":"web","outcome":"unknown","revision":3,"uid":"9"},
  "lifecycle":"Recurring","number":2,"rows":["targets.pods pods/v1 shop/a 1 1","old deployments.apps/v1 shop/<b> 2 2"],"serviceAccountName":"bot",
  "withheld":[{"because":"it is protected","object":"b.pods/v1"}]},
"unsent":{"counts":[{"count":1,"outcome":"gone","resource":"pods/v1"}],"decidedAt":"2026-01-02T15:03:05Z","decides":"v1:a","finishedAt":"2026-01-02T15:03:06Z",
  "message":"it was stopped & kept","number":1,"outcomes":[{"outcome":"gone","row":"targets.pods pods/v1 shop/a 1 1"}],"result":"Partial"},
"signature":"20260102T150405Z.sDDLKiRajq23D--iM0XB_pnxjb5lzAZSgRAcmmUV6g4"}}`
	ring, key := ringOfAnEarlierVersion(t)
	c := &v1alpha1.Cleaner{}
	if err := json.Unmarshal([]byte(stored), c); err != nil {
		t.Fatal(err)
	}
	// A field that a later version adds is empty in what an earlier one has written.
	if _, err := VerifyRecord(ring, c); err != nil {
		now := c.DeepCopy()
		if err := SignRecord(ring, now, now.State(), key.CreatedAt()); err != nil {
			t.Fatal(err)
		}
		t.Errorf("%v; this version writes %s", err, now.State().Signature)
	}
}

// Even a record that is signed makes no Cleaner act as an account of another namespace.
func TestNoRecordLeavesItsNamespace(t *testing.T) {
	ring := newRing(t)
	c := withRecord()
	c.Status.Run.ServiceAccountName = "kube-system/admin"
	sign(t, ring, c)
	if _, err := VerifyRecord(ring, c); !errors.Is(err, ErrForeign) {
		t.Errorf("got %v", err)
	}
	cluster := &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "uid"}, Status: c.Status}
	sign(t, ring, cluster)
	if _, err := VerifyRecord(ring, cluster); err != nil {
		t.Errorf("of a ClusterCleaner: %v", err)
	}
}

// However often a record is written at a moment, and whatever its clock says, each is later than the one that it replaces.
func TestEachRecordIsLater(t *testing.T) {
	ring, c := newRing(t), withRecord()
	now := time.Unix(1700000000, 999)
	for _, at := range []time.Time{now, now, now.Add(-time.Hour), now.Add(time.Second)} {
		before := *c.State().DeepCopy()
		if err := SignRecord(ring, c, c.State(), at); err != nil {
			t.Fatal(err)
		}
		if !ReadTime(c.State()).After(ReadTime(&before)) || !IsOlder(&before, c.State()) || IsOlder(c.State(), &before) {
			t.Errorf("at %s it is of %s, after %s", at, ReadTime(c.State()), ReadTime(&before))
		}
	}
	if fewer := (&v1alpha1.CleanerStatus{Runs: 1, RecordedAt: c.Status.RecordedAt}); !IsOlder(fewer, c.State()) {
		t.Error("one of fewer runs is not older")
	}
	if err := SignRecord(ring, c, &v1alpha1.CleanerStatus{Signature: "forged"}, now); err != nil {
		t.Error(err)
	}
}

// A copy has all that is signed, and nothing of the report.
func TestCopyRecord(t *testing.T) {
	ring, c := newRing(t), withRecord()
	c.Status.ObservedGeneration = 7
	sign(t, ring, c)
	c.Status = CopyRecord(&c.Status)
	if current, err := VerifyRecord(ring, c); err != nil || !current || c.Status.ObservedGeneration != 0 {
		t.Errorf("got %t, %v, generation %d", current, err, c.Status.ObservedGeneration)
	}
}

// What is forged gives no number that later runs could not go on from.
func TestFindHighestRun(t *testing.T) {
	run := func(n int64) *v1alpha1.Run { return &v1alpha1.Run{Number: n} }
	for name, tc := range map[string]struct {
		status v1alpha1.CleanerStatus
		want   int64
	}{
		"None":     {v1alpha1.CleanerStatus{}, 0},
		"Runs":     {v1alpha1.CleanerStatus{Runs: 3, Run: run(2), Unsent: run(1)}, 3},
		"Run":      {v1alpha1.CleanerStatus{Runs: 3, Run: run(5), Unsent: run(1)}, 5},
		"Unsent":   {v1alpha1.CleanerStatus{Unsent: run(9)}, 9},
		"Too many": {v1alpha1.CleanerStatus{Runs: 3, Run: run(maxForgedRuns + 1)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := FindHighestRun(&tc.status); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// fillTexts gives each string below a value any bytes, and each list and pointer something to point at.
func fillTexts(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "text")))
	case reflect.Int64:
		v.SetInt(rapid.Int64Range(0, 3).Draw(t, "number"))
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "there is one") {
			v.Set(reflect.New(v.Type().Elem()))
			fillTexts(t, v.Elem())
		}
	case reflect.Slice:
		n := rapid.IntRange(0, 2).Draw(t, "items")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fillTexts(t, v.Index(i))
		}
	case reflect.Struct:
		switch at := v.Addr().Interface().(type) {
		case *metav1.Time:
			at.Time = time.Unix(0, rapid.Int64Range(0, 1e18).Draw(t, "time"))
			return
		case *metav1.MicroTime:
			at.Time = time.Unix(0, rapid.Int64Range(0, 1e18).Draw(t, "time"))
			return
		}
		for i := range v.NumField() {
			fillTexts(t, v.Field(i))
		}
	default: // says nothing that JSON could not
	}
}

// Whatever bytes are in a record, such as those of names that protobuf can say and JSON cannot: what was signed is what is read back.
func TestWhatIsSignedIsWhatIsStored(t *testing.T) {
	ring := newRing(t)
	rapid.Check(t, func(t *rapid.T) {
		c := &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u"}}
		fillTexts(t, reflect.ValueOf(&c.Status).Elem().FieldByName("Run"))
		fillTexts(t, reflect.ValueOf(&c.Status).Elem().FieldByName("Unsent"))
		fillTexts(t, reflect.ValueOf(&c.Status).Elem().FieldByName("LastRequestedAt"))
		fillTexts(t, reflect.ValueOf(&c.Status).Elem().FieldByName("LastScheduleTime"))
		if err := SignRecord(ring, c, c.State(), time.Unix(1700000000, 0)); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		read := &v1alpha1.ClusterCleaner{}
		if err := json.Unmarshal(text, read); err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyRecord(ring, read); err != nil {
			t.Fatalf("read back it gives %v: %s", err, text)
		}
		if diff := cmp.Diff(c.Status, read.Status); diff != "" {
			t.Fatalf("what was signed and what is read back (-signed +read):\n%s", diff)
		}
	})
}
