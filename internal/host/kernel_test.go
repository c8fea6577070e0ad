package host

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"testing"
	"time"
)

func TestThisBoot(t *testing.T) {
	first, err := BootID()
	must(t, err)
	if second, err := BootID(); err != nil || first != second || !regexp.MustCompile(`^[0-9a-f-]{36}$`).MatchString(first) {
		t.Errorf("got %q and then %q, %v, want the same id twice", first, second, err)
	}
	up, err := Uptime()
	must(t, err)
	if later, err := Uptime(); err != nil || up <= 0 || later < up {
		t.Errorf("got %v and then %v, %v, want a time that grows", up, later, err)
	}
}

func TestTheClockIsJudgedByItsError(t *testing.T) {
	if _, err := Clock(); err != nil {
		t.Errorf("got error %v", err)
	}
	for _, tc := range []struct {
		name string
		in   time.Duration
		want ClockState
	}{
		{"given a small error", time.Millisecond, ClockState{true, time.Millisecond}},
		{"given one just below what the kernel counts", 16*time.Second - 1, ClockState{true, 16*time.Second - 1}},
		{"given one that the kernel no longer counts", 16 * time.Second, ClockState{}},
	} {
		if got := clockState(tc.in); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestSpace(t *testing.T) {
	dir := t.TempDir()
	s, err := Space(dir)
	if err != nil || s.Path != dir || s.Bytes == 0 || s.BytesFree > s.Bytes || s.InodesFree > s.Inodes {
		t.Errorf("got %+v, %v", s, err)
	}
	if s, err := Space("/proc"); err != nil || s.Bytes != 0 || s.Inodes != 0 {
		t.Errorf("given a file system that counts nothing: got %+v, %v", s, err)
	}
	if _, err := Space(dir + "/missing"); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("given no such path: got error %v", err)
	}
}
