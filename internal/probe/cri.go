package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/aks-flex-node/agent/internal/host"
)

// maxCRIMessage bounds an answer; a verbose status is some 100 KiB.
const maxCRIMessage = 4 << 20

// criClient asks a container runtime over its socket. It keeps one connection for as long as the socket stays the same: a daemon that
// was restarted has made its socket anew. What can't change while the daemon runs is asked once.
type criClient struct {
	mu      sync.Mutex
	current *criConnection
	told    runtimeProgram // the last answer to that question
	toldOn  string         // on this socket; empty for none
	root    string         // folder in which the daemon said it keeps everything; empty when it did not
}

type criConnection struct {
	socket string
	id     host.Identity
	conn   *grpc.ClientConn
	client cri.RuntimeServiceClient

	mu      sync.Mutex // guards the fields below
	version *cri.VersionResponse
	runtime *runtimeProgram
}

// runtimeProgram is the low-level runtime that the daemon is configured to use.
type runtimeProgram struct {
	name string // of the program, as looked up in the daemon's PATH
	path string // when the configuration names one
}

// criAnswer is what the daemon said.
type criAnswer struct {
	name, version              string
	runtimeReady, networkReady bool
	notReady                   string // the runtime's own words
}

func (c *criClient) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		c.current.conn.Close() // nothing to be done about it
		c.current = nil
	}
}

func (c *criClient) connection(ctx context.Context, socket string) (*criConnection, error) {
	id, err := host.Identify(socket)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil { // after close, whose looks have ended too, nothing would close a new one
		return nil, context.Cause(ctx)
	}
	if k := c.current; k != nil && k.socket == socket && k.id == id {
		return k, nil
	}
	// Connecting as a probe of its own tells apart what gRPC folds into "unavailable": refused, no permission.
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxCRIMessage)),
		grpc.WithIdleTimeout(0),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}))
	if err != nil {
		return nil, err
	}
	if c.current != nil {
		c.current.conn.Close() // it belongs to a socket that is gone
	}
	c.current = &criConnection{socket: socket, id: id, conn: conn, client: cri.NewRuntimeServiceClient(conn)}
	return c.current, nil
}

// do asks over the kept connection. One that broke is made anew and asked over once more, if anybody listens: gRPC would wait out its
// back-off, and what it gave up on in the meantime says nothing about the daemon of now.
func (c *criClient) do(ctx context.Context, socket string, ask func(*criConnection) error) error {
	var err error
	for range 2 {
		k, connErr := c.connection(ctx, socket)
		if connErr != nil {
			return connErr
		}
		if err = ask(k); !broken(ctx, err) {
			return err
		}
		c.drop(k)
		if dialErr := tryConnect(ctx, socket); dialErr != nil {
			return dialErr
		}
	}
	return err
}

// broken reports whether an error is one of the connection, which another look may have closed, and not the daemon's answer or our end.
func broken(ctx context.Context, err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || (code == codes.Canceled && ctx.Err() == nil)
}

func (c *criClient) drop(k *criConnection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == k {
		c.current = nil
	}
	k.conn.Close() // it is broken already
}

// ask returns the daemon's version and its conditions.
func (c *criClient) ask(ctx context.Context, socket string) (a criAnswer, err error) {
	err = c.do(ctx, socket, func(k *criConnection) error {
		version, err := k.knownVersion(ctx)
		if err != nil {
			return err
		}
		st, err := k.client.Status(ctx, &cri.StatusRequest{})
		if err != nil {
			return err
		}
		a = answerOf(version, st)
		return nil
	})
	return a, err
}

func answerOf(version *cri.VersionResponse, st *cri.StatusResponse) criAnswer {
	a := criAnswer{name: version.GetRuntimeName(), version: version.GetRuntimeVersion()}
	for _, cond := range st.GetStatus().GetConditions() {
		switch cond.GetType() {
		case "RuntimeReady":
			a.runtimeReady = cond.GetStatus()
		case "NetworkReady":
			a.networkReady = cond.GetStatus()
		}
		if !cond.GetStatus() {
			a.notReady = strings.TrimSpace(a.notReady + " " + cond.GetMessage())
		}
	}
	return a
}

// knownVersion asks for the version once. Nothing is locked meanwhile: a daemon that hangs must not make one look wait for another's.
func (k *criConnection) knownVersion(ctx context.Context) (*cri.VersionResponse, error) {
	k.mu.Lock()
	known := k.version
	k.mu.Unlock()
	if known != nil {
		return known, nil
	}
	v, err := k.client.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version = v
	return v, nil
}

// tryConnect gets the operating system's own error for a socket that can't be connected to; gRPC's is only text.
func tryConnect(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	return conn.Close()
}

// runtimeProgram asks which low-level runtime the daemon uses by default. While the daemon doesn't answer, it is what it said last.
func (c *criClient) runtimeProgram(ctx context.Context, socket string) (p runtimeProgram, err error) {
	err = c.do(ctx, socket, func(k *criConnection) error {
		k.mu.Lock()
		known := k.runtime
		k.mu.Unlock()
		if known != nil {
			p = *known
			return nil
		}
		st, err := k.client.Status(ctx, &cri.StatusRequest{Verbose: true})
		if err != nil {
			return err
		}
		config := []byte(st.GetInfo()["config"])
		c.keepRoot(parseRoot(config))
		if p, err = parseRuntimeConfig(config); err != nil {
			return err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.runtime = &p
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.told, c.toldOn = p, socket
	case !errors.Is(err, errNoRuntimeConfig) && c.toldOn == socket:
		return c.told, nil
	}
	return p, err
}

func (c *criClient) keepRoot(folder string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.root = folder
}

// rootFolder is the folder in which the daemon said, when it was last asked for its low-level runtime, that it keeps everything; or "".
// Nobody is asked now.
func (c *criClient) rootFolder() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.root
}

// parseRoot reads that folder out of containerd's configuration as its verbose status shows it.
func parseRoot(config []byte) string {
	var c struct {
		Root string `json:"containerdRootDir"`
	}
	if err := json.Unmarshal(config, &c); err != nil || !filepath.IsAbs(c.Root) {
		return ""
	}
	return c.Root
}

var errNoRuntimeConfig = errors.New("the runtime does not say which low-level runtime it uses")

// parseRuntimeConfig reads the default runtime out of containerd's configuration as its verbose status shows it (1.6 to 2.x).
func parseRuntimeConfig(config []byte) (runtimeProgram, error) {
	var c struct {
		Containerd struct {
			DefaultRuntimeName string `json:"defaultRuntimeName"`
			Runtimes           map[string]struct {
				Type    string          `json:"runtimeType"`
				Options json.RawMessage `json:"options"`
			} `json:"runtimes"`
		} `json:"containerd"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return runtimeProgram{}, fmt.Errorf("%w: %w", errNoRuntimeConfig, err)
	}
	r, ok := c.Containerd.Runtimes[c.Containerd.DefaultRuntimeName]
	if !ok || !strings.HasPrefix(r.Type, "io.containerd.runc.") {
		return runtimeProgram{}, errNoRuntimeConfig
	}
	var options struct {
		BinaryName string `json:"BinaryName"`
	}
	if len(r.Options) > 0 {
		_ = json.Unmarshal(r.Options, &options) // options of another form name no binary
	}
	switch {
	case strings.HasPrefix(options.BinaryName, "/"):
		return runtimeProgram{path: options.BinaryName}, nil
	case options.BinaryName != "" && !strings.Contains(options.BinaryName, "/"):
		return runtimeProgram{name: options.BinaryName}, nil
	}
	return runtimeProgram{name: "runc"}, nil
}
