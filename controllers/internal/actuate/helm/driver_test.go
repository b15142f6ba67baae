// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/release"
	helmtime "helm.sh/helm/v3/pkg/time"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/recordtext"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// TestWhoHasBegun shows when a release counts as one that the caller has begun to uninstall: a status is not enough, nor is a mark.
func TestWhoHasBegun(t *testing.T) {
	const uninstalling = release.StatusUninstalling
	cases := map[string]struct {
		reason string
		status release.Status
		mark   string
		want   UninstallRequest
		begun  bool
	}{
		"Ours":       {reason: "this uninstall", status: uninstalling, mark: "ours", want: UninstallRequest{Mark: "ours"}, begun: true},
		"Older":      {reason: "this uninstall, with an older mark", status: uninstalling, mark: "older", want: UninstallRequest{Mark: "ours", Begun: "older"}, begun: true},
		"Theirs":     {reason: "anybody may write an annotation", status: uninstalling, mark: "theirs", want: UninstallRequest{Mark: "ours", Begun: "older"}},
		"Unmarked":   {reason: "Helm itself has begun", status: uninstalling, want: UninstallRequest{Mark: "ours"}},
		"NoMarks":    {reason: "a mark that is missing is nobody's", status: uninstalling},
		"Deployed":   {reason: "somebody has rolled back", status: release.StatusDeployed, mark: "ours", want: UninstallRequest{Mark: "ours"}},
		"Superseded": {reason: "a newer one was deleted", status: release.StatusSuperseded, mark: "ours", want: UninstallRequest{Mark: "ours"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := record{
				secret:  metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationUninstall: tc.mark}},
				content: &recordContent{release: made(func(r *release.Release) { r.Info.Status = tc.status })},
			}
			if got := tc.want.hasBegun(r); got != tc.begun {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// TestReleaseChangesBeforeADelete has others change the release between the read of an object and its DELETE: that object stays.
func TestReleaseChangesBeforeADelete(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(f *fakeCluster)
		want   OutcomeState
		says   string
	}{
		"Upgraded": {reason: "another revision has other objects", change: func(f *fakeCluster) {
			f.putRelease(made(func(r *release.Release) { r.Version = 2 }))
		}, want: Upgraded},
		"Upgrading": {reason: "another revision may have other objects", change: func(f *fakeCluster) {
			f.putRelease(made(func(r *release.Release) { r.Version, r.Info.Status = 2, release.StatusPendingUpgrade }))
		}, want: Pending},
		"Replaced": {reason: "another release of the name", change: func(f *fakeCluster) {
			f.rewriteRecord("shop.v1", func(r *release.Release) { r.Info.FirstDeployed = helmtime.Time{Time: epoch.Add(time.Hour)} })
		}, want: Replaced},
		"RecordWrittenAnew": {reason: "its UID has changed", change: func(f *fakeCluster) {
			f.server.change("shop.v1", func(o *unstructured.Unstructured) bool { o.SetUID("other"); return true })
		}, want: Upgraded},
		"Gone": {reason: "somebody else was faster", change: func(f *fakeCluster) {
			f.server.change("shop.v1", func(*unstructured.Unstructured) bool { return false })
		}, want: Done},
		"Kept": {reason: "somebody has uninstalled it and kept its history", change: func(f *fakeCluster) { f.setStatus("shop.v1", release.StatusUninstalled) }, want: Done},
		"RolledBack": {reason: "somebody wants it to stay", change: func(f *fakeCluster) { f.setStatus("shop.v1", release.StatusDeployed) },
			says: `its status is "deployed", not "uninstalling"`},
		"MarkTakenOver": {reason: "somebody else uninstalls it", change: func(f *fakeCluster) { f.annotate("shop.v1", v1alpha1.AnnotationUninstall, "theirs") },
			says: "no longer has the mark of this uninstall: another client has changed its annotation " + v1alpha1.AnnotationUninstall},
		"Rewritten": {reason: "nobody has decided on what it says now", change: func(f *fakeCluster) {
			f.rewriteRecord("shop.v1", func(r *release.Release) { r.Manifest += "\n---\n" + config("b") })
		}, says: "has changed since the uninstall was decided: nothing that it contains now is deleted or run"},
		"RewrittenByOthers": {reason: "nor is it resumed", change: func(f *fakeCluster) {
			f.annotate("shop.v1", v1alpha1.AnnotationUninstall, "theirs")
			f.rewriteRecord("shop.v1", func(r *release.Release) { r.Manifest += "\n---\n" + config("b") })
		}, want: Upgraded},
		"Damaged": {reason: "nobody knows what it says", change: func(f *fakeCluster) {
			f.server.change("shop.v1", func(o *unstructured.Unstructured) bool {
				return unstructured.SetNestedField(o.Object, "bm9uc2Vuc2U=", "data", "release") == nil
			})
		}, says: `Secret "sh.helm.release.v1.shop.v1" does not contain a readable record of release "shop"`},
		"OddRecord": {reason: "a Secret that might be its newest revision", change: func(f *fakeCluster) {
			f.server.put(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Secret", "type": string(secretType),
				"metadata": map[string]any{"name": "sh.helm.release.v1.shop.v02", "labels": map[string]any{"owner": "helm", "name": "shop"}},
			}})
		}, says: `Secret "sh.helm.release.v1.shop.v02" does not contain a readable record of release "shop": it is not named as one`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t)
			f.install(config("a"), config("b"))
			want := f.committed()
			changed := false
			f.server.answer = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
				if !changed && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps/b") {
					changed = true
					tc.change(f)
				}
				return false
			}
			got, err := f.uninstall(want)
			if got.State != tc.want || tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%s: got %q, %v, want %q, %q", tc.reason, got.State, err, tc.want, tc.says)
			}
			if diff := cmp.Diff([]string{markRecord, "delete ConfigMap a"}, f.server.didWrite()); diff != "" {
				t.Errorf("%s: writes (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestNoDigestWasRecorded has a run that an older version has decided on: what the record says at the beginning of an attempt is all that goes.
func TestNoDigestWasRecorded(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"), config("b"))
	want := f.committed()
	want.Digest = ""
	_, err := f.uninstaller().Uninstall(t.Context(), nil, want, guard{delete: func(ref observed.Ref) error {
		if ref.Name == "a" {
			f.rewriteRecord("shop.v1", func(r *release.Release) { r.Manifest += "\n---\n" + config("c") })
		}
		return nil
	}})
	if err == nil || !strings.Contains(err.Error(), "has changed since the uninstall was decided") || f.server.find("configmaps/b") == nil {
		t.Errorf("got %v, left %q", err, f.server.left())
	}
	if got, err := f.uninstall(want); err != nil || got.State != Done {
		t.Errorf("the next attempt: got %q, %v", got.State, err)
	}
}

// TestNothingGoesAfterAHookHasFailed asks for the objects and the records as Helm would if it passed over the failure.
func TestNothingGoesAfterAHookHasFailed(t *testing.T) {
	f := fakeClusterWithAccount(t)
	f.install(config("a"))
	s := f.uninstaller().newSession(t.Context(), nil, f.committed(), allow{})
	s.hooks.failure = errRefused
	list, err := (&kubeClient{attempt: s.attempt, objects: s.objects, hooks: s.hooks}).Build(strings.NewReader(manifestStart+config("a")), false)
	if !errors.Is(err, errRefused) || len(list) > 0 {
		t.Errorf("got %v, %v", list, err)
	}
	if _, err := (&recordDriver{attempt: s.attempt, records: s.records, hooks: s.hooks}).Delete("sh.helm.release.v1.shop.v1"); !errors.Is(err, errRefused) || len(f.server.didSend()) > 0 {
		t.Errorf("got %v", err)
	}
}

// TestGuardIsAskedBeforeEachWrite refuses each write in turn: it is not done, nor is any after it, and the error says which it was.
func TestGuardIsAskedBeforeEachWrite(t *testing.T) {
	says := []string{
		"the start", "the creation of Job team/backup", "the note that the pre-delete hooks are done", "the deletion of Job team/backup",
		"the deletion of ConfigMap team/a", "the creation of Job team/farewell", "the note that the post-delete hooks are done", "the deletion of Secret team/sh.helm.release.v1.shop.v1",
	}
	for nth, what := range says {
		t.Run(fmt.Sprint(nth), func(t *testing.T) {
			f := fakeClusterWithAccount(t)
			f.install(config("a"), job("backup", well, preDelete, `"helm.sh/hook-delete-policy": hook-succeeded`), job("farewell", well, postDelete))
			asked := 0
			ask := func() error {
				if asked++; asked == nth+1 {
					return errRefused
				}
				return nil
			}
			askOf := func(ref observed.Ref) error {
				if ref.UID == "" && !strings.HasSuffix(ref.Resource.Resource, "jobs") {
					t.Errorf("the guard is asked about %s, of which it is not said which one", ref)
				}
				return ask()
			}
			got, err := f.uninstaller().Uninstall(t.Context(), nil, f.committed(), guard{start: ask, delete: askOf, runHook: askOf, note: askOf})
			if got.State != Stopped || !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "stopped before "+what+": refused") {
				t.Errorf("got %q, %v", got.State, err)
			}
			if writes := f.server.didWrite(); len(writes) != nth || asked != nth+1 {
				t.Errorf("it writes %q, and asks %d times", writes, asked)
			}
		})
	}
}

// TestAnOldMarkIsRenewedOnce has an uninstall that was begun with another mark of the caller's.
func TestAnOldMarkIsRenewedOnce(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"))
	f.setStatus("shop.v1", release.StatusUninstalling)
	f.annotate("shop.v1", v1alpha1.AnnotationUninstall, "older")
	f.annotate("shop.v1", hooksDoneAnnotation, "pre-delete")
	want := f.committed()
	want.Begun = "older"
	got, err := f.uninstaller().Uninstall(t.Context(), nil, want, guard{note: func(observed.Ref) error { return errRefused }})
	if got.State != Stopped || err == nil || !strings.Contains(err.Error(), "stopped before the renewal of its mark") || len(f.server.didWrite()) > 0 {
		t.Errorf("got %q, %v", got.State, err)
	}
	_, err = f.uninstaller().Uninstall(t.Context(), nil, want, guard{
		start:  func() error { return errors.New("it has been started") },
		delete: func(observed.Ref) error { return errRefused },
	})
	annotations := f.server.find("shop.v1").GetAnnotations()
	if !errors.Is(err, errRefused) || annotations[v1alpha1.AnnotationUninstall] != "ours" || annotations[hooksDoneAnnotation] != "pre-delete" {
		t.Errorf("got %v, and the record has %v", err, annotations)
	}
	got, err = f.uninstall(want)
	if diff := cmp.Diff([]string{markRecord, "delete ConfigMap a", deleteRecord}, f.server.didWrite()); diff != "" || got.State != Done {
		t.Errorf("got %q, %v, writes (-want +got):\n%s", got.State, err, diff)
	}
}

// TestMarkOfARecord marks a release: its Secret says so, in its data, its labels and its annotations, and all else stays.
func TestMarkOfARecord(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"))
	f.rewriteRecord("shop.v1", func(r *release.Release) {
		r.Config = map[string]any{"password": "x"}
		r.Info.Description, r.Info.Notes = "Install complete", "Thanks"
	})
	f.annotate("shop.v1", hooksDoneAnnotation, "pre-delete")
	f.annotate("shop.v1", "other", "stays")
	was := readRelease(f.t, f.server.find("shop.v1"))
	_, err := f.uninstaller().Uninstall(t.Context(), nil, f.committed(), guard{delete: func(observed.Ref) error { return errRefused }})
	if !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	secret := f.server.find("shop.v1")
	wantLabels := map[string]string{"owner": "helm", "name": "shop", "status": "uninstalling", "version": "1", "modifiedAt": fmt.Sprint(epoch.Unix())}
	if diff := cmp.Diff([]map[string]string{wantLabels, {"other": "stays", v1alpha1.AnnotationUninstall: "ours"}}, []map[string]string{secret.GetLabels(), secret.GetAnnotations()}); diff != "" {
		t.Errorf("labels and annotations (-want +got):\n%s", diff)
	}
	was.Info.Status, was.Info.Description, was.Info.Deleted = release.StatusUninstalling, "Deletion in progress (or silently failed)", helmtime.Time{Time: epoch}
	if diff := cmp.Diff(must(json.Marshal(was))(t), must(json.Marshal(readRelease(f.t, secret)))(t)); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// TestEncodeUninstalling changes the status of records as Helm and others write them, and nothing else.
func TestEncodeUninstalling(t *testing.T) {
	const start, end = `{"name":"shop","namespace":"team","version":1,"x":[1,{"status":"x"}],"info":{`, `},"manifest":"","y":"\u003c {\"status\":\"a\"}"}`
	now := `"deleted":"2030-01-02T03:04:05Z"`
	status, says := `"status":"uninstalling"`, `"description":"Deletion in progress (or silently failed)"`
	cases := map[string]struct {
		info  string
		want  []string
		whole string
	}{
		"AllThere":  {info: `"first_deployed":"","deleted":"","description":"Install \"it\" }","status":"deployed","notes":"n"`, whole: `"first_deployed":"",` + now + `,` + says + `,` + status + `,"notes":"n"`},
		"OtherWay":  {info: `"status" : "deployed" , "notes":"n","description": null,"deleted":{"a":[]}`, whole: `"status" : "uninstalling" , "notes":"n","description": "Deletion in progress (or silently failed)",` + now},
		"NotThere":  {info: `"status":"deployed"`, want: []string{now + ",", says + ",", status}},
		"OnlyEnded": {info: `"notes":"n","status":"deployed"`, want: []string{now + ",", says + ",", `"notes":"n",` + status}},
	}
	for name, tc := range cases {
		for way, pack := range map[string]func(string) []byte{
			"Zipped":   func(text string) []byte { return zipped(t, []byte(text)) },
			"Unzipped": func(text string) []byte { return []byte(base64.StdEncoding.EncodeToString([]byte(text))) },
		} {
			t.Run(name+way, func(t *testing.T) {
				data := pack(start + tc.info + end)
				r, err := decodeRecord(t.Context(), recordOf(t, data), "team", "shop")
				check(t, err)
				out, err := r.content.encodeStatus(data, release.StatusUninstalling, uninstallingSays, epoch)
				check(t, err)
				text := string(must(io.ReadAll(must(recordtext.Unpack(bytes.NewReader(out)))(t)))(t))
				if tc.whole != "" && text != start+tc.whole+end {
					t.Errorf("got  %s\nwant %s", text, start+tc.whole+end)
				}
				if !strings.HasPrefix(text, start) || !strings.HasSuffix(text, end) || !json.Valid([]byte(text)) {
					t.Errorf("something else has changed: %s", text)
				}
				for _, part := range tc.want {
					if strings.Count(text, part) != 1 {
						t.Errorf("%s has %s %d times", text, part, strings.Count(text, part))
					}
				}
				again, err := decodeRecord(t.Context(), recordOf(t, out), "team", "shop")
				if err != nil || again.releaseStatus() != release.StatusUninstalling || again.content.digest != r.content.digest {
					t.Errorf("got %v, status %q: want the same release, uninstalling", err, again.releaseStatus())
				}
			})
		}
	}
}

// TestDriverShowsAndAllowsLittle has Helm's storage show only what an uninstall needs, and refuse what it has no need of.
func TestDriverShowsAndAllowsLittle(t *testing.T) {
	f := fakeClusterWithAccount(t)
	f.install(config("a"), job("backup", well, preDelete))
	f.rewriteRecord("shop.v1", func(r *release.Release) {
		r.Config, r.Info.Notes = map[string]any{"password": "secret"}, "secret"
		r.Hooks[0].OutputLogPolicies = []release.HookOutputLogPolicy{release.HookOutputOnSucceeded}
	})
	f.putRelease(made(func(r *release.Release) { *r = *readRelease(f.t, f.server.find("shop.v1")); r.Version = 2 }))
	want := f.committed()
	session := func() *session { return f.uninstaller().newSession(t.Context(), nil, want, allow{}) }
	s := session()
	shown := must((&recordDriver{attempt: s.attempt, records: s.records, hooks: s.hooks}).Query(nil))(t)
	if len(shown) != 2 || shown[0].Version != 1 || shown[0].Info.Status != release.StatusSuperseded || shown[0].Manifest != "" || len(shown[0].Hooks) > 0 {
		t.Errorf("of an older revision it shows %+v", shown[0])
	}
	newest := shown[1]
	if text := string(must(json.Marshal(newest))(t)); strings.Contains(text, "secret") || len(newest.Hooks) != 1 || len(newest.Hooks[0].OutputLogPolicies) > 0 {
		t.Errorf("it shows %s", text)
	}
	newest.Info.Status, newest.Hooks[0].Weight = "changed", 7 // as Helm does with what it is shown
	if again := s.records.lastRead.content.release; again.Info.Status != release.StatusDeployed || again.Hooks[0].Weight != 0 {
		t.Error("what Helm changes changes what was read")
	}
	for name, call := range map[string]func(d *recordDriver, k *kubeClient) error{
		"Get":          func(d *recordDriver, _ *kubeClient) error { _, err := d.Get("a"); return err },
		"List":         func(d *recordDriver, _ *kubeClient) error { _, err := d.List(nil); return err },
		"Create":       func(d *recordDriver, _ *kubeClient) error { return d.Create("a", nil) },
		"Wait":         func(_ *recordDriver, k *kubeClient) error { return k.Wait(nil, 0) },
		"WaitWithJobs": func(_ *recordDriver, k *kubeClient) error { return k.WaitWithJobs(nil, 0) },
		"Update":       func(_ *recordDriver, k *kubeClient) error { _, err := k.Update(nil, nil, false); return err },
		"PodPhase": func(_ *recordDriver, k *kubeClient) error {
			_, err := k.WaitAndGetCompletedPodPhase("a", 0)
			return err
		},
	} {
		s := session()
		driver := &recordDriver{attempt: s.attempt, records: s.records, hooks: s.hooks}
		f.server.didSend()
		if err := call(driver, &kubeClient{attempt: s.attempt, objects: s.objects, hooks: s.hooks}); !errors.Is(err, errNotNeeded) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := driver.Delete("sh.helm.release.v1.shop.v1"); !errors.Is(err, errNotNeeded) {
			t.Errorf("after %s a record is deleted: %v", name, err)
		}
		if _, err := driver.Query(nil); !errors.Is(err, errNotNeeded) || len(f.server.didSend()) > 0 {
			t.Errorf("after %s it goes on: %v", name, err)
		}
	}
	for _, key := range []string{"other", "sh.helm.release.v1.bank.v1", "sh.helm.release.v1.shop.v0", "sh.helm.release.v1.shop.v01", "sh.helm.release.v1.shop.v1x"} {
		s := session()
		if _, err := (&recordDriver{attempt: s.attempt, records: s.records, hooks: s.hooks}).Delete(key); err == nil || !strings.Contains(err.Error(), "it is no record of the release") {
			t.Errorf("Secret %q is deleted: %v", key, err)
		}
	}
	if writes := f.server.didWrite(); len(writes) > 0 {
		t.Errorf("it writes %q", writes)
	}
}

// TestObjectsThatAreHeld has finalizers hold objects: nothing that comes after them goes, and they are named until they are gone.
func TestObjectsThatAreHeld(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"), config("b"), named("v1", "ServiceAccount", "runner"))
	f.hold("configmaps/a", "example.com/hold", "example.com/more")
	want := f.committed()
	for try := range 2 {
		got, err := f.uninstall(want)
		if err != nil || got.State != Terminating || len(got.Remaining) != 1 || got.Remaining[0].String() != "ConfigMap team/a (example.com/hold, example.com/more)" {
			t.Errorf("try %d: got %q, %v, %v", try, got.State, err, got.Remaining)
		}
	}
	if diff := cmp.Diff([]string{markRecord, "delete ConfigMap a", "delete ConfigMap b"}, f.server.didWrite()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	// It goes while the third try waits.
	want.Timeout = time.Minute
	waits := 0
	f.server.answer = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "configmaps/a") {
			if waits++; waits == 4 {
				f.hold("configmaps/a")
			} else if waits > 1 {
				f.stepWhenWaiting(1, firstWait<<(waits-2))
			}
		}
		return false
	}
	got, err := f.uninstall(want)
	if diff := cmp.Diff([]string{"delete ServiceAccount runner", deleteRecord}, f.server.didWrite()); diff != "" || got.State != Done {
		t.Errorf("got %q, %v, writes (-want +got):\n%s", got.State, err, diff)
	}
}

// TestAnotherObjectOfTheNameIsNotWaitedFor has somebody make an object again that was just deleted: it is another one.
func TestAnotherObjectOfTheNameIsNotWaitedFor(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"))
	want := f.committed()
	f.server.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || !strings.HasSuffix(r.URL.Path, "configmaps/a") {
			return false
		}
		answer := f.server.carryOut(r)
		f.putText(config("a"))
		respond(w, answer)
		return true
	}
	got, err := f.uninstall(want)
	if err != nil || got.State != Done || !slices.Contains(f.server.left(), "ConfigMap a") {
		t.Errorf("got %q, %v, left %q", got.State, err, f.server.left())
	}
}

