package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/internal/observe"
)

const (
	runtimeFolder = "/run/systemd"
	// privateSocket is systemd's own: root can talk to it without the bus, so also while the bus is stopped or hangs.
	privateSocket = "private"
	bootedFolder  = "system" // see sd_booted(3)

	// A lost connection is made anew at once; while systemd re-executes itself its name is away from the bus for a moment.
	attempts   = 4
	retryPause = 100 * time.Millisecond

	// detailsMaxAge is how long the properties of a unit that keeps running are believed without asking again: those that can change
	// while the main process stays the same are of interest only once it does not.
	detailsMaxAge = time.Minute
)

// ErrNoSystemd says that this machine was not booted with systemd.
var ErrNoSystemd = errors.New("systemd does not run this machine")

// Systemd asks systemd about units, over one connection that is made when first needed and made anew when it is lost.
// The zero value is ready for use. It may be used by several goroutines; their questions are asked one after another.
type Systemd struct {
	turn    turn // guards all below
	conn    *sd.Conn
	hangUp  context.CancelFunc
	details map[string]details
	folder  string // in place of runtimeFolder, for tests

	patience time.Duration // in place of setUpLimit, for tests
}

// turn is a lock for which one can wait with a context. The zero value is ready for use.
type turn struct {
	once  sync.Once
	taken chan struct{} // holds one token while someone has it
}

