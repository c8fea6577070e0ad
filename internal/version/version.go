// Package version says which build of the agent this is.
//
// A release build is stamped by the linker; any other build is described by what the Go toolchain wrote into the
// binary. The package only reads: it imports nothing of ours and has no state that changes after the program started.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// version is stamped by the linker with -X, which can set only a package variable; empty when it was not.
var version string

const modulePath = "github.com/aks-flex-node/agent"

// unstamped is what a build is called that carries neither a stamp nor build information.
const unstamped = "dev"

// Build describes one build of the agent. A field that the build did not record is empty.
type Build struct {
	Version   string `json:"version"`          // as String returns it, never empty
	Commit    string `json:"commit,omitempty"` // full hash of the commit the source was at
	Date      string `json:"date,omitempty"`   // time of that commit, RFC 3339 in UTC
	GoVersion string `json:"goVersion"`        // of the toolchain, such as "go1.26.7"
	Platform  string `json:"platform"`         // operating system and architecture, such as "linux/arm64"
	Modified  bool   `json:"modified"`         // the source differed from the commit
}

// String returns the version of this build: the linker's stamp, else the module version or commit from the build
// information, else "dev". It is never empty.
func String() string { return Info().Version }

// Info returns all that is known about this build. Safe for concurrent use.
func Info() Build {
	info, _ := debug.ReadBuildInfo()
	return describe(version, info)
}

// describe joins the linker's stamp and the toolchain's build information, which is nil when the binary has none.
func describe(stamp string, info *debug.BuildInfo) Build {
	b := Build{GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		info = &debug.BuildInfo{}
	}
	module := info.Main.Version
	if info.Main.Path == modulePath {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Date = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	} else {
		// Another program that imports our packages: its own version and commit say nothing about ours.
		module = dependency(info)
	}
	if module == "(devel)" { // how the toolchain says that it does not know
		module = ""
	}
	b.Modified = b.Modified || strings.HasSuffix(stamp, "-dirty")
	b.Version = cmp.Or(stamp, module, shortCommit(b), unstamped)
	return b
}

// dependency returns the version of our module among those that a program was built with, or empty.
func dependency(info *debug.BuildInfo) string {
	for _, m := range info.Deps {
		if m.Path == modulePath {
			return m.Version
		}
	}
	return ""
}

// shortCommit names a build after its commit, the way `git describe --always --dirty` does; empty without a commit.
func shortCommit(b Build) string {
	if b.Commit == "" {
		return ""
	}
	short := b.Commit[:min(len(b.Commit), 12)]
	if b.Modified {
		short += "-dirty"
	}
	return short
}
