// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/release"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

const (
	markRecord   = "update " + recordName
	deleteRecord = "delete " + recordName
	backupJob    = "Job backup"
)

// TestHookOrder runs hooks by weight and then by name, each for its event, and notes the end of each event before it cleans up.
func TestHookOrder(t *testing.T) {
	f := fakeClusterWithAccount(t)
	f.install(
		config("a"),
		job("z-first", well, preDelete, `"helm.sh/hook-weight": "-10"`),
		job("m-third", well, preDelete, `"helm.sh/hook-weight": "9"`, `"helm.sh/hook-delete-policy": hook-succeeded`),
		job("b-fourth", well, preDelete, `"helm.sh/hook-weight": "10"`),
		job("b-second", well, preDelete, `"helm.sh/hook-delete-policy": hook-succeeded`),
		pod("c-second", well, `helm.sh/hook: "post-delete,pre-delete"`, `"helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"`),
		job("never-run", badly, "helm.sh/hook: pre-upgrade"),
	)
	got, err := f.uninstall(f.committed())
	check(t, err)
	want := []string{
		markRecord,
		"create Job z-first", "create Job b-second", "create Pod c-second", "create Job m-third", "create Job b-fourth",
		markRecord, "delete Job m-third", "delete Pod c-second", "delete Job b-second",
		"delete ConfigMap a",
		"create Pod c-second", markRecord, "delete Pod c-second",
		deleteRecord,
	}
	if diff := cmp.Diff(want, f.server.didWrite()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if created := refs(got.Created); got.State != Done || len(created) != 6 || created[0] != "Job z-first" || got.Created[0].UID == "" {
		t.Errorf("got %q, created %q", got.State, created)
	}
}

// TestHookPolicies shows what each delete policy deletes, and when.
func TestHookPolicies(t *testing.T) {
	const create, remove, object = "create " + backupJob, "delete " + backupJob, "delete ConfigMap a"
	cases := map[string]struct {
		reason, policy, ends string
		// there is whether an object of an earlier run is there.
		there  bool
		writes []string
		failed string
	}{
		"None":            {reason: "as before-hook-creation", policy: "", ends: well, writes: []string{markRecord, create, markRecord, object, deleteRecord}},
		"NoneThere":       {reason: "as before-hook-creation", policy: "", ends: well, there: true, writes: []string{markRecord, remove, create, markRecord, object, deleteRecord}},
		"BeforeThere":     {reason: "an old one goes first", policy: "before-hook-creation", ends: well, there: true, writes: []string{markRecord, remove, create, markRecord, object, deleteRecord}},
		"BeforeFails":     {reason: "a failed one stays to be looked at", policy: "before-hook-creation", ends: badly, writes: []string{markRecord, create}, failed: "AsAsked: the test says so"},
		"Succeeded":       {reason: "it goes in the end", policy: "hook-succeeded", ends: well, writes: []string{markRecord, create, markRecord, remove, object, deleteRecord}},
		"SucceededFails":  {reason: "a failed one stays", policy: "hook-succeeded", ends: badly, writes: []string{markRecord, create}, failed: "AsAsked: the test says so"},
		"SucceededThere":  {reason: "an old one is in the way", policy: "hook-succeeded", ends: well, there: true, writes: []string{markRecord}, failed: "an object with its name exists"},
		"Failed":          {reason: "one that has not failed stays", policy: "hook-failed", ends: well, writes: []string{markRecord, create, markRecord, object, deleteRecord}},
		"FailedFails":     {reason: "a failed one goes", policy: "hook-failed", ends: badly, writes: []string{markRecord, create, remove}, failed: "AsAsked: the test says so"},
		"All":             {reason: "each in its time", policy: "before-hook-creation,hook-succeeded,hook-failed", ends: well, there: true, writes: []string{markRecord, remove, create, markRecord, remove, object, deleteRecord}},
		"UnknownSucceeds": {reason: "Helm passes over what it does not know", policy: "hook-whatever", ends: well, writes: []string{markRecord, create, markRecord, object, deleteRecord}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fakeClusterWithAccount(t)
			annotations := []string{preDelete}
			if tc.policy != "" {
				annotations = append(annotations, `"helm.sh/hook-delete-policy": "`+tc.policy+`"`)
			}
			f.install(config("a"), job("backup", tc.ends, annotations...))
			if tc.there {
				f.putText(job("backup", well))
			}
			got, err := f.uninstall(f.committed())
			if diff := cmp.Diff(tc.writes, f.server.didWrite()); diff != "" {
				t.Errorf("%s: writes (-want +got):\n%s", tc.reason, diff)
			}
			failed, _ := errors.AsType[*HookError](err)
			switch {
			case tc.failed == "" && (err != nil || got.State != Done):
				t.Errorf("%s: got %q, %v", tc.reason, got.State, err)
			case tc.failed != "" && (failed == nil || got.State != HookFailed || failed.Hook != "pre-delete hook Job team/backup" || !strings.Contains(failed.Why, tc.failed)):
				t.Errorf("%s: got %q, %v, want %q", tc.reason, got.State, err, tc.failed)
			}
		})
	}
}

