package host

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/godbus/dbus/v5"
)

// bus is a real message bus in a folder of its own.
type bus struct {
	address string
	config  string
	daemon  *exec.Cmd
}

// noBus points to a system bus that isn't there.
func noBus(t *testing.T) {
	t.Helper()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(shortFolder(t), "missing"))
}

func startBus(t *testing.T) *bus {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("needs dbus-daemon: the message bus (package dbus)")
	}
	dir := shortFolder(t)
	b := &bus{address: "unix:path=" + filepath.Join(dir, "bus"), config: filepath.Join(dir, "bus.conf")}
	must(t, os.WriteFile(b.config, []byte(`<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>custom</type><listen>`+b.address+`</listen><auth>EXTERNAL</auth><policy context="default">
<allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy></busconfig>`), 0o644))
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", b.address)
	b.start(t)
	t.Cleanup(b.stop)
	return b
}

func (b *bus) start(t *testing.T) {
	t.Helper()
	b.daemon = exec.Command("dbus-daemon", "--config-file="+b.config, "--nofork", "--nopidfile", "--nosyslog", "--print-address=1")
	out, err := b.daemon.StdoutPipe()
	must(t, err)
	must(t, b.daemon.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("dbus-daemon did not start: %q, %v", line, err)
	}
}

func (b *bus) stop() {
	_ = b.daemon.Process.Kill()
	_ = b.daemon.Wait()
}

// properties is the interface for the properties of all units on a bus.
type properties struct{ f *fakeSystemd }

// GetAll is the method of that name.
func (p properties) GetAll(call dbus.Message, iface string) (map[string]dbus.Variant, *dbus.Error) {
	return p.f.getAll(call.Headers[dbus.FieldPath].Value().(dbus.ObjectPath), iface)
}

// join puts a fake systemd on the bus, until the function returned is called or the test ends.
func (b *bus) join(t *testing.T, f *fakeSystemd) (leave func()) {
	t.Helper()
	conn, err := dbus.Connect(b.address)
	must(t, err)
	f.mu.Lock()
	f.bus = conn
	f.mu.Unlock()
	subscribe := func() *dbus.Error { _, err := f.act("Subscribe", nil); return err }
	must(t, conn.ExportMethodTable(map[string]any{"ListUnitsByNames": f.ListUnitsByNames, "Subscribe": subscribe}, managerPath, managerName+".Manager"))
	must(t, conn.ExportSubtree(properties{f}, managerPath+"/unit", "org.freedesktop.DBus.Properties"))
	if got, err := conn.RequestName(managerName, 0); got != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("own %s: got %v, %v", managerName, got, err)
	}
	leave = func() { conn.Close() }
	t.Cleanup(leave)
	return leave
}
