// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"k8s.io/apimachinery/pkg/util/wait"
)

// soon is how long something on a page may take, on a busy machine.
const soon = 30 * time.Second

// oneTry is how long one question to the browser may take, of several.
const oneTry = 5 * time.Second

// findChromium returns the browser of this machine; "" if it has none.
func findChromium() string {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	return ""
}

// browser is a browser with its own cookies.
func browser(t *testing.T, path string) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1280, 900))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has none for root
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

// tab is a page in a browser, for a reader who knows roles and names.
type tab struct {
	t       *testing.T
	ctx     context.Context
	address string
	console *console
}

// console is what the browser has said about the pages.
type console struct {
	mu       sync.Mutex
	messages []string
}

// in is the tab for a part of a test.
func (b *tab) in(t *testing.T) *tab {
	return &tab{t: t, ctx: b.ctx, address: b.address, console: b.console}
}

// newTab opens an address.
func newTab(ctx context.Context, t *testing.T, address string) *tab {
	t.Helper()
	b := &tab{t: t, ctx: ctx, address: address[:strings.LastIndex(address, "/")], console: &console{}}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.console.mu.Lock()
			b.console.messages = append(b.console.messages, fmt.Sprint(m))
			b.console.mu.Unlock()
		}
	}()
	b.do(chromedp.Navigate(address))
	return b
}

// do lets the browser do something.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, soon)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// open opens a page of the same server.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.address + path))
}

// evaluate returns the value of an expression of JavaScript.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, soon)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// eventually waits until something is so.
func (b *tab) eventually(what string, is func() bool) {
	b.t.Helper()
	if err := wait.PollUntilContextTimeout(b.ctx, 50*time.Millisecond, soon, true, func(context.Context) (bool, error) { return is(), nil }); err != nil {
		b.t.Fatalf("not in time: %s\n%s", what, b.text())
	}
}

// text is what the page shows, or why that cannot be said: it may be loading.
func (b *tab) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, oneTry)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.title + '\\n' + document.body.innerText"))
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return text
}

// reads waits until the page shows all these texts.
func (b *tab) reads(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.eventually(fmt.Sprintf("the page shows %q", text), func() bool { return strings.Contains(b.text(), text) })
	}
}

// query lists the elements with a role and an accessible name, as screen readers find them.
func (b *tab) query(role, name string) []cdp.BackendNodeID {
	ctx, cancel := context.WithTimeout(b.ctx, oneTry)
	defer cancel()
	root, err := chromedp.Call(ctx, dom.GetDocument, dom.GetDocumentParams{})
	if err != nil {
		return nil // the page is being left
	}
	found, err := chromedp.Call(ctx, accessibility.QueryAXTree, accessibility.QueryAXTreeParams{BackendNodeID: root.Root.BackendNodeID, AccessibleName: name, Role: role})
	if err != nil {
		return nil
	}
	var out []cdp.BackendNodeID
	for _, n := range found.Nodes {
		if !n.Ignored {
			out = append(out, n.BackendDOMNodeID)
		}
	}
	return out
}

// has waits until the page has an element with a role and a name.
func (b *tab) has(role, name string) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("the page has the %s %q", role, name), func() bool { return len(b.query(role, name)) > 0 })
}

// press presses a button or a link, with the keyboard alone, and waits for the page that it leads to: Chromium stops answering when it is asked
// for names while it leaves a page.
func (b *tab) press(role, name string) {
	b.t.Helper()
	b.focus(role, name)
	evaluate[bool](b, "window.isLeft = true")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.eventually(fmt.Sprintf("the %s %q leads to a page", role, name), func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, oneTry)
		defer cancel()
		arrived, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("window.isLeft === undefined && document.readyState === 'complete'"))
		return err == nil && arrived
	})
}

// focus gives an element the focus.
func (b *tab) focus(role, name string) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("the %s %q takes the focus", role, name), func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, oneTry)
		defer cancel()
		all := b.query(role, name)
		if len(all) == 0 {
			return false
		}
		_, err := chromedp.Call(ctx, dom.Focus, dom.FocusParams{BackendNodeID: all[0]})
		return err == nil // it may have been exchanged in between
	})
}

// violations lists what the policy of the pages has refused, and errors of scripts.
func (b *tab) violations() []string {
	b.console.mu.Lock()
	defer b.console.mu.Unlock()
	var out []string
	for _, p := range b.console.messages {
		if strings.Contains(p, "Content Security Policy") || strings.Contains(p, "Uncaught") || strings.Contains(p, "Refused to") {
			out = append(out, p)
		}
	}
	return out
}
