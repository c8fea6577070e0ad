//go:build linux

package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Each fault says how nodes got over it in measurements with two nodes; see WaitReady for what to allow.

// StopAPI stops the API server, in 2 s: connections are closed, new ones refused. Stopping one that is stopped does nothing.
func (c *Cluster) StopAPI(ctx context.Context) error { return c.end(ctx, apiServer) }

// StartAPI starts the API server after StopAPI and returns when it is ready, in about 3 s. The controller manager is
// restarted with it: after some outages it would otherwise look at nodes again only 45 s later. The first statuses of
// kubelets come after 1 to 10 s.
func (c *Cluster) StartAPI(ctx context.Context) error {
	if err := c.start(ctx, apiServer); err != nil {
		return err
	}
	if err := errors.Join(c.end(ctx, controllerManager), c.start(ctx, controllerManager)); err != nil {
		return err
	}
	return c.waitAPI(ctx)
}

// RestartAPI stops the API server and starts it again.
func (c *Cluster) RestartAPI(ctx context.Context) error {
	if err := c.StopAPI(ctx); err != nil {
		return err
	}
	return c.StartAPI(ctx)
}

// FreezeAPI makes the API server silent: connections stay and new ones are taken, but nothing is answered.
func (c *Cluster) FreezeAPI() error { return c.signal(apiServer, syscall.SIGSTOP) }

// ThawAPI lets the API server go on after FreezeAPI, with all that it was asked meanwhile. Nodes are Ready 1 s (after 45 s
// of silence) to 47 s (after 20 s of it) later, though their kubelets send statuses within 2 s.
func (c *Cluster) ThawAPI() error { return c.signal(apiServer, syscall.SIGCONT) }

// ReplaceServingCert gives the API server a new certificate by this issuer: of CA one that nodes trust, of OtherCA one that
// they do not. It returns when new connections get it. Connections that stand are not touched; RestartAPI ends those.
// While the API server is stopped, it will start with the new certificate. Nodes that had refused one of OtherCA are Ready
// 23 to 30 s after they get one that they trust.
func (c *Cluster) ReplaceServingCert(ctx context.Context, issuer *CA) error {
	pair, err := c.servingPair(issuer)
	if err != nil {
		return fmt.Errorf("replace serving certificate: %w", err)
	}
	// The API server watches both files, and goes on with what it has while they do not fit together.
	err = errors.Join(os.WriteFile(c.path(servingKey), pair.Key, 0o600), os.WriteFile(c.path(servingCert), pair.Cert, 0o600))
	if err != nil {
		return fmt.Errorf("replace serving certificate: %w", err)
	}
	c.mu.Lock()
	p := c.processes[apiServer]
	c.mu.Unlock()
	if p == nil {
		return nil
	}
	// It also looks by itself once a minute.
	return WaitFor(ctx, 2*time.Minute, "the API server shows its new certificate", func(ctx context.Context) (bool, string) {
		got, err := c.shownCert(ctx)
		if err != nil {
			return false, err.Error()
		}
		return bytes.Equal(certPEM(got.Raw), pair.Cert), fmt.Sprintf("number %v by %s", got.SerialNumber, got.Issuer)
	})
}

// shownCert connects to the API server and returns the certificate that it shows.
func (c *Cluster) shownCert(ctx context.Context) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	conn, err := c.Switch.Dial(ctx, "tcp", c.Switch.Address().String()+":"+apiPort)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return secure.ConnectionState().PeerCertificates[0], nil
}

// Drop makes the switch lose all packets from and to a host without telling anyone: unlike after CutLink the host still
// has a carrier. A boot undoes it. Nodes are Ready 1 to 17 s after Undrop.
func (c *Cluster) Drop(ctx context.Context, h *Host) error { return h.setPort(ctx, "disabled") }

// Undrop undoes Drop.
func (c *Cluster) Undrop(ctx context.Context, h *Host) error { return h.setPort(ctx, "forwarding") }
