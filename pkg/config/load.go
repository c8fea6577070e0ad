package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"syscall"
)

// maxFileSize is how large a config file may be; real ones have some kilobytes.
const maxFileSize = 1 << 20

// Result is what Load found.
type Result struct {
	// Config is complete: file, environment and defaults. When Load returned mistakes too, it holds what could be read
	// and is only good for showing.
	Config *Config
	// Warnings are what works but is most likely not meant: unknown keys, keys given twice, a file with secrets that
	// others can read. At most a hundred are kept.
	Warnings []Warning
}

// LoadConfig reads the config file at path as [Load] does and leaves the warnings out. The Config is nil when there is
// an error.
func LoadConfig(path string) (*Config, error) {
	result, err := Load(path)
	if err != nil {
		return nil, err
	}
	return result.Config, nil
}

// Load reads the config file at path, JSON or YAML of at most 1 MiB. Keys match in any letter case. Environment
// variables named AKS_NODE_CONTROLLER_ and the upper-cased path of a key, with _ between its parts, win over the file
// (AKS_NODE_CONTROLLER_AGENT_LOGLEVEL); maps are written k=v,k2=v2. Then SetDefaults and Validate are applied.
//
// A file that can't be read gives the operating system's error, wrapped, and one with broken syntax an error that says
// where; both come without a Result. Wrong values give a Result and an error that wraps [KeyErrors] with all of them.
func Load(path string) (*Result, error) {
	data, mode, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	result, err := load(path, data, mode, os.Environ())
	if err != nil {
		return result, fmt.Errorf("config %s: %w", path, err)
	}
	return result, nil
}

func readFile(path string) ([]byte, fs.FileMode, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	if os.Geteuid() == 0 && info.Mode().Perm()&0o002 != 0 {
		// What it says is done as root: it must not be everybody's to say.
		return nil, 0, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("everybody may write it (mode %04o), so root does not believe it: chmod o-w %s", info.Mode().Perm(), path)}
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // reading the file it is given is what it is for; not blocking, should it have become a pipe
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }() // only read from
	if info, err = file.Stat(); err != nil {
		return nil, 0, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err != nil {
		return nil, 0, err
	}
	if len(data) > maxFileSize {
		return nil, 0, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("larger than %d MiB", maxFileSize>>20)}
	}
	return data, info.Mode(), nil
}

// load is Load without the operating system.
func load(name string, data []byte, mode fs.FileMode, environ []string) (*Result, error) {
	root, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	cfg, r, keys := &Config{}, &report{}, allKeys()
	switch root.kind {
	case objectNode:
		d := decoder{report: r, keys: keys}
		d.section("", reflect.ValueOf(cfg).Elem(), root)
	case nullNode:
		r.warn("", "the file is empty")
	default:
		return nil, fmt.Errorf("want an object with keys, got %s", root.shape())
	}
	if secrets := cfg.Secrets(); len(secrets) > 0 && mode.Perm()&0o004 != 0 {
		r.warn("", "the file holds secrets and others can read it (mode %04o); take that right away with chmod o-r", mode.Perm())
	}
	r.override(cfg, keys, environ)
	r.hints(cfg)
	cfg.SetDefaults()
	r.validate(cfg)
	return &Result{Config: cfg, Warnings: r.warnings}, r.err()
}

// hints warns of values that are fine but will not do what they seem to.
func (r *report) hints(cfg *Config) {
	if value, ok := cfg.Node.Labels[managedLabel]; ok && value != managedValue {
		r.warn("node.labels."+managedLabel, "is always %s; the value given here is not used", managedValue)
	}
	if len(cfg.authModes()) == 0 {
		return // then what is incomplete is a mistake, and reported as such
	}
	if cfg.Azure.ServicePrincipal != nil && !cfg.IsSPConfigured() {
		r.warn("azure.servicePrincipal", "is incomplete and therefore not used")
	}
	if cfg.Azure.BootstrapToken != nil && !cfg.IsBootstrapTokenConfigured() {
		r.warn("azure.bootstrapToken", "is incomplete and therefore not used")
	}
}
