package status

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestGoldenFileLoadsCompletely(t *testing.T) {
	got, err := LoadStatusFromFile(filepath.Join("testdata", "full.json"))
	must(t, err)
	if want := fullSnapshot(); *got != *want {
		t.Errorf("got  %+v\nwant %+v", *got, *want)
	}
}

func TestLoadsFilesOfOtherAgents(t *testing.T) {
	tests := map[string]struct {
		content string
		want    NodeStatus
	}{
		"an empty object": {`{}`, NodeStatus{}},
		"white space around": {
			" \r\n\t{\"kubeletVersion\": \"1.30.0\"}\n\n",
			NodeStatus{KubeletVersion: "1.30.0"},
		},
		"an older agent's, without fields that came later": {
			`{"kubeletVersion":"1.30.0","kubeletRunning":true}`,
			NodeStatus{KubeletVersion: "1.30.0", KubeletRunning: true},
		},
		"a newer agent's, with fields of its own": {
			`{"schema":9,"kubeletReady":"Ready","disks":[{"a":{"b":[1,2]}}],"arcStatus":{"connected":true,"mood":"good"}}`,
			NodeStatus{KubeletReady: "Ready", ArcStatus: ArcStatus{Connected: true}},
		},
		"values of the future": {
			`{"kubeletReady":"Perhaps","lastUpdatedBy":"Someone","lastUpdatedReason":"new"}`,
			NodeStatus{KubeletReady: "Perhaps", LastUpdatedBy: "Someone", LastUpdatedReason: "new"},
		},
		"null for a field": {`{"kubeletVersion":null,"arcStatus":null}`, NodeStatus{}},
		"a heartbeat in another time zone": {
			`{"arcStatus":{"lastHeartbeat":"2026-01-15T19:47:26+02:00"}}`,
			NodeStatus{ArcStatus: ArcStatus{LastHeartbeat: time.Date(2026, 1, 15, 17, 47, 26, 0, time.UTC)}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "status.json")
			writeFile(t, path, tt.content)
			got, err := LoadStatusFromFile(path)
			must(t, err)
			got.ArcStatus.LastHeartbeat = got.ArcStatus.LastHeartbeat.UTC()
			if *got != tt.want {
				t.Errorf("got  %+v\nwant %+v", *got, tt.want)
			}
		})
	}
}

func brokenContents(t testing.TB) map[string]string {
	t.Helper()
	full, err := os.ReadFile(filepath.Join("testdata", "full.json"))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"nothing":                   "",
		"white space":               " \n",
		"zero bytes":                "\x00\x00\x00\x00",
		"null":                      "null",
		"an array":                  `[{"kubeletVersion":"1.30.0"}]`,
		"a string":                  `"{}"`,
		"a number":                  "1",
		"true":                      "true",
		"a truncated snapshot":      string(full[:len(full)/2]),
		"all but the last byte":     string(full[:len(full)-1]),
		"text after the snapshot":   string(full) + "x",
		"two snapshots":             string(full) + string(full),
		"a byte order mark":         "\ufeff" + string(full),
		"text where a boolean goes": `{"kubeletRunning":"yes"}`,
		"a number for a version":    `{"kubeletVersion":1.30}`,
		"a date that is none":       `{"lastUpdated":"yesterday"}`,
		"an empty date":             `{"lastUpdated":""}`,
		"arcStatus as text":         `{"arcStatus":"fine"}`,
		"very deep JSON":            `{"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`,
		"very deep open JSON":       strings.Repeat(`{"x":`, 100_000),
	}
}

func TestRefusesWhatIsNoSnapshot(t *testing.T) {
	for name, content := range brokenContents(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "status.json")
			writeFile(t, path, content)
			s, err := LoadStatusFromFile(path)
			assertNotASnapshot(t, path, s, err)
		})
	}
}

func assertNotASnapshot(t *testing.T, path string, s *NodeStatus, err error) {
	t.Helper()
	if _, ok := errors.AsType[*notSnapshotError](err); !ok {
		t.Fatalf("got error %v, want one that says it is not a snapshot", err)
	}
	if s != nil {
		t.Errorf("got a snapshot beside the error: %+v", s)
	}
	if !strings.Contains(err.Error(), path) {
		t.Errorf("the error doesn't name %s: %v", path, err)
	}
}

func TestRefusesWhatIsNoRegularFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600)) // without writer: a blocking open would hang here
	for _, path := range []string{fifo, dir, "/dev/null", "/dev/zero"} {
		t.Run(path, func(t *testing.T) {
			s, err := LoadStatusFromFile(path)
			assertNotASnapshot(t, path, s, err)
		})
	}
}

func TestRefusesANamedPipeInTheGuessableFolder(t *testing.T) {
	p := guessable(t)
	must(t, os.Remove(p.path))
	must(t, syscall.Mkfifo(p.path, 0o600))
	s, err := load(p)
	assertNotASnapshot(t, p.path, s, err)
}

func TestReadsOneMebibyteAndNotAByteMore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	snapshot := `{"kubeletVersion":"1.30.0"}`

	writeFile(t, path, snapshot+strings.Repeat(" ", maxSnapshotBytes-len(snapshot)))
	s, err := LoadStatusFromFile(path)
	must(t, err)
	if s.KubeletVersion != "1.30.0" {
		t.Errorf("got %+v", s)
	}

	writeFile(t, path, snapshot+strings.Repeat(" ", maxSnapshotBytes-len(snapshot)+1))
	s, err = LoadStatusFromFile(path)
	assertNotASnapshot(t, path, s, err)
}