// take waits for the turn. Its error is why ctx ended.
func (t *turn) take(ctx context.Context) error {
	t.once.Do(func() { t.taken = make(chan struct{}, 1) })
	select {
	case t.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Lock waits for the turn however long it takes.
func (t *turn) Lock() { _ = t.take(context.Background()) }

// Unlock gives the turn to the next.
func (t *turn) Unlock() { <-t.taken }

// details are the properties of a unit that a list of units lacks.
type details struct {
	unit observe.Unit
	main Process
	at   time.Time
}

// Close ends the connection. The Systemd can be used again.
func (s *Systemd) Close() {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.disconnect()
}

// Units returns what systemd says about each of the named units, in that order; also about units that do not exist.
// The error is ErrNoSystemd where there is none, or says why systemd could not be asked.
func (s *Systemd) Units(ctx context.Context, names ...string) ([]observe.Unit, error) {
	var units []observe.Unit
	err := s.ask(ctx, passing, func() (err error) {
		units, err = s.units(ctx, names)
		return err
	})
	switch {
	case errors.Is(err, ErrNoSystemd):
		return nil, ErrNoSystemd
	case err != nil:
		return nil, fmt.Errorf("ask systemd for its units: %w", err)
	}
	return units, nil
}

// ask puts a question when it is its turn, over a connection that is there, and again where the error says that it is worth it or could
// not have been heard. A question may be a request, if again says so only of what can't have been heard or is harmless to say twice.
func (s *Systemd) ask(ctx context.Context, again func(error) bool, question func() error) error {
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.Unlock()
	if !s.booted() {
		s.disconnect()
		return ErrNoSystemd
	}
	for i := 1; ; i++ {
		worthIt, err := passing, s.connected(ctx)
		if err == nil {
			worthIt, err = again, question()
		}
		if err == nil {
			return nil
		}
		var answer dbus.Error
		if !errors.As(err, &answer) || connectionErrors[answer.Name] {
			s.disconnect() // also after a time-out: on a connection whose other side hangs nothing will ever come back
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if i == attempts || !worthIt(err) {
			return err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

// booted is sd_booted(3).
func (s *Systemd) booted() bool {
	_, err := os.Stat(s.path(bootedFolder))
	return err == nil
}

func (s *Systemd) path(name string) string {
	return filepath.Join(cmp.Or(s.folder, runtimeFolder), name)
}

// connectionErrors are the D-Bus errors that say that the connection, or systemd's name behind it, is gone.
//
//nolint:gochecknoglobals // a table that nobody changes
var connectionErrors = map[string]bool{
	"org.freedesktop.DBus.Error.NoReply":        true,
	"org.freedesktop.DBus.Error.Disconnected":   true,
	"org.freedesktop.DBus.Error.ServiceUnknown": true,
	"org.freedesktop.DBus.Error.NameHasNoOwner": true,
}

// passing reports whether an error is worth a second try: it comes with restarts of the bus or of systemd.
func passing(err error) bool {
	if answer, ok := errors.AsType[dbus.Error](err); ok {
		return connectionErrors[answer.Name]
	}
	return errors.Is(err, dbus.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// unheard reports whether an error says that the question never reached systemd. A reset is how the kernel says that the other side of a
// unix socket closed it with bytes unread, and there never is more than one question on its way.
func unheard(err error) bool {
	if answer, ok := errors.AsType[dbus.Error](err); ok {
		return answer.Name == "org.freedesktop.DBus.Error.ServiceUnknown" || answer.Name == "org.freedesktop.DBus.Error.NameHasNoOwner"
	}
	return errors.Is(err, dbus.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

func (s *Systemd) units(ctx context.Context, names []string) ([]observe.Unit, error) {
	rows, err := s.conn.ListUnitsByNamesContext(ctx, names)
	if err != nil {
		return nil, err
	}
	if len(rows) != len(names) { // systemd passes over a name that can be no unit's
		return nil, fmt.Errorf("asked about %d units (%s), told about %d", len(names), strings.Join(names, ", "), len(rows))
	}
	units := make([]observe.Unit, len(names))
	for i, row := range rows { // they come in the order of the names; a row has another name where the one asked for is an alias
		if units[i], err = s.complete(ctx, row); err != nil {
			return nil, err
		}
		units[i].Name = names[i]
	}
	return units, nil
}

// complete adds to a row of the list what the list lacks. Those properties cost two more calls of some 20 KiB each, so they are asked for
// only when they can have changed.
func (s *Systemd) complete(ctx context.Context, row sd.UnitStatus) (observe.Unit, error) {
	u := observe.Unit{Name: row.Name, LoadState: row.LoadState, ActiveState: row.ActiveState, SubState: row.SubState, Job: row.JobType}
	if !u.Exists() && !u.Running() {
		return u, nil
	}
	known, ok := s.details[row.Name]
	if ok && u.Running() && known.unit.Running() && time.Since(known.at) < detailsMaxAge && sameProcess(known.main) {
		current := known.unit
		current.LoadState, current.ActiveState, current.SubState, current.Job = u.LoadState, u.ActiveState, u.SubState, u.Job
		return current, nil
	}
	unit, err := s.conn.GetUnitPropertiesContext(ctx, row.Name)
	if err != nil {
		return u, err
	}
	service, err := s.conn.GetUnitTypePropertiesContext(ctx, row.Name, "Service")
	if err != nil {
		return u, err
	}
	// All from one moment where it can be: the unit may have moved on since the list was made.
	u.LoadState = property[string](unit, "LoadState")
	u.ActiveState = property[string](unit, "ActiveState")
	u.SubState = property[string](unit, "SubState")
	u.UnitFileState = property[string](unit, "UnitFileState")
	u.StateChange = stateChange(unit, time.Now())
	u.Result = property[string](service, "Result")
	u.MainPID = int(property[uint32](service, "MainPID"))
	u.NRestarts = int(property[uint32](service, "NRestarts"))
	u.ExecStart = execStart(property[[][]any](service, "ExecStart"))
	if s.details == nil {
		s.details = map[string]details{}
	}
	main, _ := FindProcess(u.MainPID) // without one, nothing is kept for the next time
	u.MainStart = main.Start
	s.details[row.Name] = details{unit: u, main: main, at: time.Now()}
	return u, nil
}

// stateChange is when a unit last changed its state, by the clock of now, which must be taken just before. Systemd keeps the time of then
// too, by the clock of then: where somebody has set that since, a stop of a minute ago would look an hour old, or be yet to come.
func stateChange(unit map[string]any, now time.Time) time.Time {
	stamp := time.Duration(property[uint64](unit, "StateChangeTimestampMonotonic")) * time.Microsecond //nolint:gosec // below 292,000 years
	var up unix.Timespec
	if stamp == 0 || unix.ClockGettime(unix.CLOCK_MONOTONIC, &up) != nil {
		return usec(property[uint64](unit, "StateChangeTimestamp"))
	}
	// Never later than it was, not even by rounding: it is compared with what was noted right after it.
	return now.Add(stamp - time.Duration(up.Nano())).Truncate(time.Microsecond)
}

func sameProcess(p Process) bool {
	now, err := FindProcess(p.PID)
	return err == nil && now == p
}

func property[T any](properties map[string]any, name string) T {
	v, _ := properties[name].(T) // an older systemd may lack it: then it isn't told
	return v
}

func usec(t uint64) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(t)) //nolint:gosec // microseconds since 1970 reach 63 bits in the year 294246
}

// execStart takes path and arguments of the first command: (path, argv, ignore failure, times, pid, exit …) in systemd's array.
func execStart(commands [][]any) []string {
	if len(commands) == 0 || len(commands[0]) < 2 {
		return nil
	}
	path, _ := commands[0][0].(string)
	argv, _ := commands[0][1].([]string)
	if path == "" {
		return nil
	}
	if len(argv) > 0 {
		argv = argv[1:]
	}
	return append([]string{path}, argv...)
}

// connected makes a connection if there is none, or none any more.
func (s *Systemd) connected(ctx context.Context) error {
	if s.conn != nil && s.conn.Connected() {
		return nil
	}
	s.disconnect()
	return s.connect(ctx)
}

// connect dials within ctx and leaves a connection that outlives it: the context that go-systemd takes is the connection's lifetime.
func (s *Systemd) connect(ctx context.Context) error {
	life, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	dialed := context.AfterFunc(ctx, hangUp)
	raw, _, err := s.dial(life, noSignals{})
	var conn *sd.Conn
	if err == nil { // go-systemd asks for two connections, one of them for signals; one serves for both
		conn, err = sd.NewConnection(func() (*dbus.Conn, error) { return raw, nil })
	}
	if !dialed() && err == nil {
		conn.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		hangUp()
		return err
	}
	s.conn, s.hangUp = conn, hangUp
	return nil
}

// dial connects to systemd: root directly, and over the bus when that can't be; everybody else over the bus.
func (s *Systemd) dial(life context.Context, signals dbus.SignalHandler) (conn *dbus.Conn, overBus bool, err error) {
	if os.Geteuid() != 0 {
		conn, err = connection(life, busSocket(), true, signals)
		return conn, true, err
	}
	conn, direct := connection(life, s.path(privateSocket), false, signals)
	if direct == nil {
		return conn, false, nil
	}
	conn, err = connection(life, busSocket(), true, signals)
	if err != nil {
		return nil, false, fmt.Errorf("directly: %w; over the bus: %w", direct, err)
	}
	return conn, true, nil
}

// busSocket returns the path of the system bus, also where the usual variable names another one.
func busSocket() string {
	if path, ok := strings.CutPrefix(os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"), "unix:path="); ok {
		return path
	}
	return "/run/dbus/system_bus_socket"
}

// connection connects to a socket and authenticates; to a bus it also says hello.
func connection(life context.Context, socket string, hello bool, signals dbus.SignalHandler) (*dbus.Conn, error) {
	stream, err := new(net.Dialer).DialContext(life, "unix", socket)
	if err != nil {
		return nil, err
	}
	// Not dbus.Dial: the reader it has for sockets panics, in a goroutine of its own, when a connection is closed or reset in the middle
	// of a message (seen with godbus 5.2.4).
	conn, err := dbus.NewConn(stream, dbus.WithContext(life), dbus.WithSignalHandler(signals))
	if err != nil {
		stream.Close() // it is of no use
		return nil, err
	}
	// The numeric user id spares a look-up of the user's name.
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))})
	if err == nil && hello {
		err = conn.Hello()
	}
	if err != nil {
		conn.Close() // it is of no use any more
		return nil, err
	}
	return conn, nil
}

// noSignals handles the signals of a connection over which only questions are asked: none. It ends go-systemd's listener at once, which
// would stay for ever on a connection that was lost while it was being made.
type noSignals struct{}

func (noSignals) DeliverSignal(string, string, *dbus.Signal) {}
func (noSignals) AddSignal(ch chan<- *dbus.Signal)           { close(ch) }
func (noSignals) RemoveSignal(chan<- *dbus.Signal)           {}

func (s *Systemd) disconnect() {
	if s.conn == nil {
		return
	}
	s.conn.Close()
	s.hangUp()
	s.conn, s.hangUp, s.details = nil, nil, nil
}
