package status

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// maxSnapshotBytes bounds what is read and what is written. Real snapshots
// have about 1 KiB.
const maxSnapshotBytes = 1 << 20

// notSnapshotError is a file that was opened but doesn't hold a snapshot. Such
// a file may be replaced: there is nothing in it to keep.
type notSnapshotError struct {
	path string
	err  error
}

func (e *notSnapshotError) Error() string {
	return fmt.Sprintf("status file %s is not a snapshot: %v; it is replaced when the agent next writes one", e.path, e.err)
}

func (e *notSnapshotError) Unwrap() error { return e.err }

// LoadStatus reads the snapshot at [GetStatusFilePath]; see
// [LoadStatusFromFile].
func LoadStatus() (*NodeStatus, error) {
	return LoadStatusFromFile(GetStatusFilePath())
}

// LoadStatusFromFile reads the snapshot at path. Files of older and newer
// agents are fine: missing fields stay zero, unknown ones are ignored.
//
// When the file can't be opened, the operating system's error is returned as it
// is, so that os.IsNotExist and os.IsPermission work on it. Anything but one
// JSON object of the right types, in a regular file of at most 1 MiB, is an
// error. So is, in /tmp/aks-flex-node, a folder or file that is a link, belongs
// to neither this user nor root, or can be written by others. The result is nil
// exactly when the error isn't. No lock is taken: a reader sees a complete
// snapshot, the old or the new one, and never waits.
func LoadStatusFromFile(path string) (*NodeStatus, error) {
	return load(placeOf(path))
}

func load(p place) (*NodeStatus, error) {
	file, err := openSnapshot(p)
	if err != nil {
		return nil, err // unwrapped: part of the contract
	}
	defer func() { _ = file.Close() }()

	data, err := readSnapshot(p.path, file)
	if err != nil {
		return nil, err
	}
	s, err := decode(data)
	if err != nil {
		return nil, &notSnapshotError{p.path, err}
	}
	return s, nil
}

// openSnapshot never blocks: O_NONBLOCK keeps a FIFO in the snapshot's place
// from hanging its readers.
func openSnapshot(p place) (*os.File, error) {
	if p.guarded {
		return openGuarded(p)
	}
	return os.OpenFile(p.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func readSnapshot(path string, file *os.File) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read status file %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, &notSnapshotError{path, fmt.Errorf("it is not a regular file (%s)", kind(info.Mode()))}
	}
	if info.Size() > maxSnapshotBytes {
		return nil, &notSnapshotError{path, tooLarge(info.Size())}
	}
	// Bounded once more while reading, since the file may grow meanwhile.
	return readBounded(path, file)
}

func readBounded(path string, r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSnapshotBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read status file %s: %w", path, err)
	}
	if len(data) > maxSnapshotBytes {
		return nil, &notSnapshotError{path, tooLarge(int64(len(data)))}
	}
	return data, nil
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	default:
		return mode.Type().String()
	}
}

func tooLarge(size int64) error {
	return fmt.Errorf("it has %d bytes, and %d are allowed", size, maxSnapshotBytes)
}

// decode is strict where encoding/json is not: "null" would pass as an empty
// snapshot.
func decode(data []byte) (*NodeStatus, error) {
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	if len(trimmed) == 0 {
		return nil, errors.New("it is empty")
	}
	if trimmed[0] != '{' {
		return nil, errors.New("it holds no JSON object")
	}
	var s NodeStatus
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// encode is the form that nodes in the field have: two spaces, no newline at
// the end.
func encode(s *NodeStatus) ([]byte, error) {
	if s == nil {
		return nil, errors.New("there is no snapshot to write (nil)")
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	if len(data) > maxSnapshotBytes {
		return nil, fmt.Errorf("the snapshot would have %d bytes, and readers take %d", len(data), maxSnapshotBytes)
	}
	return data, nil
}
