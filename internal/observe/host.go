package observe

import "time"

// Certificate is the client certificate with which the kubelet proves to the API server who it is.
type Certificate struct {
	// Plugin: a credential plugin (or a token) speaks for the kubelet instead, and there is no certificate; the other fields are zero then.
	Plugin bool   `json:"plugin,omitempty"`
	Path   string `json:"path,omitempty"`
	// Subject is its common name, such as system:node:edge-1.
	Subject   string    `json:"subject,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
}

// Clock is what is known of how right this host's clock is.
type Clock struct {
	// Synchronized is the kernel's word: something keeps the clock in step with others.
	Synchronized bool `json:"synchronized"`
	// Offset is how far the clock is ahead of a clock elsewhere that counts as right, in nanoseconds; zero when it was not compared.
	Offset time.Duration `json:"offset,omitempty"`
	// MaxError is the kernel's bound of how wrong the clock may be, in nanoseconds; zero when it gives none.
	MaxError time.Duration `json:"maxError,omitempty"`
}

// Host is one look at what feeds conditions and not the snapshot. A subject that was not looked at is the zero observation.
type Host struct {
	Certificate Observation[Certificate] `json:"certificate"`
	Clock       Observation[Clock]       `json:"clock"`
	Disk        Observation[Disk]        `json:"disk"`
}

// Disk is the room left on the file systems that the node can't do without.
type Disk struct {
	Paths []Space `json:"paths,omitempty"`
}

// Space is the room left on the file system of one folder. A total of zero means that the file system does not count that.
type Space struct {
	Path       string `json:"path"`
	Bytes      uint64 `json:"bytes,omitempty"` // in all
	BytesFree  uint64 `json:"bytesFree"`       // for users without privileges, as the kubelet counts
	Inodes     uint64 `json:"inodes,omitempty"`
	InodesFree uint64 `json:"inodesFree"`
}

// BytesFreePercent is the free share, from 0 to 100; ok is false where bytes are not counted.
func (s Space) BytesFreePercent() (percent float64, ok bool) { return share(s.BytesFree, s.Bytes) }

// InodesFreePercent is the free share, from 0 to 100; ok is false where inodes are not counted, as on btrfs.
func (s Space) InodesFreePercent() (percent float64, ok bool) { return share(s.InodesFree, s.Inodes) }

func share(free, total uint64) (percent float64, ok bool) {
	if total == 0 {
		return 0, false
	}
	return min(100, 100*float64(free)/float64(total)), true
}

// StatusFile is how the writing of the snapshot goes. Its observation is unhealthy while the last write failed.
type StatusFile struct {
	Path string `json:"path,omitempty"`
	// Written is when it was last written with success; zero when it was not yet.
	Written time.Time `json:"written,omitzero"`
}

// sameRound is how far apart looks that began together may end.
const sameRound = 5 * time.Second

// ContainerdAnswers reports whether containerd answered in the look in which its unit was last seen, or later. An answer from before the
// unit was seen down says nothing. What answers runs, whatever started it.
func (s *Set) ContainerdAnswers() bool {
	c := s.Containerd
	return c.Known() && c.Value.Answers && !c.At.Before(s.ContainerdUnit.At.Add(-sameRound))
}

// KubeletAnswers reports the same of the kubelet: that its health endpoint said it is healthy.
func (s *Set) KubeletAnswers() bool {
	k := s.KubeletHealth
	return k.Health == Healthy && !k.At.Before(s.KubeletUnit.At.Add(-sameRound))
}
