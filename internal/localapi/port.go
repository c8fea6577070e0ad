package localapi

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"github.com/sirupsen/logrus"
)

// ServePort answers with h at the port of 127.0.0.1 that ports named last, 0 meaning none, until ctx ends and all is closed. A port that
// can't be opened is logged, and tried again when ports names it again.
func ServePort(ctx context.Context, ports <-chan int, h http.Handler, log *logrus.Logger) {
	var p openPort
	defer func() { p.close() }()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-p.ended:
			if err != nil {
				log.Warnf("Metrics on port %d: %v", p.number, err)
			}
			p.close()
			p = openPort{}
		case number := <-ports:
			if number == p.number {
				continue
			}
			p.close()
			p = openPort{}
			if number == 0 {
				continue
			}
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(number)))
			if err != nil {
				log.Warnf("No metrics on a port: %v", err)
				continue
			}
			p = serveIn(ctx, number, l, h)
		}
	}
}

// openPort is a port on which something answers; the zero value is none.
type openPort struct {
	number int
	end    context.CancelFunc
	ended  chan error // gets why it ended, and is closed then
}

func serveIn(ctx context.Context, number int, l net.Listener, h http.Handler) openPort {
	ctx, cancel := context.WithCancel(ctx)
	p := openPort{number: number, end: cancel, ended: make(chan error, 1)}
	go func() {
		defer close(p.ended)
		p.ended <- serveUntil(ctx, l, h)
	}()
	return p
}

// close comes back when the port is closed.
func (p openPort) close() {
	if p.end == nil {
		return
	}
	p.end()
	for range p.ended { // until it is closed
	}
}
