// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSummary(t *testing.T) {
	cases := map[string]struct {
		reason string
		events string
		want   string
	}{
		"Passed": {
			reason: "The output of tests that passed or were skipped is not shown.",
			events: `{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"output","Package":"a","Test":"TestX","Output":"noise\n"}
{"Action":"pass","Package":"a","Test":"TestX","Elapsed":0.1}
{"Action":"run","Package":"a","Test":"TestY"}
{"Action":"skip","Package":"a","Test":"TestY","Elapsed":0}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.5s\n"}
{"Action":"pass","Package":"a","Elapsed":0.5}
{"Action":"skip","Package":"b"}
`,
			want: "ok    a  500ms\n\n1 passed, 0 failed, 1 skipped\n",
		},
		"Failed": {
			reason: "A failed test is shown in full when its package ends, and named again at the end.",
			events: `{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"output","Package":"a","Test":"TestX","Output":"x_test.go:1: wrong\n"}
{"Action":"fail","Package":"a","Test":"TestX","Elapsed":0.1}
{"Action":"output","Package":"a","Output":"FAIL\n"}
{"Action":"fail","Package":"a","Elapsed":0.5}
`,
			want: "FAIL  a  500ms\n      x_test.go:1: wrong\n      FAIL\n\nfailed: a TestX\n0 passed, 1 failed, 0 skipped\n",
		},
		"NotBuilt": {
			reason: "A package that does not build is one failure, with what the compiler said.",
			events: `{"ImportPath":"a","Action":"build-output","Output":"a.go:1: syntax error\n"}
{"ImportPath":"a","Action":"build-fail"}
{"Action":"start","Package":"a"}
{"Action":"fail","Package":"a","Elapsed":0,"FailedBuild":"a"}
`,
			want: "FAIL  a  0s\n      a.go:1: syntax error\n\nfailed: a\n0 passed, 1 failed, 0 skipped\n",
		},
		"Crashed": {
			reason: "A test that had not ended when its package failed has failed.",
			events: `{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"output","Package":"a","Test":"TestX","Output":"panic: oh\n"}
{"Action":"fail","Package":"a","Elapsed":0}
`,
			want: "FAIL  a  0s\n      panic: oh\n\nfailed: a TestX\n0 passed, 1 failed, 0 skipped\n",
		},
		"CutOff": {
			reason: "A package that never ended has failed, whatever its tests did.",
			events: `{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"pass","Package":"a","Test":"TestX"}
`,
			want: "FAIL  a  0s\n\nfailed: a\n1 passed, 1 failed, 0 skipped\n",
		},
		"NoEvent": {
			reason: "What is no event is shown as it is.",
			events: "go: no such thing\n",
			want:   "go: no such thing\n\n0 passed, 0 failed, 0 skipped\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			s := newSummary(&out)
			if err := s.read(strings.NewReader(tc.events)); err != nil {
				t.Fatal(err)
			}
			s.finish()
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// module writes a module with one test, and makes it the working directory.
func module(t *testing.T, test string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module example.com/m\n\ngo 1.26\n", "m_test.go": test} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func TestRun(t *testing.T) {
	cases := map[string]struct {
		test string
		code int
		want string
	}{
		"Passed": {test: "package m\nimport \"testing\"\nfunc TestX(*testing.T) {}\n", code: 0, want: "1 passed, 0 failed, 0 skipped\n"},
		"Failed": {test: "package m\nimport \"testing\"\nfunc TestX(t *testing.T) { t.Fail() }\n", code: 1, want: "0 passed, 1 failed, 0 skipped\n"},
		"Broken": {test: "package m\nfunc\n", code: 1, want: "0 passed, 1 failed, 0 skipped\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			module(t, tc.test)
			var out bytes.Buffer
			if code := run(t.Context(), []string{"./..."}, &out, &out); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if !strings.HasSuffix(out.String(), tc.want) {
				t.Errorf("the last line is not %q:\n%s", tc.want, out.String())
			}
		})
	}
}

func TestInterruptLeavesNoProcess(t *testing.T) {
	// A test that starts a process, and both wait for ever. They hold a pipe, which ends when neither is left.
	module(t, `package m

import ("os"; "os/exec"; "testing")

func TestX(t *testing.T) {
	pipe, err := os.OpenFile("pipe", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	cmd.Stdout = pipe
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pipe.WriteString("x")
	cmd.Wait()
}
`)
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile("pipe", os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait for a writer
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	code := make(chan int)
	go func() { code <- run(ctx, []string{"./..."}, &out, &out) }()

	buf := make([]byte, 1)
	for deadline := time.Now().Add(time.Minute); buf[0] != 'x'; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the test did not start within a minute")
		}
		if _, err := pipe.Read(buf); err != nil && !errors.Is(err, io.EOF) { // EOF while there is no writer yet
			t.Fatal(err)
		}
	}
	cancel()
	if got := <-code; got != 1 {
		t.Errorf("exit code %d, want 1\n%s", got, out.String())
	}
	if err := pipe.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("a process of the tests is left: reading its pipe gives %v", err)
	}
}
