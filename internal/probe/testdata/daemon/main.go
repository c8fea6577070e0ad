// Daemon stands in for a kubelet or a containerd of any version: asked for --version it prints what stands behind its own end, so that the
// answer stays that of the very file that runs, whatever becomes of its name; "hang" there makes it say nothing for an hour. Without an argument it runs until its standard input ends.
package main

import (
	"bytes"
	"io"
	"os"
	"time"
)

const mark = "\n--says--\n"

func main() {
	if len(os.Args) != 2 || os.Args[1] != "--version" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		os.Exit(1)
	}
	says := self[bytes.LastIndex(self, []byte(mark))+len(mark):]
	if string(says) == "hang" {
		time.Sleep(time.Hour)
	}
	_, _ = os.Stdout.Write(says)
}
