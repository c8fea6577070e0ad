// Azcmagent is a stand-in for the program of that name, which only machines that are registered with Azure Arc can have. It replays what
// real ones printed, and misbehaves in the ways that real ones do.
//
// What it does is a scenario: the content of the file beside the program with the same name and ".scenario" behind it, else that of
// AZCMAGENT_SCENARIO, else "connected". It is a name in scenarios.json, or a JSON object as there. The file is read at each start, so that
// a test can change the story while an agent looks.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// longest is how long a scenario hangs: for ever, but not for so long that what a failed test left behind lives on for days.
const longest = 10 * time.Minute

// childMark tells a child that it is one.
const childMark = "AZCMAGENT_CHILD"

func main() {
	if os.Getenv(childMark) != "" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		time.Sleep(longest) //nolint:forbidigo // hanging is its purpose
		return
	}
	r, outputs, err := replyTo(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "the stand-in for azcmagent:", err)
		os.Exit(125)
	}
	if err := r.play(outputs); err != nil {
		fmt.Fprintln(os.Stderr, "the stand-in for azcmagent:", err)
		os.Exit(125)
	}
	os.Exit(r.Exit)
}

// replyTo finds the scenario and its reply to a command line.
func replyTo(args []string) (reply, map[string]text, error) {
	doc, err := loadDocument()
	if err != nil {
		return reply{}, nil, err
	}
	s, err := doc.find(chosen())
	if err != nil {
		return reply{}, nil, err
	}
	switch {
	case slices.Equal(args, []string{"show", "-j"}), slices.Equal(args, []string{"show", "--json"}):
		return s.JSON, doc.Outputs, nil
	case slices.Equal(args, []string{"show"}):
		return s.Table, doc.Outputs, nil
	case slices.Equal(args, []string{"version"}):
		return s.Version, doc.Outputs, nil
	}
	return reply{}, nil, fmt.Errorf("it knows show, show -j and version, and was given %q", args)
}

// play does what a reply says, in the order of its fields, up to the exit.
func (r reply) play(outputs map[string]text) error {
	if r.IgnoreTERM {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	if r.Child {
		if err := startChild(); err != nil {
			return err
		}
	}
	time.Sleep(time.Duration(r.DelayMS) * time.Millisecond) //nolint:forbidigo // being slow is its purpose
	out := string(outputs[r.Stdout])
	if r.Cut > 0 {
		out = out[:min(r.Cut, len(out))]
	}
	if _, err := os.Stdout.WriteString(out); err != nil {
		return err
	}
	if _, err := os.Stderr.WriteString(string(outputs[r.Stderr])); err != nil {
		return err
	}
	if err := flood(r.Flood); err != nil {
		return err
	}
	if r.Hang {
		time.Sleep(longest) //nolint:forbidigo // hanging is its purpose
	}
	return nil
}

// startChild leaves a process behind that is in our process group, holds our standard output open and takes no notice of signals.
func startChild() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self) //nolint:noctx // it is to outlive us
	c.Env = append(os.Environ(), childMark+"=1")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Start()
}

func flood(size int) error {
	line := make([]byte, 64<<10)
	for i := range line {
		line[i] = 'x'
	}
	line[len(line)-1] = '\n'
	for written := 0; written < size; written += len(line) {
		if _, err := os.Stdout.Write(line); err != nil {
			return err
		}
	}
	return nil
}
