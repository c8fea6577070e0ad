// Package bench measures the agent on a real host beside the straightforward way of getting the same answers, in one run, and prints the
// table of docs/benchmarks.md. It asserts nothing about time: machines are shared, so only ratios and counts are worth keeping.
package bench
