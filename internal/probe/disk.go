package probe

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
)

// diskPlaces are the folders whose file systems are looked at.
type diskPlaces struct {
	state      string   // where daemons keep theirs: looked at first
	kubelet    string   // unless the kubelet's --root-dir names another
	containerd string   // unless containerd says that it is another
	status     []string // of the snapshot: the first one that exists
}

// lookAtDisk asks each file system once, by the first of the folders on it. How little room is too little is for others to judge. A file
// system that hangs takes this look with it, and nothing else.
func (s *Suite) lookAtDisk(ctx context.Context, round time.Time) observe.Observation[observe.Disk] {
	args, _ := s.lastFacts(ctx, round).kubeletArgs()
	return judgeDisk(spaceOf(s.diskFolders(args), host.Space))
}

// diskFolders lists the folders to look at, the most important first.
func (s *Suite) diskFolders(kubeletArgs []string) []string {
	places := s.settings.disk
	folders := []string{places.state, cmp.Or(host.FlagValue(kubeletArgs, "root-dir"), places.kubelet), cmp.Or(s.cri.rootFolder(), places.containerd)}
	if status := firstFile(places.status); status != "" {
		folders = append(folders, status)
	}
	return folders
}

// spaceOf asks for the room left in each of the folders, once for each file system. A folder that is not there is passed over; err holds
// what else kept it from being told.
func spaceOf(folders []string, space func(path string) (observe.Space, error)) (d observe.Disk, err error) {
	seen := map[uint64]bool{}
	for _, folder := range folders {
		id, statErr := host.Identify(folder)
		if errors.Is(statErr, fs.ErrNotExist) || statErr == nil && seen[id.Dev] {
			continue
		}
		room, spaceErr := observe.Space{}, statErr
		if statErr == nil {
			room, spaceErr = space(folder)
		}
		if spaceErr != nil {
			err = errors.Join(err, spaceErr)
			continue
		}
		seen[id.Dev] = true
		d.Paths = append(d.Paths, room)
	}
	return d, err
}

// judgeDisk says what it means what could be told. One file system that can't be asked must not hide that another is full.
func judgeDisk(d observe.Disk, err error) observe.Observation[observe.Disk] {
	switch {
	case len(d.Paths) == 0 && errors.Is(err, fs.ErrPermission):
		return observe.CannotTell[observe.Disk](observe.ReasonPermissionDenied, "this user may not ask how much room is left: %v", err)
	case len(d.Paths) == 0 && err != nil:
		return observe.CannotTell[observe.Disk]("SpaceUnavailable", "how much room is left can't be told: %v", err)
	case len(d.Paths) == 0:
		return observe.CannotTell[observe.Disk](observe.ReasonNotInstalled, "none of the folders whose room matters is there")
	case err != nil:
		return observe.See(d, observe.Healthy, "PartlyKnown", "how much room is left is known of %d file systems, not of all: %v", len(d.Paths), err)
	}
	return observe.See(d, observe.Healthy, "SpaceKnown", "how much room is left is known of %d file systems", len(d.Paths))
}
