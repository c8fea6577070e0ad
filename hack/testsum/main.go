// Command testsum runs `go test -json …`, keeps the whole output as text in a file and shows a person only what
// matters: one closing line a package, everything about what failed, every skipped test with its reason, and a last
// line that counts. hack/gotest calls it.
//
// It fails when anything failed or no test ran, and with -strict also when a test was skipped or something was left out.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if err == nil {
		return
	}
	if !errors.Is(err, errNotGood) {
		fmt.Fprintln(os.Stderr, "testsum:", err)
	}
	os.Exit(1)
}

// errNotGood is returned when the run itself worked and its result, already shown, is bad.
var errNotGood = errors.New("the tests did not pass")

func run(args []string, console io.Writer) error {
	var leftOut []string
	flags := flag.NewFlagSet("testsum", flag.ContinueOnError)
	logPath := flags.String("log", os.DevNull, "`file` for the whole output")
	strict := flags.Bool("strict", false, "fail also when a test was skipped or something was left out")
	flags.Func("left-out", "`text` on what this run could not include and why; may be repeated", func(s string) error {
		leftOut = append(leftOut, s)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("no command: give it after the flags and --")
	}

	file, err := os.Create(*logPath)
	if err != nil {
		return fmt.Errorf("create the log: %w", err)
	}
	log := bufio.NewWriter(file)
	sum := newSummary(console, log, *logPath)
	sum.leftOut = leftOut

	execErr := runCommand(flags.Args(), sum)
	good := sum.finish(execErr, *strict)
	if err := errors.Join(log.Flush(), file.Close()); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	if !good {
		return errNotGood
	}
	return nil
}

// runCommand feeds the command's output to sum, line by line, and returns how the command ended. An interrupt is
// passed on, so that `go test` can end its tests and what they printed is still shown.
func runCommand(argv []string, sum *summary) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	//nolint:gosec // running the command it was given is what this program is for
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second

	var mu sync.Mutex // stdout and stderr are read at the same time
	stdout, stderr := &lines{mu: &mu, each: sum.line}, &lines{mu: &mu, each: sum.raw}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	stdout.flush()
	stderr.flush()
	return err
}

// lines is a writer that hands on whole lines, each with its newline.
type lines struct {
	mu   *sync.Mutex
	each func(line []byte)
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	done := 0
	for i := len(l.rest) - len(p); i < len(l.rest); i++ {
		if l.rest[i] == '\n' {
			l.each(l.rest[done : i+1])
			done = i + 1
		}
	}
	l.rest = append(l.rest[:0], l.rest[done:]...)
	return len(p), nil
}

// flush hands on what came without a newline at the end.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.each(append(l.rest, '\n'))
		l.rest = nil
	}
}
