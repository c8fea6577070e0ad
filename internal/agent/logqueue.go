package agent

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

const (
	// maxLines is how many lines wait for an output that hangs; more are dropped, and counted.
	maxLines = 1024
	// flushWait is how long the end waits for lines that have not been written.
	flushWait = 500 * time.Millisecond
)

// logQueue has lines written by a goroutine of its own, in their order: a disk or a terminal that hangs must not stop whoever logs.
type logQueue struct {
	jobs    chan func(out *outputs)
	dropped atomic.Uint64
	done    chan struct{}
}

// outputs are where lines go. They belong to the queue's goroutine.
type outputs struct {
	stderr io.Writer
	file   io.WriteCloser // nil for none
	name   string         // of the file
}

func newLogQueue(stderr io.Writer) *logQueue {
	q := &logQueue{jobs: make(chan func(*outputs), maxLines), done: make(chan struct{})}
	go func() {
		defer close(q.done)
		out := &outputs{stderr: stderr}
		for job := range q.jobs {
			job(out)
			if n := q.dropped.Swap(0); n > 0 {
				out.write(fmt.Appendf(nil, "level=warning msg=\"%d lines of the log were lost while its output hung\"\n", n))
			}
		}
		out.close()
	}()
	return q
}

// Write implements io.Writer. It never blocks and never fails.
func (q *logQueue) Write(p []byte) (int, error) {
	line := append([]byte(nil), p...)
	q.do(func(out *outputs) { out.write(line) })
	return len(p), nil
}

// do has a job done in its turn. One that does not fit is dropped.
func (q *logQueue) do(job func(*outputs)) {
	select {
	case q.jobs <- job:
	default:
		q.dropped.Add(1)
	}
}

// end ends the queue when all is written, or leaves it behind when that takes too long. Nothing may be logged after it.
func (q *logQueue) end() {
	close(q.jobs)
	t := time.NewTimer(flushWait)
	defer t.Stop()
	select {
	case <-q.done:
	case <-t.C:
	}
}

// write writes to each output, whatever becomes of the other: a full disk must not silence the journal.
func (o *outputs) write(line []byte) {
	_, _ = o.stderr.Write(line) // there is nowhere to say so
	if o.file != nil {
		_, _ = o.file.Write(line)
	}
}

func (o *outputs) close() {
	if o.file != nil {
		_ = o.file.Close() // each line was written when it was logged
		o.file = nil
	}
}