func TestRefusesAHugeFileUnread(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	writeFile(t, path, "{")
	must(t, os.Truncate(path, 10<<30)) // sparse: takes no space
	s, err := LoadStatusFromFile(path)
	assertNotASnapshot(t, path, s, err)
	if !strings.Contains(err.Error(), "10737418240 bytes") {
		t.Errorf("the error doesn't give the size: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestRefusesAFileThatGrowsWhileItIsRead(t *testing.T) {
	data, err := readBounded("status.json", endless{})
	if _, ok := errors.AsType[*notSnapshotError](err); !ok || data != nil {
		t.Errorf("got %d bytes and error %v, want one that says it is too large", len(data), err)
	}
}

func TestRefusesAFileWithoutSizeThatHoldsOtherText(t *testing.T) {
	const path = "/proc/self/status" // regular, and of size 0 as stat has it
	s, err := LoadStatusFromFile(path)
	assertNotASnapshot(t, path, s, err)
}

func TestOpenErrorsComeUnwrapped(t *testing.T) {
	dir := t.TempDir()
	loop := filepath.Join(dir, "loop")
	must(t, os.Symlink(loop, loop))
	file := filepath.Join(dir, "file")
	writeFile(t, file, "{}")
	missing := filepath.Join(dir, "missing.json")
	tests := map[string]struct {
		place place
		want  syscall.Errno
	}{
		"no path":                    {placeIn("", dir), syscall.ENOENT},
		"no file":                    {placeIn(missing, ""), syscall.ENOENT},
		"no folder":                  {placeIn(filepath.Join(dir, "no", "status.json"), ""), syscall.ENOENT},
		"a file as folder":           {placeIn(filepath.Join(file, "status.json"), ""), syscall.ENOTDIR},
		"a loop of links":            {placeIn(loop, ""), syscall.ELOOP},
		"no file, guessable folder":  {placeIn(missing, dir), syscall.ENOENT},
		"guessable folder is absent": {placeIn(filepath.Join(dir, "no", "status.json"), filepath.Join(dir, "no")), syscall.ENOENT},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := load(tt.place)
			if s != nil {
				t.Errorf("got a snapshot: %+v", s)
			}
			want := &fs.PathError{Op: "open", Path: tt.place.path, Err: tt.want}
			if !reflect.DeepEqual(err, want) { // errors.Is would not see a wrapper
				t.Errorf("got %#v, want %#v", err, want)
			}
			if got, want := os.IsNotExist(err), tt.want == syscall.ENOENT; got != want {
				t.Errorf("os.IsNotExist: got %v, want %v", got, want)
			}
		})
	}
}

func TestPermissionErrorComesUnwrapped(t *testing.T) {
	needsRoot(t, "becomes another user")
	path := filepath.Join(sharedFolder(t), "status.json")
	writeFile(t, path, "{}")
	out, err := helper(t, "load", path, uidVariable+"=65534").CombinedOutput()
	if want := "open " + path + ": permission denied\n"; err == nil || string(out) != want {
		t.Errorf("got %q (%v), want %q", out, err, want)
	}
}

func TestALinkOutsideTheGuessableFolderIsFollowed(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "real.json"), `{"kubeletVersion":"1.30.0"}`)
	link := filepath.Join(dir, "status.json")
	must(t, os.Symlink("real.json", link))
	s, err := LoadStatusFromFile(link)
	must(t, err)
	if s.KubeletVersion != "1.30.0" {
		t.Errorf("got %+v", s)
	}
}

func FuzzLoadStatusFromFile(f *testing.F) {
	for _, content := range brokenContents(f) {
		f.Add([]byte(content))
	}
	for _, name := range []string{"full.json", "zero.json"} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte(`{"KUBELETVERSION":"1","kubeletVersion":"2","lastUpdated":"9999-12-31T23:59:59.999999999+23:59"}`))
	f.Add([]byte("{\"agentVersion\":\"\xff\xfe\\ud800\"}"))
	path := filepath.Join(memoryFolder(f), "status.json")
	f.Fuzz(func(t *testing.T, content []byte) {
		must(t, os.WriteFile(path, content, 0o600))
		s, err := LoadStatusFromFile(path)
		if (s == nil) != (err != nil) {
			t.Fatalf("got snapshot %v with error %v", s, err)
		}
		if err != nil {
			if _, ok := errors.AsType[*notSnapshotError](err); !ok {
				t.Fatalf("got error %v, want one that says it is not a snapshot", err)
			}
			return
		}
		// What loads can be kept: writing and loading it changes nothing.
		data, err := encode(s)
		if err != nil {
			t.Fatalf("what was loaded can't be written: %v", err)
		}
		again, err := decode(data)
		if err != nil {
			t.Fatalf("what was written can't be loaded: %v", err)
		}
		data2, err := encode(again)
		if err != nil || string(data2) != string(data) {
			t.Fatalf("got %s (%v)\nwant %s", data2, err, data)
		}
	})
}
