// Package golden holds what tests get to files that people can read: texts, documents, the API. A change of such a file is seen in review.
package golden

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write what there is now to the files that tests compare with")

// Updating reports whether files are to be rewritten.
func Updating() bool { return *update }

// Check fails the test unless the file at path holds got. With -update it writes got there.
func Check(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; look at the difference and accept it with -update\n--- got\n%s\n--- want\n%s", path, got, want)
	}
}