// TestAFailedHookEndsItsEvent has the second of three hooks fail: the third is not run, the first is cleaned up after, and no object of
// the release goes.
func TestAFailedHookEndsItsEvent(t *testing.T) {
	f := fakeClusterWithAccount(t)
	f.install(
		config("a"), job("one", well, preDelete, `"helm.sh/hook-delete-policy": hook-succeeded`), job("two", badly, preDelete), job("zthree", well, preDelete),
	)
	_, err := f.uninstall(f.committed())
	if err == nil || err.Error() != `cannot uninstall release "shop": pre-delete hook Job team/two failed: AsAsked: the test says so` {
		t.Errorf("got %v", err)
	}
	want := []string{markRecord, "create Job one", "create Job two", "delete Job one"}
	if diff := cmp.Diff(want, f.server.didWrite()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if done := f.server.find("shop.v1").GetAnnotations()[hooksDoneAnnotation]; done != "" {
		t.Errorf("the record says that %q is done", done)
	}
}

// TestAFailedPostDeleteHookKeepsTheRecords has a hook fail when the objects are gone: Helm would delete the records all the same. The next
// try runs nothing but that hook.
func TestAFailedPostDeleteHookKeepsTheRecords(t *testing.T) {
	f := fakeClusterWithAccount(t)
	f.install(config("a"), job("backup", well, preDelete), job("farewell", badly, postDelete))
	want := f.committed()
	before := []string{markRecord, "create " + backupJob, markRecord, "delete ConfigMap a", "create Job farewell"}
	for try, writes := range [][]string{before, {"delete Job farewell", "create Job farewell"}} {
		got, err := f.uninstall(want)
		failed, ok := errors.AsType[*HookError](err)
		if !ok || got.State != HookFailed || failed.Hook != "post-delete hook Job team/farewell" || got.Hook != failed.Hook {
			t.Errorf("try %d: got %q of %q, %v", try, got.State, got.Hook, err)
		}
		if diff := cmp.Diff(writes, f.server.didWrite()); diff != "" {
			t.Errorf("try %d: writes (-want +got):\n%s", try, diff)
		}
	}
	want.DisableHooks = true
	if got, err := f.uninstall(want); err != nil || got.State != Done || !slices.Equal(f.server.didWrite(), []string{deleteRecord}) {
		t.Errorf("without hooks: got %q, %v", got.State, err)
	}
}

// stepWhenWaiting steps the clock once so many more wait for it, and then does something.
func (f *fakeCluster) stepWhenWaiting(more int, by time.Duration, then ...func()) {
	enough := f.clock.Waiters() + more
	go func() {
		for f.clock.Waiters() < enough {
			if f.t.Context().Err() != nil {
				return
			}
			runtime.Gosched()
		}
		f.clock.Step(by)
		for _, does := range then {
			does()
		}
	}()
}

// onWatch does something at each watch, and ends the watch if that returns an answer. It counts the watches.
func (s *fakeServer) onWatch(does ...func(w http.ResponseWriter) (answered bool)) (count *int) {
	watches := 0
	s.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") == "" {
			return false
		}
		if watches++; watches > len(does) {
			s.t.Errorf("it watches %d times", watches)
			respond(w, notServed())
			return true
		}
		return does[watches-1](w)
	}
	return &watches
}

