package localapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/journal"
)

func TestTheClientGetsTheViewThatTheAgentHas(t *testing.T) {
	for name, v := range map[string]*agent.View{"well": wellView(), "ill": illView()} {
		path, _ := serve(t, newFake(v))
		got, err := NewClient(path).View(t.Context(), 0)
		must(t, err)
		if asJSON(t, got) != asJSON(t, v) {
			t.Errorf("%s: got %s\nwant %s", name, asJSON(t, got), asJSON(t, v))
		}
	}
}

func TestTheClientWaitsForANewerView(t *testing.T) {
	fake := newFake(wellView())
	path, _ := serve(t, fake)
	got := make(chan *agent.View, 1)
	failed := make(chan error, 1)
	go func() {
		v, err := NewClient(path).View(t.Context(), 7)
		got <- v
		failed <- err
	}()
	<-fake.waiting
	fake.publish(illView())
	v := <-got
	must(t, <-failed)
	if v.Generation != 8 {
		t.Errorf("got generation %d, want 8", v.Generation)
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	fake := newFake(wellView())
	path, _ := serve(t, fake)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := NewClient(path).View(ctx, 7)
		failed <- err
	}()
	<-fake.waiting
	cancel()
	wantIs(t, <-failed, context.Canceled)
}

func TestTheClientGetsTheHistory(t *testing.T) {
	fake := newFake(wellView())
	fake.entries = []journal.Entry{
		{Version: 1, Sequence: 4, At: someTime, Kind: journal.KindCondition, Subject: "NodeReady", From: "True", To: "False", Reason: "Lost", Message: "äöü \x1b[0m"},
		{Version: 1, Sequence: 5, At: someTime.Add(time.Second), Kind: "new", Data: []byte(`{"a":1}`)},
	}
	path, _ := serve(t, fake)
	from, to := someTime.In(time.FixedZone("east", 5400)), someTime.Add(123*time.Nanosecond)
	got, err := NewClient(path).History(t.Context(), from, to, 3)
	must(t, err)
	if !reflect.DeepEqual(got, fake.entries) {
		t.Errorf("got %+v, want %+v", got, fake.entries)
	}
	if !fake.asked.from.Equal(from) || !fake.asked.to.Equal(to) || fake.asked.limit != 3 {
		t.Errorf("the agent was asked for %+v", fake.asked)
	}
	_, err = NewClient(path).History(t.Context(), time.Time{}, time.Time{}, 0)
	must(t, err)
	if fake.asked != (span{}) {
		t.Errorf("without bounds the agent was asked for %+v", fake.asked)
	}
}

func TestTheClientPausesAndResumes(t *testing.T) {
	fake := newFake(wellView())
	path, _ := serve(t, fake)
	client := NewClient(path)
	until := time.Now().Add(time.Hour).UTC()
	must(t, client.Pause(t.Context(), journal.Pause{Version: 9, By: "jo", Reason: "new switch", Since: someTime, Until: &until}))
	must(t, client.Pause(t.Context(), journal.Pause{By: "al", Reason: "for good"}))
	must(t, client.Resume(t.Context(), "jo"))
	want := []journal.Pause{{By: "jo", Reason: "new switch", Until: &until}, {By: "al", Reason: "for good"}}
	if asJSON(t, fake.pauses) != asJSON(t, want) {
		t.Errorf("got %s, want %s", asJSON(t, fake.pauses), asJSON(t, want))
	}
	if len(fake.resumed) != 1 || fake.resumed[0] != "jo" {
		t.Errorf("got resumed by %q, want jo", fake.resumed)
	}
}

func TestTheClientSaysWhyTheAgentRefuses(t *testing.T) {
	path, _ := serve(t, newFake(wellView()))
	err := NewClient(path).Resume(t.Context(), "")
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Status != 400 || !strings.Contains(err.Error(), `"by" is missing: `) {
		t.Errorf("got error %v, want that by is missing and why that matters", err)
	}
}

func TestWithoutAnAgentTheClientSaysSo(t *testing.T) {
	path := socketIn(t)
	dead := socketIn(t)
	leaveDeadSocket(t, dead)
	for name, path := range map[string]string{
		"no socket":   path,
		"no folder":   filepath.Join(filepath.Dir(path), "none", socketName),
		"dead socket": dead,
	} {
		client := NewClient(path)
		_, err := client.View(t.Context(), 0)
		wantIs(t, err, ErrNotRunning)
		_, err = client.History(t.Context(), time.Time{}, time.Time{}, 0)
		wantIs(t, err, ErrNotRunning)
		wantIs(t, client.Pause(t.Context(), journal.Pause{By: "jo", Reason: "x"}), ErrNotRunning)
		err = client.Resume(t.Context(), "jo")
		wantIs(t, err, ErrNotRunning)
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got error %q, want it to name the socket", name, err)
		}
	}
}

func TestAnAgentThatIsSilentIsNotWaitedForForEver(t *testing.T) {
	path := socketIn(t)
	l, err := listen(path)
	must(t, err)
	defer l.Close() // nobody accepts: the kernel does
	client := NewClient(path)
	err = client.ask(t.Context(), time.Millisecond, http.MethodGet, "/v1/view", nil, nil, nil)
	wantIs(t, err, context.DeadlineExceeded)
	if !strings.Contains(err.Error(), "does not answer within 1ms") {
		t.Errorf("got error %q, want it to say how long it waited", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = client.View(ctx, 0)
	wantIs(t, err, context.DeadlineExceeded)
}

func TestWhatIsNoAgentIsNoAnswer(t *testing.T) {
	tests := []struct{ name, answer string }{
		{"no HTTP", "hello\n"},
		{"closes", ""},
		{"HTML", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"},
		{"an error without a reason", "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n{}"},
		{"half an answer", "HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n{}"},
		{"a redirect", "HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := socketIn(t)
			l, err := listen(path)
			must(t, err)
			served := make(chan struct{})
			go func() {
				defer close(served)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				answerWith(conn, tt.answer)
			}()
			_, err = NewClient(path).View(t.Context(), 0)
			if err == nil {
				t.Error("got no error, want one")
			}
			if errors.Is(err, ErrNotRunning) {
				t.Errorf("got %v: but something runs there", err)
			}
			must(t, l.Close())
			<-served
		})
	}
}

func answerWith(conn net.Conn, answer string) {
	_, _ = conn.Read(make([]byte, 4096))
	_, _ = conn.Write([]byte(answer))
}

func TestTheSocketLiesBesideTheSnapshot(t *testing.T) {
	got := SocketPath()
	if dir := filepath.Dir(got); filepath.Base(got) != "agent.sock" || filepath.Base(dir) != "aks-flex-node" {
		t.Errorf("got %s", got)
	}
}
