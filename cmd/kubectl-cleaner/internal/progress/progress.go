// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress shows on a terminal what a command that takes long is doing: one line, which is rewritten, and gone at the end. It never
// writes where standard error is no terminal, and decides nothing.
package progress

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

const (
	// patience is how long a command may take before it shows its progress, and refresh how often the line is rewritten then.
	patience = 2 * time.Second
	refresh  = 250 * time.Millisecond
)

// Line shows the progress of one command. A nil Line shows nothing. It can be used by several goroutines.
type Line struct {
	clock clock.WithTicker
	line  *output.StatusLine

	mu sync.Mutex
	// begun is when the first stage began; zero: none has.
	begun       time.Time
	stage       string
	done, total int
	// stop ends the goroutine that rewrites the line, and stopped says that it has ended; nil where there is none.
	stop, stopped chan struct{}
}

// NewLine returns the progress of a command on a line of a terminal; without a line, nil.
func NewLine(c clock.WithTicker, line *output.StatusLine) *Line {
	if line == nil {
		return nil
	}
	return &Line{clock: c, line: line}
}

// BeginStage says what the command does from now on, without a count.
func (l *Line) BeginStage(format string, fields ...any) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage, l.done, l.total = fmt.Sprintf(format, fields...), 0, 0
	if l.stop != nil {
		return
	}
	l.begun, l.stop, l.stopped = l.clock.Now(), make(chan struct{}), make(chan struct{})
	go l.rewrite(l.clock.NewTicker(refresh), l.stop, l.stopped)
}

// Count says how much of the stage is done, and of how much; 0: that is not known.
func (l *Line) Count(done, total int) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done, l.total = done, total
}

// Close takes the line off the terminal, and shows nothing until another stage begins.
func (l *Line) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	stop, stopped := l.stop, l.stopped
	l.stop, l.stopped = nil, nil
	l.mu.Unlock()
	if stop != nil {
		close(stop)
		<-stopped
	}
}

// rewrite rewrites the line until it is stopped.
func (l *Line) rewrite(ticker clock.Ticker, stop <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	defer l.line.EraseText()
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C():
			if text := l.describe(); text != "" {
				l.line.ReplaceText(text)
			}
		}
	}
}

// describe says what is done now; nothing where the command has not taken long.
func (l *Line) describe() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	elapsed := l.clock.Since(l.begun)
	if elapsed < patience {
		return ""
	}
	text := l.stage
	switch {
	case l.total > 0:
		text += fmt.Sprintf(": %d of %d", l.done, l.total)
	case l.done > 0:
		text += fmt.Sprintf(": %d", l.done)
	}
	return text + ", " + elapsed.Truncate(time.Second).String()
}
