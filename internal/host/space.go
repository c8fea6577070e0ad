package host

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/internal/observe"
)

// Space returns the room on the file system that holds path. The error tells with errors.Is(err, fs.ErrNotExist) that there is no such
// path. On a network file system whose server is away it hangs for as long as that is.
func Space(path string) (observe.Space, error) {
	var st unix.Statfs_t
	var err error
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Statfs(path, &st)
	}
	if err != nil {
		return observe.Space{}, fmt.Errorf("look at the room on the file system of %s: %w", path, err)
	}
	block := uint64(cmp.Or(st.Frsize, st.Bsize)) //nolint:gosec // sizes of blocks are positive
	return observe.Space{
		Path:       path,
		Bytes:      st.Blocks * block,
		BytesFree:  st.Bavail * block,
		Inodes:     st.Files,
		InodesFree: st.Ffree,
	}, nil
}