// TestRecordChangesBeforeItsUpdate has somebody else write the record between its last read and the next update, which is not sent.
func TestRecordChangesBeforeItsUpdate(t *testing.T) {
	const changed = `cannot update Secret "sh.helm.release.v1.shop.v1": it has changed since it was read`
	touch := func(f *fakeCluster) { f.annotate("shop.v1", "other", "changes") }
	for name, tc := range map[string]struct {
		// mark is what the record has when it is read, and written what is written before it changes.
		mark    string
		written []string
		change  func(f *fakeCluster)
		says    string
	}{
		"Start":   {change: touch, says: "cannot mark the release as uninstalling: " + changed},
		"Renewal": {mark: "older", change: touch, says: "cannot mark the release as uninstalling: " + changed},
		"Note":    {mark: "ours", change: touch, written: []string{"create " + backupJob}, says: changed},
		"Anew": {mark: "ours", written: []string{"create " + backupJob}, says: changed, change: func(f *fakeCluster) {
			f.server.mu.Lock()
			defer f.server.mu.Unlock()
			for path, o := range f.server.objects { // of the same version, as after a restore of etcd
				if strings.HasSuffix(path, "shop.v1") {
					o.SetUID("other")
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeClusterWithAccount(t)
			f.install(config("a"), job("backup", well, preDelete, `"helm.sh/hook-delete-policy": hook-succeeded`))
			if tc.mark != "" {
				f.setStatus("shop.v1", release.StatusUninstalling)
				f.annotate("shop.v1", v1alpha1.AnnotationUninstall, tc.mark)
			}
			want := f.committed()
			want.Begun = tc.mark
			reads := 0
			f.server.answer = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "shop.v1") {
					if reads++; reads == 2 { // the first is for what it says, the second for its update
						tc.change(f)
					}
				}
				return false
			}
			got, err := f.uninstall(want)
			if got.State != Unfinished || err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %q, %v, want %q", got.State, err, tc.says)
			}
			if diff := cmp.Diff(tc.written, f.server.didWrite()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAStaleVersionIsNotMarked has the record change in any way after it was decided on: the release is not marked, and nothing of it goes. What has
// begun is finished at any version.
func TestAStaleVersionIsNotMarked(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(f *fakeCluster)
		want   OutcomeState
	}{
		"Same":      {change: func(*fakeCluster) {}, want: Done},
		"Annotated": {change: func(f *fakeCluster) { f.annotate("shop.v1", "x", "y") }, want: Upgraded},
	} {
		f := newFakeCluster(t)
		f.install(config("a"))
		want := f.committed()
		record := must(f.uninstaller().readHistory(t.Context(), nil, "team", "shop", nil))(t)
		want.ResourceVersion = record[0].secret.ResourceVersion
		tc.change(f)
		f.server.didWrite()
		got, err := f.uninstall(want)
		if err != nil || got.State != tc.want {
			t.Errorf("%s: got %q, %v", name, got.State, err)
		}
		if writes := f.server.didWrite(); tc.want == Upgraded && len(writes) > 0 {
			t.Errorf("%s: it writes %q", name, writes)
		}
	}
}

// protecting protects the record of the release when it is asked about the first deletion.
type protecting struct {
	allow
	f     *fakeCluster
	asked int
}

func (p *protecting) MayDelete(observed.Ref) error {
	if p.asked++; p.asked == 1 {
		p.f.annotate("shop.v1", v1alpha1.ProtectKey, "true")
	}
	return nil
}

// TestARecordIsProtectedMeanwhile shows that nothing more goes when a record is protected in the middle of an uninstall.
func TestARecordIsProtectedMeanwhile(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"), config("b"), config("c"))
	out, err := f.uninstaller().Uninstall(t.Context(), nil, f.committed(), &protecting{f: f})
	if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.Reason != v1alpha1.ReasonProtected || len(out.Deleted) > 1 {
		t.Errorf("got %v, and deleted %v", err, out.Deleted)
	}
}

// TestAProtectedReleaseNeedsRights shows that the rights for an uninstall are known also while the release is protected: the protection may end
// between the review and the uninstall.
func TestAProtectedReleaseNeedsRights(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"))
	f.annotate("shop.v1", v1alpha1.ProtectKey, "true")
	rel := must(f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop"))(t)
	if rel.Blocked != v1alpha1.ReasonProtected || len(rel.RequiredRights(false)) == 0 {
		t.Errorf("it is blocked by %q, and needs %v", rel.Blocked, rel.RequiredRights(false))
	}
}

// TestDeployedRevisionsAreSuperseded keeps the history of a release whose older revision counts as deployed: Helm would take it for the release.
func TestDeployedRevisionsAreSuperseded(t *testing.T) {
	f := newFakeCluster(t)
	older := f.install(config("a"))
	newest := *older
	info := *older.Info
	newest.Version, newest.Info = 2, &info
	newest.Info.Status = release.StatusFailed
	f.putRelease(&newest)
	want := f.committed()
	want.KeepHistory = true
	out := must(f.uninstall(want))(t)
	if diff := cmp.Diff([]string{"update Secret sh.helm.release.v1.shop.v2", "delete ConfigMap a", "update Secret sh.helm.release.v1.shop.v1", "update Secret sh.helm.release.v1.shop.v2"}, f.server.didWrite()); diff != "" || out.State != Done {
		t.Errorf("%s, writes (-want +got):\n%s", out.State, diff)
	}
	for name, status := range map[string]release.Status{"shop.v1": release.StatusSuperseded, "shop.v2": release.StatusUninstalled} {
		secret := f.server.find(name)
		if got := readRelease(t, secret).Info.Status; got != status || secret.GetLabels()["status"] != string(status) || len(secret.GetAnnotations()) > 0 {
			t.Errorf("%s says %s, with labels %v and annotations %v", name, got, secret.GetLabels(), secret.GetAnnotations())
		}
	}
}

// TestTheEndOfAnUninstallIsAsked shows that the guard is asked before the release is declared uninstalled, and that a change of its record ends the
// attempt.
func TestTheEndOfAnUninstallIsAsked(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"))
	want := f.committed()
	want.KeepHistory = true
	_, err := f.uninstaller().Uninstall(t.Context(), nil, want, &refusingNotes{})
	if err == nil || !strings.Contains(err.Error(), "not now") {
		t.Errorf("got %v", err)
	}
	if got := readRelease(t, f.server.find("shop.v1")).Info.Status; got != release.StatusUninstalling {
		t.Errorf("it is %s", got)
	}
}

// refusingNotes lets all be deleted, and nothing be noted.
type refusingNotes struct{ allow }

func (refusingNotes) MayNote(observed.Ref) error { return errors.New("not now") }

// TestHistoryIsNotKeptAfterAHookHasFailed shows that a release whose post-delete hook has failed stays uninstalling, and that its records are not read
// for each revision.
func TestHistoryIsNotKeptAfterAHookHasFailed(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"))
	s := f.uninstaller().newSession(t.Context(), nil, f.committed(), allow{})
	s.hooks.failure = errors.New("it failed")
	d := &recordDriver{attempt: s.attempt, records: s.records, hooks: s.hooks}
	if err := d.Update("", made(func(r *release.Release) { r.Info.Status = release.StatusUninstalled })); err == nil || len(f.server.didSend()) > 0 {
		t.Errorf("it is declared uninstalled: %v", err)
	}
	if _, err := d.Query(nil); err == nil || len(f.server.didSend()) > 0 {
		t.Errorf("the records are read: %v", err)
	}
	s.hooks.failure = nil
	if err := d.Update("", made(func(r *release.Release) { r.Info.Status = release.StatusSuperseded })); err == nil {
		t.Error("another status is written")
	}
}
