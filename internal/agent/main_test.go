package agent

import (
	"testing"

	"go.uber.org/goleak"
)

// A rotated log file has a goroutine that its package never ends: there is one for each such file, and a process has one file.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}