// TestWaitForHook has a Job run for a while, and things happen to it meanwhile.
func TestWaitForHook(t *testing.T) {
	const path = "jobs/backup"
	const long, failed = time.Hour, "pre-delete hook Job team/backup failed: "
	type does = func(w http.ResponseWriter) bool
	change := func(f *fakeCluster, by func(o *unstructured.Unstructured) bool) does {
		return func(http.ResponseWriter) bool {
			f.server.change(path, by)
			return false
		}
	}
	end := func(f *fakeCluster, how string) does {
		return change(f, func(o *unstructured.Unstructured) bool { endHook(o, how); return true })
	}
	step := func(f *fakeCluster, by time.Duration, then ...func()) does {
		return func(http.ResponseWriter) bool { f.stepWhenWaiting(1, by, then...); return false }
	}
	closed := func(f *fakeCluster, then func()) does {
		return func(w http.ResponseWriter) bool {
			then()
			f.stepWhenWaiting(2, firstWait)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			return true
		}
	}
	cases := map[string]struct {
		reason string
		does   func(f *fakeCluster) []does
		want   OutcomeState
		says   string
	}{
		"Succeeds": {reason: "it is seen at once", does: func(f *fakeCluster) []does { return []does{end(f, well)} }, want: Done},
		"Fails":    {reason: "it is seen at once", does: func(f *fakeCluster) []does { return []does{end(f, badly)} }, want: HookFailed, says: failed + "AsAsked: the test says so"},
		"Progresses": {reason: "a change is not an end, nor a condition that is false", does: func(f *fakeCluster) []does {
			return []does{change(f, func(o *unstructured.Unstructured) bool {
				endHook(o, well)
				conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
				conditions[1].(map[string]any)["status"] = "False"
				return unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions") == nil
			}), end(f, well)}
		}, want: Done},
		"Deleted": {reason: "nobody knows what it has not done", does: func(f *fakeCluster) []does {
			return []does{change(f, func(*unstructured.Unstructured) bool { return false })}
		}, want: HookFailed, says: failed + "it was deleted before it ended"},
		"BeingDeleted": {reason: "nor what it will not do", does: func(f *fakeCluster) []does {
			return []does{change(f, func(o *unstructured.Unstructured) bool {
				o.SetDeletionTimestamp(&metav1.Time{Time: epoch})
				return true
			})}
		}, want: HookFailed, says: failed + "it was deleted before it ended"},
		"DeletedAfterItsEnd": {reason: "as ttlSecondsAfterFinished does", does: func(f *fakeCluster) []does {
			return []does{func(http.ResponseWriter) bool {
				f.server.mu.Lock()
				defer f.server.mu.Unlock()
				for at, o := range f.server.objects {
					if strings.HasSuffix(at, path) {
						endHook(o, well)
						f.server.remove(at)
					}
				}
				return false
			}}
		}, want: Done},
		"TakenOver": {reason: "another Job's end says nothing", does: func(f *fakeCluster) []does {
			return []does{change(f, func(o *unstructured.Unstructured) bool {
				endHook(o, well)
				o.SetAnnotations(nil)
				return true
			})}
		}, want: HookFailed, says: failed + "another client has created another object with its name"},
		"WatchEnds": {reason: "it is read again", does: func(f *fakeCluster) []does {
			return []does{closed(f, func() {}), closed(f, func() {}), closed(f, func() { end(f, well)(nil) })}
		}, want: Done},
		"WatchEndsAndItIsGone": {reason: "nobody has seen its end", does: func(f *fakeCluster) []does {
			return []does{closed(f, func() { f.server.change(path, func(*unstructured.Unstructured) bool { return false }) })}
		}, want: HookFailed, says: failed + "it was deleted before the operator saw it end"},
		"WatchExpires": {reason: "an error in a watch is not an object", does: func(f *fakeCluster) []does {
			return []does{func(w http.ResponseWriter) bool {
				end(f, well)(nil)
				f.stepWhenWaiting(2, firstWait)
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}`))
				return true
			}}
		}, want: Done},
		"WatchForbidden": {reason: "the hook has not failed", does: func(*fakeCluster) []does {
			return []does{func(w http.ResponseWriter) bool {
				respond(w, failWith(http.StatusForbidden, metav1.StatusReasonForbidden))
				return true
			}}
		}, want: Unfinished, says: "cannot watch pre-delete hook Job team/backup: the test answers 403"},
		"TooLong": {reason: "a hook has so much time", does: func(f *fakeCluster) []does {
			return []does{step(f, long)}
		}, want: HookFailed, says: failed + "it did not end within 1h0m0s"},
		"JustInTime": {reason: "and no less", does: func(f *fakeCluster) []does { return []does{step(f, long-1, func() { end(f, well)(nil) })} }, want: Done},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fakeClusterWithAccount(t)
			f.install(config("a"), job("backup", never, preDelete))
			want := f.committed()
			want.HookTimeout, want.Timeout = long, 2*long
			does := tc.does(f)
			watches := f.server.onWatch(does...)
			got, err := f.uninstall(want)
			if *watches != len(does) {
				t.Errorf("%s: it watches %d times, want %d", tc.reason, *watches, len(does))
			}
			if got.State != tc.want || tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.HasSuffix(err.Error(), tc.says)) {
				t.Errorf("%s: got %q, %v, want %q, %q", tc.reason, got.State, err, tc.want, tc.says)
			}
			if kept := f.server.find("configmaps/a") != nil; kept != (tc.want != Done) {
				t.Errorf("%s: the release's object is there: %t", tc.reason, kept)
			}
		})
	}
}

// TestATryEndsBeforeItsHook has a hook take longer than an attempt: the next attempt goes on with the same Job, and its time counts from the
// beginning of the Job, by a clock that is ahead.
func TestATryEndsBeforeItsHook(t *testing.T) {
	f := fakeClusterWithAccount(t)
	f.install(config("a"), job("backup", never, preDelete, `"helm.sh/hook-delete-policy": "before-hook-creation,hook-failed"`))
	want := f.committed()
	want.HookTimeout, want.Timeout = time.Hour, 10*time.Minute
	u := f.uninstaller()
	u.ahead = func() time.Duration { return time.Minute }
	for try := range 6 {
		f.server.onWatch(func(http.ResponseWriter) bool { f.stepWhenWaiting(1, 10*time.Minute); return false })
		got, err := u.Uninstall(t.Context(), nil, want, allow{})
		if err != nil || got.State != HookRunning || got.Hook != "pre-delete hook Job team/backup" {
			t.Fatalf("try %d: got %q of %q, %v", try, got.State, got.Hook, err)
		}
	}
	if diff := cmp.Diff([]string{markRecord, "create " + backupJob}, f.server.didWrite()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	f.server.onWatch(func(http.ResponseWriter) bool { f.stepWhenWaiting(1, time.Minute); return false })
	got, err := u.Uninstall(t.Context(), nil, want, allow{})
	if got.State != HookFailed || err == nil || !strings.HasSuffix(err.Error(), "it did not end within 1h0m0s") {
		t.Errorf("got %q, %v", got.State, err)
	}
	if diff := cmp.Diff([]string{"delete " + backupJob}, f.server.didWrite()); diff != "" {
		t.Errorf("writes after its time (-want +got):\n%s", diff)
	}
}

// TestHookIsNotCreated shows what keeps an object of a hook from being created. It is no failure of the hook if somebody else stops it.
func TestHookIsNotCreated(t *testing.T) {
	put := func(by func(o *unstructured.Unstructured)) func(f *fakeCluster, want *UninstallRequest) {
		return func(f *fakeCluster, want *UninstallRequest) {
			f.putText(job("backup", never))
			f.server.change("jobs/backup", func(o *unstructured.Unstructured) bool {
				a := o.GetAnnotations()
				a[hookAnnotation] = "pre-delete-" + string(want.UID)
				o.SetAnnotations(a)
				by(o)
				return true
			})
		}
	}
	cases := map[string]struct {
		reason string
		given  func(f *fakeCluster, want *UninstallRequest)
		guard  guard
		state  OutcomeState
		says   string
	}{
		"Foreign": {
			reason: "nobody knows whose it is", state: HookFailed, says: "an object with its name exists, and was not created for this uninstall",
			given: put(func(o *unstructured.Unstructured) { o.SetAnnotations(nil) }),
		},
		"OtherEvent": {
			reason: "one of another event has done something else", state: HookFailed, says: "an object with its name exists",
			given: put(func(o *unstructured.Unstructured) {
				o.SetAnnotations(map[string]string{hookAnnotation: strings.Replace(o.GetAnnotations()[hookAnnotation], "pre", "post", 1)})
			}),
		},
		"OtherRecord": {
			reason: "one of another release of the name too", state: HookFailed, says: "an object with its name exists",
			given: put(func(o *unstructured.Unstructured) {
				o.SetAnnotations(map[string]string{hookAnnotation: "pre-delete-other"})
			}),
		},
		"BeingDeleted": {
			reason: "what was made for this uninstall is going", state: HookFailed, says: "the object that was created for this uninstall is being deleted",
			given: put(func(o *unstructured.Unstructured) { o.SetDeletionTimestamp(&metav1.Time{Time: epoch}) }),
		},
		"RightNotReviewed": {
			reason: "nobody has asked whether the author may", state: HookFailed, says: "the right to create it was not reviewed",
			given: func(_ *fakeCluster, want *UninstallRequest) {
				want.Rights = []observed.Right{{Verb: "delete", Group: "batch", Resource: "jobs", Namespace: "team"}}
			},
		},
		"Forbidden": {
			reason: "the account may not", state: HookFailed, says: "cannot create it: the test answers 403",
			given: func(f *fakeCluster, _ *UninstallRequest) {
				f.server.onRequest(http.MethodPost, "/jobs", -1, failWith(http.StatusForbidden, metav1.StatusReasonForbidden))
			},
		},
		"Unreadable": {
			reason: "whether it is there is not known", state: Unfinished, says: "cannot read pre-delete hook Job team/backup: the test answers 500",
			given: func(f *fakeCluster, _ *UninstallRequest) {
				f.server.onRequest(http.MethodGet, "/jobs/backup", -1, failWith(http.StatusInternalServerError, metav1.StatusReasonInternalError))
			},
		},
		"Refused": {
			reason: "the caller has changed its mind", state: Stopped, says: "stopped before the creation of Job team/backup: refused",
			guard: guard{runHook: func(observed.Ref) error { return errRefused }},
		},
		"MarkTakenOff": {
			reason: "somebody else has taken over", state: Unfinished, says: "no longer has the mark of this uninstall",
			given: func(f *fakeCluster, _ *UninstallRequest) {
				f.server.answer = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
					if strings.HasSuffix(r.URL.Path, "/jobs/backup") {
						f.annotate("shop.v1", v1alpha1.AnnotationUninstall, "theirs")
					}
					return false
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fakeClusterWithAccount(t)
			f.install(config("a"), job("backup", never, preDelete, `"helm.sh/hook-delete-policy": hook-succeeded`))
			want := f.committed()
			if tc.given != nil {
				tc.given(f, &want)
			}
			got, err := f.uninstaller().Uninstall(t.Context(), nil, want, tc.guard)
			if got.State != tc.state || err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: got %q, %v, want %q: %s", tc.reason, got.State, err, tc.state, tc.says)
			}
			if _, failed := errors.AsType[*HookError](err); failed != (tc.state == HookFailed) {
				t.Errorf("%s: the hook has failed: %t", tc.reason, failed)
			}
			if diff := cmp.Diff([]string{markRecord}, f.server.didWrite()); diff != "" {
				t.Errorf("%s: writes (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestHookObjectsAreStamped creates what the chart wrote, with what says whose it is.
func TestHookObjectsAreStamped(t *testing.T) {
	f := fakeClusterWithAccount(t)
	f.install(config("a"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: note, namespace: bank, labels: {own: l}, annotations: {own: a, "+preDelete+"}}\ndata: {k: v}\n")
	want := f.committed()
	check(t, errOf(f.uninstall(want)))
	got := f.server.find("namespaces/bank/configmaps/note")
	if got == nil {
		t.Fatalf("it is not in the namespace that it names: %q", f.server.left())
	}
	wantLabels := map[string]string{"own": "l", managedByLabel: "Helm"}
	wantAnnotations := map[string]string{
		"own": "a", "helm.sh/hook": "pre-delete", releaseNameAnnotation: "shop", releaseNamespaceAnnotation: "team", hookAnnotation: "pre-delete-" + string(want.UID),
	}
	if diff := cmp.Diff([]any{wantLabels, wantAnnotations, map[string]any{"k": "v"}}, []any{got.GetLabels(), got.GetAnnotations(), got.Object["data"]}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func errOf(_ Outcome, err error) error { return err }

// TestHooksThatAreDone has a record that notes which events are over: their hooks are not run again, only cleaned up after.
func TestHooksThatAreDone(t *testing.T) {
	const cleanUp = `"helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"`
	cases := map[string]struct {
		reason, noted string
		mark          string
		writes        []string
	}{
		"Nothing": {
			reason: "the uninstall has only been begun", mark: "ours",
			writes: []string{"create Job backup", markRecord, "delete Job backup", "delete ConfigMap a", "create Job farewell", markRecord, "delete Job farewell", deleteRecord},
		},
		"Before": {
			reason: "what ran before the deletion does not run after it", mark: "ours", noted: "pre-delete",
			writes: []string{"delete ConfigMap a", "create Job farewell", markRecord, "delete Job farewell", deleteRecord},
		},
		"Both":   {reason: "nothing is left but the record", mark: "ours", noted: "pre-delete,post-delete", writes: []string{"delete ConfigMap a", deleteRecord}},
		"Theirs": {reason: "a note counts only with our mark", mark: "theirs", noted: "pre-delete,post-delete", writes: []string{markRecord, "create Job backup", markRecord, "delete Job backup", "delete ConfigMap a", "create Job farewell", markRecord, "delete Job farewell", deleteRecord}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fakeClusterWithAccount(t)
			f.install(config("a"), job("backup", well, preDelete, cleanUp), job("farewell", well, postDelete, cleanUp))
			f.setStatus("shop.v1", release.StatusUninstalling)
			f.annotate("shop.v1", v1alpha1.AnnotationUninstall, tc.mark)
			f.annotate("shop.v1", hooksDoneAnnotation, tc.noted)
			got, err := f.uninstall(f.committed())
			if err != nil || got.State != Done {
				t.Errorf("%s: got %q, %v", tc.reason, got.State, err)
			}
			if diff := cmp.Diff(tc.writes, f.server.didWrite()); diff != "" {
				t.Errorf("%s: writes (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestAHookOfTwoEventsIsTwo finds the object of a hook that runs after the deletion, of a hook that has also run before it: what is left to
// clean up of the first is not what runs now.
func TestAHookOfTwoEventsIsTwo(t *testing.T) {
	f := fakeClusterWithAccount(t)
	f.install(config("a"), job("backup", never, `helm.sh/hook: "pre-delete,post-delete"`, `"helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"`))
	f.setStatus("shop.v1", release.StatusUninstalling)
	f.annotate("shop.v1", v1alpha1.AnnotationUninstall, "ours")
	f.annotate("shop.v1", hooksDoneAnnotation, "pre-delete")
	want := f.committed()
	f.putText(job("backup", never))
	f.annotate("jobs/backup", hookAnnotation, "post-delete-"+string(want.UID))
	got, err := f.uninstall(want)
	if err != nil || got.State != HookRunning || got.Hook != "post-delete hook Job team/backup" {
		t.Errorf("got %q of %q, %v", got.State, got.Hook, err)
	}
	f.server.change("jobs/backup", func(o *unstructured.Unstructured) bool { endHook(o, well); return true })
	if got, err = f.uninstall(want); err != nil || got.State != Done {
		t.Errorf("got %q, %v", got.State, err)
	}
	if diff := cmp.Diff([]string{"delete ConfigMap a", markRecord, "delete " + backupJob, deleteRecord}, f.server.didWrite()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// TestHooksAreNotRun refuses hooks that cannot or must not run, before anything is written, and uninstalls the release without them.
func TestHooksAreNotRun(t *testing.T) {
	hook := func(apiVersion, kind, rest string) string {
		return "apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: gift, annotations: {" + preDelete + "}}\n" + rest
	}
	rights := " " + grantsRightsDetail
	cases := map[string]struct {
		hook      string
		noAccount bool
		says      string
	}{
		"NoAccount":      {hook: config("gift", preDelete), noAccount: true, says: noAccountDetail},
		"Role":           {hook: hook("rbac.authorization.k8s.io/v1", "Role", ""), says: `its hook "gift" cannot run: Role team/gift` + rights},
		"RoleBinding":    {hook: hook("rbac.authorization.k8s.io/v1", "RoleBinding", ""), says: `its hook "gift" cannot run: RoleBinding team/gift` + rights},
		"ServiceAccount": {hook: hook("v1", "ServiceAccount", ""), says: "ServiceAccount team/gift" + rights},
		"AccountToken":   {hook: hook("v1", "Secret", "type: kubernetes.io/service-account-token\n"), says: "Secret team/gift" + rights},
		"BootstrapToken": {hook: hook("v1", "Secret", "type: bootstrap.kubernetes.io/token\n"), says: "Secret team/gift" + rights},
		"Secret":         {hook: hook("v1", "Secret", "type: Opaque\n")},
		"ClusterRole":    {hook: hook("rbac.authorization.k8s.io/v1", "ClusterRole", ""), says: "clusterroles.rbac.authorization.k8s.io are cluster-scoped"},
		"NotServed":      {hook: hook("example.com/v1", "Nothing", ""), says: `its hook "gift" cannot run: the API server serves no kind Nothing of example.com/v1`},
		"NoKind":         {hook: "apiVersion: v1\nmetadata: {name: gift, annotations: {" + preDelete + "}}\n", says: `its hook "gift" cannot run: its manifest has an object without apiVersion, kind or name`},
		"OddName":        {hook: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ../gift, annotations: {" + preDelete + "}}\n", says: `cannot run: its manifest has an object that cannot be: "../gift" may not contain '/'`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fakeClusterWithAccount(t)
			if tc.noAccount {
				f.account.Name = ""
			}
			f.install(config("a"), tc.hook)
			want := f.committed()
			got, err := f.uninstall(want)
			if tc.says == "" {
				if err != nil || got.State != Done || !slices.Contains(f.server.didWrite(), "create Secret gift") {
					t.Errorf("got %q, %v", got.State, err)
				}
				return
			}
			blocked, is := errors.AsType[*BlockedError](err)
			if !is || blocked.Reason != v1alpha1.ReasonReleaseHasHooks || !strings.Contains(blocked.Detail, tc.says) {
				t.Errorf("got %q, %v, want %q", got.State, err, tc.says)
			}
			if rel := must(f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop"))(t); !rel.HasHooks || !is || rel.HooksBlocked != blocked.Detail {
				t.Errorf("a plan is told %q", rel.HooksBlocked)
			}
			if writes := f.server.didWrite(); len(writes) > 0 {
				t.Errorf("it writes %q", writes)
			}
			want.DisableHooks = true
			if got, err = f.uninstall(want); err != nil || got.State != Done || len(got.Created) > 0 {
				t.Errorf("without hooks: got %+v, %v", got, err)
			}
		})
	}
}

// TestAHookThatReadsAsARelease has hooks that would be taken for the objects of the release, should they run.
func TestAHookThatReadsAsARelease(t *testing.T) {
	for name, manifest := range map[string]string{"Empty": "", "Release": manifestStart + config("b")} {
		t.Run(name, func(t *testing.T) {
			f := fakeClusterWithAccount(t)
			f.install(config("a"), config("gift", preDelete))
			f.putText(config("b"))
			f.rewriteRecord("shop.v1", func(r *release.Release) { r.Hooks[0].Manifest = manifest })
			const says = `its hook "gift" cannot run: its manifest is not one that Helm writes for a hook`
			if rel := must(f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop"))(t); rel.HooksBlocked != says || len(rel.HookRights) > 0 {
				t.Errorf("a plan is told %q, and of rights to %v", rel.HooksBlocked, rel.HookRights)
			}
			got, err := f.uninstall(f.committed())
			if blocked, is := errors.AsType[*BlockedError](err); !is || blocked.Reason != v1alpha1.ReasonReleaseHasHooks || blocked.Detail != says {
				t.Errorf("got %q, %v", got.State, err)
			}
			if writes := f.server.didWrite(); len(writes) > 0 {
				t.Errorf("it writes %q", writes)
			}
		})
	}
}

// TestHooksThatCannotBeResolved has the API server answer nothing about the kind of a hook: nobody knows what the hook would create.
func TestHooksThatCannotBeResolved(t *testing.T) {
	f := fakeClusterWithAccount(t)
	f.install(config("a"), job("backup", well, preDelete))
	want := f.committed()
	f.server.onRequest(http.MethodGet, "/apis/batch/v1", -1, failWith(http.StatusInternalServerError, metav1.StatusReasonInternalError))
	const says = `cannot discover "batch/v1": the test answers 500`
	if _, err := f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop"); err == nil || !strings.Contains(err.Error(), "cannot read its hooks: "+says) {
		t.Errorf("a plan is told %v", err)
	}
	if got, err := f.uninstall(want); err == nil || got.State != Unfinished || !strings.Contains(err.Error(), says) {
		t.Errorf("got %q, %v", got.State, err)
	}
	if writes := f.server.didWrite(); len(writes) > 0 {
		t.Errorf("it writes %q", writes)
	}
}

// TestAHookWhoseKindGoes has the API server no longer serve the kind of a hook once the release is marked.
func TestAHookWhoseKindGoes(t *testing.T) {
	f := fakeClusterWithAccount(t)
	f.install(config("a"), job("backup", well, preDelete))
	want := f.committed()
	f.server.answer = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			f.server.mu.Lock()
			defer f.server.mu.Unlock()
			delete(f.server.served, "batch/v1")
		}
		return false
	}
	got, err := f.uninstall(want)
	blocked, is := errors.AsType[*BlockedError](err)
	if !is || blocked.Reason != v1alpha1.ReasonReleaseHasHooks || blocked.Detail != "the API server serves no kind Job of batch/v1" {
		t.Errorf("got %q, %v", got.State, err)
	}
	if diff := cmp.Diff([]string{markRecord}, f.server.didWrite()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}
