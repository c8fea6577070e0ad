package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// long makes a journal with a history of n entries and returns its path and size.
func long(b *testing.B, dir string, n int) (path string, size int64) {
	b.Helper()
	path = filepath.Join(dir, "journal.db")
	h := newHost()
	j, _, err := Open(path, h.Moment, Options{NoSync: true})
	must(b, err)
	for range n {
		must(b, j.Record(h.run(time.Minute), Entry{Kind: KindCondition, Subject: "NodeReady", From: "True", To: "False", Reason: "KubeletNotReady",
			Message: "the kubelet says that the container runtime network is not ready, since 2 minutes"}))
	}
	must(b, j.Close())
	info, err := os.Stat(path)
	must(b, err)
	return path, info.Size()
}

func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{0, 100, maxHistory} {
		b.Run(fmt.Sprint(n, " entries"), func(b *testing.B) {
			path, size := long(b, b.TempDir(), n)
			b.ReportAllocs()
			for b.Loop() {
				j, _, err := Open(path, newHost().Moment, Options{})
				must(b, err)
				must(b, j.Close())
			}
			b.ReportMetric(float64(size), "bytes/file")
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	path, size := long(b, b.TempDir(), maxHistory)
	f, err := os.Open(path)
	must(b, err)
	defer func() { _ = f.Close() }()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := checkFile(f, size, func(bucket, key, value []byte) error {
			_, err := unseal(bucket, key, value)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, n := range []int{0, maxHistory} {
		b.Run(fmt.Sprint("after ", n), func(b *testing.B) {
			path, _ := long(b, b.TempDir(), n)
			h := newHost()
			j := openSound(b, path, h.Moment)
			b.ReportAllocs()
			for b.Loop() {
				must(b, j.Record(h.run(time.Second), Entry{Kind: KindCondition, Message: "changed"}))
			}
		})
	}
}

func BenchmarkHistory(b *testing.B) {
	path, _ := long(b, b.TempDir(), maxHistory)
	j := openSound(b, path, newHost().Moment)
	for _, limit := range []int{20, 0} {
		b.Run(fmt.Sprint("limit ", limit), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := j.History(time.Time{}, time.Time{}, limit)
				must(b, err)
			}
		})
	}
}
