package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a pseudo-terminal of that size.
func openTerminal(t *testing.T, columns, rows int) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	resize(t, terminal, columns, rows)
	return master, terminal
}

func resize(t *testing.T, terminal *os.File, columns, rows int) {
	t.Helper()
	size := &unix.Winsize{Col: uint16(columns), Row: uint16(rows)}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
}

// readUntil reads what is written to the terminal until want has come, and returns all of it.
func readUntil(t *testing.T, master *os.File, want string) string {
	t.Helper()
	found, seen := make(chan bool, 1), &strings.Builder{}
	go func() {
		buffer := make([]byte, 4096)
		for !strings.Contains(seen.String(), want) {
			n, err := master.Read(buffer)
			if err != nil {
				found <- false
				return
			}
			seen.Write(buffer[:n])
		}
		found <- true
	}()
	select {
	case ok := <-found:
		if !ok {
			t.Fatalf("the terminal was closed before %q came: %q", want, seen)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("%q did not come", want)
	}
	return seen.String()
}
