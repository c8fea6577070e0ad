package version

import (
	"runtime"
	"runtime/debug"
	"testing"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

func buildInfo(module string, settings ...string) *debug.BuildInfo {
	info := &debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: module}}
	for i := 0; i < len(settings); i += 2 {
		info.Settings = append(info.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
	}
	return info
}

func TestDescribe(t *testing.T) {
	for _, tc := range []struct {
		name  string
		stamp string
		info  *debug.BuildInfo
		want  Build
	}{
		{
			name:  "given a stamp, it wins over the build information",
			stamp: "v0.4.0",
			info:  buildInfo("v0.3.0", "vcs.revision", commit, "vcs.time", "2026-01-15T17:47:26Z", "vcs.modified", "false"),
			want:  Build{Version: "v0.4.0", Commit: commit, Date: "2026-01-15T17:47:26Z"},
		},
		{
			name:  "given a stamp of a changed tree, the build is modified even where the build information is missing",
			stamp: "v0.4.0-3-g0123456-dirty",
			want:  Build{Version: "v0.4.0-3-g0123456-dirty", Modified: true},
		},
		{
			name: "given no stamp, the module version names the build",
			info: buildInfo("v0.3.0"),
			want: Build{Version: "v0.3.0"},
		},
		{
			name: "given neither stamp nor module version, the commit names the build",
			info: buildInfo("(devel)", "vcs.revision", commit),
			want: Build{Version: "0123456789ab", Commit: commit},
		},
		{
			name: "given a commit and a changed tree, the name says so",
			info: buildInfo("", "vcs.revision", commit, "vcs.modified", "true"),
			want: Build{Version: "0123456789ab-dirty", Commit: commit, Modified: true},
		},
		{
			name: "given a commit shorter than a hash, it is kept whole",
			info: buildInfo("", "vcs.revision", "abc"),
			want: Build{Version: "abc", Commit: "abc"},
		},
		{
			name: "given only what says that nothing is known, it is a development build",
			info: buildInfo("(devel)"),
			want: Build{Version: "dev"},
		},
		{
			name: "given another program that imports our packages, the version of our module counts, not its own",
			info: &debug.BuildInfo{
				Main:     debug.Module{Path: "example.com/other", Version: "v9.9.9"},
				Deps:     []*debug.Module{{Path: "example.com/x", Version: "v1.0.0"}, {Path: modulePath, Version: "v0.3.0"}},
				Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "true"}},
			},
			want: Build{Version: "v0.3.0"},
		},
		{
			name: "given no build information at all, it is a development build",
			want: Build{Version: "dev"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.want.GoVersion = runtime.Version()
			tc.want.Platform = runtime.GOOS + "/" + runtime.GOARCH
			if got := describe(tc.stamp, tc.info); got != tc.want {
				t.Errorf("describe(%q):\n got %+v\nwant %+v", tc.stamp, got, tc.want)
			}
		})
	}
}

func TestStringIsTheVersionOfInfo(t *testing.T) {
	got, want := String(), Info().Version
	if got != want || got == "" {
		t.Errorf("String() = %q, want the version of Info(), %q, and not empty", got, want)
	}
}
