package host

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

const (
	managerName = "org.freedesktop.systemd1"
	managerPath = "/org/freedesktop/systemd1"
)

// fakeUnit is what a fake systemd says about a unit. The zero value is a unit that does not exist.
type fakeUnit struct {
	id                  string // its primary name, where that is another than the one asked for
	load, active, sub   string
	job                 string
	unit, service       map[string]any // more properties
	propertiesErrorName string
}

// fakeSystemd answers questions about units as systemd does.
type fakeSystemd struct {
	mu    sync.Mutex
	units map[string]fakeUnit
	fails *dbus.Error // in place of a list of units
	asked []string    // "list", or the interface and name of each unit asked about
	// refuses are the errors with which it answers a method of the manager, by its name.
	refuses map[string]*dbus.Error
	// acts are the requests that it did not refuse: method and arguments.
	acts []string
	bus  *dbus.Conn // as whom it sends signals, once it has joined one
}

func (f *fakeSystemd) set(name string, u fakeUnit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.units == nil {
		f.units = map[string]fakeUnit{}
	}
	f.units[name] = u
}

func (f *fakeSystemd) fail(err *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = err
}

// takeAsked returns what was asked since it was last called.
func (f *fakeSystemd) takeAsked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

// ListUnitsByNames is the manager's method.
func (f *fakeSystemd) ListUnitsByNames(names []string) ([]sd.UnitStatus, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "list")
	if f.fails != nil {
		return nil, f.fails
	}
	rows := []sd.UnitStatus{}
	for _, name := range names {
		if strings.Contains(name, " ") { // no unit's name: systemd passes over it
			continue
		}
		u := f.units[name]
		row := sd.UnitStatus{
			Name: name, LoadState: "not-found", ActiveState: "inactive", SubState: "dead", Path: unitPathOf(name), JobType: u.job, JobPath: "/",
		}
		if u.load != "" {
			row.LoadState, row.ActiveState, row.SubState = u.load, u.active, u.sub
		}
		if u.id != "" {
			row.Name, row.Path = u.id, unitPathOf(u.id)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// getAll is the method GetAll of a unit's properties.
func (f *fakeSystemd) getAll(path dbus.ObjectPath, iface string) (map[string]dbus.Variant, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, u := range f.units {
		if path != unitPathOf(name) {
			continue
		}
		if u.propertiesErrorName != "" {
			return nil, dbus.NewError(u.propertiesErrorName, []any{"no properties for you"})
		}
		kind := strings.TrimPrefix(iface, managerName+".")
		f.asked = append(f.asked, kind+" "+name)
		properties := map[string]dbus.Variant{}
		more := u.service
		if kind == "" { // all of them
			maps.Copy(properties, variants(u.service))
		}
		if kind == "Unit" || kind == "" {
			more = u.unit
			for k, v := range map[string]any{"Id": name, "LoadState": u.load, "ActiveState": u.active, "SubState": u.sub} {
				properties[k] = dbus.MakeVariant(v)
			}
		}
		maps.Copy(properties, variants(more))
		return properties, nil
	}
	return nil, dbus.NewError("org.freedesktop.DBus.Error.UnknownObject", []any{"no unit at " + string(path)})
}

func variants(values map[string]any) map[string]dbus.Variant {
	all := map[string]dbus.Variant{}
	for k, v := range values {
		all[k] = dbus.MakeVariant(v)
	}
	return all
}

func unitPathOf(name string) dbus.ObjectPath {
	return dbus.ObjectPath(managerPath + "/unit/" + sd.PathBusEscape(name))
}

// act is a method that makes a job, or nothing.
func (f *fakeSystemd) act(method string, args []any) (job any, failed *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.refuses[method]; err != nil {
		return nil, err
	}
	f.acts = append(f.acts, strings.TrimSpace(fmt.Sprintln(append([]any{method}, args...)...)))
	if method == "ResetFailedUnit" {
		return nil, nil
	}
	return dbus.ObjectPath(managerPath + "/job/1"), nil
}

// answer makes the reply to a call.
func (f *fakeSystemd) answer(call *dbus.Message) *dbus.Message {
	var body any
	var failed *dbus.Error
	path, _ := call.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	names, _ := call.Body[0].([]string)
	property, _ := call.Body[0].(string)
	switch member, _ := call.Headers[dbus.FieldMember].Value().(string); member {
	case "StartUnit", "RestartUnit", "StopUnit", "ResetFailedUnit", "StartTransientUnit":
		body, failed = f.act(member, call.Body)
	case "Get":
		body = dbus.MakeVariant("degraded")
	case "ListUnitsByNames":
		body, failed = f.ListUnitsByNames(names)
	case "GetAll":
		body, failed = f.getAll(path, property)
	default: // systemd's own socket is no bus: it knows no match rules
		failed = dbus.NewError("org.freedesktop.DBus.Error.UnknownMethod", []any{"unknown method " + member})
	}
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{}}
	if body != nil {
		reply.Body = []any{body}
	}
	if failed != nil {
		reply.Type, reply.Body = dbus.TypeError, failed.Body
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant(failed.Name)
	}
	reply.Headers[dbus.FieldReplySerial] = dbus.MakeVariant(call.Serial())
	reply.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(reply.Body...))
	return reply
}

