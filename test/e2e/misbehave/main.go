// Misbehave stands in for programs and servers of a host, and does not do what they do.
//
//	misbehave listen NETWORK ADDRESS silent|garbage|fail   takes connections, and says nothing, nonsense, or that it fails (HTTP 500)
//
// Under another name it is asked for its version as programs are, and hangs, fails, prints nonsense, or is slow or fails once before it
// lets the real program answer: as the file /opt/real/NAME.mode says. The real program is /opt/real/NAME; all but that question goes to it.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const garbage = "\x00\xff<html>v1.2.3.4.5 \xc3\x28 not what you asked for</html>\r\n"

func main() {
	var err error
	if len(os.Args) == 5 && os.Args[1] == "listen" {
		err = listen(os.Args[2], os.Args[3], os.Args[4])
	} else {
		err = program(filepath.Base(os.Args[0]), os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "misbehave:", err)
		os.Exit(1)
	}
}

// program plays a program of this name; what it does not misbehave about is done by the real one.
func program(name string, args []string) error {
	real := filepath.Join("/opt/real", name)
	if slices.Contains(args, "--version") || slices.Contains(args, "-v") {
		mode, err := os.ReadFile(real + ".mode")
		if err != nil {
			return err
		}
		switch strings.TrimSpace(string(mode)) {
		case "hang":
			time.Sleep(10 * time.Minute) //nolint:forbidigo // hanging is its purpose
		case "slow":
			time.Sleep(2 * time.Second) //nolint:forbidigo // being slow is its purpose
		case "fail":
			return errors.New("it fails")
		case "garbage":
			fmt.Print(garbage)
			return nil
		case "once":
			if _, err := os.Stat(real + ".failed"); errors.Is(err, fs.ErrNotExist) {
				return errors.Join(errors.New("it fails once"), os.WriteFile(real+".failed", nil, 0o600))
			}
		}
	}
	return syscall.Exec(real, append([]string{real}, args...), os.Environ())
}

func listen(network, address, mode string) error {
	if network == "unix" {
		if err := os.Remove(address); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	l, err := net.Listen(network, address) //nolint:noctx // it listens until it is killed
	if err != nil {
		return err
	}
	var held []net.Conn // a connection that is forgotten would be closed
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("%w, with %d connections", err, len(held))
		}
		switch mode {
		case "silent":
			held = append(held, c)
			continue
		case "fail":
			_, err = c.Write([]byte("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 8\r\nConnection: close\r\n\r\nnot well"))
		default:
			_, err = c.Write([]byte(garbage))
		}
		if err := errors.Join(err, drain(c)); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// drain reads what was asked before it closes, so that the answer is not lost with a reset.
func drain(c net.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	_, _ = c.Read(buf) // whatever was asked
	return c.Close()
}
