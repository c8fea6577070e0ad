// Package status holds the snapshot: the one small JSON file in which a node
// says what runs on it and how well. Other programs import this package and
// read that file, so its exported names and its JSON are a contract; the test
// of testdata/api.txt holds both.
//
// The file half of the package has three goals:
//
//   - A reader never sees half a snapshot. Writers put a complete new file in
//     the old one's place and make it durable: write, fsync, rename, fsync of
//     the folder. Whatever fails before the rename leaves the old file whole.
//   - Writers don't lose each other's changes. [Update] is the only
//     read-modify-write; it and every other writer hold a lock file beside the
//     snapshot, so that processes take turns as goroutines do.
//   - A snapshot is not believed blindly. Reading is bounded, and in the folder
//     under /tmp, whose name anyone can guess, a file counts only when nobody
//     but this user or root can have put it there.
//
// The other half, the Collector, turns what the probes see into a snapshot.
//
// All functions here are safe for concurrent use by goroutines and processes.
package status