// peer is one connection to a private socket, seen from systemd's side.
type peer struct {
	net.Conn
	r  *bufio.Reader
	mu sync.Mutex // held while a message is sent
}

// authenticate plays systemd's part of the handshake.
func (p *peer) authenticate() error {
	if b, err := p.r.ReadByte(); b != 0 || err != nil {
		return fmt.Errorf("got first byte %d, error %w", b, err)
	}
	for {
		line, err := p.r.ReadString('\n')
		if err != nil {
			return err
		}
		answer := "ERROR"
		switch strings.TrimSpace(line) {
		case "AUTH":
			answer = "REJECTED EXTERNAL"
		case "AUTH EXTERNAL":
			answer = "DATA"
		case "DATA": // who it is was told by the kernel
			answer = "OK 0123456789abcdef0123456789abcdef"
		case "NEGOTIATE_UNIX_FD":
			answer = "AGREE_UNIX_FD"
		case "BEGIN":
			return nil
		}
		if _, err := io.WriteString(p, answer+"\r\n"); err != nil {
			return err
		}
	}
}

// next reads a call; ok is false when the other side is gone.
func (p *peer) next() (call *dbus.Message, ok bool) {
	call, err := dbus.DecodeMessage(p.r)
	return call, err == nil
}

// serve answers every call for as long as the connection lives.
func (p *peer) serve(f *fakeSystemd) {
	if p.authenticate() != nil {
		return
	}
	for call, ok := p.next(); ok; call, ok = p.next() {
		p.send(f.answer(call))
	}
}

func (p *peer) send(m *dbus.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = m.EncodeTo(p, binary.LittleEndian)
}

// signal sends one, as systemd does to whoever is connected.
func (p *peer) signal(path dbus.ObjectPath, iface, member string, body ...any) {
	p.send(&dbus.Message{
		Type: dbus.TypeSignal,
		Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(path), dbus.FieldInterface: dbus.MakeVariant(iface), dbus.FieldMember: dbus.MakeVariant(member),
			dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(body...)),
		},
		Body: body,
	})
}

// hang reads and says nothing until the other side is gone.
func (p *peer) hang() { _, _ = io.Copy(io.Discard, p.r) }

// booted makes a folder as systemd's /run/systemd.
func booted(t *testing.T) string {
	t.Helper()
	dir := shortFolder(t)
	must(t, os.Mkdir(filepath.Join(dir, bootedFolder), 0o755))
	return dir
}

// shortFolder makes a folder that everybody may enter, whose path is short enough for a socket's.
func shortFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "host") // t.TempDir puts the test's name into the path, which may be 100 bytes long
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	return dir
}

// listen opens systemd's private socket in the folder; talk speaks on the nth connection to it, from 1, which is closed afterwards.
// The function returned tells how many there were.
func listen(t *testing.T, dir string, talk func(n int, p *peer)) (connections func() int) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, privateSocket))
	must(t, err)
	var mu sync.Mutex
	var open []net.Conn
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			n := len(open)
			mu.Unlock()
			all.Go(func() {
				defer c.Close()
				talk(n, &peer{Conn: c, r: bufio.NewReader(c)})
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(open)
	}
}

// commands is a property ExecStart.
func commands(argvs ...[]string) any {
	type command struct {
		Path          string
		Argv          []string
		IgnoreFailure bool
		Begun, BegunM uint64
		Ended, EndedM uint64
		PID           uint32
		Code, Status  int32
	}
	all := []command{}
	for _, argv := range argvs {
		all = append(all, command{Path: argv[0], Argv: slices.Clone(argv)})
	}
	return all
}
