// Package agent is the loop that joins the rooms: it is woken by what happens, looks, keeps the snapshot, decides, lets one remedy run at
// a time, and says what it knows.
//
// Its three goals: it notices at once, it never hangs, it never acts on more than was seen. The loop is one goroutine that only computes;
// whatever may block (looks, the disk, the cluster, a remedy) is done by goroutines of its own that it outlives.
package agent
