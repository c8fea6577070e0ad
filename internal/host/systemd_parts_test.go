package host

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

func TestPassingErrors(t *testing.T) {
	named := func(name string) error {
		return fmt.Errorf("asked: %w", *dbus.NewError("org.freedesktop.DBus.Error."+name, nil))
	}
	for _, tc := range []struct {
		err     error
		want    bool
		unheard bool // it is also certain that nobody heard
	}{
		{named("NoReply"), true, false},
		{named("Disconnected"), true, false},
		{named("ServiceUnknown"), true, true},
		{named("NameHasNoOwner"), true, true},
		{named("AccessDenied"), false, false},
		{named("UnknownMethod"), false, false},
		{dbus.ErrClosed, true, true},
		{io.EOF, true, false},
		{&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}, true, true},
		{&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, true, true},
		{fmt.Errorf("directly: %w; over the bus: %w", syscall.ENOENT, syscall.ECONNREFUSED), false, false},
		{context.Canceled, false, false},
	} {
		if got := passing(tc.err); got != tc.want {
			t.Errorf("%v: got %v, want %v", tc.err, got, tc.want)
		}
		if got := unheard(tc.err); got != tc.unheard {
			t.Errorf("%v: unheard: got %v, want %v", tc.err, got, tc.unheard)
		}
	}
}

func TestExecStart(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   [][]any
		want []string
	}{
		{"given no command", nil, nil},
		{"given a path and its arguments", [][]any{{"/bin/kubelet", []string{"kubelet", "--a", "b"}, false}}, []string{"/bin/kubelet", "--a", "b"}},
		{"given another name than the path's as first argument, the path counts", [][]any{{"/bin/k", []string{"@name", "x"}}}, []string{"/bin/k", "x"}},
		{"given two commands, the first counts", [][]any{{"/bin/a", []string{"a"}}, {"/bin/b", []string{"b"}}}, []string{"/bin/a"}},
		{"given no arguments, not even the name", [][]any{{"/bin/a", []string{}}}, []string{"/bin/a"}},
		{"given too few fields", [][]any{{"/bin/a"}}, nil},
		{"given no path", [][]any{{"", []string{"a"}}}, nil},
		{"given fields of other types", [][]any{{1, "x"}}, nil},
		{"given arguments of another type, the path is left", [][]any{{"/bin/a", "x"}}, []string{"/bin/a"}},
	} {
		if got := execStart(tc.in); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestProperty(t *testing.T) {
	all := map[string]any{"Text": "x", "Number": uint32(7), "Nothing": nil}
	if got := property[string](all, "Text"); got != "x" {
		t.Errorf("got %q, want x", got)
	}
	if got := property[uint32](all, "Number"); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
	if got := property[uint64](all, "Number") + property[uint64](all, "Missing") + property[uint64](nil, "Any"); got != 0 {
		t.Errorf("given a property of another type or none: got %d, want 0", got)
	}
	if got := property[[][]any](all, "Nothing"); got != nil {
		t.Errorf("given nothing: got %v, want nil", got)
	}
}

func TestUsec(t *testing.T) {
	if got := usec(0); !got.IsZero() {
		t.Errorf("given no time: got %v, want the zero time", got)
	}
	if got, want := usec(1_700_000_000_123_456), time.Date(2023, 11, 14, 22, 13, 20, 123_456_000, time.UTC); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
