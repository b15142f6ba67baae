// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package releaseitem

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"
	helmtime "helm.sh/helm/v3/pkg/time"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/vtex/cleaner/celenv/objectschema"
)

// installed is when the release of the tests was installed, and upgraded when it was upgraded.
var installed, upgraded = time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("", 3600)), time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// web is a release, with changes.
func web(changes ...func(*release.Release)) *release.Release {
	r := &release.Release{
		Name: "web", Namespace: "shop", Version: 3,
		Info: &release.Info{
			FirstDeployed: helmtime.Time{Time: installed}, LastDeployed: helmtime.Time{Time: upgraded}, Status: release.StatusDeployed,
			Description: "Upgrade complete", Notes: "# Notes\n\"quoted\" \u00e9",
		},
		Chart: &chart.Chart{
			Metadata:  &chart.Metadata{APIVersion: "v2", Name: "shop-web", Version: "1.2.3", AppVersion: "v7", Annotations: map[string]string{"name": "other"}},
			Templates: []*chart.File{{Name: "templates/a.yaml", Data: []byte("kind: ConfigMap")}},
			Values:    map[string]any{"password": "hidden"},
		},
		Config:   map[string]any{"password": "hidden"},
		Manifest: "kind: ConfigMap\ndata: {password: hidden}",
		Labels:   map[string]string{"team": "a"},
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

// store has Helm's own driver store a release, and returns the Secret as JSON has it, with changes.
func store(t testing.TB, r *release.Release, changes ...func(*corev1.Secret)) map[string]any {
	t.Helper()
	secrets := fake.NewClientset().CoreV1().Secrets(r.Namespace)
	key := fmt.Sprintf("sh.helm.release.v1.%s.v%d", r.Name, r.Version)
	if err := driver.NewSecrets(secrets).Create(key, r); err != nil {
		t.Fatal(err)
	}
	s, err := secrets.Get(t.Context(), key, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Namespace, s.UID, s.ResourceVersion = r.Namespace, "u-1", "7"
	for _, change := range changes {
		change(s)
	}
	content, err := k8sruntime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		t.Fatal(err)
	}
	content["apiVersion"], content["kind"] = "v1", "Secret"
	return content
}

// withText puts another JSON into the record of a Secret.
func withText(t testing.TB, text string) func(*corev1.Secret) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return func(s *corev1.Secret) {
		s.Data = map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(b.Bytes()))}
	}
}

// TestMakeItem shows the item of what Helm writes.
func TestMakeItem(t *testing.T) {
	secret := store(t, web(), func(s *corev1.Secret) {
		s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "helm"}}
		delete(s.Labels, "createdAt")
	})
	before, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	item := MakeItem(secret, nil)
	want := map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
		"metadata": map[string]any{
			"name": "sh.helm.release.v1.web.v3", "namespace": "shop", "uid": "u-1", "resourceVersion": "7", "creationTimestamp": nil,
			"labels": map[string]any{"name": "web", "owner": "helm", "status": "deployed", "version": "3", "team": "a"},
		},
		"name": "web", "namespace": "shop", "revision": int64(3), "status": "deployed",
		"chart": map[string]any{"name": "shop-web", "version": "1.2.3"}, "appVersion": "v7",
		"firstDeployed": "2026-01-02T02:04:05Z", "lastDeployed": "2026-02-03T04:05:06Z",
		"labels": map[string]any{"team": "a"},
	}
	if item["metadata"].(map[string]any)["creationTimestamp"] == nil {
		item["metadata"].(map[string]any)["creationTimestamp"] = nil // how the converter writes it depends on its version
	}
	if diff := cmp.Diff(want, item); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if why := FindProblem(item); why != "" {
		t.Errorf("it is said to be unreadable: %s", why)
	}
	if text := fmt.Sprint(item); strings.Contains(text, "hidden") || strings.Contains(text, "H4sI") {
		t.Errorf("it has something of the rest of the record: %s", text)
	}
	delete(secret["metadata"].(map[string]any), "creationTimestamp")
	if _, still := secret["metadata"].(map[string]any)["managedFields"]; !still || !strings.Contains(string(before), "managedFields") {
		t.Error("the Secret was changed")
	}
}

