package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxProc bounds what is read of a file in /proc: command lines and environments are limited by the kernel to about 2 MiB.
const maxProc = 4 << 20

// Process names one process for good: a pid alone is used again for another one. The zero value is no process.
type Process struct {
	PID   int
	Start uint64 // start time in clock ticks since boot, field 22 of /proc/PID/stat
}

// FindProcess returns the process that has this pid now. The error is fs.ErrNotExist when there is none.
func FindProcess(pid int) (Process, error) {
	if pid <= 0 {
		return Process{}, fs.ErrNotExist
	}
	b, err := ReadFile(fmt.Sprintf("/proc/%d/stat", pid), maxProc)
	if errors.Is(err, unix.ESRCH) { // it ended between open and read
		return Process{}, fs.ErrNotExist
	}
	if err != nil {
		return Process{}, err
	}
	start, err := startTime(b)
	if err != nil {
		return Process{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
	}
	return Process{PID: pid, Start: start}, nil
}

// startTime takes field 22 of a stat line. The second field is the program's name in parentheses and may hold anything, also blanks and
// parentheses: so the fields are counted from the last closing one.
func startTime(stat []byte) (uint64, error) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, fmt.Errorf("unexpected form %.80q", stat)
	}
	fields := strings.Fields(string(stat[i+1:]))
	const startField = 22 - 3 // the first field behind the name is number 3
	if len(fields) <= startField {
		return 0, fmt.Errorf("unexpected form %.80q", stat)
	}
	return strconv.ParseUint(fields[startField], 10, 64)
}

// CommandLine returns the arguments with which a process was started, the program's name first.
func CommandLine(pid int) ([]string, error) { return procStrings(pid, "cmdline") }

// Environ returns the environment with which a process was started. Only root and the process's own user may read it.
func Environ(pid int) ([]string, error) { return procStrings(pid, "environ") }

func procStrings(pid int, file string) ([]string, error) {
	b, err := ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file), maxProc)
	if err != nil {
		return nil, err
	}
	b = bytes.TrimSuffix(b, []byte{0})
	if len(b) == 0 {
		return nil, nil
	}
	return strings.Split(string(b), "\x00"), nil
}

// Executable returns a path that leads to the very file that a process runs, even when that file was since deleted or replaced, and the
// name under which it was started. Only root and the process's own user may look.
func Executable(pid int) (path, name string, err error) {
	path = fmt.Sprintf("/proc/%d/exe", pid)
	name, err = os.Readlink(path)
	if err != nil {
		return "", "", err
	}
	return path, strings.TrimSuffix(name, " (deleted)"), nil
}

// FlagValue returns the value of a command line flag, in either of its forms: --name=value, --name value. The last one counts; empty when there is
// none.
func FlagValue(args []string, name string) string {
	value := ""
	for i, arg := range args {
		flag, v, hasValue := strings.Cut(arg, "=")
		if flag != "--"+name && flag != "-"+name {
			continue
		}
		if !hasValue && i+1 < len(args) {
			v = args[i+1]
		}
		value = v
	}
	return value
}
