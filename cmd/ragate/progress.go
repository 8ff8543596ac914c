package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progressLine shows how far a download is, on one line that it keeps rewriting. It prints nothing unless the writer is a terminal.
type progressLine struct {
	w    io.Writer
	mu   sync.Mutex
	last time.Time
}

// terminalOf returns w when a person looks at it, else nil.
func terminalOf(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return w
	}
	return nil
}

// redraw is how often the line changes at most: often enough to seem alive, seldom enough to cost nothing.
const redraw = 100 * time.Millisecond

// Progress implements models.Progress. total is -1 while unknown.
func (p *progressLine) Progress(file string, done, total int64) {
	if terminalOf(p.w) == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	finished := done == total
	if now := time.Now(); !finished && now.Sub(p.last) < redraw {
		return
	} else {
		p.last = now
	}
	const mb = 1e6
	if total > 0 {
		fmt.Fprintf(p.w, "\r\x1b[K%s  %.1f of %.1f MB (%d %%)", file, float64(done)/mb, float64(total)/mb, done*100/total)
	} else {
		fmt.Fprintf(p.w, "\r\x1b[K%s  %.1f MB", file, float64(done)/mb)
	}
	if finished {
		fmt.Fprintln(p.w)
	}
}
