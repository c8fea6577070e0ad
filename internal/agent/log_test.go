package agent

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aks-flex-node/agent/pkg/config"
)

func TestSecretsStayOutOfTheLog(t *testing.T) {
	secret, token := "hunter"+`2"hunter2`, "abcdef"+".0123456789abcdef"
	jwt := "eyJhbGciOiJSUzI1NiJ9" + ".eyJzdWIiOiJub2RlIn0" + ".c2lnbmF0dXJl"
	cfg := &config.Config{}
	cfg.Azure.ServicePrincipal = &config.ServicePrincipalConfig{ClientSecret: secret}
	for _, form := range []string{"text", "json"} {
		var out bytes.Buffer
		l := NewLogs(&out)
		cfg.Agent.LogFormat = form
		l.Follow(cfg)
		l.WithField("output", "client_secret="+"other-secret").Infof("it said %s and %s and %s and Authorization: Bearer %s", secret, token, jwt, "abc.def-ghi_123")
		l.Close()
		<-l.queue.done
		for _, s := range []string{"hunter2", token, jwt, "abc.def-ghi_123", "other-secret"} {
			if strings.Contains(out.String(), s) {
				t.Errorf("%s: got %q, which shows %q", form, out.String(), s)
			}
		}
		if !strings.Contains(out.String(), "it said [redacted] and [redacted] and [redacted]") {
			t.Errorf("%s: got %q, want the rest of the sentence kept", form, out.String())
		}
	}
}

func TestWhatIsNoSecretIsLeftAlone(t *testing.T) {
	r := newRedactor(nil)
	for _, text := range []string{
		"kubelet.service failed (exit-code), restarted 3 times", "/var/lib/kubelet/kubeconfig: no such file", "v1.32.7-akslts", "node edge-1.westeurope.example",
		"6dae42f8-4368-4678-94ff-3960e28e3630", "the password is wrong",
	} {
		if got := r.redact(text); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
}

func TestALogFileIsKeptWhereTheConfigurationNamesAFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	cfg := &config.Config{}
	cfg.Agent.LogDir, cfg.Agent.LogLevel = dir, "debug"
	l := NewLogs(io.Discard)
	l.Follow(cfg)
	l.Debug("a first line")
	l.Follow(cfg) // a reload with the same folder goes on in the same file
	l.Debug("a second line")
	l.Close()
	<-l.queue.done
	text, err := os.ReadFile(filepath.Join(dir, logName))
	if err != nil || strings.Count(string(text), "\n") != 2 {
		t.Errorf("got %q, %v; want two lines", text, err)
	}
	if info, err := os.Stat(filepath.Join(dir, logName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want mode 0600", info.Mode(), err)
	}
}

func TestALogFileThatWasTakenAwayIsMadeAnewByAReload(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	cfg := &config.Config{}
	cfg.Agent.LogDir, cfg.Agent.LogLevel = dir, "debug"
	l := NewLogs(io.Discard)
	l.Follow(cfg)
	l.Debug("a first line")
	done := make(chan error)
	l.queue.do(func(*outputs) { done <- os.RemoveAll(dir) })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	l.Follow(cfg)
	l.Debug("a second line")
	l.Close()
	<-l.queue.done
	text, err := os.ReadFile(filepath.Join(dir, logName))
	if err != nil || !strings.Contains(string(text), "a second line") {
		t.Errorf("got %q, %v; want the line after the reload", text, err)
	}
}

func TestAFolderThatCantBeWrittenCostsOnlyTheFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cfg := &config.Config{}
	cfg.Agent.LogDir = dir
	l := NewLogs(&out)
	l.Follow(cfg)
	l.Info("goes on")
	l.Close()
	<-l.queue.done
	if got := out.String(); !strings.Contains(got, "No log file is kept") || !strings.Contains(got, "goes on") {
		t.Errorf("got %q, want the reason and the line", got)
	}
}

// hanging is an output that takes nothing until it is let go.
type hanging chan struct{}

func (h hanging) Write(p []byte) (int, error) {
	<-h
	return len(p), nil
}

func TestAnOutputThatHangsKeepsNobodyWaiting(t *testing.T) {
	out := make(hanging)
	l := NewLogs(out)
	for i := range 3 * maxLines {
		l.Info(i)
	}
	if l.queue.dropped.Load() == 0 {
		t.Error("got no line dropped, want those that do not fit")
	}
	l.Close() // it gives up waiting
	close(out)
	<-l.queue.done
}
