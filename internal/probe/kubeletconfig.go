package probe

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/aks-flex-node/agent/internal/host"
)

// maxKubeletConfig bounds the kubelet's configuration file, in bytes.
const maxKubeletConfig = 1 << 20

// kubeletConfig is what we need of the kubelet's configuration (kubelet.config.k8s.io/v1beta1, KubeletConfiguration).
type kubeletConfig struct {
	HealthzBindAddress       string `json:"healthzBindAddress"`
	HealthzPort              *int   `json:"healthzPort"` // nil: the default; 0: off
	ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
}

// fileCache keeps what was made of a file as long as the file stays the same.
type fileCache[T any] struct {
	mu    sync.Mutex
	known map[string]fileEntry[T]
}

type fileEntry[T any] struct {
	id    host.Identity
	value T
}

func (c *fileCache[T]) get(path string, load func(path string) (T, error)) (T, error) {
	var none T
	id, err := host.Identify(path)
	if err != nil {
		return none, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.known[path]; ok && e.id == id {
		return e.value, nil
	}
	value, err := load(path)
	if err != nil {
		return none, err
	}
	if c.known == nil || len(c.known) >= maxVersions {
		c.known = map[string]fileEntry[T]{}
	}
	c.known[path] = fileEntry[T]{id, value}
	return value, nil
}

func loadKubeletConfig(path string) (kubeletConfig, error) {
	b, err := host.ReadFile(path, maxKubeletConfig)
	if err != nil {
		return kubeletConfig{}, err
	}
	return parseKubeletConfig(b)
}

func parseKubeletConfig(b []byte) (kubeletConfig, error) {
	var c kubeletConfig
	err := yaml.Unmarshal(b, &c)
	return c, err
}

// kubeletConfigOf returns the kubelet's effective settings as far as we need them: its configuration file, the drop-ins of its
// --config-dir in the order of their names, and the flags, which win. A file that can't be read leaves the defaults; err says so.
func (s *Suite) kubeletConfigOf(args []string, argsKnown bool) (kubeletConfig, error) {
	path := host.FlagValue(args, "config")
	if path == "" && !argsKnown {
		path = s.settings.kubeletConfig
	}
	var c kubeletConfig
	var err error
	if path != "" {
		if c, err = s.parsed.get(path, loadKubeletConfig); os.IsNotExist(err) && !argsKnown {
			err = nil
		}
	}
	if dir := host.FlagValue(args, "config-dir"); dir != "" {
		for _, f := range dropIns(dir) {
			if over, loadErr := s.parsed.get(f, loadKubeletConfig); loadErr == nil {
				c = c.overriddenBy(over)
			}
		}
	}
	return c.overriddenBy(flagSettings(args)), err
}

// dropIns lists the files that the kubelet reads from its --config-dir, in its order: by name, also those in folders below.
func dropIns(dir string) (files []string) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error { // what can't be read is passed over
		if err == nil && !e.IsDir() && filepath.Ext(path) == ".conf" {
			files = append(files, path)
		}
		return nil
	})
	return files
}

func (c kubeletConfig) overriddenBy(o kubeletConfig) kubeletConfig {
	if o.HealthzBindAddress != "" {
		c.HealthzBindAddress = o.HealthzBindAddress
	}
	if o.HealthzPort != nil {
		c.HealthzPort = o.HealthzPort
	}
	if o.ContainerRuntimeEndpoint != "" {
		c.ContainerRuntimeEndpoint = o.ContainerRuntimeEndpoint
	}
	return c
}
