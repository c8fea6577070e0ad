package status

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/sirupsen/logrus"
)

// MarkKubeletUnhealthyBestEffort marks the snapshot at [GetStatusFilePath] with
// the present time; see [MarkKubeletUnhealthyBestEffortAtPath].
func MarkKubeletUnhealthyBestEffort(logger *logrus.Logger) {
	MarkKubeletUnhealthyBestEffortAtPath(logger, GetStatusFilePath(), time.Time{})
}

// MarkKubeletUnhealthyBestEffortAtPath makes the snapshot at statusFilePath say
// that the kubelet can't be relied on, which makes NeedsBootstrap say yes: not
// running, readiness "Unknown", version "unknown", written by
// [LastUpdatedByDriftDetectionAndRemediation] because of
// [LastUpdatedReasonKubernetesVersionDrift] at the time now (a zero now means
// the present). The rest of the snapshot is kept; where there is none, or only
// a broken one, a minimal one is made.
//
// What can't be done is logged at debug and otherwise ignored. A nil logger is
// fine.
func MarkKubeletUnhealthyBestEffortAtPath(logger *logrus.Logger, statusFilePath string, now time.Time) {
	mark(logger, placeOf(statusFilePath), now)
}

func mark(logger *logrus.Logger, p place, now time.Time) {
	if now.IsZero() {
		now = time.Now()
	}
	err := update(p, func(s *NodeStatus) error {
		s.KubeletRunning = false
		s.KubeletReady = readyUnknown
		s.KubeletVersion = versionUnknown
		s.LastUpdated = now.UTC()
		s.LastUpdatedBy = LastUpdatedByDriftDetectionAndRemediation
		s.LastUpdatedReason = LastUpdatedReasonKubernetesVersionDrift
		return nil
	})
	if err != nil {
		orSilent(logger).WithError(err).Debug("The snapshot could not be marked: kubelet unhealthy")
	}
}

// RemoveStatusFileBestEffort removes the snapshot at [GetStatusFilePath]; see
// [RemoveStatusFileBestEffortAtPath].
func RemoveStatusFileBestEffort(logger *logrus.Logger) {
	RemoveStatusFileBestEffortAtPath(logger, GetStatusFilePath())
}

// RemoveStatusFileBestEffortAtPath removes the snapshot at statusFilePath, so
// that the next look at this node starts from nothing. A link there is removed
// itself, not what it leads to. A missing file or folder is success. What can't
// be done is logged at debug and otherwise ignored. A nil logger is fine.
func RemoveStatusFileBestEffortAtPath(logger *logrus.Logger, statusFilePath string) {
	remove(logger, placeOf(statusFilePath))
}

func remove(logger *logrus.Logger, p place) {
	logger = orSilent(logger)
	if err := tryRemove(logger, p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.WithError(err).Debug("The snapshot could not be removed")
	}
}

func tryRemove(logger *logrus.Logger, p place) error {
	if err := p.checkName(); err != nil {
		return err
	}
	f, err := openFolder(p)
	if err != nil {
		return fmt.Errorf("open the folder of status file %s: %w%s", p.path, err, advice(err))
	}
	defer f.close()
	// Before the lock, so that removing nothing leaves no lock file behind.
	if _, err := f.root.Lstat(p.base); err != nil {
		return err
	}
	// The lock keeps a running Update from bringing the file back. Removal is
	// atomic without it, so a full disk or a process that hangs is no reason
	// to keep the file.
	if unlock, err := f.lock(); err == nil {
		defer unlock()
	} else {
		logger.WithError(err).Debug("Removing the snapshot without its lock")
	}
	if err := f.root.Remove(p.base); err != nil {
		return fmt.Errorf("remove status file %s: %w%s", p.path, err, advice(err))
	}
	return nil
}

// orSilent stands in for a logger that wasn't given.
func orSilent(logger *logrus.Logger) *logrus.Logger {
	if logger != nil {
		return logger
	}
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	return silent
}
