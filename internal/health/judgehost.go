package health

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

const (
	// shortCertificate is up to which lifetime a certificate counts as short-lived: then less than 7 days of it is no news.
	shortCertificate = 30 * 24 * time.Hour
	// certificateEnd is what must be left of one that is not short-lived.
	certificateEnd = 7 * 24 * time.Hour
	// certificateTenth is the share of its lifetime that must be left of any. The kubelet renews its certificate when 70 to 90 % of the
	// lifetime are over, at random, so that below this its rotation is overdue.
	certificateTenth = 10
	// maxClockOffset is how far off a clock may be. From about a minute on, tokens and fresh certificates are refused.
	maxClockOffset = 30 * time.Second
	// fewPercent is below which free share of bytes or inodes a file system warns: there the kubelet evicts pods by default (bytes).
	fewPercent = 10
	// tooFewPercent is below which it is bad.
	tooFewPercent = 5
	// snapshotOld is from which age on readers of the snapshot take it for stale.
	snapshotOld = 5 * time.Minute
)

// judged lets judge have its say about a value that the probe could see and found nothing wrong with.
func judged[T any](o observe.Observation[T], judge func(T) Verdict) Verdict {
	v := take(o.Verdict())
	if o.Health == observe.Healthy {
		v = judge(o.Value)
		v.At = o.At
	}
	return v
}

func judgeCertificate(now time.Time, in Input) Verdict {
	if in.Certificate.Value.Plugin {
		return Verdict{}
	}
	return judged(in.Certificate, func(c observe.Certificate) Verdict {
		lifetime, left := c.NotAfter.Sub(c.NotBefore), c.NotAfter.Sub(now)
		switch {
		case c.NotAfter.IsZero():
			return Verdict{Status: Unknown, Reason: "NoExpiry", Message: "the certificate " + c.Path + " does not say when it ends"}
		case left <= 0:
			return Verdict{Status: False, Reason: "Expired", Message: fmt.Sprintf("the certificate %s expired %s ago, on %s", c.Path, days(-left), date(c.NotAfter))}
		case now.Before(c.NotBefore):
			return Verdict{Status: False, Reason: "NotYetValid", Message: fmt.Sprintf("the certificate %s is valid only from %s on: is the clock right?", c.Path, date(c.NotBefore))}
		case left < lifetime/certificateTenth:
			return Verdict{Status: True, Severity: Warning, Reason: "RotationOverdue",
				Message: fmt.Sprintf("the certificate %s ends in %s, on %s; the kubelet should have renewed it", c.Path, days(left), date(c.NotAfter))}
		case lifetime > shortCertificate && left < certificateEnd:
			return Verdict{Status: True, Severity: Warning, Reason: "ExpiresSoon", Message: fmt.Sprintf("the certificate %s ends in %s, on %s", c.Path, days(left), date(c.NotAfter))}
		}
		return Verdict{Status: True, Reason: "Valid", Message: fmt.Sprintf("the certificate %s is valid for %s, until %s", c.Path, days(left), date(c.NotAfter))}
	})
}

func judgeClock(_ time.Time, in Input) Verdict {
	return judged(in.Clock, func(c observe.Clock) Verdict {
		switch {
		case c.Offset.Abs() > maxClockOffset:
			return Verdict{Status: False, Reason: "ClockOff", Message: fmt.Sprintf("the clock is off by %s", c.Offset.Abs().Round(time.Second))}
		case !c.Synchronized:
			return Verdict{Status: False, Reason: "NotSynchronized", Message: "the kernel says that nothing keeps the clock in step"}
		}
		return Verdict{Status: True, Reason: "Synchronized", Message: "the clock is kept in step"}
	})
}

// judgeDisk names every path that is short of something, and goes by the worst.
func judgeDisk(_ time.Time, in Input) Verdict {
	return judged(in.Disk, func(d observe.Disk) Verdict {
		least := 100.0
		var short []string
		note := func(percent float64, counted bool, what, path string) {
			if !counted {
				return
			}
			if percent < fewPercent {
				short = append(short, fmt.Sprintf("%s has %.1f %% of its %s free", path, math.Floor(percent*10)/10, what))
			}
			least = min(least, percent)
		}
		for _, s := range d.Paths {
			bytes, counted := s.BytesFreePercent()
			note(bytes, counted, "space", s.Path)
			inodes, counted := s.InodesFreePercent()
			note(inodes, counted, "inodes", s.Path)
		}
		message := strings.Join(short, ", ")
		switch {
		case least < tooFewPercent:
			return Verdict{Status: False, Reason: "AlmostFull", Message: message}
		case least < fewPercent:
			return Verdict{Status: True, Severity: Warning, Reason: "GettingFull", Message: message}
		}
		return Verdict{Status: True, Reason: "EnoughSpace", Message: fmt.Sprintf("at least %.0f %% are free everywhere", least)}
	})
}

func judgeStatusFile(now time.Time, in Input) Verdict {
	return judged(in.StatusFile, func(f observe.StatusFile) Verdict {
		if age := now.Sub(f.Written); !f.Written.IsZero() && age > snapshotOld {
			return Verdict{Status: False, Reason: "Stale", Message: fmt.Sprintf("the snapshot %s was last written %s ago", f.Path, age.Round(time.Second))}
		}
		return Verdict{Status: True, Reason: "Written", Message: "the snapshot " + f.Path + " is being written"}
	})
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// days is a length of time as people say it of certificates.
func days(d time.Duration) string {
	if d < 48*time.Hour {
		return d.Round(time.Minute).String()
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}
