// Package states proves on a real host, in each state that such a host can get into, that what the agent says is what the host's own tools
// say at the same moment; that nothing which hangs makes it hang; and that killing a writer never breaks the snapshot.
package states
