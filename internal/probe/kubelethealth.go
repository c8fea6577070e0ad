package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
)

const (
	defaultHealthzPort    = 10248
	defaultHealthzAddress = "127.0.0.1"
	// patience is how long a daemon that took our connection must have been silent before the silence says something about it.
	patience = time.Second
	// maxHealthz is how much of an answer is read, in bytes; a failing kubelet lists its checks.
	maxHealthz = 4096
)

func flagSettings(args []string) kubeletConfig {
	c := kubeletConfig{HealthzBindAddress: host.FlagValue(args, "healthz-bind-address"), ContainerRuntimeEndpoint: host.FlagValue(args, "container-runtime-endpoint")}
	if port, err := strconv.Atoi(host.FlagValue(args, "healthz-port")); err == nil {
		c.HealthzPort = &port
	}
	return c
}

// newHealthzClient keeps one connection, follows no redirects and uses no proxy: the address is one of this machine.
func newHealthzClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DialContext: (&net.Dialer{}).DialContext, MaxIdleConns: 1, IdleConnTimeout: 3 * time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// healthzURL says where the kubelet's health endpoint is, or "" when it is switched off.
func healthzURL(c kubeletConfig) string {
	port, address := defaultHealthzPort, c.HealthzBindAddress
	if c.HealthzPort != nil {
		port = *c.HealthzPort
	}
	if port == 0 {
		return ""
	}
	switch address {
	case "", "0.0.0.0":
		address = defaultHealthzAddress
	case "::":
		address = "::1"
	}
	return "http://" + net.JoinHostPort(address, strconv.Itoa(port)) + "/healthz"
}

func (s *Suite) lookAtKubeletHealth(ctx context.Context, round time.Time) observe.Observation[observe.KubeletHealth] {
	facts, _ := s.unitFacts(ctx, round)
	u := facts.kubelet
	args, known := facts.kubeletArgs()
	cfg, err := s.kubeletConfigOf(args, known)
	if err != nil {
		// Going on with the default port could ask another program.
		return observe.CannotTell[observe.KubeletHealth]("KubeletConfigUnreadable", "where the kubelet's health endpoint is can't be told: %v", err)
	}
	url := healthzURL(cfg)
	if url == "" {
		return observe.CannotTell[observe.KubeletHealth]("HealthzDisabled", "the kubelet's health endpoint is switched off (healthzPort: 0)")
	}
	return askHealthz(ctx, s.healthz, url, u)
}

// askHealthz judges the endpoint's answer. That nobody listens says nothing: the unit says whether the kubelet runs, and one that runs may
// not listen yet or elsewhere. That somebody listens and does not answer says a lot.
func askHealthz(ctx context.Context, client *http.Client, url string, u observe.Unit) observe.Observation[observe.KubeletHealth] {
	var connected atomic.Bool
	began := time.Now()
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(traced, http.MethodGet, url, http.NoBody)
	if err != nil {
		return observe.CannotTell[observe.KubeletHealth]("KubeletConfigInvalid", "%v", err)
	}
	v := observe.KubeletHealth{URL: url}
	resp, err := client.Do(req)
	if err == nil {
		defer resp.Body.Close()                                            // read as far as wanted
		body, readErr := io.ReadAll(io.LimitReader(resp.Body, maxHealthz)) // also lets the connection be used again
		v.StatusCode = resp.StatusCode
		switch {
		case resp.StatusCode != http.StatusOK:
			return observe.See(v, observe.Unhealthy, "HealthzFailed", "the kubelet says that it is not healthy (HTTP %d): %.300q", resp.StatusCode, body)
		case readErr == nil:
			return observe.See(v, observe.Healthy, "HealthzOK", "the kubelet says that it is healthy")
		}
		err = readErr
	}
	waited := time.Since(began)
	switch {
	case ctx.Err() != nil && connected.Load() && waited >= patience:
		return observe.See(v, observe.Unhealthy, "HealthzSilent", "the kubelet took a connection on %s and has not answered for %s: it hangs",
			url, waited.Round(100*time.Millisecond))
	case ctx.Err() != nil:
		return observe.CannotTell[observe.KubeletHealth](observe.ReasonTimeout, "%s: no answer after %s", url, waited.Round(time.Millisecond))
	case errors.Is(err, syscall.ECONNREFUSED) && u.Running():
		return observe.CannotTell[observe.KubeletHealth]("HealthzRefused", "nothing listens on %s though the kubelet runs: it may be starting", url)
	case errors.Is(err, syscall.ECONNREFUSED):
		return observe.CannotTell[observe.KubeletHealth]("KubeletNotRunning", "nothing listens on %s: the kubelet does not run", url)
	}
	return observe.CannotTell[observe.KubeletHealth]("HealthzUnavailable", "%v", err)
}
