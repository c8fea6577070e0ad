package agent

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/aks-flex-node/agent/pkg/config"
)

const (
	logName = "aks-flex-node.log"
	// A log of the agent grows by a line for each change: these last for years on a healthy node and bound a sick one's.
	logMegabytes = 10
	logBackups   = 5
	logDays      = 90

	redacted = "[redacted]"
	// shortestSecret is how long a configured secret must be to be searched for: shorter ones would garble every text.
	shortestSecret = 6
)

func silent() *logrus.Logger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}

// Logs is the agent's logger, which follows its configuration. Whoever logs never waits for its outputs.
type Logs struct {
	*logrus.Logger
	queue  *logQueue
	secret atomic.Pointer[redactor]
}

// NewLogs returns a logger that writes to stderr until it is told a configuration. Close must end it.
func NewLogs(stderr io.Writer) *Logs {
	l := &Logs{Logger: logrus.New(), queue: newLogQueue(stderr)}
	l.secret.Store(newRedactor(nil))
	l.SetOutput(l.queue)
	l.SetFormatter(l.formatter("text"))
	return l
}

// Follow puts level, form and file of a configuration to use. A folder that can't be written is told, and costs only the file.
func (l *Logs) Follow(cfg *config.Config) {
	l.secret.Store(newRedactor(cfg))
	if level, err := logrus.ParseLevel(cfg.Agent.LogLevel); err == nil {
		l.SetLevel(level)
	}
	l.SetFormatter(l.formatter(cfg.Agent.LogFormat))
	dir := cfg.Agent.LogDir
	l.queue.do(func(out *outputs) {
		name := filepath.Join(dir, logName)
		if out.file != nil && out.name == name {
			// It is opened anew at the next line, and made anew if somebody took it away. Until then nothing is lost.
			if err := out.file.Close(); err != nil {
				out.write(l.line(fmt.Sprintf("Close the log file to open it anew: %v", err)))
			}
			return
		}
		out.close()
		if dir == "" {
			return
		}
		if err := writable(dir); err != nil {
			out.write(l.line(fmt.Sprintf("No log file is kept: %v", err)))
			return
		}
		out.name = name
		out.file = &lumberjack.Logger{Filename: name, MaxSize: logMegabytes, MaxBackups: logBackups, MaxAge: logDays}
	})
}

// line is a warning as the logger would write it.
func (l *Logs) line(message string) []byte {
	e := logrus.NewEntry(l.Logger)
	e.Time, e.Level, e.Message = time.Now(), logrus.WarnLevel, message
	text, err := e.Bytes()
	if err != nil {
		return []byte(message + "\n")
	}
	return text
}

// Close ends the logger: what was logged is written, unless its output hangs. What is logged after it is lost.
func (l *Logs) Close() {
	l.SetOutput(io.Discard)
	l.queue.end()
}

// writable makes the folder where it is missing, and says why nothing can be written there.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, logName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // the operator's own choice of a folder
	if err != nil {
		return err
	}
	return f.Close()
}

// formatter writes text or JSON, without secrets.
func (l *Logs) formatter(form string) logrus.Formatter {
	if form == "json" {
		return cleaned{&logrus.JSONFormatter{}, &l.secret}
	}
	return cleaned{&logrus.TextFormatter{DisableColors: true, FullTimestamp: true}, &l.secret}
}

type cleaned struct {
	logrus.Formatter
	secret *atomic.Pointer[redactor]
}

// Format implements logrus.Formatter.
func (c cleaned) Format(e *logrus.Entry) ([]byte, error) {
	text, err := c.Formatter.Format(e)
	return []byte(c.secret.Load().redact(string(text))), err
}

// redactor takes secrets out of texts: those of the configuration, and whatever has the shape of a token.
type redactor struct {
	known *strings.Replacer
	shape *regexp.Regexp
}

// shapes are those of a JSON web token, a Kubernetes bootstrap token, a bearer's header, and of words that name a secret before it.
const shapes = `(?i)eyJ[\w-]{8,}\.[\w-]{8,}(\.[\w-]*)?` +
	`|\b[a-z0-9]{6}\.[a-z0-9]{16}\b` +
	`|\bbearer\s+[\w.~+/=-]{8,}` +
	`|\b(client[_-]?secret|password|access[_-]?token|refresh[_-]?token)["']?\s*[=:]\s*["']?[^\s"',;&]{3,}`

func newRedactor(cfg *config.Config) *redactor {
	var pairs []string
	if cfg != nil {
		for _, s := range cfg.Secrets() {
			if len(s) < shortestSecret {
				continue
			}
			pairs = append(pairs, s, redacted)
			if quoted := strings.Trim(fmt.Sprintf("%q", s), `"`); quoted != s {
				pairs = append(pairs, quoted, redacted)
			}
		}
	}
	return &redactor{known: strings.NewReplacer(pairs...), shape: regexp.MustCompile(shapes)}
}

// redact returns text without what must not be shown.
func (r *redactor) redact(text string) string {
	return r.shape.ReplaceAllString(r.known.Replace(text), redacted)
}
