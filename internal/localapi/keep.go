package localapi

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
)

// lookEvery is how often the agent looks whether its socket still lies where clients look for it.
const lookEvery = 3 * time.Second

// Socket is the agent's socket, which is made anew when somebody takes it away: an agent that can't be asked can't be paused either.
type Socket struct {
	path    string
	handler http.Handler
	log     *logrus.Logger
	every   time.Duration

	l      *listener   // nil while there is none
	folder fs.FileInfo // of the last listener; nil before the first
	told   string      // why there is none, as it was logged
}

// Open makes the socket at path, with mode 0600 from its first moment; h will answer there. A missing folder is created with mode 0755, one
// in /tmp with 0700; one that is a link, belongs to somebody else or can be written by others is refused. A socket on which nobody listens
// any more is replaced; whatever is at path and is no socket is left alone. Only root and the user of this process are served.
//
// The one error is ErrInUse: another agent serves the socket. Whatever else keeps it from being made is logged, and Serve tries again.
func Open(path string, h http.Handler, log *logrus.Logger) (*Socket, error) {
	s := &Socket{path: path, handler: h, log: log, every: lookEvery}
	err := s.listen()
	if errors.Is(err, ErrInUse) {
		return nil, err
	}
	s.tell(err)
	return s, nil
}

// Serve answers until ctx ends, and is to be called once. When something else or nothing lies at the path of the socket, it makes the
// socket anew within seconds, and tries again and again where that fails; when another agent serves it by then, until that one has ended.
// All this is logged once. Requests under way go on meanwhile. When ctx ends, so do the contexts of requests; their connections are
// closed at most 0.2 s later and the socket is removed.
func (s *Socket) Serve(ctx context.Context) {
	server := newServer(ctx, s.handler)
	var accepting *limited
	var failed chan error
	accept := func() {
		if s.l == nil {
			accepting, failed = nil, nil
			return
		}
		l, ended := newLimited(s.l, maxConns), make(chan error, 1)
		accepting, failed = l, ended
		go func() { ended <- server.Serve(l) }()
	}
	accept()
	look := time.NewTicker(s.every)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			end(ctx, server)
			if failed != nil {
				<-failed //nolint:errcheck // it was ended here
			}
			return
		case err := <-failed:
			s.log.Warnf("The agent's socket %s: %v", s.path, err)
			_ = accepting.Close() // it is of no use any more
			s.l, failed = nil, nil
		case <-look.C:
			if s.l != nil && s.l.stands() {
				continue
			}
			if s.l != nil {
				s.told = "it was removed or replaced"
				s.log.Warnf("The agent's socket %s: %s", s.path, s.told)
				_ = accepting.Close() // nobody can find it any more
				<-failed              //nolint:errcheck // it was ended here
			}
			s.tell(s.listen()) //nolint:contextcheck // it ends by itself, in a second
			accept()
		}
	}
}

// listen sets l, or leaves it nil and says why.
func (s *Socket) listen() (err error) {
	dir := filepath.Dir(s.path)
	if s.folder != nil && makeFolder(dir) == nil { // else listen says why not
		restoreMode(dir, s.folder)
	}
	if s.l, err = listen(s.path); err != nil {
		return err
	}
	if folder, err := os.Lstat(dir); err == nil {
		s.folder = folder
	}
	return nil
}

// tell logs why there is no socket when that is news, and the end of it.
func (s *Socket) tell(err error) {
	switch {
	case err == nil && s.told != "":
		s.told = ""
		s.log.Infof("The agent can be asked at %s", s.path)
	case err != nil && err.Error() != s.told:
		s.told = err.Error()
		s.log.Warnf("The agent can't be asked, since its socket can't be made; that is tried again and again: %v", err)
	}
}
