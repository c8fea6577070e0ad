// Package parse turns the printed output of the node's tools (kubelet, containerd, runc and its kin, azcmagent) into plain values.
//
// Its goals: never take a line for something it is not, since "could not tell" does no harm and a wrong version or a wrong connection state
// does; hold for outputs that nobody has seen yet (warnings first, colours, CRLF, broken bytes, floods); and return only text that may be
// printed on a terminal. It reaches them by matching whole lines of a known shape, the first one winning, after one pass that makes the
// output harmless, and by treating versions as opaque text.
//
// Nothing here does I/O, keeps state or imports another package of this module; every function may be called from many goroutines.
// Every returned string is valid UTF-8 without control characters and of bounded length. A false second result means that nothing can be
// told from the output; the first result is then the zero value.
package parse