// TestRandomReleases has Helm's driver store releases of any kind: each field of an item is what Helm reads.
func TestRandomReleases(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	texts := []string{"", "a", "v1.2.3+x", "\"\\\n\u0001", "\u00e9\u2028\U0001F600", "<&>", strings.Repeat("x", maxText)}
	at := func() helmtime.Time {
		if random.IntN(5) == 0 {
			return helmtime.Time{}
		}
		return helmtime.Time{Time: time.Unix(random.Int64N(4e9), random.Int64N(1e9)).In(time.FixedZone("", random.IntN(24*60)*60-12*3600))}
	}
	for range 300 {
		r := web(func(r *release.Release) {
			r.Name, r.Version = pick("web", "a-b", "preview.x"), 1+random.IntN(maxRevision-1)
			r.Info.Status = release.Status(pick("deployed", "superseded", "failed", "pending-install", "pending-upgrade", "pending-rollback", "uninstalling", "uninstalled", "unknown"))
			r.Info.FirstDeployed, r.Info.LastDeployed = at(), at()
			r.Info.Notes, r.Info.Description = strings.Repeat(pick(texts...), random.IntN(300)), pick(texts...)
			r.Chart.Metadata.Name, r.Chart.Metadata.Version, r.Chart.Metadata.AppVersion = pick(texts...), pick(texts...), pick(texts...)
			r.Chart.Metadata.Description = strings.Repeat("d", random.IntN(5000))
			r.Chart.Templates[0].Data = bytes.Repeat([]byte{'x'}, random.IntN(3<<20))
			r.Labels = map[string]string{}
			for range random.IntN(4) {
				r.Labels[pick("team", "env", "a.b/c")] = pick("x", "y", "")
			}
			if random.IntN(10) == 0 {
				r.Chart = nil
			}
		})
		item := MakeItem(store(t, r), nil)
		if why := FindProblem(item); why != "" {
			t.Fatalf("%s: %+v", why, r)
		}
		want := map[string]any{"name": r.Name, "namespace": "shop", "revision": int64(r.Version), "status": r.Info.Status.String(), "labels": map[string]any{}}
		for key, value := range r.Labels {
			want["labels"].(map[string]any)[key] = value
		}
		put := func(to map[string]any, key, value string) {
			if value != "" {
				to[key] = value
			}
		}
		stamp := func(at helmtime.Time) string {
			if at.IsZero() {
				return ""
			}
			return at.UTC().Format(time.RFC3339)
		}
		put(want, "firstDeployed", stamp(r.Info.FirstDeployed))
		put(want, "lastDeployed", stamp(r.Info.LastDeployed))
		if r.Chart != nil {
			chart := map[string]any{}
			put(chart, "name", r.Chart.Metadata.Name)
			put(chart, "version", r.Chart.Metadata.Version)
			put(want, "appVersion", r.Chart.Metadata.AppVersion)
			if len(chart) > 0 {
				want["chart"] = chart
			}
		}
		for _, key := range []string{"apiVersion", "kind", "metadata", "type"} {
			delete(item, key)
		}
		if diff := cmp.Diff(want, item); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}

// TestUnreadable has records that any user who may write Secrets can write. Each is an item without any field of a release, and it says why.
func TestUnreadable(t *testing.T) {
	head := func(part, value string) string {
		parts := map[string]string{
			"name": `"web"`, "info": `{"status":"deployed","first_deployed":"2026-01-02T03:04:05Z"}`, "chart": `{"metadata":{"name":"a"}}`,
		}
		if part != "" {
			parts[part] = value
		}
		var all []string
		for _, key := range []string{"name", "info", "chart"} {
			if parts[key] != "" {
				all = append(all, strconv.Quote(key)+":"+parts[key])
			}
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	label := func(key, value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Labels[key] = value }
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Secret)
		unread error
		says   string // empty: it is read
	}{
		"Good":              {change: withText(t, head("", ""))},
		"GoodToItsHead":     {change: withText(t, strings.TrimSuffix(head("", ""), "}")+`,"config":!!!`)},
		"OtherOrder":        {change: withText(t, `{"chart":{"files":[1],"metadata":{"name":"a"}},"info":{"status":"deployed"},"hooks":[],"name":"web"}`)},
		"LongText":          {change: withText(t, head("chart", `{"metadata":{"name":"`+strings.Repeat("x", maxText)+`"}}`))},
		"TooLongText":       {change: withText(t, head("chart", `{"metadata":{"name":"`+strings.Repeat("x", maxText+1)+`"}}`)), says: "data.release: its name of the chart is longer than 1 KiB"},
		"TooLongName":       {change: withText(t, head("name", `"`+strings.Repeat("x", maxText+1)+`"`)), says: "data.release: its name is longer than 1 KiB"},
		"TooLongKey":        {change: withText(t, head("chart", `{"metadata":{"`+strings.Repeat("x", 2000)+`":"a"}}`)), says: "data.release: it has a field name longer than 1 KiB"},
		"TooLongNumber":     {change: withText(t, head("chart", `{"metadata":{"a":`+strings.Repeat("1", 2000)+`}}`)), says: "data.release: it has a number of more than 1024 digits"},
		"TooDeep":           {change: withText(t, head("chart", `{"a":`+deep+`,"metadata":{}}`)), says: "data.release: it is nested deeper than 1000"},
		"LargeNotes":        {change: withText(t, head("info", `{"notes":"`+strings.Repeat("x", maxHead-1000)+`","status":"deployed"}`))},
		"TooLargeNotes":     {change: withText(t, head("info", `{"notes":"`+strings.Repeat("x", maxHead)+`","status":"deployed"}`)), says: "data.release: it is larger than 1 MiB"},
		"ManyValues":        {change: withText(t, head("chart", `{"a":[`+strings.Repeat("1,", maxHead)+`1]}`)), says: "data.release: it is larger than 1 MiB"},
		"Bomb":              {change: withText(t, head("info", `{"notes":"`+strings.Repeat(" ", 64<<20))), says: "data.release: it is larger than 1 MiB"},
		"NoData":            {change: func(s *corev1.Secret) { s.Data = nil }, says: "the Secret has no data.release"},
		"EmptyData":         {change: func(s *corev1.Secret) { s.Data["release"] = nil }, says: "the Secret has no data.release"},
		"NotBase64":         {change: func(s *corev1.Secret) { s.Data["release"] = []byte("%%%%") }, says: "data.release: it is not base64: illegal base64 data at input byte 0"},
		"CutShort":          {change: func(s *corev1.Secret) { s.Data["release"] = s.Data["release"][:40] }, says: "data.release: it "},
		"NotJSON":           {change: withText(t, "kind: Release"), says: "data.release: it is not JSON"},
		"Null":              {change: withText(t, "null"), says: "data.release: it has no name"},
		"List":              {change: withText(t, "[]"), says: "data.release: it is not JSON: unexpected '[' at byte 1, want '{'"},
		"NoName":            {change: withText(t, head("name", "null")), says: "data.release: it has no name"},
		"NoInfo":            {change: withText(t, head("info", "null")), says: "data.release: it has no status"},
		"NoStatus":          {change: withText(t, head("info", "{}")), says: "data.release: it has no status"},
		"NoChart":           {change: withText(t, head("chart", "null"))},
		"NameNoText":        {change: withText(t, head("name", "7")), says: "data.release: it is not JSON: unexpected '7' at byte 9, want '\"'"},
		"StatusNoText":      {change: withText(t, head("info", `{"status":["deployed"]}`)), says: "data.release: it is not JSON: unexpected '['"},
		"ChartNoObject":     {change: withText(t, head("chart", `"a"`)), says: `data.release: it is not JSON: unexpected '"'`},
		"TwoStatuses":       {change: withText(t, head("info", `{"status":"deployed","status":"superseded"}`)), says: `data.release: it has two fields "status"`},
		"OtherCase":         {change: withText(t, head("info", `{"Status":"deployed"}`)), says: `data.release: it has a field "Status", which Helm writes as "status"`},
		"NoTime":            {change: withText(t, head("info", `{"status":"deployed","last_deployed":"soon"}`)), says: `data.release: it has "soon" where a time should be`},
		"TimeBeyondYears":   {change: withText(t, head("info", `{"status":"deployed","last_deployed":"9999-12-31T23:59:59-10:00"}`)), says: "data.release: it has a time of the year 10000"},
		"TimeBeforeYears":   {change: withText(t, head("info", `{"status":"deployed","last_deployed":"0001-01-01T00:00:00+10:00"}`)), says: "data.release: it has a time of the year 0"},
		"TimeTooLate":       {change: withText(t, head("info", `{"status":"deployed","last_deployed":"2200-01-01T00:00:00Z"}`)), says: "data.release: it has a time of the year 2200"},
		"TimeTooEarly":      {change: withText(t, head("info", `{"status":"deployed","first_deployed":"1970-01-01T00:00:00+01:00"}`)), says: "data.release: it has a time of the year 1969"},
		"UnseenCharacters":  {change: withText(t, "{\"name\": \"\\\x1b[2J"), says: `data.release: it is not JSON: unknown escape \  in a string, at byte 12`},
		"OtherRelease":      {change: withText(t, head("name", `"bank"`)), says: `the record is of release "bank", and the label name of the Secret is "web"`},
		"OtherStatus":       {change: label("status", "superseded"), says: `the record has the status "deployed", and the label status of the Secret is "superseded"`},
		"OtherRevision":     {change: label("version", "2"), says: `the record is of Secret "sh.helm.release.v1.web.v2" by its release and revision, and not of this one`},
		"NoRevision":        {change: label("version", "x"), says: `the label version of the Secret is "x", not a revision`},
		"RevisionZero":      {change: label("version", "0"), says: `the label version of the Secret is "0", not a revision`},
		"RevisionWithZeros": {change: label("version", "03")},
		"RevisionTooLarge":  {change: label("version", "1000000000"), says: `the label version of the Secret is "1000000000", not a revision`},
		"OtherOwner":        {change: label("owner", "me"), says: "the Secret does not have the label owner: helm"},
		"NoLabels":          {change: func(s *corev1.Secret) { s.Labels = nil }, says: "the Secret does not have the label owner: helm"},
		"OtherSecret":       {change: func(s *corev1.Secret) { s.Name = "web" }, says: `the record is of Secret "sh.helm.release.v1.web.v3" by its release and revision, and not of this one`},
		"OtherType":         {change: func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, says: "the Secret is not of type helm.sh/release.v1"},
		"NotReadAtAll":      {unread: errors.New("too large"), says: "too large"},
		"LongReason":        {unread: errors.New(strings.Repeat("\u00e9", maxText)), says: strings.Repeat("\u00e9", maxText/2)},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []func(*corev1.Secret)
			if tc.change != nil {
				changes = append(changes, tc.change)
			}
			item := MakeItem(store(t, web(), changes...), tc.unread)
			why := FindProblem(item)
			if tc.says == "" {
				if why != "" || item["name"] != "web" || item["status"] != "deployed" || item["revision"] != int64(3) {
					t.Errorf("it is not read: %s, %v", why, item)
				}
				return
			}
			if !strings.HasPrefix(why, tc.says) || len(why) > maxText {
				t.Errorf("it says %q, want %q", why, tc.says)
			}
			want := []string{"apiVersion", "kind", "metadata", "type", "unreadable"}
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(item))); diff != "" {
				t.Errorf("it has other fields (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTimesCanBeSubtracted has any two times of items differ by no more than expressions can say: else one record would make an expression about
// all of them fail.
func TestTimesCanBeSubtracted(t *testing.T) {
	first, last := time.Date(minYear, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(maxYear+1, 1, 1, 0, 0, 0, 0, time.UTC)
	if long := last.Sub(first); !first.Add(long).Equal(last) {
		t.Errorf("%d and %d are too far apart", minYear, maxYear)
	}
}

// TestWrongTypes has contents that no API server sends: nothing crashes.
func TestWrongTypes(t *testing.T) {
	for name, secret := range map[string]map[string]any{
		"Nil":      nil,
		"Metadata": {"type": "helm.sh/release.v1", "metadata": "x", "data": map[string]any{"release": "x"}},
		"Labels":   {"type": "helm.sh/release.v1", "metadata": map[string]any{"labels": []any{"owner"}}, "data": map[string]any{"release": "x"}},
		"Data":     {"type": "helm.sh/release.v1", "metadata": map[string]any{}, "data": []any{}},
		"Release":  {"type": "helm.sh/release.v1", "metadata": map[string]any{}, "data": map[string]any{"release": int64(7)}},
		"Type":     {"type": int64(7)},
	} {
		if FindProblem(MakeItem(secret, nil)) == "" {
			t.Errorf("%s: it is read", name)
		}
	}
}

// TestABombTakesLittleMemory has a record of 60 KiB that unpacks to 64 MiB.
func TestABombTakesLittleMemory(t *testing.T) {
	secret := store(t, web(), withText(t, `{"info":{"notes":"`+strings.Repeat(" ", 64<<20)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	MakeItem(secret, nil)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("it took %d KiB", took>>10)
	}
}

// FuzzMakeItem reads any JSON: nothing crashes, and an item has either all that every release has, or the reason.
func FuzzMakeItem(f *testing.F) {
	f.Add(`{"name":"web","info":{"status":"deployed"},"chart":{"metadata":{"name":"a"}}}`)
	f.Add(`{"name":"web","info":{"status":"deployed","first_deployed":"","last_deployed":"2026-01-02T03:04:05.6+01:00"},"chart":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		item := MakeItem(store(t, web(), withText(t, text)), nil)
		_, named := item["name"].(string)
		_, revised := item["revision"].(int64)
		_, stated := item["status"].(string)
		if readable := FindProblem(item) == ""; named != readable || revised != readable || stated != readable {
			t.Errorf("%q: %v", text, item)
		}
	})
}

// TestSchema has the schema know each field of an item, with its type.
func TestSchema(t *testing.T) {
	s := MakeSchema()
	for _, item := range []map[string]any{MakeItem(store(t, web()), nil), MakeItem(nil, errors.New("x"))} {
		for key, value := range item {
			field, known := s.HasKey(key)
			if !known {
				t.Errorf("field %s is not known", key)
			}
			types := objectschema.String
			switch value.(type) {
			case map[string]any:
				types = objectschema.Map
			case int64:
				types = objectschema.Integer
			}
			if !field.May(types) {
				t.Errorf("field %s is %v", key, value)
			}
		}
	}
	for _, key := range []string{"data", "manifest", "values", "version"} {
		if _, known := s.HasKey(key); known || s.Hints[key] == "" {
			t.Errorf("%s is known, or nothing says what to write instead", key)
		}
	}
}
